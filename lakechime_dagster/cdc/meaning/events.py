"""What happens to the row of a key, one event after the other: for what must know more of the past than the row that is there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from lakechime_dagster.cdc.change import Change, Key
from lakechime_dagster.cdc.meaning.fold import AFTER_ALL, Image, Kept
from lakechime_dagster.cdc.order import Order

TruncatedAt = Mapping[tuple[str, Order], int | None]  # when truncations were, by their source and order


class Event(NamedTuple):
    """What happens to the row of a key: an upsert, or the end of what was there before."""

    order: Order
    at: int | None
    upsert: Change | None = None


@dataclass(frozen=True)
class State:
    """A key after an event, or by its base alone."""

    event: Event | None
    image: Image
    waiting: frozenset[str]  # for columns that the row has, and nobody carried


def states_of(
    kept: Kept, truncated_at: TruncatedAt, key: Key, below: Order = AFTER_ALL, waiting: frozenset[str] = frozenset()
) -> Iterator[State]:
    """What a key of which something is kept is in its base, which is `waiting` for columns, and after each event below an order."""
    image = kept.windows[key].base.lasting
    yield State(None, image, waiting)
    for event in _events(kept, truncated_at, key, below):
        if event.upsert is None:
            image = image.without(event.order)
            waiting = waiting if image.upserted is not None else frozenset()
        elif event.order > image.deleted:
            image = kept.continued(image, event.upsert).carrying(event.order, event.upsert.columns)
            waiting = waiting.union(event.upsert.omitted) - image.columns.keys()
        yield State(event, image, waiting)


def _events(kept: Kept, truncated_at: TruncatedAt, key: Key, below: Order) -> list[Event]:
    """What happens to a key below an order, in turn."""
    window = kept.windows[key]
    events = [Event(order, truncated_at.get((window.source, order))) for order in kept.truncated.get(window.source, ())]
    if window.base.ended is not None:
        events.append(Event(*window.base.ended))
    for change in window.changes:
        if change.operation.is_upsert:
            events.append(Event(change.order, change.event_ms, change))
        else:
            events.append(Event(kept.taken(key, change), change.event_ms))
    return sorted((one for one in events if one.order < below), key=lambda one: one.order)
