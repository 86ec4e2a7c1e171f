"""Triggers and their conditions as declared."""

import datetime as dt
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.errors import DeclarationError, InvalidValueError
from lakechime_dagster.triggers.schedule import every, hours_of, tick
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


def test_the_hours_of_a_day_are_those_that_it_has() -> None:
    specs = {"day": tick("-1d"), "hour": hours_of(tick("-1d"), "America/New_York")}
    midnight = dt.datetime(2013, 3, 11, 4, tzinfo=dt.timezone.utc)
    assert len(asked(specs, point=midnight, zone="America/New_York")) == 23


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
