"""The envelope of AWS DMS, as it writes to Kafka and Kinesis."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from lakechime_dagster.cdc.change import Change, Operation, Position, binlog_position
from lakechime_dagster.cdc.record import (
    Changes,
    Control,
    Reading,
    Record,
    TableFilter,
    Tombstone,
    as_object,
    as_text,
    coordinate,
    message_of,
    order_of,
    shown,
)
from lakechime_dagster.cdc.row_messages import Part, RowReader, RowSchemas
from lakechime_dagster.compat import datetime_of_iso
from lakechime_dagster.tables.databases import Dms

READ = "load"
OPERATIONS = {READ: Operation.READ, "insert": Operation.CREATE, "update": Operation.UPDATE, "delete": Operation.DELETE}
TRUNCATION = "truncate-table"
_PARTS = ("data", "metadata", "control")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


class DmsReader(RowReader):
    """Reads the messages of AWS DMS of one table's topics."""

    def __init__(
        self,
        envelope: Dms,
        keys: Sequence[str],
        types: Mapping[str, str],
        schemas: RowSchemas | None = None,
        only: TableFilter | None = None,
    ) -> None:
        super().__init__(envelope, keys, types, schemas, only)
        self._prefix = envelope.before_prefix

    def _read(self, record: Record, is_exact: bool) -> Reading:
        payload = message_of(record, "AWS DMS", is_exact)
        if payload is None:
            return Tombstone(None, coordinate(record))
        metadata = as_object("metadata", payload.get("metadata"))
        kind, is_control = str(metadata.get("operation")), metadata.get("record-type") == "control"
        if is_control and kind != TRUNCATION:
            return Control.SCHEMA_CHANGE
        operation = Operation.TRUNCATE if is_control else OPERATIONS.get(kind)
        if operation is None:
            known = ", ".join(OPERATIONS)
            raise ValueError(f"metadata.operation: a message of AWS DMS has one of {known}, not {shown(metadata.get('operation'))}")
        schema, table = (as_text(f"metadata.{name}", metadata.get(name)) for name in ("schema-name", "table-name"))
        if other := self._only.other(schema, table):
            return other
        told = Change(
            source=f"{schema}.{table}",
            operation=operation,
            order=order_of(record, operation, position_of(metadata)),
            event_ms=_milliseconds(metadata.get("commit-timestamp")),
            snapshot=kind if kind == READ else None,
        )
        if operation is Operation.TRUNCATE:
            return Changes((told,), self._schemas.rows(told.source, told.order.position, ()).ddl)
        return self._changes(told, payload)

    def _changes(self, told: Change, payload: Mapping[str, Any]) -> Changes:
        data, table = self._spelled(as_object("data", payload.get("data"))), told.source
        before = {name: value for name, value in data.items() if name.startswith(self._prefix) and not self._schemas.knows(table, name)}
        row = {name: value for name, value in data.items() if name not in before}
        images = [name for name in payload if name not in _PARTS]
        if len(images) > 1:
            raise ValueError(f"{', '.join(images)}: beside data and metadata a message of AWS DMS has a before image at most")
        where = images[0] if images else "data"
        image = as_object(where, payload[where] or {}) if images else {}
        old = self._spelled({name.removeprefix(self._prefix): value for name, value in before.items()} | dict(image))
        rows = self._schemas.rows(table, told.order.position, tuple(row))
        return Changes(rows.changes(told, Part("data", row), Part(where, old)), rows.ddl)


def position_of(metadata: Mapping[str, Any]) -> Position:
    """The position in MySQL's binlog, and below it the record's number in its transaction; empty where none is told."""
    place = binlog_position(str(metadata.get("stream-position")))
    number = metadata.get("transaction-record-id")
    return (*place, number if type(number) is int else 0) if place else ()


def _milliseconds(commit: Any) -> int | None:
    """The time of a commit; None if it is not told."""
    try:
        return (datetime_of_iso(commit) - _EPOCH) // datetime.timedelta(milliseconds=1)
    except (TypeError, ValueError):
        return None
