"""Values of narrower types become those of a table's column."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakechime_dagster.spark.following.change_rows import conformed

MONEY = pa.decimal128(12, 2)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (3, MONEY, Decimal(3)),
        (3, pa.float64(), 3.0),
        (dt.date(2013, 1, 2), pa.timestamp("us"), dt.datetime(2013, 1, 2)),
        ("a", pa.string(), "a"),
        (7, pa.string(), "7"),
        (None, MONEY, None),
    ],
)
def test_a_value_of_a_narrower_type_is_one_of_the_wider(value: Any, kind: pa.DataType, expected: Any) -> None:
    found = conformed(value, kind)
    assert (found, type(found)) == (expected, type(expected))
