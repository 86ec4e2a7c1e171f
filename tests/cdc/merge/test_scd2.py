"""The history of each key is that of the oracle, for any order and any split of the same changes;
its open rows are the table.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import astuple, replace

from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.cdc.change import DELETE, READ, Change, Key, Order
from lakechime_dagster.cdc.history import (
    TRACK_ALL,
    Histories,
    HistoryRow,
    TrackHistory,
    collected,
    history,
    with_changes,
)
from tests.cdc.merge.arrivals import at, delivered_again, follow_in_parts, follow_in_time
from tests.cdc.merge.test_merge import COLUMNS, LENGTHS, SEEDS, SOURCES, deletion, upsert, within
from tests.cdc.merge.test_merge import history as some_changes
from tests.cdc.oracle import histories_of, rows_of

TRACKS = st.sampled_from(
    [
        TRACK_ALL,
        TrackHistory(column_list=frozenset("a")),
        TrackHistory(except_column_list=frozenset("a")),
    ]
)


def timed(changes: Sequence[Change]) -> list[Change]:
    """With times, which are no order."""
    return [replace(one, event_ms=10 * (one.order.position[0] % 5)) for one in changes]


class Table:
    """A target with the rows of each key one after the other, changed key by key as the histories
    say.
    """

    def __init__(self, track: TrackHistory = TRACK_ALL) -> None:
        self.histories, self.track = Histories(), track
        self.rows: dict[Key, list[HistoryRow]] = {}
        self.refused: list[str] = []

    def execute(self, changes: Sequence[Change]) -> "Table":
        applied = with_changes(self.histories, changes)
        self.histories = applied.histories
        self.refused += [one.reason for one in applied.refused]
        for key in applied.touched:
            found = history(self.histories, key, COLUMNS, self.track)
            self.rows[key] = [
                *(row for row in self.rows.get(key, []) if row.start_seq < found.since),
                *found.rows,
            ]
        return self

    def collect(self, low_watermark: Order) -> "Table":
        for source in SOURCES:
            self.histories = collected(self.histories, source, low_watermark, COLUMNS, self.track)
        return self

    def reported(self) -> dict[Key, list[tuple[object, ...]]]:
        return {key: [astuple(row) for row in rows] for key, rows in self.rows.items() if rows}

    @property
    def open(self) -> dict[Key, object]:
        return {key: row.columns for key, rows in self.rows.items() for row in rows if row.is_open}

    def spans(self, key: Key = (1,)) -> list[tuple[object, ...]]:
        """By position, and the value of one column."""
        return [
            (row.columns["a"], row.start_seq.position[0], row.end_seq and row.end_seq.position[0])
            for row in self.rows[key]
        ]


def oracle(changes: Sequence[Change], track: TrackHistory) -> dict[Key, list[tuple[object, ...]]]:
    found = histories_of(changes, COLUMNS, [name for name in COLUMNS if name in track])
    return {key: [astuple(row) for row in versions] for key, versions in found.items() if versions}


@given(seed=SEEDS, length=LENGTHS, track=TRACKS)
def test_any_order_and_any_split_of_the_changes_gives_the_same_histories(
    seed: int, length: int, track: TrackHistory
) -> None:
    dice = random.Random(seed)
    changes = timed(some_changes(dice, length))
    again = delivered_again(changes, 0.3, dice)
    shuffled = dice.sample([*changes, *again], len(changes) + len(again))
    table = Table(track)
    follow_in_parts(table, shuffled, dice)
    assert table.reported() == oracle(changes, track)
    assert table.open == rows_of(changes, COLUMNS)
    assert not table.refused


@given(seed=SEEDS, length=LENGTHS, lateness=st.integers(0, 4), track=TRACKS)
def test_what_was_collected_makes_no_difference_to_changes_that_come_in_time(
    seed: int, length: int, lateness: int, track: TrackHistory
) -> None:
    dice = random.Random(seed)
    changes = timed(some_changes(dice, length))
    table = Table(track)
    follow_in_time(table, changes, lateness, dice)
    assert table.reported() == oracle(changes, track)
    assert table.open == rows_of(changes, COLUMNS)


def test_two_rows_that_change_keys_in_one_transaction_each_go_on_without_a_gap() -> None:
    table = Table().execute(
        [upsert(1, (1,), columns={"a": 1, "b": 1}), upsert(2, (2,), columns={"a": 2, "b": 2})]
    )
    for applied, (old, new) in enumerate([((1,), (2,)), ((2,), (1,))]):
        gone = replace(deletion(3, old), order=within(3, applied, DELETE), transaction=3)
        moved = replace(
            upsert(3, new, continues=old), columns={}, order=within(3, applied), transaction=3
        )
        table.execute([gone, moved])
    assert (table.spans((1,)), table.spans((2,))) == (
        [(1, 1, 3), (2, 3, None)],
        [(2, 2, 3), (1, 3, None)],
    )


def test_changes_of_columns_that_are_not_tracked_are_made_in_the_open_row() -> None:
    table = Table(TrackHistory(except_column_list=frozenset("b")))
    table.execute(
        [
            upsert(1, columns={"a": 1, "b": 1}),
            upsert(2, columns={"b": 2}),
            upsert(4, columns={"a": 4}),
        ]
    )
    assert [row.columns for row in table.rows[(1,)]] == [{"a": 1, "b": 2}, {"a": 4, "b": 2}]
    table.execute([upsert(3, columns={"b": 3})])
    assert [row.columns for row in table.rows[(1,)]] == [{"a": 1, "b": 3}, {"a": 4, "b": 3}]


def test_not_a_number_is_the_same_value_again() -> None:
    table = Table().execute(
        [upsert(1, columns={"a": math.nan, "b": 1}), upsert(2, columns={"a": math.nan, "b": 1})]
    )
    assert len(table.rows[(1,)]) == 1


def test_a_row_of_which_a_column_is_missing_opens_with_the_change_that_carries_it() -> None:
    """Named by the changes themselves, where no columns are asked for; before a collection or after
    it.
    """
    changes = [
        upsert(1, columns={"a": 1}, omitted=("b",)),
        upsert(5, columns={"b": 5}, omitted=("a",)),
    ]
    for low_watermark in (at(1, READ), at(3, READ)):
        before = collected(with_changes(Histories(), changes[:1]).histories, "s", low_watermark)
        assert history(before, (1,)).rows == ()
        [row] = history(with_changes(before, changes[1:]).histories, (1,)).rows
        assert (row.columns, row.start_seq) == ({"a": 1, "b": 5}, at(5))


def test_an_open_row_is_all_that_is_kept_of_what_is_final() -> None:
    table = (
        Table()
        .execute([upsert(1), upsert(2), deletion(3, (2,)), upsert(1, (2,))])
        .collect(at(10, READ))
    )
    assert table.histories.kept.windows.keys() == table.histories.bases.keys() == {(1,)}
    assert table.histories.kept.windows[(1,)].changes == ()
    found = history(table.histories, (1,), COLUMNS)
    assert (found.since, [row.start_seq for row in found.rows]) == (at(2), [at(2)])


def test_a_column_that_a_row_is_said_to_have_is_waited_for_until_the_row_is_deleted() -> None:
    waiting = with_changes(Histories(), [upsert(1, columns={"a": 1}, omitted=("b",))]).histories
    for before in (waiting, collected(waiting, "s", at(3, READ))):
        assert (
            history(with_changes(before, [upsert(5, columns={"a": 5})]).histories, (1,)).rows == ()
        )
        again = with_changes(before, [deletion(4), upsert(5, columns={"a": 5})]).histories
        assert [row.columns for row in history(again, (1,)).rows] == [{"a": 5}]


def test_a_row_that_is_not_whole_any_more_is_taken_back() -> None:
    table = Table().execute([upsert(1)]).collect(at(10, READ))
    found = history(table.histories, (1,), [*COLUMNS, "new"])
    assert (found.since, found.rows) == (at(1), ())


def test_what_comes_below_the_low_watermark_changes_no_row_that_ended() -> None:
    """It is taken for a key that is known, as in the table, in the row that is open."""
    table = (
        Table()
        .execute([upsert(1), upsert(5, columns={"b": 5})])
        .collect(at(10, READ))
        .execute([upsert(3, columns={"a": 3})])
    )
    assert table.spans() == [(("a", 1), 1, 5), (3, 5, None)]
    assert table.open == {(1,): {"a": 3, "b": 5}}


def test_what_comes_below_the_low_watermark_between_two_rows_is_one_of_its_own() -> None:
    table = (
        Table()
        .execute([upsert(1), deletion(2), upsert(20)])
        .collect(at(10, READ))
        .execute([upsert(5)])
        .execute([upsert(6)])
    )
    assert table.spans() == [
        (("a", 1), 1, 2),
        (("a", 5), 5, 6),
        (("a", 6), 6, 20),
        (("a", 20), 20, None),
    ]


def test_what_comes_below_the_low_watermark_and_was_deleted_there_changes_nothing() -> None:
    table = (
        Table()
        .execute([upsert(1), deletion(2), upsert(5)])
        .collect(at(10, READ))
        .execute([upsert(1, omitted=("new",))])
    )
    assert table.spans() == [(("a", 1), 1, 2), (("a", 5), 5, None)]
