"""Partition conditions: which partitions they ask for, and what a wrong one is told."""

import datetime as dt
from decimal import Decimal

import pytest

from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.errors import DeclarationError, InvalidValueError
from lakechime_dagster.triggers.conditions import PartitionCondition
from lakechime_dagster.triggers.schedule import hours_of, tick

LEVELS = PartitionLevels.of({"day": "date", "hour": "int"})
POINT = dt.datetime(2013, 1, 2, tzinfo=dt.timezone.utc)


def asked(specs: dict, levels: PartitionLevels | None = LEVELS, point: dt.datetime = POINT, zone: str = "UTC") -> list[str]:
    return [atom.canonical for atom in PartitionCondition.of("bronze.weather", specs, levels).atoms(point, zone)]


def test_levels_are_typed_as_the_table_declares_them_and_stand_in_its_order() -> None:
    assert asked({"hour": "05", "day": tick("-1d")}) == ['["2013-01-01",5]']


def test_several_values_ask_for_every_combination() -> None:
    found = asked({"day": [tick("-1d"), tick()], "hour": range(3)})
    assert len(found) == 6
    assert found[0] == '["2013-01-01",0]'
    assert found[-1] == '["2013-01-02",2]'


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
    ("specs", "told"),
    [
        ({"day": "2013-01-01"}, "bronze.weather, partitions: needs a value for level 'hour'; its levels are day, hour"),
        ({"day": 1, "hour": 1, "minute": 1}, "bronze.weather, partitions: has no level 'minute'; its levels are day, hour"),
        ({"day": "2013-01-01", "hour": []}, "is an empty list, which nothing can meet"),
    ],
)
def test_a_wrong_condition_names_table_and_level(specs: dict, told: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        PartitionCondition.of("bronze.weather", specs, LEVELS)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("literal", "told"),
    [
        ("a\x00b", "bronze.weather.day 'a\\x00b': holds a control character; remove it"),
        ("a\udc80", "bronze.weather.day 'a\\udc80': holds half of a surrogate pair; encode it as UTF-8"),
        (object, "bronze.weather.day <class 'object'>: is a type; send a JSON value"),
        (float("nan"), "bronze.weather.day nan: is not a JSON number; send a finite number or text"),
        (b"ab", "bronze.weather.day b'ab': is a bytes; send a JSON value"),
    ],
)
def test_a_literal_that_no_event_can_have_is_refused_where_it_is_declared(literal: object, told: str) -> None:
    for spec in (literal, ["b", literal]):
        with pytest.raises(InvalidValueError) as refused:
            PartitionCondition.of("bronze.weather", {"day": spec})
        assert str(refused.value) == told
