"""The rows of a table whose columns have values of several types: the same ones in whatever order
and executions messages arrive.
"""

import datetime as dt
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakechime_dagster.cdc import schema as ddl
from lakechime_dagster.cdc.canonical import text_of
from lakechime_dagster.cdc.change import Change, row_text
from lakechime_dagster.cdc.schema import evolved
from lakechime_dagster.cdc.spark_changes import conformed, python_value
from lakechime_dagster.cdc.values import single
from lakechime_dagster.tables.cdc import Drift
from tests.cdc.merge.lake import Lake, deletion, follow_in_time, upsert
from tests.cdc.oracle import rows_of

NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 500)
VALUES: dict[str, list[Any]] = {
    "tinyint": [1, -7],
    "int": [1, 0, 2**31 - 1],
    "bigint": [1, 2**60],
    "float": [1.0, single(0.1), float("inf")],
    "double": [1.0, 0.1, 1e300, -0.0, 2147483647.0],
    "decimal(10,2)": [Decimal("1.00"), Decimal("0.10"), Decimal("-1.50")],
    "decimal(12,4)": [Decimal("1.0000"), Decimal("0.0001"), Decimal("0.0000")],
    "boolean": [True, False],
    "string": ["1", "x", "[1]"],
    "binary": [b"\x00\xff"],
    "date": [dt.date(2024, 2, 29)],
    "timestamp_ntz": [dt.datetime(2024, 2, 29), NOON],
    "timestamp": [NOON.replace(tzinfo=dt.timezone.utc)],
    "array<int>": [[1, None], []],
    "array<double>": [[1.0, 0.5]],
    "array<string>": [["1", "é"]],
    "struct<`a`:int>": [{"a": 1}, {"a": None}],
    "struct<`a`:double,`b`:date>": [{"a": 1.0, "b": dt.date(2024, 2, 29)}, {"a": 1.0, "b": None}],
}
SIMPLE: dict[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", "UTC"),
}


def arrow(kind: ddl.Type) -> pa.DataType:
    match kind:
        case ddl.Simple(word):
            return SIMPLE[word]
        case ddl.DecimalType(whole, scale):
            return pa.decimal128(whole + scale, scale)
        case ddl.Array(items):
            return pa.list_(arrow(items))
        case ddl.Struct(fields):
            return pa.struct([(name, arrow(inner)) for name, inner in fields.items()])
        case ddl.Map():
            raise NotImplementedError


def stored(row: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """A row as a table of these columns holds it."""
    kinds = {name: arrow(ddl.parsed(one)) for name, one in columns.items()}
    return {
        name: python_value(pa.array([conformed(row.get(name), kind)], kind)[0].as_py(), kind)
        for name, kind in kinds.items()
    }


@dataclass
class TypedLake:
    """A table whose columns change with the types that messages bring."""

    types: Mapping[int, str]  # of the value in the message at a position
    lake: Lake = field(default_factory=Lake)
    columns: Mapping[str, str] = field(default_factory=dict)

    def execute(self, changes: Sequence[Change]) -> None:
        seen = [
            {"value": self.types[change.order.position[0]]}
            for change in changes
            if change.operation.is_upsert
        ]
        self.columns = evolved(self.columns, seen, Drift.LENIENT).columns
        self.lake.execute(changes)
        self.lake.targets = {
            key: (reported._replace(columns=row_text(row)), row)
            for key, (reported, found) in self.lake.targets.items()
            for row in [stored(found, self.columns)]
        }

    def collect(self, low_watermark: Any) -> None:
        self.lake.collect(low_watermark)


@given(seed=st.integers(0, 2**32), length=st.integers(1, 10), lateness=st.integers(0, 3))
@settings(max_examples=500)
def test_rows_depend_on_no_order_and_no_split_where_types_conflict(
    seed: int, length: int, lateness: int
) -> None:
    dice = random.Random(seed)
    some = dice.sample(list(VALUES), 3)
    types = {position: dice.choice(some) for position in range(1, length + 1)}
    changes: list[Change] = []
    for position, kind in types.items():
        key = (dice.randrange(3),)
        is_gone = dice.random() < 0.2
        changes.append(
            deletion(position, key)
            if is_gone
            else upsert(position, key, columns={"value": dice.choice(VALUES[kind])})
        )
    columns = evolved(
        {},
        [{"value": types[one.order.position[0]]} for one in changes if one.operation.is_upsert],
        Drift.LENIENT,
    ).columns
    table = TypedLake(types)
    follow_in_time(table, changes, lateness, dice)
    assert table.columns == columns
    assert table.lake.rows == {
        key: stored(row, columns) for key, row in rows_of(changes, ("value",)).items()
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "x"),
        (True, "true"),
        (-3, "-3"),
        (2147483647.0, "2147483647"),
        (0.1, "0.1"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (Decimal("1.500"), "1.5"),
        (Decimal("100"), "100"),
        (Decimal("-0.00"), "0"),
        (dt.date(2024, 2, 29), "2024-02-29"),
        (dt.datetime(2024, 2, 29), "2024-02-29"),
        (NOON, "2024-02-29 12:00:00.000500"),
        (
            NOON.replace(tzinfo=dt.timezone(dt.timedelta(hours=2))),
            "2024-02-29 10:00:00.000500+00:00",
        ),
        (b"\x00\xff", "00ff"),
        (
            {"b": [1.0, "é", None, Decimal("0.50")], "a": None, "at": dt.date(2024, 2, 29)},
            '{"at":"2024-02-29","b":[1,"é",null,0.5]}',
        ),
    ],
)
def test_values_that_a_wider_type_makes_equal_have_one_text(value: Any, text: str) -> None:
    assert text_of(value) == text
