"""Debezium's envelopes: full, without schema, flattened; its transaction and heartbeat messages."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lakechime_dagster.cdc.change import (
    Change,
    Key,
    Operation,
    position_of,
    table_of,
    transaction_of,
)
from lakechime_dagster.cdc.record import (
    Beat,
    Changes,
    Control,
    EnvelopeReader,
    MessageReader,
    Reading,
    Record,
    TableFilter,
    Tombstone,
    as_object,
    boundary_of,
    coordinate,
    key_change,
    key_of,
    keys_in,
    order_of,
    placed_in,
    shown,
)
from lakechime_dagster.cdc.schema import ReadColumns, Schemas
from lakechime_dagster.cdc.values import Columns, ConnectSchema
from lakechime_dagster.tables.databases import Debezium

_DELETED = "__deleted"  # "true" as text, with `delete.tombstone.handling.mode=rewrite`
_PREFIX = "__"
_OF_SOURCE = "__source_"


def is_column(name: str) -> bool:
    """Whether a field of a flattened message is a column of the row, and not one that was put
    beside it.
    """
    return not name.startswith(_PREFIX)


def unflattened(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The envelope that a flattened message was made of, as far as it can be read."""
    row = {name: value for name, value in payload.items() if is_column(name)}
    beside = {name: value for name, value in payload.items() if not is_column(name)}
    is_deleted = str(beside.get(_DELETED)).lower() == "true"
    operation = beside.get("__op") or (Operation.DELETE if is_deleted else Operation.UPDATE)
    gone = operation == Operation.DELETE
    transaction = {
        "id": beside.get("__transaction_id"),
        "data_collection_order": beside.get("__transaction_data_collection_order"),
    }
    sides = {"before": row if gone else None, "after": None if gone else row}
    return {"op": str(operation), "source": _source(beside), **sides, "transaction": transaction}


def _source(beside: Mapping[str, Any]) -> dict[str, Any]:
    """The source block: fields of it are named `__source_pos` or, where `add.fields` names them
    alone, `__pos`.
    """
    found = {
        name.removeprefix(_PREFIX): value
        for name, value in beside.items()
        if not name.startswith(_OF_SOURCE)
    }
    found |= {
        name.removeprefix(_OF_SOURCE): value
        for name, value in beside.items()
        if name.startswith(_OF_SOURCE)
    }
    if "connector" not in found:
        if found.get("file") is not None and found.get("pos") is not None:
            found["connector"] = "mysql"
        elif found.get("lsn") is not None and found.get("sequence") is not None:
            found["connector"] = "postgresql"
    return found


OLD_KEY = (
    "__debezium.oldkey"  # header of a row that was inserted under the new key of an updated one
)
OPERATIONS = {operation.value: operation for operation in Operation}
_SIDES = ("before", "after")
_PARTS = {*_SIDES, "source", "op", "ts_ms", "ts_us", "ts_ns", "transaction"}  # of an envelope
_HEARTBEAT = {"ts_ms", "ts_us", "ts_ns"}
_SCHEMA_CHANGE = {"source", "databaseName", "ddl"}


class DebeziumReader(EnvelopeReader):
    """Reads the messages of one table's topics.

    Args:
        envelope: The declared envelope.
        keys: The columns of the table's key, in their order.
        schemas: Where the columns of messages without a schema are found; without it they are
            unreadable.
        only: The tables whose messages are read.
    """

    def __init__(
        self,
        envelope: Debezium,
        keys: Sequence[str],
        schemas: Schemas | None = None,
        only: TableFilter | None = None,
    ) -> None:
        self._only = only or TableFilter()
        placeholder = envelope.unavailable
        self._keys = tuple(keys)
        self._schemas = schemas
        self._tombstones_delete = envelope.tombstones_delete
        self._values = MessageReader(lambda schema: _columns_of(schema, placeholder))
        self._message_keys = MessageReader(lambda schema: Columns(schema, placeholder), part="key")

    def _read(self, record: Record, is_exact: bool) -> Reading:
        columns, payload = (
            (None, None)
            if record.value is None
            else self._values.read(record.value, is_exact=is_exact)
        )
        if payload is None:
            other = self._only.other(*table_of({}, record.topic))
            return other or Tombstone(self._key_of_tombstone(record, is_exact), coordinate(record))
        if not isinstance(payload, dict):
            raise ValueError(f"value: a message of Debezium is an object, not {shown(payload)}")
        control = control_of(payload) or boundary_of(payload)
        if control is not None:
            return control
        payload = payload if is_envelope(payload) else unflattened(payload)
        if not isinstance(payload["op"], str) or payload["op"] not in OPERATIONS:
            raise ValueError(
                f"op: a message of Debezium has one of {', '.join(OPERATIONS)}, not "
                f"{shown(payload['op'])}"
            )
        database, table = table_of(source_block(payload), record.topic)
        if other := self._only.other(database, table):
            return other
        known = columns or self._columns_without_schema(record.topic, payload)
        return Changes(
            self._changes(record, payload, known, is_exact),
            known.ddl,
            known.defaults,
            placed_in(payload),
        )

    def _columns_without_schema(self, topic: str, payload: Mapping[str, Any]) -> ReadColumns:
        """The columns of a message without a schema."""
        if self._schemas is None:
            remedy = (
                "set value.converter.schemas.enable=true in the connector, or declare "
                "SourceSchema(read_from=…)"
            )
            raise ValueError(f"schema: the message has none; {remedy}")
        row = payload.get("after") or payload.get("before") or {}
        return self._schemas.columns(source_block(payload), as_object("after", row), topic)

    def _changes(
        self, record: Record, payload: Mapping[str, Any], columns: ReadColumns, is_exact: bool
    ) -> tuple[Change, ...]:
        operation, source = OPERATIONS[payload["op"]], source_block(payload)
        order = order_of(record, operation, position_of(source))
        known = {
            "source": source_of(record, source),
            "transaction": transaction_of(source),
            "event_ms": source.get("ts_ms"),
            "snapshot": snapshot_of(source),
        }
        if operation is Operation.TRUNCATE:
            return (Change(operation=operation, order=order, **known),)
        if operation is Operation.DELETE:
            return (
                Change(
                    operation=operation,
                    order=order,
                    key=self._deleted_key(record, payload, columns, is_exact),
                    **known,
                ),
            )
        row = columns.read(as_object("after", payload.get("after")))
        key = key_of(row, self._keys, "after")
        continues = self._old_key(record, payload, columns, key, is_exact)
        omitted = (
            tuple(name for name in columns.ddl if name not in row)
            if len(row) < len(columns.ddl)
            else ()
        )
        upsert = Change(
            operation=operation,
            order=order,
            key=key,
            columns=row,
            omitted=omitted,
            continues=continues,
            **known,
        )
        if continues is None or OLD_KEY in record.headers:  # whose deletion is a message of its own
            return (upsert,)
        return key_change(upsert, continues)

    def _deleted_key(
        self, record: Record, payload: Mapping[str, Any], columns: ReadColumns, is_exact: bool
    ) -> Key:
        """The key of a deleted row: of what it was, or of the message where the database sent no
        more.
        """
        before = (
            {}
            if payload.get("before") is None
            else columns.read(as_object("before", payload["before"]))
        )
        if all(before.get(name) is not None for name in keys_in(before, self._keys)):
            return key_of(before, self._keys, "before")
        found = self._key_of_message(record, columns, is_exact)
        if found is None:
            row = shown(payload.get("before"))
            raise ValueError(
                f"before: a deletion has {', '.join(self._keys)} there or in its key; this one has "
                f"{row}"
            )
        return found

    def _old_key(
        self,
        record: Record,
        payload: Mapping[str, Any],
        columns: ReadColumns,
        key: Key,
        is_exact: bool,
    ) -> Key | None:
        """The key that this row had before, if it was another one."""
        if OLD_KEY in record.headers:
            types, old = self._message_keys.read(record.headers[OLD_KEY], is_exact=is_exact)
            return key_of(
                (types or columns).read(as_object(f"header {OLD_KEY}", old)),
                self._keys,
                f"header {OLD_KEY}",
            )
        if payload["op"] != Operation.UPDATE or payload.get("before") is None:
            return None
        was, after = as_object("before", payload["before"]), payload["after"]
        keys = keys_in(after, self._keys)
        if all(name in was and was[name] == after[name] for name in keys):
            return None
        before = columns.read({name: was.get(name) for name in keys})
        old = tuple(before.get(name) for name in keys)
        return old if None not in old and old != key else None

    def _key_of_tombstone(self, record: Record, is_exact: bool) -> Key | None:
        """The key of a message without a value, whose table its topic's name ends with; None where
        it is unknown how it is written.
        """
        try:
            known = None if self._schemas is None else self._schemas.columns({}, {}, record.topic)
        except ValueError:
            if self._tombstones_delete:
                raise
            known = None  # it says nothing that its deletion has not said
        return self._key_of_message(record, known, is_exact)

    def _key_of_message(
        self, record: Record, columns: ReadColumns | None, is_exact: bool
    ) -> Key | None:
        if record.key is None:
            return None
        types, payload = self._message_keys.read(record.key, is_exact=is_exact)
        known = types or columns
        return (
            None
            if payload is None or known is None
            else key_of(known.read(as_object("key", payload)), self._keys, "key")
        )


def is_envelope(payload: Mapping[str, Any]) -> bool:
    """Whether a message is an envelope, which may lack its `source`; a flattened row may have
    columns that are named like its parts.
    """
    if "op" not in payload:
        return False
    if isinstance(payload.get("source"), dict):
        return True
    sides = [payload[side] for side in _SIDES if side in payload]
    is_row = any(isinstance(side, dict) for side in sides) or (
        payload["op"] == Operation.TRUNCATE and sides == [None, None]
    )
    return payload.keys() <= _PARTS and is_row


def source_block(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """The `source` block of an envelope; empty where it has none.

    Raises:
        ValueError: It is no object.
    """
    return as_object("source", payload.get("source") or {})


def control_of(payload: Mapping[str, Any]) -> Control | None:
    """What a message about no row is; None if it is about one."""
    if is_envelope(payload):
        return Control.MESSAGE if payload["op"] == "m" else None
    if payload.keys() == _HEARTBEAT or payload.keys() == {"ts_ms"}:
        return Control.HEARTBEAT
    return (
        Control.SCHEMA_CHANGE
        if payload.keys() >= _SCHEMA_CHANGE and isinstance(payload["source"], dict)
        else None
    )


def source_of(record: Record, source: Mapping[str, Any]) -> str:
    """The table that a change is of, with its connector's name, also where several tables' changes
    are routed into one topic.
    """
    parts = [source.get("name"), source.get("schema") or source.get("db"), source.get("table")]
    return ".".join(map(str, parts)) if all(parts) else record.topic


def snapshot_of(source: Mapping[str, Any]) -> str | None:
    """The mark of a row that a snapshot read: `true`, `first`, `last`, `incremental`, …; None of
    one that was streamed.
    """
    found = source.get("snapshot")
    mark = str(found).lower()  # older connectors wrote a boolean
    return None if found is None or mark == "false" else mark


def _columns_of(message: ConnectSchema, placeholder: str) -> Columns:
    """The columns of the row in messages of this schema, which is a part of an envelope and most of
    a flattened one.
    """
    row, names = (
        message.field("after") or message.field("before"),
        {name for name, _ in message.fields},
    )
    if (
        row is None
        or row.type != "struct"
        or not ("source" in names or ("op" in names and names <= _PARTS))
    ):
        row = replace(message, fields=tuple(one for one in message.fields if is_column(one[0])))
    return Columns(row, placeholder)


_STREAMED = {"c", "u", "d"}


def beat_in(payload: Any) -> Reading:
    """How far the log of a server had come with a change of a heartbeat table; a row that a
    snapshot read does not say.
    """
    if not isinstance(payload, dict):
        return Control.HEARTBEAT
    envelope = payload if is_envelope(payload) else unflattened(payload)
    source = source_block(envelope)
    server, at = source.get("name"), source.get("ts_ms")
    if (
        envelope["op"] not in _STREAMED
        or not isinstance(server, str)
        or not server
        or type(at) is not int
    ):
        return Control.HEARTBEAT
    return Beat(server, at)
