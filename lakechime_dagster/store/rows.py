"""Events as rows of `dce_event`, and back: the codes of formats and operations, the keys of events and of amendments."""

import json
import os
from typing import Any

from sqlalchemy import Row

from lakechime_dagster.dce.event import DataChangeEvent, OperationType, RegisteredEvent, TableFormat, digest, revived
from lakechime_dagster.dce.partition import UNPARTITIONED, PartitionValue, canonical_json, checked_partition
from lakechime_dagster.dce.position import Position
from lakechime_dagster.dce.tags import Tags

FORMAT_CODES = {TableFormat.HIVE: 1, TableFormat.ICEBERG: 2, TableFormat.DELTA: 3}
OPERATION_CODES = {OperationType.APPEND: 1, OperationType.DELETE: 2, OperationType.UPDATE: 3}
FORMATS = {code: member for member, code in FORMAT_CODES.items()}
OPERATIONS = {code: member for member, code in OPERATION_CODES.items()}


def values_of(event: DataChangeEvent, canonical: str) -> dict[str, Any]:
    """The columns that the event itself fills; tags as a map."""
    return {
        "partition_key": canonical,
        "partition_sent": sent_text(event.partition, canonical),
        "snapshot_id": event.snapshot_id,
        "snapshot_ts": event.snapshot_ts,
        "prev_snapshot_id": event.prev_snapshot_id,
        "table_uid": event.table_uid,
        "table_format": FORMAT_CODES[event.table_format],
        "operation_type": OPERATION_CODES[event.operation_type],
        "tags": dict(event.tags),
        "producer_key": event.event_key,
    }


def row_of(stored: RegisteredEvent, table_id: int, event_key: bytes) -> dict[str, Any]:
    """All columns of an event whose position is known."""
    position, amends = stored.position, stored.amends
    return {
        "seq": position.seq,
        "tx_id": position.tx_id,
        "event_ts": stored.event_ts,
        "table_id": table_id,
        **values_of(stored.event, stored.canonical),
        "event_key": event_key,
        "amends_tx": amends.tx_id if amends else None,
        "amends_seq": amends.seq if amends else None,
    }


def event_of(row: Row[Any]) -> RegisteredEvent:
    """The event of a row of `dce_event` joined with `cluster` and `name` of its table."""
    event = revived({
        "table": row.name,
        "table_format": FORMATS[row.table_format],
        "operation_type": OPERATIONS[row.operation_type],
        "partition": partition_of(row.partition_key, row.partition_sent),
        "snapshot_id": row.snapshot_id,
        "snapshot_ts": row.snapshot_ts,
        "prev_snapshot_id": row.prev_snapshot_id,
        "tags": Tags(row.tags),
        "cluster": row.cluster,
        "table_uid": row.table_uid,
        "event_key": row.producer_key,
    })  # fmt: skip
    return RegisteredEvent(
        event=event,
        event_ts=row.event_ts,
        position=Position(row.tx_id, row.seq),
        canonical=row.partition_key,
        amends=None if row.amends_seq is None else Position(row.amends_tx, row.amends_seq),
    )


def sent_text(partition: tuple[PartitionValue, ...] | None, canonical: str) -> str | None:
    """The partition as it was sent, where its canonical text does not say it already."""
    sent = UNPARTITIONED if partition is None else canonical_json(partition)
    return None if sent == canonical else sent


def partition_of(canonical: str, sent: str | None) -> tuple[PartitionValue, ...] | None:
    text = canonical if sent is None else sent
    return None if text == UNPARTITIONED else checked_partition(json.loads(text))


def fresh_key() -> bytes:
    """The key of an event that is never known again."""
    return os.urandom(16)


def amendment_key(identity: bytes, position: Position) -> bytes:
    """The key of an amendment: unique, since no two rows share a position."""
    return digest(["amends", identity.hex(), position.seq])
