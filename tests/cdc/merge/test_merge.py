"""A table that is kept by executions over what is remembered as text is that of the oracle, for any
order and any split of the same changes, and each change meets one outcome.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.cdc.change import (
    DELETE,
    READ,
    REPAIRS,
    Change,
    Key,
    Operation,
    Order,
    key_text,
)
from lakechime_dagster.cdc.merge import BEFORE_ALL, ChangeOutcome, Kept, RowState
from lakechime_dagster.cdc.state import Role, low_watermark_before
from tests.cdc.merge.lake import (
    COLUMNS,
    LENGTHS,
    SEEDS,
    Lake,
    at,
    changes_made,
    deletion,
    follow_in_parts,
    follow_in_time,
    reported,
    rotation,
    upsert,
    within,
)
from tests.cdc.oracle import done, rows_of


@given(seed=SEEDS, length=LENGTHS)
def test_any_order_and_any_split_gives_the_table_of_the_oracle(seed: int, length: int) -> None:
    dice = random.Random(seed)
    changes = [reported(change) for change in changes_made(dice, length)]
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
    changes = [reported(change) for change in changes_made(dice, length)]
    lake = Lake()
    follow_in_time(lake, changes, lateness, dice)
    assert lake.rows == rows_of(changes, COLUMNS)
    assert not lake.refused
    lake.collect(at(10**6))
    assert all(key_text(key) in {row.key for row in lake.state} for key in lake.waiting), (
        "what waits is remembered"
    )
    assert len(lake.state) == len(lake.waiting), "and nothing else"


def in_wal(change: Change) -> Change:
    """The same where PostgreSQL reports it: each position is that of a transaction, in which its
    changes have places of their own.
    """
    transaction, *step = change.order.position
    return replace(
        change,
        order=change.order._replace(
            position=(10 * transaction - 10, 10 * transaction + (step[0] if step else 0))
        ),
    )


def readings(
    changes: Sequence[Change], reported: int, cut: int, dice: random.Random
) -> Iterator[Change]:
    """What a repair reports of some keys as they are after the transaction `cut`, of which messages
    had reported up to `reported`.
    """
    table: dict[tuple[str, Key], list[dict[str, object]]] = {}
    for _ in done([one for one in changes if one.order.position[0] < 10 * cut], table):
        pass
    order = Order(position=(10 * reported - 10, 10 * cut + 9), topic=f"{REPAIRS}orders")
    for number, ((source, key), rows) in enumerate(table.items()):
        is_whole = not rows or rows[-1].keys() >= set(COLUMNS)
        if key and is_whole and dice.random() < 0.5:
            at_place = order._replace(rank=READ if rows else DELETE, offset=number)
            operation, columns = (Operation.READ, rows[-1]) if rows else (Operation.DELETE, {})
            yield Change(
                source=source, operation=operation, order=at_place, key=key, columns=columns
            )


@given(seed=SEEDS, length=LENGTHS)
def test_a_repair_of_rows_that_were_right_changes_none_whatever_messages_were_on_their_way(
    seed: int, length: int
) -> None:
    dice = random.Random(seed)
    changes = [in_wal(reported(change)) for change in changes_made(dice, length)]
    cut = dice.randint(1, length)
    arrived = dice.randint(1, cut)
    repaired = [*changes, *readings(changes, arrived, cut, dice)]
    assert Lake().execute(dice.sample(repaired, len(repaired))).rows == rows_of(changes, COLUMNS)


def test_a_key_change_takes_the_row_that_was_there_though_a_repair_has_read_the_key_since() -> None:
    """A transaction swaps two keys by way of a third; messages report it when its outcome had been
    read.
    """
    before = [
        upsert(1, (1,), columns={"a": 1, "b": "of 1"}),
        upsert(1, (2,), columns={"a": 2, "b": "of 2"}, order=within(1, 1)),
    ]
    swap = list(rotation(2, "s", [(1,), (0,)], {"a": 1}))[:2]
    for step, (old, new) in enumerate([((2,), (1,)), ((0,), (2,))], start=2):
        swap.append(replace(deletion(2, old), order=within(2, step, DELETE), transaction=2))
        swap.append(
            replace(
                upsert(2, new, columns={"a": step}, continues=old),
                order=within(2, step),
                transaction=2,
            )
        )
    reported = [in_wal(one) for one in [*before, *swap]]
    read = replace(
        upsert(0, (1,), Operation.READ, columns={"a": 2, "b": "of 2"}),
        order=Order(0, (0, 29), READ, f"{REPAIRS}orders"),
    )
    assert Lake().execute([*reported, read]).rows == {
        (1,): {"a": 2, "b": "of 2"},
        (2,): {"a": 3, "b": "of 1"},
    }


def test_a_key_change_without_positions_goes_on_with_the_row_that_its_deletion_took() -> None:
    """There are other messages between the two."""
    orders = [Order(topic="changes", partition=0, offset=offset) for offset in (0, 1, 5)]
    old, gone = replace(upsert(0), order=orders[0]), replace(deletion(0), order=orders[1])
    new = replace(upsert(0, (2,), columns={"a": 9}, continues=(1,)), order=orders[2])
    assert Lake().execute([new, gone, old]).rows == {(2,): {"a": 9, "b": ["b", 0]}}


def test_a_row_that_was_given_a_key_for_a_while_leaves_with_its_own_deletion() -> None:
    """While another row had that key: it leaves first."""
    # the row of 1 to 2, the one that was there to 4, then the first one to 3
    moves = [((1,), (2,)), ((2,), (4,)), ((2,), (3,))]
    changes = [upsert(1, (1,)), upsert(2, (2,))]
    for step, (old, new) in enumerate(moves):
        changes.append(replace(deletion(3, old), order=within(3, step, DELETE), transaction=3))
        changes.append(
            replace(
                upsert(3, new, columns={"c": 3}, continues=old),
                order=within(3, step),
                transaction=3,
            )
        )
    assert Lake().execute(changes).rows == {
        (3,): {"a": ["a", 1], "b": ["b", 1], "c": 3},
        (4,): {"a": ["a", 2], "b": ["b", 2], "c": 3},
    }
    assert rows_of(changes, (*COLUMNS, "c")) == Lake().execute(changes).rows


def test_what_comes_below_the_low_watermark_is_refused_where_its_row_may_have_been_deleted() -> (
    None
):
    lake = Lake().execute([upsert(1), deletion(3), upsert(2, (2,))])
    lake.collect(at(10, READ))
    lake.execute([upsert(2), upsert(1, (2,))])
    assert lake.rows == {(2,): {"a": ["a", 2], "b": ["b", 2]}}
    (reason,) = lake.refused
    assert "is forgotten which rows of 's' were deleted" in reason


def swapped(number: int) -> list[Change]:
    """A transaction that swaps two rows by way of a key that no row has, as a database reports it
    that checks keys at the end.
    """
    changes: list[Change] = []
    for step, (old, new) in enumerate([((1,), (-1,)), ((2,), (1,)), ((-1,), (2,))]):
        gone, come = within(number, step, DELETE), within(number, step)
        changes.append(replace(deletion(number, old), order=gone, transaction=number))
        changes.append(
            upsert(
                number, new, order=come, columns={"b": number}, continues=old, transaction=number
            )
        )
    return changes


@pytest.mark.parametrize("swaps", [50, 400])
def test_work_grows_with_the_changes_where_one_key_is_lent_to_many_rows(
    swaps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, continued = 0, Kept.continued

    def counted(kept: Kept, row_state: RowState, change: Change) -> RowState:
        nonlocal asked
        asked += 1
        assert asked < 20 * swaps, "what came before is asked of again and again"
        return continued(kept, row_state, change)

    monkeypatch.setattr(Kept, "continued", counted)
    rows = [upsert(0, (key,), order=within(0, key), columns={"a": key, "b": 0}) for key in (1, 2)]
    lake = Lake().execute(
        [*rows, *(change for number in range(1, swaps + 1) for change in swapped(number))]
    )
    assert lake.rows == {(1,): {"a": 1, "b": swaps}, (2,): {"a": 2, "b": swaps}}, (
        "an even number of swaps leaves each row where it was"
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
