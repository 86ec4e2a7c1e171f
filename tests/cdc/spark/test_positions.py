"""A look at what messages report finds the same in whatever batches they come."""

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.cdc.change import UPSERT, Change, Operation, Order, Position
from lakechime_dagster.cdc.spark_parse import Look, Looked, looked_at
from lakechime_dagster.cdc.spark_remembered import Seen, position_row
from lakechime_dagster.cdc.state import StateRow, change_row
from lakechime_dagster.spark.session import Batches, record_batches

NUMBERS = ("transaction", "ts_ms")
NAMES = ("outcome", *StateRow._fields, "schema", "types", "defaults")
LOOKED = pa.schema([(name, pa.int64() if name in NUMBERS else pa.string()) for name in NAMES])
PART = pa.schema([("part", pa.string()), ("reported", pa.string())])
NOTHING_KNOWN = Seen()
Reported = tuple[str | int | None, ...]
LINE = ("shop", "orders", 0)
CHANGES = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 5)),
    min_size=1,
    max_size=12,
    unique_by=lambda one: one[0],
)


def reported(offset: int, position: int, key: int = 1, snapshot: str | None = None) -> Reported:
    """A change of `looking.LOOKED_DDL`."""
    order = Order(position=(position,), rank=UPSERT, topic="orders", partition=0, offset=offset)
    change = Change(
        source="shop",
        operation=Operation.UPDATE,
        order=order,
        key=(key,),
        event_ms=1000 + offset,
        snapshot=snapshot,
    )
    return None, *change_row(change)._replace(columns=None), "s1", None, None


def look(rows: list[Reported], parts: int = 1, before: Seen = NOTHING_KNOWN) -> Looked:
    def batches(part: list[Reported]) -> Batches:
        return record_batches(part, LOOKED)

    at = Look(PART, before.offsets)
    size = -(-len(rows) // parts)
    found = [batch for i in range(0, len(rows), size) for batch in at(batches(rows[i : i + size]))]
    return looked_at(
        [tuple(row.values()) for row in pa.Table.from_batches(found).to_pylist()], before
    )


@given(CHANGES, st.integers(1, 5))
def test_of_changes_in_the_order_of_their_offsets_any_batches_report_the_same(
    changes: list[tuple[int, int]], parts: int
):
    rows = [reported(offset, position) for offset, position in sorted(changes)]
    assert look(rows, parts) == look(rows)


@given(CHANGES, st.integers(1, 5))
def test_a_line_that_goes_back_is_never_taken_for_one_that_does_not(
    changes: list[tuple[int, int]], parts: int
):
    came = look([reported(*change) for change in changes], parts).lines[LINE]
    goes_back = any(one > other for (_, one), (_, other) in pairwise(sorted(changes)))
    assert came.may_go_back or not goes_back
    assert (came.newest, came.offset) == (
        (max(position for _, position in changes),),
        max(offset for offset, _ in changes),
    )


def test_what_was_read_before_is_not_compared_with_where_the_line_had_come():
    position: Position = (7,)
    before = Seen(positions=(position_row("shop", ("orders", 0), (0, position), 10, None),))
    assert not look([reported(10, 5)], before=before).lines[LINE].may_go_back
    assert look([reported(11, 5)], before=before).lines[LINE].may_go_back
    assert not look([reported(11, 7)], before=before).lines[LINE].may_go_back
