"""A table that keeps deleted rows is that of the oracle, for any order and any split of the same
changes.
"""

import random
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.cdc.change import DELETE, Change, Operation
from lakechime_dagster.cdc.merge import ChangeOutcome
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
)
from tests.cdc.oracle import kept_rows_of, rows_of


def timed(changes: Sequence[Change]) -> list[Change]:
    """As messages report them, with times, which are no order."""
    return [
        replace(reported(one), event_ms=10 + 10 * (one.order.position[0] % 5)) for one in changes
    ]


def truncation(position: int) -> Change:
    return Change(
        source="s", operation=Operation.TRUNCATE, order=at(position, DELETE), event_ms=10 * position
    )


def inserted(position: int, **columns: object) -> Change:
    return replace(upsert(position, columns=columns), event_ms=10 * position)


def deleted(position: int) -> Change:
    return replace(deletion(position), event_ms=10 * position)


@given(seed=SEEDS, length=LENGTHS)
def test_any_order_and_any_split_gives_the_table_of_the_oracle(seed: int, length: int) -> None:
    dice = random.Random(seed)
    changes = timed(changes_made(dice, length))
    again = delivered_again(changes, 0.3, dice)
    shuffled = dice.sample([*changes, *again], len(changes) + len(again))
    lake = Lake(keeps_deleted=True)
    follow_in_parts(lake, shuffled, dice)
    assert lake.kept_rows == kept_rows_of(changes, COLUMNS)
    assert {key: row for key, (row, ended) in lake.kept_rows.items() if ended is None} == rows_of(
        changes, COLUMNS
    )
    assert not lake.refused
    assert sum(lake.outcomes.values()) == sum(
        change.operation is not Operation.TRUNCATE for change in shuffled
    )


@given(seed=SEEDS, length=LENGTHS, lateness=st.integers(0, 4))
def test_what_was_collected_makes_no_difference_to_changes_that_come_in_time(
    seed: int, length: int, lateness: int
) -> None:
    dice = random.Random(seed)
    changes = timed(changes_made(dice, length))
    lake = Lake(keeps_deleted=True)
    follow_in_time(lake, changes, lateness, dice)
    assert lake.kept_rows == kept_rows_of(changes, COLUMNS)
    assert not lake.refused
    lake.collect(at(10**6))
    assert len(lake.state) == len(lake.waiting), "what is final stands in the table alone"


def test_a_deleted_row_of_which_a_column_was_never_reported_is_not_there_and_waits_for_nothing() -> (
    None
):
    lake = Lake(keeps_deleted=True)
    lake.execute([replace(inserted(2, a=1), omitted=("b",)), deleted(4)])
    assert (lake.kept_rows, lake.waiting) == ({}, [])
    lake.execute([inserted(1, a=0, b=5)])
    assert lake.kept_rows == {(1,): ({"a": 1, "b": 5}, 40)}


def test_what_comes_again_after_its_row_was_forgotten_changes_nothing() -> None:
    lake = Lake(keeps_deleted=True)
    changes = [inserted(1, a=1), deleted(2), inserted(4, a=4), deleted(6)]
    lake.execute(changes)
    lake.collect(at(100))
    assert lake.state == []
    lake.execute(changes)
    assert lake.kept_rows == {(1,): ({"a": 4}, 60)}
    assert lake.outcomes[ChangeOutcome.DELIVERED_AGAIN] == 3
    assert not lake.refused


def test_what_comes_too_late_is_refused_where_its_row_may_have_been_deleted_since() -> None:
    """A truncation that found the row deleted is not known any more."""
    lake = Lake(keeps_deleted=True)
    lake.execute([inserted(1, a=1), deleted(2), truncation(8)])
    lake.collect(at(100))
    lake.execute([inserted(5, a=5)])
    assert lake.kept_rows == {(1,): ({"a": 1}, 20)}
    [reason] = lake.refused
    assert "is forgotten which rows of 's' were deleted" in reason
