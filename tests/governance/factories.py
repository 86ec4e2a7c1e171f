"""Makers of changes and of what they affect: each names only what a test is about."""

import datetime as dt
from typing import Any

from lakechime_dagster.governance.changes import AffectedReader, AffectedTable, Change, ChangeKind
from lakechime_dagster.lineage.columns import ColumnRef, Consumer, ConsumerKind

DAY_MS = 86_400_000
NOW_MS = 1_780_000_000_000  # 2026-05-28


def make_change(*refs: str, **fields: Any) -> Change:
    """A change of tables, or of columns as `schema.table:column`."""
    named = [ref.partition(":") for ref in refs or ("bronze.weather:humid",)]
    of = tuple(ColumnRef(table, column or None) for table, _, column in named)
    known = {
        "kind": ChangeKind.DEPRECATION,
        "what": "The station stops measuring it.",
        "on": dt.date(2026, 12, 31),
        "refs": of,
    }
    return Change(**known | fields)


def make_affected(
    table: str = "gold.daily", *owners: str, layer: int = 1, **fields: Any
) -> AffectedTable:
    """A table that is affected, and its owners."""
    return AffectedTable(table=table, layer=layer, owners=owners, **fields)


def make_reader(
    name: str = "Delays",
    owner: str = "ana@example.com",
    *refs: str,
    days_ago: int = 1,
    **fields: Any,
) -> AffectedReader:
    """A dashboard, read so many days ago."""
    kind = fields.pop("kind", ConsumerKind.DASHBOARD)
    of = tuple(ColumnRef(one) for one in refs or ("gold.daily",))
    consumer, owners = Consumer(kind, "bi", name), (owner,) if owner else ()
    return AffectedReader(
        consumer=consumer, refs=of, last_ms=NOW_MS - days_ago * DAY_MS, owners=owners, **fields
    )
