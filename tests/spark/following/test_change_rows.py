"""Values of another type become those of a table's column, or none."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakechime_dagster.spark.following.change_rows import cast, conformed

MONEY = pa.decimal128(12, 2)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (" 1.5", MONEY, Decimal("1.50")),
        ("1e2", MONEY, Decimal("100.00")),
        ("1.555", MONEY, None),
        ("abc", MONEY, None),
        (" 1.5", pa.float64(), 1.5),
        ("7", pa.int64(), 7),
        (7, pa.string(), "7"),
        (None, MONEY, None),
    ],
)
def test_a_value_of_any_type_becomes_one_of_the_column_or_null(value: Any, kind: pa.DataType, expected: Any) -> None:
    assert cast(value, kind) == expected


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (3, MONEY, Decimal(3)),
        (3, pa.float64(), 3.0),
        (dt.date(2013, 1, 2), pa.timestamp("us"), dt.datetime(2013, 1, 2)),
        ("a", pa.string(), "a"),
    ],
)
def test_a_value_of_a_narrower_type_is_one_of_the_wider(value: Any, kind: pa.DataType, expected: Any) -> None:
    found = conformed(value, kind)
    assert (found, type(found)) == (expected, type(expected))
