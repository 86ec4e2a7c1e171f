"""The meaning of a set of changes, reported once more as plainly as possible: what every fold is
held against.

A database that does what the changes say, one after the other, in the order of its log.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lakechime_dagster.cdc.change import Change, Key, Operation, Order

Row = dict[str, Any]
# two rows of a key for a while, the one that had it first before the other
Table = dict[tuple[str, Key], list[Row]]


@dataclass
class Version:
    """What a row was, from one change up to another."""

    columns: Row
    start_seq: Order
    start_at: int | None
    end_seq: Order | None = None
    end_at: int | None = None


def rows_of(changes: Sequence[Change], columns: Collection[str]) -> dict[Key, Row]:
    """The table that these changes mean: of one key one row, of which all columns are known."""
    table: Table = {}
    for _ in done(changes, table):
        pass
    last = {key: rows[-1] for (_, key), rows in table.items() if rows}
    return {
        key: {name: row[name] for name in columns}
        for key, row in last.items()
        if row.keys() >= set(columns)
    }


def kept_rows_of(
    changes: Sequence[Change], columns: Collection[str]
) -> dict[Key, tuple[Row, int | None]]:
    """The table that keeps deleted rows: of each key the row that is there or was there last, and
    when that one was deleted.
    """
    table: Table = {}
    last: dict[Key, Row] = {}
    deleted: dict[Key, int | None] = {}
    for change in done(changes, table):
        for (_, key), rows in table.items():
            if rows:
                last[key] = rows[-1]
                deleted.pop(key, None)
            elif key in last:
                deleted.setdefault(key, change.event_ms)
    whole = {key: row for key, row in last.items() if row.keys() >= set(columns)}
    return {
        key: ({name: row[name] for name in columns}, deleted.get(key)) for key, row in whole.items()
    }


def done(changes: Sequence[Change], table: Table) -> Iterator[Change]:
    """Does to the table what each change says, and gives each change after that."""
    left: dict[tuple[str, Key], Row] = {}  # the row that a deletion took last
    for change in sorted(changes, key=lambda one: (one.source, one.order)):
        position = change.source, change.key
        rows = table.setdefault(position, [])
        match change.operation:
            case Operation.TRUNCATE:
                for other in table:
                    if other[0] == change.source:
                        table[other] = []
            case Operation.DELETE:
                left[position] = rows.pop(0) if rows else {}
            case _ if change.continues is not None:
                old = left[change.source, change.continues]
                # keys are checked at once: it is the same row
                if rows and change.transaction is None:
                    rows[0] |= old | dict(change.columns)
                else:
                    rows.append(old | dict(change.columns))
            case _ if rows:
                rows[-1] |= change.columns
            case _:
                rows.append(dict(change.columns))
        yield change


def histories_of(
    changes: Sequence[Change], columns: Collection[str], tracked: Collection[str]
) -> dict[Key, list[Version]]:
    """The rows that each key had one after the other: another one where it is another row, or
    differs in a tracked column.
    """
    table: Table = {}
    histories: dict[Key, list[Version]] = {}
    rows_open: dict[Key, Row] = {}  # the table's rows
    for change in done(changes, table):
        for (source, key), rows in table.items():
            if source != change.source:
                continue
            versions, row = histories.setdefault(key, []), rows[-1] if rows else {}
            shown = {name: row[name] for name in columns} if row.keys() >= set(columns) else None
            if key in rows_open:
                was = versions[-1]
                is_other_row = rows_open[key] is not row
                if (
                    not is_other_row
                    and shown
                    and all(shown[name] == was.columns[name] for name in tracked)
                ):
                    was.columns = shown
                    continue
                # where a row is given the key of one that is there still, that one leaves just
                # before
                was.end_seq = (
                    change.order.before_deletion()
                    if is_other_row and change.operation.is_upsert
                    else change.order
                )
                was.end_at = change.event_ms
                del rows_open[key]
            if shown:
                versions.append(Version(shown, change.order, change.event_ms))
                rows_open[key] = row
    return histories
