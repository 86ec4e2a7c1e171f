"""How far each source of a table has come, and which of its epochs may be entered, by what is remembered of it."""

from collections.abc import Iterable
from dataclasses import dataclass

from lakechime_dagster.cdc.meaning.wire import order_of, order_text
from lakechime_dagster.cdc.order import Order, Position
from lakechime_dagster.cdc.remembering.state import Role, StateRow

OPENED = "opened"  # of a row of Role.PLACE that says which epoch of its source may be entered


@dataclass(frozen=True, kw_only=True)
class PartitionPlace:
    """How far a partition of a source has come: its epoch, the newest position there, and the offset up to which that is known."""

    source: str
    topic: str  # its id
    partition: int
    epoch: int
    position: Position
    offset: int


def opened_row(source: str, epoch: int) -> StateRow:
    """That an epoch of a source may be entered."""
    return StateRow(Role.PLACE.value, None, source, order_text(Order(epoch=epoch)), op=OPENED)


def places_of(rows: Iterable[StateRow]) -> list[PartitionPlace]:
    """The newest place of each partition, in the order of sources and topics."""
    newest: dict[tuple[str, str, int], tuple[int, Position, int]] = {}
    for row in rows:
        if row.role == Role.PLACE and row.op != OPENED:
            order = order_of(row.order)
            line = row.source, order.topic, order.partition
            epoch, position, offset = newest.get(line, (0, (), -1))
            newest[line] = (*max((epoch, position), (order.epoch, order.position)), max(offset, order.offset))
    return [
        PartitionPlace(source=source, topic=topic, partition=partition, epoch=epoch, position=position, offset=offset)
        for (source, topic, partition), (epoch, position, offset) in sorted(newest.items())
    ]


def opened_epochs(rows: Iterable[StateRow]) -> dict[str, int]:
    """By source the newest epoch that may be entered."""
    opened: dict[str, int] = {}
    for row in rows:
        if row.role == Role.PLACE:
            opened[row.source] = max(opened.get(row.source, 0), order_of(row.order).epoch)
    return dict(sorted(opened.items()))
