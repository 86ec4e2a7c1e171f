"""The history of each key is that of the oracle, for any order and any split of the same changes;
its open rows are the table.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from lakechime_dagster.cdc.change import DELETE, READ, Change, Key, Order
from lakechime_dagster.cdc.history import TrackHistory
from lakechime_dagster.cdc.merge import event_of
from tests.cdc.merge.lake import (
    COLUMNS,
    LENGTHS,
    SEEDS,
    Lake,
    at,
    changes_made,
    deletion,
    delivered_again,
    follow_in_parts,
    follow_in_time,
    reported,
    upsert,
    within,
)
from tests.cdc.oracle import histories_of, rows_of

TRACK_ALL = TrackHistory()
TRACKS = st.sampled_from(
    [
        TRACK_ALL,
        TrackHistory(column_list=frozenset("a")),
        TrackHistory(except_column_list=frozenset("a")),
    ]
)
Versions = dict[Key, list[tuple[object, ...]]]


def timed(changes: Sequence[Change]) -> list[Change]:
    """As messages report them, with times, which are no order."""
    return [replace(reported(one), event_ms=10 * (one.order.position[0] % 5)) for one in changes]


def a_table(track: TrackHistory = TRACK_ALL) -> Lake:
    return Lake(track=track)


def versions(lake: Lake) -> Versions:
    """Of each key the rows, whichever of a change that came twice came first."""
    return {
        key: [(row.columns, *_events(row.span)) for row in rows]
        for key, rows in lake.versions.items()
        if rows
    }


def _events(span: Sequence[Any]) -> list[object]:
    return [event_of(one) if isinstance(one, Order) else one for one in span]


def spans(lake: Lake, key: Key = (1,)) -> list[tuple[object, ...]]:
    """By position, and the value of one column."""
    return [
        (row.columns["a"], row.span.start_seq.position[0], end and end.position[0])
        for row in lake.versions[key]
        for end in [row.span.end_seq]
    ]


def oracle(changes: Sequence[Change], track: TrackHistory) -> Versions:
    found = histories_of(changes, COLUMNS, [name for name in COLUMNS if name in track])
    return {
        key: [
            (row.columns, *_events([getattr(row, one.name) for one in fields(row)][1:]))
            for row in versions
        ]
        for key, versions in found.items()
        if versions
    }


@given(seed=SEEDS, length=LENGTHS, track=TRACKS)
def test_any_order_and_any_split_of_the_changes_gives_the_same_histories(
    seed: int, length: int, track: TrackHistory
) -> None:
    dice = random.Random(seed)
    changes = timed(changes_made(dice, length))
    again = delivered_again(changes, 0.3, dice)
    shuffled = dice.sample([*changes, *again], len(changes) + len(again))
    table = a_table(track)
    follow_in_parts(table, shuffled, dice)
    assert versions(table) == oracle(changes, track)
    assert table.rows == rows_of(changes, COLUMNS)
    assert not table.refused


@example(seed=11600, length=8, lateness=3, track=TRACK_ALL)  # a change from below a truncation
@given(seed=SEEDS, length=LENGTHS, lateness=st.integers(0, 4), track=TRACKS)
def test_what_was_collected_makes_no_difference_to_changes_that_come_in_time(
    seed: int, length: int, lateness: int, track: TrackHistory
) -> None:
    dice = random.Random(seed)
    changes = timed(changes_made(dice, length))
    table = a_table(track)
    follow_in_time(table, changes, lateness, dice)
    assert versions(table) == oracle(changes, track)
    assert table.rows == rows_of(changes, COLUMNS)


def test_two_rows_that_change_keys_in_one_transaction_each_go_on_without_a_gap() -> None:
    table = a_table().execute(
        [upsert(1, (1,), columns={"a": 1, "b": 1}), upsert(2, (2,), columns={"a": 2, "b": 2})]
    )
    for applied, (old, new) in enumerate([((1,), (2,)), ((2,), (1,))]):
        gone = replace(deletion(3, old), order=within(3, applied, DELETE), transaction=3)
        moved = replace(
            upsert(3, new, continues=old), columns={}, order=within(3, applied), transaction=3
        )
        table.execute([gone, moved])
    assert (spans(table, (1,)), spans(table, (2,))) == (
        [(1, 1, 3), (2, 3, None)],
        [(2, 2, 3), (1, 3, None)],
    )


def test_changes_of_columns_that_are_not_tracked_are_made_in_the_open_row() -> None:
    table = a_table(TrackHistory(except_column_list=frozenset("b")))
    table.execute(
        [
            upsert(1, columns={"a": 1, "b": 1}),
            upsert(2, columns={"b": 2}),
            upsert(4, columns={"a": 4}),
        ]
    )
    assert [row.columns for row in table.versions[(1,)]] == [{"a": 1, "b": 2}, {"a": 4, "b": 2}]
    table.execute([upsert(3, columns={"b": 3})])
    assert [row.columns for row in table.versions[(1,)]] == [{"a": 1, "b": 3}, {"a": 4, "b": 3}]


def test_not_a_number_is_the_same_value_again() -> None:
    table = a_table().execute(
        [upsert(1, columns={"a": math.nan, "b": 1}), upsert(2, columns={"a": math.nan, "b": 1})]
    )
    assert len(table.versions[(1,)]) == 1


def test_an_open_row_is_all_that_is_known_of_what_is_final() -> None:
    table = a_table().execute([upsert(1), upsert(2), deletion(3, (2,)), upsert(1, (2,))])
    table.collect(at(10, READ))
    assert (table.state, table.rows.keys()) == ([], {(1,)})
    assert spans(table) == [(["a", 1], 1, 2), (["a", 2], 2, None)]
    table.execute([upsert(12)])
    assert spans(table) == [(["a", 1], 1, 2), (["a", 2], 2, 12), (["a", 12], 12, None)]


def test_a_column_that_a_row_is_said_to_have_is_waited_for_until_the_row_is_deleted() -> None:
    """Before a collection or after it."""
    for low_watermark in (at(1, READ), at(3, READ)):
        table = a_table().execute([upsert(1, columns={"a": 1}, omitted=("b",))])
        table.collect(low_watermark)
        table.execute([upsert(5, columns={"a": 5}, omitted=("b",))])
        assert versions(table) == {}
        table.execute([upsert(7, columns={"b": 7}, omitted=("a",))])
        assert spans(table) == [(5, 7, None)]
        table = a_table().execute([upsert(1, columns={"a": 1}, omitted=("b",))])
        table.collect(low_watermark)
        table.execute([deletion(4), upsert(5, columns={"a": 5})])
        assert spans(table) == [(5, 5, None)]


def test_what_comes_below_the_low_watermark_changes_no_row_that_ended() -> None:
    """It is taken for a key that is known, as in the table, in the row that is open."""
    table = a_table().execute([upsert(1), upsert(5, columns={"b": 5})])
    table.collect(at(10, READ))
    table.execute([upsert(3, columns={"a": 3})])
    assert spans(table) == [(["a", 1], 1, 5), (3, 5, None)]
    assert table.rows == {(1,): {"a": 3, "b": 5}}


def test_what_comes_below_the_low_watermark_between_two_rows_is_one_of_its_own() -> None:
    table = a_table().execute([upsert(1), deletion(2), upsert(20)])
    table.collect(at(10, READ))
    table.execute([upsert(5)]).execute([upsert(6)])
    assert spans(table) == [
        (["a", 1], 1, 2),
        (["a", 5], 5, 6),
        (["a", 6], 6, 20),
        (["a", 20], 20, None),
    ]


def test_what_comes_below_the_low_watermark_and_was_deleted_there_changes_nothing() -> None:
    table = a_table().execute([upsert(1), deletion(2), upsert(5)])
    table.collect(at(10, READ))
    table.execute([upsert(1, omitted=("new",))])
    assert spans(table) == [(["a", 1], 1, 2), (["a", 5], 5, None)]
