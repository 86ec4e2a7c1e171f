"""Values of the tick: calendar offsets, and the hours that a day really has."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest

from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.triggers.schedule import real_hours, tick

ZONE = "America/New_York"


def at(text: str, zone: str = ZONE) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).astimezone(dt.timezone.utc)


@pytest.mark.parametrize(
    ("offset", "point", "expected"),
    [
        ("", "2013-05-05T06:00", "2013-05-05 06:00"),
        ("-1d", "2013-03-11T06:00", "2013-03-10 06:00"),  # the day between has 23 hours
        ("-1d", "2013-11-04T06:00", "2013-11-03 06:00"),  # 25 hours
        ("-24h", "2013-03-11T00:00", "2013-03-09 23:00"),  # elapsed time
        ("+2h", "2013-03-10T01:00", "2013-03-10 04:00"),
        ("-1h", "2013-11-03T00:00", "2013-11-02 23:00"),
        ("-1mo", "2013-03-31T00:00", "2013-02-28 00:00"),
        ("+1y", "2012-02-29T00:00", "2013-02-28 00:00"),
        ("-1w -1h", "2013-01-08T00:00", "2012-12-31 23:00"),
        ("-90m", "2013-01-01T01:00", "2012-12-31 23:30"),
    ],
)
def test_offsets_are_of_the_calendar_of_the_zone(offset: str, point: str, expected: str) -> None:
    assert f"{tick(offset).local(at(point), ZONE):%Y-%m-%d %H:%M}" == expected


@pytest.mark.parametrize("wrong", ["yesterday", "1", "-1 day", "1d2", "-1x"])
def test_what_is_no_offset_is_refused_with_examples(wrong: str) -> None:
    with pytest.raises(InvalidValueError, match="is not an offset; write such as -1d"):
        tick(wrong)


@pytest.mark.parametrize("day", ["2024-03-10", "2024-04-07", "2024-07-01", "2024-10-06", "2024-11-03"])
@pytest.mark.parametrize("zone", ["UTC", ZONE, "America/Havana", "Asia/Kathmandu", "Australia/Lord_Howe"])
def test_the_hours_of_a_day_are_those_that_its_minutes_show(day: str, zone: str) -> None:
    midnight = at(f"{day}T00:00", zone)
    minutes = [(midnight + dt.timedelta(minutes=n)).astimezone(ZoneInfo(zone)) for n in range(26 * 60)]
    assert set(real_hours(dt.date.fromisoformat(day), zone)) == {moment.hour for moment in minutes if f"{moment:%Y-%m-%d}" == day}
