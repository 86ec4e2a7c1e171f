"""A position that goes back is a message that is delivered again, or an epoch that somebody must
open.
"""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.cdc.change import READ, UPSERT, Change, Operation, Order
from lakechime_dagster.cdc.state import Assignment, SourceEpochs, assigned


def change(position: int, offset: int, *, partition: int = 0, mark: str | None = None) -> Change:
    operation, rank = (Operation.UPDATE, UPSERT) if mark is None else (Operation.READ, READ)
    order = Order(position=(position,), rank=rank, topic="t", partition=partition, offset=offset)
    return Change(source="s", operation=operation, order=order, key=(position,), snapshot=mark)


def after(
    changes: Sequence[Change], epochs: SourceEpochs | None = None, seen: Sequence[Change] = ()
) -> Assignment:
    known = {(one.order.position, one.key) for one in seen}
    return assigned(
        epochs or SourceEpochs(), changes, lambda one: (one.order.position, one.key) in known
    )


def offsets(changes: Sequence[Change]) -> list[tuple[int, int]]:
    return [(one.order.epoch, one.order.offset) for one in changes]


def test_positions_that_go_forward_are_of_one_epoch() -> None:
    found = after([change(1, 0), change(1, 1), change(4, 2)])
    assert offsets(found.changes) == [(0, 0), (0, 1), (0, 2)]
    assert not found.held
    assert found.epochs.positions == {("t", 0): (0, (4,))}


def test_what_was_there_before_is_delivered_again() -> None:
    first = [change(1, 0), change(2, 1)]
    found = after([*first, change(1, 2), change(3, 3)], seen=first)
    assert offsets(found.delivered_again) == [(0, 2)]
    assert offsets(found.changes) == [(0, 0), (0, 1), (0, 3)]


def test_a_position_that_goes_back_to_something_else_holds_all_that_follows_it_in_its_partition() -> (
    None
):
    found = after([change(5, 0), change(2, 1), change(6, 2), change(9, 0, partition=1)])
    assert offsets(found.held) == [(0, 1), (0, 2)]
    assert offsets(found.changes) == [(0, 0), (0, 0)]


def test_an_epoch_that_a_person_confirmed_is_entered() -> None:
    held = after([change(5, 0), change(2, 1), change(6, 2)])
    found = after(held.held, held.epochs.confirmed())
    assert offsets(found.changes) == [(1, 1), (1, 2)]
    assert not found.held


def test_an_epoch_that_begins_with_a_complete_snapshot_opens_by_itself() -> None:
    snapshot = [change(2, 1, mark="first"), change(2, 2, mark="true"), change(2, 3, mark="last")]
    found = after([change(5, 0), *snapshot, change(3, 4)])
    assert offsets(found.changes) == [(0, 0), (1, 1), (1, 2), (1, 3), (1, 4)]
    assert offsets(after([change(5, 0), *snapshot[:2]]).held) == [(0, 1), (0, 2)]


def test_a_partition_enters_an_open_epoch_when_its_own_positions_go_back() -> None:
    epochs = after([change(5, 0), change(8, 0, partition=1)]).epochs.confirmed()
    found = after([change(2, 1), change(9, 1, partition=1), change(1, 2, partition=1)], epochs)
    assert offsets(found.changes) == [(1, 1), (0, 1), (1, 2)]


def test_changes_without_a_position_are_in_the_order_of_their_topic() -> None:
    orders = [Order(topic="t", partition=0, offset=number) for number in range(3)]
    plain = tuple(
        Change(source="s", operation=Operation.UPDATE, order=order, key=(1,)) for order in orders
    )
    assert after(plain).changes == plain
    found = after(
        [change(5, 0), replace(plain[1], order=plain[1].order._replace(offset=1)), change(2, 2)]
    )
    assert offsets(found.held) == [(0, 2)]


@given(positions=st.lists(st.integers(1, 9), max_size=12), cut=st.integers(0, 12))
def test_what_is_assigned_in_parts_is_assigned_as_in_one(positions: list[int], cut: int) -> None:
    """What is held is asked for again."""
    changes = [change(position, offset) for offset, position in enumerate(positions)]
    whole = after(changes)
    first = after(changes[:cut])
    second = after([*first.held, *changes[cut:]], first.epochs)
    assert (*first.changes, *second.changes) == whole.changes
    assert second.held == whole.held
