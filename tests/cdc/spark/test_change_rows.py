"""Values of narrower types become those of a table's column, and late changes are counted."""

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest

from lakechime_dagster.cdc.change import Change
from lakechime_dagster.cdc.merge import Window, merged
from lakechime_dagster.cdc.spark_changes import Merging, What, conformed
from lakechime_dagster.cdc.state import Role, StateRow, base_row, change_row
from lakechime_dagster.spark.session import record_batches
from lakechime_dagster.tables.names import HIDDEN
from lakechime_dagster.triggers.consumers import HOUR_MS
from tests.cdc.merge.lake import deletion, upsert

MONEY, TEXT = pa.decimal128(12, 2), pa.string()
STATE = [
    (name, pa.int64() if name in ("transaction", "ts_ms") else TEXT) for name in StateRow._fields
]
COORDINATES = [("topic", TEXT), ("partition", pa.int32()), ("offset", pa.int64())]


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
def test_a_value_of_a_narrower_type_is_one_of_the_wider(
    value: Any, kind: pa.DataType, expected: Any
) -> None:
    found = conformed(value, kind)
    assert (found, type(found)) == (expected, type(expected))


def change(position: int, hour: int, key: int = 1, name: str = "a") -> Change:
    """A change of a row at a position of its database's log, in the middle of an hour."""
    return upsert(
        position, (key,), columns={"id": key, "name": name}, event_ms=hour * HOUR_MS + HOUR_MS // 2
    )


def late(known: list[Change], reported: list[Change]) -> dict[str, int]:
    """The late changes by hour of one execution, before which the hours up to nine were complete,
    and it was a quarter past.
    """
    before = [one for one in merged({}, known, {}, {}).keys if one.after is not None]
    state = [
        *map(change_row, known),
        *(
            base_row(one.key, Window(source=one.source, base=one.row_state), Role.TARGET)
            for one in before
        ),
    ]
    rows = [
        (row.key, *row, is_new, None, None, None)
        for is_new, of in ((False, state), (True, map(change_row, reported)))
        for row in of
    ]
    row = pa.struct([("id", pa.int64()), ("name", TEXT), (HIDDEN, TEXT)])
    out = pa.schema(
        [
            ("what", TEXT),
            ("operation", TEXT),
            ("row", row),
            *STATE,
            *COORDINATES,
            ("reason", TEXT),
            ("count", pa.int64()),
        ]
    )
    grouped = pa.schema([("group", TEXT), *STATE, ("is_new", pa.bool_()), *COORDINATES])
    merging = Merging(out=out, keys=("id",), truncated={}, complete_ms=10 * HOUR_MS + HOUR_MS // 4)
    found = pa.Table.from_batches(
        merging(record_batches(sorted(rows, key=itemgetter(0)), grouped))
    ).to_pylist()
    return {row["operation"]: row["count"] for row in found if row["what"] == What.LATE}


@pytest.mark.parametrize(
    ("known", "reported", "hours"),
    [
        ([], [change(1, 5), change(2, 6, key=2), change(3, 6, key=3)], {"5": 1, "6": 2}),
        ([], [change(1, 9)], {"9": 1}),
        ([], [change(1, 10), change(2, 12, key=2)], {}),
        ([], [replace(change(1, 5), event_ms=None), replace(change(2, 5, key=2), event_ms=0)], {}),
        ([], [change(1, 5), change(2, 12)], {"5": 1}),
        ([change(1, 5)], [change(1, 5)], {}),
        ([change(3, 12)], [change(1, 5)], {}),
        ([change(3, 12)], [change(1, 5), change(4, 12)], {}),
        ([], [replace(deletion(1), event_ms=5 * HOUR_MS)], {}),
        ([change(1, 4)], [replace(deletion(2), event_ms=5 * HOUR_MS)], {"5": 1}),
    ],
    ids=[
        "by hour",
        "last complete hour",
        "hours that are not complete",
        "without a time",
        "folded into a newer one",
        "delivered again",
        "stale",
        "stale beside a newer one",
        "deletion of no row",
        "deletion",
    ],
)
def test_the_changes_of_complete_hours_that_change_rows_are_counted_by_hour(
    known: list[Change], reported: list[Change], hours: dict[str, int]
) -> None:
    assert late(known, reported) == hours
