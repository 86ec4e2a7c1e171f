"""The meaning of a set of changes, told once more as plainly as possible: what every fold is held against.

A database that does what the changes say, one after the other, in the order of its log.
"""

from collections.abc import Collection, Sequence
from typing import Any

from lakechime_dagster.cdc.change import Change, Key, Operation

Row = dict[str, Any]


def rows_of(changes: Sequence[Change], columns: Collection[str]) -> dict[Key, Row]:
    """The table that these changes mean: of one key one row, of which all columns are known."""
    table: dict[tuple[str, Key], list[Row]] = {}  # two rows of a key for a while, the one that had it first before the other
    left: dict[tuple[str, Key], Row] = {}  # the row that a deletion took last
    for change in sorted(changes, key=lambda one: (one.source, one.order)):
        place = change.source, change.key
        rows = table.setdefault(place, [])
        match change.operation:
            case Operation.TRUNCATE:
                for other in table:
                    if other[0] == change.source:
                        table[other] = []
            case Operation.DELETE:
                left[place] = rows.pop(0) if rows else {}
            case _ if change.continues is not None:
                old = left[change.source, change.continues]
                if rows and change.transaction is None:  # keys are checked at once: it is the same row
                    rows[0] |= old | dict(change.columns)
                else:
                    rows.append(old | dict(change.columns))
            case _ if rows:
                rows[-1] |= change.columns
            case _:
                rows.append(dict(change.columns))
    last = {key: rows[-1] for (_, key), rows in table.items() if rows}
    return {key: {name: row[name] for name in columns} for key, row in last.items() if row.keys() >= set(columns)}
