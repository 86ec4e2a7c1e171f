"""A complete snapshot speaks for its whole table; one that is not complete speaks for its rows
alone.
"""

import pytest

from lakechime_dagster.cdc.change import BEFORE_READ, READ, UPSERT, Change, Operation, Order
from lakechime_dagster.cdc.state import completed_in
from tests.cdc.merge.lake import kept_of, rows_in


def read(position: int, key: int, mark: str, source: str = "s") -> Change:
    order = Order(position=(position,), rank=READ, offset=key)
    return Change(
        source=source,
        operation=Operation.READ,
        order=order,
        key=(key,),
        columns={"id": key},
        snapshot=mark,
    )


WHOLE = [read(5, 1, "first"), read(5, 2, "true"), read(5, 3, "last_in_data_collection")]


def test_a_snapshot_whose_ends_are_there_is_a_truncation_below_its_rows() -> None:
    assert completed_in(reversed(WHOLE)) == [
        Change(
            source="s", operation=Operation.TRUNCATE, order=Order(position=(5,), rank=BEFORE_READ)
        )
    ]


@pytest.mark.parametrize("missing", [0, 2])
def test_a_snapshot_of_which_an_end_is_missing_says_nothing_of_rows_that_it_lacks(
    missing: int,
) -> None:
    assert completed_in(one for index, one in enumerate(WHOLE) if index != missing) == []


def test_ends_of_two_snapshots_or_of_two_tables_are_not_those_of_one() -> None:
    apart = [
        read(5, 1, "first"),
        read(6, 1, "last"),
        read(7, 1, "first", "s"),
        read(7, 1, "last", "t"),
    ]
    assert completed_in(apart) == []


def test_what_streams_or_is_read_incrementally_ends_no_snapshot() -> None:
    streamed = Change(
        source="s",
        operation=Operation.UPDATE,
        order=Order(position=(5,), rank=UPSERT),
        key=(1,),
        snapshot="last",
    )
    assert completed_in([read(5, 1, "first"), streamed, read(5, 2, "incremental")]) == []


def test_a_row_that_a_complete_snapshot_lacks_is_gone_and_what_came_after_it_stays() -> None:
    before = [read(1, key, "true") for key in (1, 2, 3, 4)]
    after = [
        Change(
            source="s",
            operation=Operation.CREATE,
            order=Order(position=(6,), rank=UPSERT),
            key=(9,),
            columns={"id": 9},
        )
    ]
    complete = completed_in([*before, *WHOLE, *after])
    kept = kept_of([*after, *complete, *WHOLE, *before])
    assert rows_in(kept).keys() == {(1,), (2,), (3,), (9,)}
