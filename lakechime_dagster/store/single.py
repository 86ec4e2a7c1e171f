"""Registering one event by one statement, when what this process knows of its table still holds."""

from typing import Any

from sqlalchemy import Connection, bindparam, exists, insert, select
from sqlalchemy.exc import IntegrityError

from lakechime_dagster.dce.event import DataChangeEvent, RegisteredEvent
from lakechime_dagster.dce.partition import canonical_partition
from lakechime_dagster.dce.position import Position
from lakechime_dagster.dce.snapshots import meant_uid
from lakechime_dagster.store.appending import fresh_key
from lakechime_dagster.store.rows import values_of
from lakechime_dagster.store.schema import dce_event, dce_folded, dce_table
from lakechime_dagster.store.tables import TableRow

_SENT = (
    "partition_key", "partition_sent", "snapshot_id", "snapshot_ts", "prev_snapshot_id", "table_uid",
    "table_format", "operation_type", "tags", "producer_key", "event_key",
)  # fmt: skip


def register_single(connection: Connection, event: DataChangeEvent, table: TableRow) -> RegisteredEvent | None:
    """Register a new event by a statement that is a transaction of its own.

    None if it is a repeat, or if the table has changed since `table` was read: nothing was registered then, and the
    batch path tells which it is.
    """
    if event.table_uid is not None and table.table_uid is None:
        return None
    resolved = event.at_table(meant_uid(event.table_uid, table.table_uid))
    canonical = canonical_partition(event.partition, table.levels)
    values = values_of(resolved, canonical)
    values["event_key"] = resolved.identity_at(canonical) or fresh_key()
    guard = {"of_cluster": table.cluster, "of_name": table.name, "of_version": table.version}
    try:
        row = connection.execute(_STATEMENT, values | guard).one_or_none()
    except IntegrityError:
        return None  # somebody else registers the same event at this moment
    if row is None:
        return None
    return RegisteredEvent(event=resolved, event_ts=row.event_ts, position=Position(row.tx_id, row.seq), canonical=canonical)


def _statement() -> Any:
    """INSERT … SELECT from the table's row, which must have the version that we know and stays so until the commit.

    Without ON CONFLICT, whose statements are compiled anew each time: that would double the cost.
    """
    key = bindparam("event_key", type_=dce_event.c.event_key.type)
    there = exists(select(1).select_from(dce_event).where(dce_event.c.event_key == key))
    folded = exists(select(1).select_from(dce_folded).where(dce_folded.c.event_key == key))
    source = (
        select(dce_table.c.table_id, *(bindparam(name, type_=dce_event.c[name].type).label(name) for name in _SENT))
        .where(
            dce_table.c.cluster == bindparam("of_cluster"),
            dce_table.c.name == bindparam("of_name"),
            dce_table.c.version == bindparam("of_version"),
            ~there,
            ~folded,
        )
        .with_for_update(read=True, key_share=True, of=dce_table)
    )
    return insert(dce_event).from_select(["table_id", *_SENT], source).returning(dce_event.c.seq, dce_event.c.tx_id, dce_event.c.event_ts)


_STATEMENT = _statement()
