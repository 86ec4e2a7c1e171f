"""Triggers and their conditions as declared."""

import datetime as dt
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.errors import DeclarationError, InvalidValueError
from lakechime_dagster.triggers.schedule import (
    Schedule,
    Unit,
    every,
    from_milliseconds,
    hours_of,
    real_hours,
    tick,
    to_milliseconds,
)
from lakechime_dagster.triggers.triggers import (
    PartitionCondition,
    PartitionTrigger,
    SnapshotTrigger,
    TableName,
)

GRID = every(days=1, start="2013-01-02", until="2013-01-04")


LATER = dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc)


def keys(*conditions: PartitionCondition) -> list[str]:
    return [key.text for key in PartitionTrigger(conditions, GRID).keys(LATER)]


def on(table: str, **specs: object) -> PartitionCondition:
    return PartitionCondition.of(table, specs)


def test_a_key_is_the_values_of_the_levels_that_have_one() -> None:
    assert keys(on("a", day=tick("-1d"), hour=range(24))) == [
        "day=2013-01-01",
        "day=2013-01-02",
        "day=2013-01-03",
    ]


def test_keys_are_known_up_to_now_only() -> None:
    trigger = PartitionTrigger(on("a", day=tick("-1d")), GRID)
    assert [
        key.text for key in trigger.keys(dt.datetime(2013, 1, 3, 12, tzinfo=dt.timezone.utc))
    ] == ["day=2013-01-01", "day=2013-01-02"]


def test_a_key_that_is_longer_than_a_store_holds_is_refused_with_the_limit() -> None:
    specs = {f"level_{number}_{'n' * 90}": "v" for number in range(6)}
    with pytest.raises(
        InvalidValueError,
        match=r"partition key .*: has 605 characters; give at most 512: shorter names or values",
    ):
        keys(on("a", **specs))


def test_levels_of_one_name_that_differ_between_tables_are_distinguished_by_a_digest() -> None:
    first, second, third = keys(on("a", day=tick("-1d")), on("b", day=tick()))
    assert first.startswith("day=2013-01-01#")
    assert len({first, second, third}) == 3


def test_sets_that_change_with_the_tick_are_distinguished_by_a_digest() -> None:
    found = keys(on("a", hour=hours_of(tick("-1d"), "UTC"), day=[tick("-1d"), tick()]))
    assert len(set(found)) == 3
    assert all(key.startswith("#") for key in found)


def test_a_key_has_the_values_of_its_single_valued_levels_beside_sets_that_change() -> None:
    day = on("a", day=tick("-1d"), hour=hours_of(tick("-1d"), "America/New_York"))
    week = on("b", day=[tick("-1d"), tick("-7d")], region="eu")
    for key in PartitionTrigger([day, week], GRID).keys(LATER):
        assert dict(key.values) == {
            "day": str((key.point - dt.timedelta(days=1)).date()),
            "region": "eu",
        }


@pytest.mark.parametrize("where", ["yesterday", "", "42", "0-", "latest"])
def test_a_start_that_is_none_is_refused(where: str) -> None:
    with pytest.raises(InvalidValueError, match="start_from"):
        SnapshotTrigger("a", start_from=where)


def test_tables_may_be_names_or_declared_tables_and_default_to_the_inputs() -> None:
    assert SnapshotTrigger(TableName("a")).tables == ("a",)
    assert SnapshotTrigger(["a", TableName("b")]).tables == ("a", "b")
    assert SnapshotTrigger(tags={"k": "v"}).on(["x"]) == SnapshotTrigger("x", tags={"k": "v"})
    assert SnapshotTrigger("a").on(["x"]).tables == ("a",)


def test_what_is_no_trigger_is_refused_naming_the_field() -> None:
    with pytest.raises(DeclarationError, match="conditions: needs at least one"):
        PartitionTrigger([], GRID)
    with pytest.raises(DeclarationError, match="every: needs a start"):
        PartitionTrigger(on("a", day=tick()), every(days=1))
    with pytest.raises(DeclarationError, match="late: 'maybe' is none of ignore, refire"):
        PartitionTrigger(on("a", day=tick()), GRID, late="maybe")
    with pytest.raises(DeclarationError, match="max_in_flight: must be at least 1"):
        PartitionTrigger(on("a", day=tick()), GRID, max_in_flight=0)
    with pytest.raises(DeclarationError, match="max_wait: bounds wait_after_last or changed"):
        SnapshotTrigger("a", max_wait=dt.timedelta(hours=1))


LEVELS = PartitionLevels.of({"day": "date", "hour": "int"})


POINT = dt.datetime(2013, 1, 2, tzinfo=dt.timezone.utc)


def asked(
    specs: dict,
    levels: PartitionLevels | None = LEVELS,
    point: dt.datetime = POINT,
    zone: str = "UTC",
) -> list[str]:
    return [
        atom.canonical
        for atom in PartitionCondition.of("bronze.weather", specs, levels).atoms(point, zone)
    ]


def test_levels_are_typed_as_the_table_declares_them_and_stand_in_its_order() -> None:
    assert asked({"hour": "05", "day": tick("-1d")}) == ['["2013-01-01",5]']


def test_several_values_ask_for_every_combination() -> None:
    found = asked({"day": [tick("-1d"), tick()], "hour": range(3)})
    assert len(found) == 6
    assert found[0] == '["2013-01-01",0]'
    assert found[-1] == '["2013-01-02",2]'


def of_local_day(day: str, zone: str) -> list[str]:
    hours = hours_of(day, zone, utc=True)
    return asked({"day": hours, "hour": hours})


@pytest.mark.parametrize(
    ("day", "count", "first", "last"),
    [
        ("2013-03-09", 24, '["2013-03-09",5]', '["2013-03-10",4]'),
        ("2013-03-10", 23, '["2013-03-10",5]', '["2013-03-11",3]'),
        ("2013-11-03", 25, '["2013-11-03",4]', '["2013-11-04",4]'),
    ],
)
def test_a_local_day_lies_in_23_to_25_hours_of_utc(
    day: str, count: int, first: str, last: str
) -> None:
    found = of_local_day(day, "America/New_York")
    assert (len(found), found[0], found[-1]) == (count, first, last)


@given(
    st.dates(dt.date(1990, 1, 1), dt.date(2030, 1, 1)),
    st.sampled_from(
        ["America/Sao_Paulo", "America/Havana", "Asia/Kolkata", "Australia/Lord_Howe", "UTC"]
    ),
)
def test_each_moment_of_a_local_day_lies_in_one_of_its_hours_of_utc_and_no_hour_outside(
    day: dt.date, zone: str
) -> None:
    begin = dt.datetime.combine(day - dt.timedelta(1), dt.time(), dt.timezone.utc)
    minutes = (begin + n * dt.timedelta(minutes=10) for n in range(3 * 24 * 6))
    of_day = [one for one in minutes if one.astimezone(ZoneInfo(zone)).date() == day]
    labels = dict.fromkeys(f'["{one.date()}",{one.hour}]' for one in of_day)
    assert of_local_day(str(day), zone) == list(labels)


def test_the_key_of_a_local_day_in_utc_names_that_day() -> None:
    hours = hours_of(tick("-1d"), "America/New_York", utc=True)
    condition = PartitionCondition.of("a", {"day": hours, "hour": hours}, LEVELS)
    first, *rest = PartitionTrigger(
        condition, every(days=1, start="2013-03-11", until="2013-03-12", zone="America/New_York")
    ).keys(LATER)
    assert dict(first.values) == {"day": "2013-03-10"}
    assert len(first.atoms) == 23
    assert [dict(key.values)["day"] for key in rest] == ["2013-03-11"]


def test_hours_of_utc_need_levels_with_types() -> None:
    hours = hours_of("2013-03-10", "America/New_York", utc=True)
    with pytest.raises(DeclarationError, match="types of the levels"):
        PartitionCondition.of("a", {"day": hours, "hour": hours})


@pytest.mark.parametrize(
    ("spec", "canonicals"),
    [
        (True, ["[true]"]),
        (None, ["[null]"]),
        (Decimal("1.50"), ['["1.50"]']),
        ({"zone": "a", "region": "eu"}, ['[{"region":"eu","zone":"a"}]']),
        ([{"region": "eu"}, {"region": "us"}], ['[{"region":"eu"}]', '[{"region":"us"}]']),
        ([["a", "b"], "c"], ['[["a","b"]]', '["c"]']),
        ({"c", "a", "b"}, ['["a"]', '["b"]', '["c"]']),
    ],
)
def test_a_level_is_any_json_value_or_several(spec: object, canonicals: list[str]) -> None:
    assert asked({"where": spec}, None) == canonicals


@pytest.mark.parametrize(
    ("specs", "reported"),
    [
        (
            {"day": "2013-01-01"},
            "bronze.weather, partitions: needs a value for level 'hour'; its levels are day, hour",
        ),
        (
            {"day": 1, "hour": 1, "minute": 1},
            "bronze.weather, partitions: has no level 'minute'; its levels are day, hour",
        ),
        ({"day": "2013-01-01", "hour": []}, "is an empty list, which nothing can meet"),
    ],
)
def test_a_wrong_condition_names_table_and_level(specs: dict, reported: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        PartitionCondition.of("bronze.weather", specs, LEVELS)
    assert reported in str(refused.value)


@pytest.mark.parametrize("wrong", ["both", 0, 3, True])
def test_how_many_tables_must_change_is_checked(wrong: Any) -> None:
    with pytest.raises(
        DeclarationError, match=r"changed: .* is none of 'any', 'all', and a number"
    ):
        SnapshotTrigger(["a.b", "a.c"], changed=wrong)


def test_a_trigger_says_how_many_of_its_tables_must_change() -> None:
    shown = {
        changed: str(SnapshotTrigger(["a.b", "a.c", "a.d"], changed=changed))
        for changed in ("any", "all", 2)
    }
    assert shown == {
        "any": "a change of a.b or a.c or a.d, as events arrive",
        "all": "a change of a.b and a.c and a.d, as events arrive",
        2: "a change of 2 of a.b, a.c, a.d, as events arrive",
    }
    assert SnapshotTrigger(changed="all").on(["a.b", "a.c"]).needed == 2


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
