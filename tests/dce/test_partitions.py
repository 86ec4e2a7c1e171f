"""Partition values compare by the types of their levels, through one canonical text."""

import datetime as dt
import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.dce.partitions import (
    LevelType,
    PartitionLevels,
    PartitionValue,
    canonical_partition,
    checked_partition,
    fitting_canonical,
    typed_value,
)
from lakechime_dagster.errors import InvalidValueError
from tests.dce.strategies import partitions

TYPED = {
    LevelType.STRING: st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20),
    LevelType.INT: st.one_of(
        st.integers(), st.integers().map(str), st.integers(-(10**9), 10**9).map(float)
    ),
    LevelType.DATE: st.one_of(st.dates(), st.dates().map(dt.date.isoformat)),
    LevelType.TIMESTAMP: st.one_of(st.datetimes(), st.datetimes().map(dt.datetime.isoformat)),
    LevelType.BOOLEAN: st.sampled_from([True, False, "true", "False"]),
    LevelType.DECIMAL: st.decimals(-(10**20), 10**20, allow_nan=False, places=6).map(str),
}


@given(partitions)
def test_canonical_text_read_back_gives_itself_again(
    partition: list[PartitionValue] | None,
) -> None:
    checked = checked_partition(partition)
    text = canonical_partition(checked)

    assert (
        text == ""
        if checked is None
        else canonical_partition(checked_partition(json.loads(text))) == text
    )


@given(st.data())
def test_canonical_text_of_typed_levels_is_idempotent(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(LevelType))
    levels = PartitionLevels(("level",), (kind,))
    value = data.draw(TYPED[kind])
    text = canonical_partition(checked_partition([value]), levels)

    assert canonical_partition(checked_partition(json.loads(text)), levels) == text


@pytest.mark.parametrize(
    ("kind", "same"),
    [
        ("int", [5, "5", "05", " 5", "+5", 5.0]),
        ("date", ["2013-01-01", dt.date(2013, 1, 1), "20130101"]),
        (
            "timestamp",
            [
                "2013-01-01 05:00:00",
                "2013-01-01T05:00",
                "2013-01-01T06:00:00+01:00",
                "2013-01-01 05:00:00.000",
            ],
        ),
        ("boolean", [True, "true", "TRUE"]),
        ("decimal", ["1.50", Decimal("1.5"), "1.500", 1.5, "15e-1"]),
        ("string", ["5", 5]),
    ],
)
def test_spellings_of_one_typed_value_are_one(kind: str, same: list[PartitionValue]) -> None:
    levels = PartitionLevels.of({"level": kind})

    assert len({canonical_partition(checked_partition([value]), levels) for value in same}) == 1


@pytest.mark.parametrize(
    "value", ["123456789012345678901234567890.12345678", "-0.00", "1e3", "0E+5"]
)
def test_decimals_keep_every_digit(value: str) -> None:
    assert Decimal(typed_value("level", value, LevelType.DECIMAL)) == Decimal(value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", "five"),
        ("int", 5.5),
        ("int", True),
        ("int", "٥"),
        ("int", ""),
        ("date", "2013-13-01"),
        ("date", 20130101),
        ("timestamp", "noon"),
        ("boolean", 1),
        ("decimal", "NaN"),
        ("decimal", "1e999999999"),
        ("decimal", True),
    ],
)
def test_a_value_that_its_level_cannot_hold_is_refused_by_name(
    kind: str, value: PartitionValue
) -> None:
    with pytest.raises(InvalidValueError, match="'level'"):
        canonical_partition((value,), PartitionLevels.of({"level": kind}))


def test_what_does_not_fit_levels_declared_later_stays_as_it_was_sent() -> None:
    levels = PartitionLevels.of({"hour": "int"})

    assert fitting_canonical(("05",), levels) == "[5]"
    assert fitting_canonical(("five",), levels) == '["five"]'
    assert fitting_canonical(None, levels) == ""


def test_null_is_a_value_of_every_type() -> None:
    assert {typed_value("level", None, kind) for kind in LevelType} == {None}
