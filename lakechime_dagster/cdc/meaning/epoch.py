"""Epochs of a source: positions that begin anew, told apart from messages that are delivered again.

A database that is replaced by another, or whose log begins anew, goes on at positions that were there before. Nothing of
what comes then may be put in order among what came before until it is known to be an epoch of its own: a complete snapshot
says so, or a person.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakechime_dagster.cdc.change import Change
from lakechime_dagster.cdc.meaning.snapshot import Snapshots
from lakechime_dagster.cdc.order import Position

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
