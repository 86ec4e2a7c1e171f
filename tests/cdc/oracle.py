"""The meaning of a set of changes, told once more as plainly as possible: what every fold is held against."""

from collections.abc import Collection, Sequence
from typing import Any

from lakechime_dagster.cdc.change import Change, Key, Operation
from lakechime_dagster.cdc.order import Order

NEVER, ALWAYS = Order(epoch=-1), Order(epoch=2**31)


def rows_of(changes: Sequence[Change], columns: Collection[str]) -> dict[Key, dict[str, Any]]:
    """The table that these changes mean."""
    keys = {change.key for change in changes if change.operation is not Operation.TRUNCATE}
    known = {key: values(changes, key, ALWAYS) for key in keys}
    return {key: {name: row[name] for name in columns} for key, row in known.items() if row is not None and row.keys() >= set(columns)}


def values(changes: Sequence[Change], key: Key, below: Order) -> dict[str, Any] | None:
    """The columns of a key by the changes below an order; None when its row does not live."""
    mine = [change for change in changes if change.key == key and change.operation is not Operation.TRUNCATE]
    sources = {change.source for change in mine}
    truncates = [change for change in changes if change.operation is Operation.TRUNCATE and change.source in sources]
    ends = [change.order for change in [*mine, *truncates] if not change.operation.is_upsert and change.order < below]
    end = max(ends, default=NEVER)
    living = sorted((change for change in mine if change.operation.is_upsert and end < change.order < below), key=lambda one: one.order)
    found: dict[str, Any] = {}
    for change in living:
        if change.continues is not None:
            found |= values(changes, change.continues, change.order.before_deletion()) or {}
        found |= change.columns
    return found if living else None
