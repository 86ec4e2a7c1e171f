"""A table that is kept by executions over what is remembered as text is that of the oracle, and
each change meets one outcome.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.cdc.change import Change, Key, Operation, Order
from lakechime_dagster.cdc.incremental_merge import ChangeOutcome, Known, Merged, merged
from lakechime_dagster.cdc.merge import BEFORE_ALL, Row, Soft
from lakechime_dagster.cdc.state import (
    Role,
    StateRow,
    base_row,
    collected_rows,
    known_of,
    low_watermark_before,
    remembered,
)
from lakechime_dagster.cdc.wire import key_text, row_state_of
from tests.cdc.merge.arrivals import at, follow_in_parts, follow_in_time
from tests.cdc.merge.test_merge import COLUMNS, LENGTHS, SEEDS, SOURCES, deletion, history, upsert
from tests.cdc.oracle import rows_of


@dataclass
class Lake:
    """A table and what is remembered beside it, as text; it may keep deleted rows."""

    keeps_deleted: bool = False
    targets: dict[Key, tuple[StateRow, Row]] = field(default_factory=dict)
    state: list[StateRow] = field(default_factory=list)
    truncated: dict[str, frozenset[Order]] = field(default_factory=dict)
    truncated_at: dict[tuple[str, Order], int | None] = field(default_factory=dict)
    low_watermarks: dict[str, Order] = field(default_factory=dict)
    outcomes: Counter[ChangeOutcome] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)

    @property
    def waiting(self) -> list[Key]:
        return [
            one.key
            for one in merged(self.known(), [], self.truncated, self.low_watermarks, self.soft).keys
            if one.waits
        ]

    @property
    def rows(self) -> dict[Key, Row]:
        return {key: row for key, (_, row) in self.targets.items()}

    @property
    def soft(self) -> Soft | None:
        return Soft(self.truncated_at) if self.keeps_deleted else None

    @property
    def kept_rows(self) -> dict[Key, tuple[Row, int | None]]:
        """With the time at which a row was deleted."""
        ended = {
            key: row_state_of(reported.order, row)[1].ended
            for key, (reported, row) in self.targets.items()
        }
        return {
            key: (row, None if (end := ended[key]) is None else end.at)
            for key, (_, row) in self.targets.items()
        }

    def known(self) -> dict[Key, Known]:
        rows: dict[str, list[StateRow]] = {}
        for row in [*(row for row, _ in self.targets.values()), *self.state]:
            rows.setdefault(row.key or "", []).append(row)
        keys = {
            key_text(key): key
            for key in {*self.targets, *(tuple(self.keys[text]) for text in rows)}
        }
        return {
            keys[text]: one
            for text, several in rows.items()
            if (one := known_of(several)) is not None
        }

    keys: dict[str, Key] = field(default_factory=dict)

    def collect(self, low_watermark: Order) -> None:
        self.low_watermarks = {
            source: max(low_watermark, self.low_watermarks.get(source, low_watermark))
            for source in SOURCES
        }
        self.state = collected_rows(self.state, self.truncated, self.low_watermarks, soft=self.soft)
        self.truncated_at = {
            (source, one): at
            for (source, one), at in self.truncated_at.items()
            if one >= self.low_watermarks[source]
        }
        ends = {
            source: frozenset(one for one in orders if one >= self.low_watermarks[source])
            for source, orders in self.truncated.items()
        }
        self.truncated = ends

    def execute(self, changes: Sequence[Change]) -> Merged:
        for change in changes:
            self.keys[key_text(change.key)] = change.key
            if change.operation is Operation.TRUNCATE:
                self.truncated[change.source] = self.truncated.get(change.source, frozenset()) | {
                    change.order
                }
                self.truncated_at[change.source, change.order] = change.event_ms
        known = self.known()
        of_keys = [change for change in changes if change.operation is not Operation.TRUNCATE]
        found = merged(known, of_keys, self.truncated, self.low_watermarks, self.soft)
        for one in found.keys:
            self.state += remembered(one, known.get(one.key))
            self.targets.pop(one.key, None)
            if one.after is not None:
                self.targets[one.key] = (
                    base_row(one.key, one.source, one.row_state, role=Role.TARGET),
                    one.after,
                )
        self.outcomes += found.outcomes
        self.refused += [one.reason for one in found.refused]
        return found


@given(seed=SEEDS, length=LENGTHS)
def test_any_order_and_any_split_gives_the_table_of_the_oracle(seed: int, length: int) -> None:
    dice = random.Random(seed)
    changes = [reported(change) for change in history(dice, length)]
    again = dice.sample(changes, dice.randrange(len(changes) + 1))
    shuffled = dice.sample([*changes, *again], len(changes) + len(again))
    lake = Lake()
    follow_in_parts(lake, shuffled, dice)
    assert lake.rows == rows_of(changes, COLUMNS)
    assert not lake.refused
    assert sum(lake.outcomes.values()) == sum(
        change.operation is not Operation.TRUNCATE for change in shuffled
    )


@given(seed=SEEDS, length=LENGTHS, lateness=st.integers(0, 4))
def test_what_was_collected_makes_no_difference_to_changes_that_come_in_time(
    seed: int, length: int, lateness: int
) -> None:
    dice = random.Random(seed)
    changes = [reported(change) for change in history(dice, length)]
    lake = Lake()
    follow_in_time(lake, changes, lateness, dice)
    assert lake.rows == rows_of(changes, COLUMNS)
    assert not lake.refused
    lake.collect(at(10**6))
    assert all(key_text(key) in {row.key for row in lake.state} for key in lake.waiting), (
        "what waits is remembered"
    )
    assert len(lake.state) == len(lake.waiting), "and nothing else"


def reported(change: Change) -> Change:
    """A change as a message reports it: values of the lake, and the names of columns that it does
    not carry.
    """
    if not change.operation.is_upsert:
        return change
    columns = {name: str(value) for name, value in change.columns.items()}
    return replace(
        change, columns=columns, omitted=tuple(name for name in COLUMNS if name not in columns)
    )


def test_each_change_has_the_outcome_that_its_order_says() -> None:
    lake = Lake()
    lake.execute([upsert(1, columns={"a": 1}), upsert(3), upsert(3)])
    assert lake.outcomes == {
        ChangeOutcome.MERGED: 1,
        ChangeOutcome.APPLIED: 1,
        ChangeOutcome.DELIVERED_AGAIN: 1,
    }
    lake.execute([upsert(2), deletion(5), upsert(1, columns={"a": 1})])
    assert lake.outcomes == {
        ChangeOutcome.MERGED: 1,
        ChangeOutcome.APPLIED: 2,
        ChangeOutcome.DELIVERED_AGAIN: 2,
        ChangeOutcome.STALE: 1,
    }
    lake.execute(
        [Change(source="s", operation=Operation.TRUNCATE, order=at(9)), upsert(8), upsert(10, (2,))]
    )
    assert lake.outcomes[ChangeOutcome.TRUNCATED] == 1
    assert lake.rows.keys() == {(2,)}


def test_a_row_of_which_a_column_is_missing_waits_for_it() -> None:
    lake = Lake()
    lake.execute([upsert(2, columns={"a": 1}, omitted=("b",))])
    assert lake.rows == {}
    assert lake.outcomes == {ChangeOutcome.WAITING: 1}
    lake.execute([upsert(1, columns={"a": 0, "b": 5})])
    assert lake.rows == {(1,): {"a": 1, "b": 5}}


def test_a_column_that_came_later_makes_no_older_row_wait() -> None:
    lake = Lake()
    lake.execute([upsert(1, columns={"a": 1}), upsert(2, (2,), columns={"a": 1, "new": 2})])
    lake.execute([upsert(3, columns={"a": 3})])
    assert lake.rows == {(1,): {"a": 3}, (2,): {"a": 1, "new": 2}}


def test_a_key_without_positions_in_two_partitions_is_refused() -> None:
    def without(offset: int, partition: int) -> Change:
        return replace(upsert(1), order=Order(topic="t", partition=partition, offset=offset))

    lake = Lake()
    lake.execute([without(1, 0)])
    lake.execute([without(2, 0), without(3, 1)])
    assert lake.outcomes == {ChangeOutcome.APPLIED: 2, ChangeOutcome.QUARANTINED: 1}
    [reason] = lake.refused
    assert "which came first?" in reason


def test_a_key_that_two_sources_source_is_refused() -> None:
    lake = Lake()
    lake.execute([upsert(1)])
    lake.execute([replace(upsert(2), source="t")])
    assert lake.outcomes == {ChangeOutcome.APPLIED: 1, ChangeOutcome.QUARANTINED: 1}


def test_a_first_change_is_remembered_with_what_was_known_before_it() -> None:
    """Of the table's own row, which holds what the change made of it from then on."""
    lake = Lake()
    lake.execute([upsert(1)])
    lake.state.clear()  # as what is forgotten
    lake.execute([upsert(5)])
    assert [row.role for row in lake.state] == [Role.BASE, Role.CHANGE]
    rekeyed = Change(
        source="s",
        operation=Operation.CREATE,
        order=at(3),
        key=(2,),
        columns={},
        omitted=COLUMNS,
        continues=(1,),
    )
    lake.execute([replace(deletion(3), key=(1,)), rekeyed])
    assert lake.rows[2,] == {name: [name, 1] for name in COLUMNS}
    assert lake.known()[1,].newest == at(5) > BEFORE_ALL


def test_a_low_watermark_stands_before_the_transaction_of_the_oldest_change_that_is_waited_for() -> (
    None
):
    change = Order(epoch=1, position=(90, 95), rank=2, topic="t", partition=0, offset=5)
    low_watermark = low_watermark_before(change)
    assert low_watermark is not None
    assert (
        Order(epoch=1, position=(89, 99))
        < low_watermark
        < Order(epoch=1, position=(90, 1))
        < change
    )
    assert low_watermark_before(change._replace(position=(3, 120, 0))) == Order(
        epoch=1, position=(3, 120, 0), rank=-1
    )
    assert low_watermark_before(change._replace(position=())) is None


def test_what_comes_again_after_it_was_forgotten_is_known_by_the_row_itself() -> None:
    lake = Lake()
    lake.execute([upsert(1)])
    lake.state.clear()
    lake.execute([upsert(1)])
    assert lake.outcomes == {ChangeOutcome.APPLIED: 1, ChangeOutcome.DELIVERED_AGAIN: 1}
    assert lake.state == []
