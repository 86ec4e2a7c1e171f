"""Rows of a Delta table for a person: found by their values, whatever their types."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakechime_dagster.formats.delta import DeltaLog
from lakechime_dagster.formats.delta_rows import DeltaRows, column, known, row_is, texts

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("i", pa.int32()),
        ("s", pa.int16()),
        ("b", pa.int8()),
        ("f", pa.float32()),
        ("g", pa.float64()),
        ('odd `" name', pa.string()),
        ("is", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("wall", pa.timestamp("us")),
        ("amount", pa.decimal128(12, 3)),
        ("raw", pa.binary()),
    ]
)
NOON = dt.datetime(2024, 5, 1, 12, 0, 0, 1)
ROW: dict[str, Any] = {
    "n": 2**60,
    "i": -5,
    "s": 7,
    "b": 1,
    "f": 0.5,
    "g": 1e300,
    'odd `" name': "it's \\ odd",
    "is": True,
    "day": NOON.date(),
    "at": NOON.replace(tzinfo=dt.timezone.utc),
    "wall": NOON,
    "amount": Decimal("1.200"),
    "raw": b"\x00\xff",
}


@pytest.fixture
def rows(tmp_path: Path) -> DeltaRows:
    write_deltalake(str(tmp_path / "t"), pa.Table.from_pylist([ROW, dict.fromkeys(SCHEMA.names)], schema=SCHEMA))
    return DeltaRows(DeltaLog(str(tmp_path / "t"), "shop.t"))


@pytest.mark.parametrize("name", SCHEMA.names)
def test_a_row_is_found_by_the_value_of_a_column_of_any_type(rows: DeltaRows, name: str) -> None:
    (found,) = rows.select("i", where=row_is({name: ROW[name]}, rows.types()))
    assert found == {"i": -5}


def test_rows_are_counted_ordered_and_cut(rows: DeltaRows) -> None:
    assert (rows.count(), rows.count(known("n")), rows.count(texts('odd `" name', "a", "it's \\ odd"))) == (2, 1, 1)
    assert [row["i"] for row in rows.select("i", where=(column("i").eq(-5),), newest=("n",), limit=1)] == [-5]
