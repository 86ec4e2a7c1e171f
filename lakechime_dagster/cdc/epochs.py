"""Epochs of a source, and complete snapshots among its changes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakechime_dagster.cdc.change import BEFORE_READ, Change, Operation, Order, Position

_FIRST = ("first", "first_in_data_collection")
_LAST = ("last", "last_in_data_collection")
MARKS = _FIRST + _LAST


@dataclass(frozen=True)
class Snapshots:
    """The snapshots that were begun or ended, by their source and the order that comes before all their rows.

    The rows that a snapshot read share one position. The connector marks its first and its last row of a table; of a table
    with a single row it marks one end alone, and of an empty table none: of such a snapshot it is not known whether it is
    complete. An incremental snapshot has no such marks.
    """

    ends: Mapping[tuple[str, Order], Mapping[bool, int | None]] = field(default_factory=dict)  # whether it is the last one, and its time

    def with_changes(self, changes: Iterable[Change]) -> tuple["Snapshots", tuple[Change, ...]]:
        """With these changes too; and for each snapshot of which both ends are seen now the truncation that it means.

        A complete snapshot speaks for its whole source: a row that it does not hold was deleted before it. The truncation
        stands below all rows of the snapshot and above all that came before it, at the time of the first one. It is told once.
        """
        ends, complete = dict(self.ends), list[Change]()
        for change in changes:
            if change.operation is not Operation.READ or change.snapshot not in MARKS or not change.order.position:
                continue
            order = Order(change.order.epoch, change.order.position, BEFORE_READ)
            before = ends.get((change.source, order), {})
            ends[change.source, order] = found = {change.snapshot in _LAST: change.event_ms, **before}
            if len(found) > len(before) == 1:
                complete.append(Change(source=change.source, operation=Operation.TRUNCATE, order=order, event_ms=found[False]))
        return Snapshots(ends), tuple(complete)


Partition = tuple[str, int]  # a topic's id and a partition of it, within which positions go forward


@dataclass(frozen=True, kw_only=True)
class Epochs:
    """How far the epochs of a source have come.

    Attributes:
        opened: The newest epoch that may be entered.
        places: By partition the epoch that it is in and the newest position there; a partition enters an epoch by itself.
    """

    opened: int = 0
    places: Mapping[Partition, tuple[int, Position]] = field(default_factory=dict)

    def confirmed(self) -> "Epochs":
        """With one more epoch that may be entered."""
        return replace(self, opened=self.opened + 1)


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """What some messages are by their epochs.

    Attributes:
        epochs: How far they have come by that.
        changes: The changes whose epoch is known, in it.
        delivered_again: Those that were there before.
        held: Those whose position went back and that were not there before, and all that follow them in their partitions.
    """

    epochs: Epochs
    changes: tuple[Change, ...] = ()
    delivered_again: tuple[Change, ...] = ()
    held: tuple[Change, ...] = ()


def assigned(epochs: Epochs, changes: Sequence[Change], was_seen: Callable[[Change], bool]) -> Assignment:
    """The epochs of changes of one source.

    Args:
        epochs: How far they had come.
        changes: In the order of their offsets within each partition, from the first one that is not assigned.
        was_seen: Whether a change of the same position and content was there before, at a lower offset.
    """
    found = _assigned(epochs, changes, was_seen)
    _, complete = Snapshots().with_changes(found.held)
    return _assigned(epochs.confirmed(), changes, was_seen) if complete else found


def _assigned(epochs: Epochs, changes: Sequence[Change], was_seen: Callable[[Change], bool]) -> Assignment:
    places, done, again, held = dict(epochs.places), list[Change](), list[Change](), list[Change]()
    closed = set[Partition]()
    for change in changes:
        partition = change.order.topic, change.order.partition
        epoch, newest = places.get(partition, (0, ()))
        position = change.order.position
        if partition in closed:
            held.append(change)
        elif position and position < newest and was_seen(change):
            again.append(change)
        elif position and position < newest and epoch == epochs.opened:
            closed.add(partition)
            held.append(change)
        else:
            place = (epoch + 1, position) if position and position < newest else (epoch, position or newest)
            places[partition] = place
            done.append(replace(change, order=change.order._replace(epoch=place[0])))
    return Assignment(epochs=replace(epochs, places=places), changes=tuple(done), delivered_again=tuple(again), held=tuple(held))
