"""Snapshots of whole tables among the changes of a source: which are complete, and what that says of rows that they lack."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lakechime_dagster.cdc.change import Change, Operation
from lakechime_dagster.cdc.order import BEFORE_READ, Order

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
