"""Schedules: ticks, and offsets of partition values from them."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.triggers.schedule import (
    Schedule,
    Unit,
    every,
    from_milliseconds,
    real_hours,
    tick,
    to_milliseconds,
)

NEW_YORK = ZoneInfo("America/New_York")


starts = st.datetimes(dt.datetime(2012, 1, 1), dt.datetime(2014, 1, 1)).map(
    lambda moment: moment.replace(second=0, microsecond=0)
)


schedules = st.builds(
    lambda unit, frequency, start, days, zone: Schedule(
        unit=unit,
        frequency=frequency,
        start=start,
        until=None if days is None else start + dt.timedelta(days=days),
        zone=zone,
    ),
    st.sampled_from(Unit),
    st.integers(1, 90),
    starts,
    st.one_of(st.none(), st.integers(0, 400)),
    st.sampled_from(["UTC", "America/New_York", "Asia/Kolkata", "Pacific/Apia"]),
)


moments = st.datetimes(dt.datetime(2011, 12, 1), dt.datetime(2014, 6, 1)).map(
    lambda moment: moment.replace(tzinfo=dt.timezone.utc)
)


def until_of(schedule: Schedule) -> dt.datetime | None:
    return (
        schedule.until.replace(tzinfo=ZoneInfo(schedule.zone)).astimezone(dt.timezone.utc)
        if schedule.until
        else None
    )


@settings(deadline=None)
@given(schedules, moments)
def test_the_last_point_is_the_newest_one_up_to_now_and_until(
    schedule: Schedule, now: dt.datetime
) -> None:
    number, until = schedule.last_number(now), until_of(schedule)
    bound = min(now, until) if until else now
    assert number == -1 or schedule.first <= schedule.point(number) <= bound
    assert schedule.point(number + 1) > bound
    assert schedule.last(now) == (schedule.point(number) if number >= 0 else None)


@settings(deadline=None)
@given(schedules, moments)
def test_the_next_point_comes_right_after_the_last_one_and_never_after_until(
    schedule: Schedule, now: dt.datetime
) -> None:
    upcoming, until = schedule.next(now), until_of(schedule)
    assert upcoming is None or upcoming > now or (until is not None and now > until)
    assert upcoming is None or until is None or upcoming <= until
    if upcoming is not None:
        assert schedule.last(upcoming) == upcoming


@settings(deadline=None, max_examples=30)
@given(schedules.filter(lambda one: one.unit is not Unit.MINUTES), moments)
def test_points_are_rising_and_end_with_the_last_one(schedule: Schedule, now: dt.datetime) -> None:
    points = list(schedule.points(now))
    assert points == sorted(set(points))
    assert (points[-1] if points else None) == schedule.last(now)


@settings(deadline=None)
@given(starts, st.integers(1, 30), st.integers(0, 60))
def test_days_keep_the_wall_clock_of_their_start_across_the_change_of_clocks(
    start: dt.datetime, frequency: int, number: int
) -> None:
    schedule = Schedule(unit=Unit.DAYS, frequency=frequency, start=start, zone="America/New_York")
    local = schedule.point(number).astimezone(NEW_YORK)
    planned = start + dt.timedelta(days=number * frequency)
    skipped = (planned.month, planned.hour) == (3, 2) and planned.day in range(8, 15)
    assert local.date() == planned.date()
    assert (local.hour, local.minute) == (planned.hour + skipped * (local.hour - 2), planned.minute)


@pytest.mark.parametrize(
    ("day", "hours"), [("2013-03-10", 23), ("2013-03-11", 24), ("2013-11-03", 25)]
)
def test_a_day_has_as_many_hourly_points_as_hours(day: str, hours: int) -> None:
    schedule = every(hours=1, start=day, zone="America/New_York")
    midnight = dt.datetime.combine(
        dt.date.fromisoformat(day) + dt.timedelta(days=1), dt.time(), NEW_YORK
    )
    assert len(list(schedule.points(midnight - dt.timedelta(seconds=1)))) == hours


def test_start_and_until_are_both_points() -> None:
    schedule = every(days=1, start="2013-01-02", until="2013-01-04")
    late = dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc)
    assert [point.day for point in schedule.points(late)] == [2, 3, 4]
    assert schedule.next(late) is None


def test_a_time_with_an_offset_is_taken_to_the_zone_of_the_schedule() -> None:
    assert every(
        hours=1, start="2013-01-02T05:00+00:00", zone="America/New_York"
    ).start == dt.datetime(2013, 1, 2)


@given(st.integers(0, 253_402_300_799_999))
def test_milliseconds_survive_the_way_through_a_datetime(milliseconds: int) -> None:
    assert abs(to_milliseconds(from_milliseconds(milliseconds)) - milliseconds) <= 1


@pytest.mark.parametrize(
    ("wrong", "reported"),
    [
        ({}, "exactly one of minutes, hours, days"),
        ({"minutes": 1, "hours": 1}, "exactly one of"),
        ({"minutes": 0}, "minutes 0: is not a positive whole number"),
        ({"hours": True}, "is not a positive whole number"),
        ({"days": 1, "start": "2013-13-01"}, "start '2013-13-01': is not a date or time"),
        ({"days": 1, "start": "2013-01-02", "until": "2013-01-01"}, "is before start"),
        ({"days": 1, "zone": "Mars/Olympus"}, "zone 'Mars/Olympus': is not a time zone"),
    ],
)
def test_what_is_no_schedule_is_refused_with_the_remedy(wrong: dict, reported: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        every(**wrong)
    assert reported in str(refused.value)


ZONE = "America/New_York"


def at(text: str, zone: str = ZONE) -> dt.datetime:
    return (
        dt.datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).astimezone(dt.timezone.utc)
    )


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


@pytest.mark.parametrize(
    "day", ["2024-03-10", "2024-04-07", "2024-07-01", "2024-10-06", "2024-11-03"]
)
@pytest.mark.parametrize(
    "zone", ["UTC", ZONE, "America/Havana", "Asia/Kathmandu", "Australia/Lord_Howe"]
)
def test_the_hours_of_a_day_are_those_that_its_minutes_show(day: str, zone: str) -> None:
    midnight = at(f"{day}T00:00", zone)
    minutes = [
        (midnight + dt.timedelta(minutes=n)).astimezone(ZoneInfo(zone)) for n in range(26 * 60)
    ]
    assert set(real_hours(dt.date.fromisoformat(day), zone)) == {
        moment.hour for moment in minutes if f"{moment:%Y-%m-%d}" == day
    }
