"""Messages of Canal, Maxwell and AWS DMS: rows without a schema, as changes of declared types."""

import datetime
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from lakechime_dagster.cdc.change import Change, Key, Operation, Position, binlog_position
from lakechime_dagster.cdc.record import (
    Changes,
    Control,
    EnvelopeReader,
    Reading,
    Record,
    TableFilter,
    Tombstone,
    as_object,
    as_text,
    coordinate,
    key_change,
    key_of,
    message_of,
    order_of,
    shown,
)
from lakechime_dagster.cdc.values import NaturalColumns
from lakechime_dagster.compat import datetime_of_iso
from lakechime_dagster.tables.databases import Absent, Canal, Dms, Maxwell
from lakechime_dagster.tables.names import spelled_as


class MessagePart(NamedTuple):
    """A row, or some columns of one, and the part of the message that it is, which errors name."""

    where: str
    found: Any


class Header(NamedTuple):
    """What a message says of its rows beside their columns.

    Attributes:
        operation: What happened to the rows; `READ` of those that a snapshot read.
        database: That of MySQL, else the schema.
        table: The table in it.
        event_ms: When, by the database, in milliseconds; None where unknown.
        position: In the database's log, by which changes are ordered; empty where it has none: then
            the order of the topic decides.
        snapshot: What kind of snapshot the row was read by; None of a change.
    """

    operation: Operation
    database: str
    table: str
    event_ms: int | None
    position: Position = ()
    snapshot: str | None = None


class RowReader(EnvelopeReader):
    """Reads the messages of one table's topics that hold rows without their types.

    Args:
        envelope: The declared envelope.
        keys: The columns of the table's key, in their order.
        types: The type of each column of the table, in Spark's words. An inserted row is whole: a
            column that it lacks is null.
        only: The tables whose messages are read.

    Raises:
        ValueError: A column of the key has no type, or one has a type of which such tools write no
            values.
    """

    tool: ClassVar[str]

    def __init__(
        self,
        envelope: Canal | Maxwell | Dms,
        keys: Sequence[str],
        types: Mapping[str, str],
        only: TableFilter | None = None,
    ) -> None:
        for name in keys:
            if name not in types:
                raise ValueError(f"keys: no type is declared for {name}; name it in types=")
        self._envelope, self._only = envelope, only or TableFilter()
        self._keys, self._declared = tuple(keys), dict.fromkeys(types)
        self._columns = NaturalColumns(types, envelope.binary)

    @abstractmethod
    def _header(self, payload: Mapping[str, Any]) -> Header | Control:
        """What a message is about, or what it is where it is about no row."""

    @abstractmethod
    def _rows(self, payload: Mapping[str, Any]) -> Sequence[tuple[MessagePart, MessagePart]]:
        """Each row of a message, and what columns of it were before: those that an update changed
        or more; None where unknown.

        Of a deletion the row is what it was, of which the key alone is read.
        """

    def _read(self, record: Record, is_exact: bool) -> Reading:
        payload = message_of(record, self.tool, is_exact)
        if payload is None:
            return Tombstone(None, coordinate(record))
        header = self._header(payload)
        if isinstance(header, Control):
            return header
        if other := self._only.other(header.database, header.table):
            return other
        change = Change(
            source=f"{header.database}.{header.table}",
            operation=header.operation,
            order=order_of(record, header.operation, header.position),
            event_ms=header.event_ms,
            snapshot=header.snapshot,
        )
        if header.operation is Operation.TRUNCATE:
            return Changes((change,), self._columns.ddl)
        changes = list[Change]()
        for index, (row, old) in enumerate(self._rows(payload)):
            # and the next one, where its key changed
            of_row = replace(change, order=change.order._replace(item=2 * index))
            changes += self._changes(of_row, row, old)
        return Changes(tuple(changes), self._columns.ddl)

    def _changes(self, change: Change, row: MessagePart, old: MessagePart) -> tuple[Change, ...]:
        """The changes of one row: one, or two where its key changed."""
        found = as_object(row.where, row.found)
        if change.operation is Operation.DELETE:
            return (
                replace(
                    change, key=key_of(self._key_columns(found, row.where), self._keys, row.where)
                ),
            )
        is_whole = change.operation is not Operation.UPDATE or self._envelope.absent is Absent.NULL
        columns = self._columns.read({**self._declared, **found} if is_whole else found, row.where)
        is_partial = not is_whole and self._envelope.absent is Absent.UNCHANGED
        omitted = tuple(name for name in self._declared if name not in found) if is_partial else ()
        upsert = replace(
            change, key=key_of(columns, self._keys, row.where), columns=columns, omitted=omitted
        )
        if change.operation is not Operation.UPDATE or old.found is None:
            return (upsert,)
        before = {**columns, **self._key_columns(as_object(old.where, old.found), old.where)}
        key: Key = tuple(before[name] for name in self._keys)
        return key_change(upsert, key) if None not in key and key != upsert.key else (upsert,)

    def _key_columns(self, row: Mapping[str, Any], where: str) -> dict[str, Any]:
        return self._columns.read({name: row[name] for name in self._keys if name in row}, where)

    def _spelled(self, row: Any) -> Any:
        """A row with the names of its columns as the lake declares them; what is no row as it
        is.
        """
        return (
            row
            if not isinstance(row, dict) or row.keys() <= self._declared.keys()
            else spelled_as(self._declared, row)
        )

    def _operation(self, name: str, found: Any, known: Mapping[str, Operation]) -> Operation:
        operation = known.get(str(found))
        if operation is None:
            raise ValueError(
                f"{name}: a message of {self.tool} about a row has one of {', '.join(known)}, not "
                f"{shown(found)}"
            )
        return operation


_OF_CANAL = {
    "INSERT": Operation.CREATE,
    "UPDATE": Operation.UPDATE,
    "DELETE": Operation.DELETE,
    "TRUNCATE": Operation.TRUNCATE,
}
_NAME = r"(`[^`]+`|[\w$]+)"
_TRUNCATION = re.compile(
    rf"\s*(?:/\*.*?\*/\s*)*TRUNCATE\s+(?:TABLE\s+)?(?:{_NAME}\s*\.\s*)?{_NAME}\s*;?\s*",
    re.IGNORECASE | re.DOTALL,
)


class CanalReader(RowReader):
    """Reads the messages of Canal of one table's topics."""

    tool = "Canal"

    def _header(self, payload: Mapping[str, Any]) -> Header | Control:
        if is_truncation(payload):
            operation = Operation.TRUNCATE
        elif payload.get("isDdl") is True and payload.get("type") != "TRUNCATE":
            return Control.SCHEMA_CHANGE
        else:
            operation = self._operation("type", payload.get("type"), _OF_CANAL)
        database, table = (as_text(part, payload.get(part)) for part in ("database", "table"))
        return Header(
            operation,
            database,
            table,
            event_ms=payload["es"] if type(payload.get("es")) is int else None,
        )

    def _rows(self, payload: Mapping[str, Any]) -> Sequence[tuple[MessagePart, MessagePart]]:
        data, old = payload.get("data"), payload.get("old")
        if not isinstance(data, list) or not data:
            raise ValueError(
                f"data: a message of Canal that is no DDL has rows there, not {shown(data)}"
            )
        if old is not None and (not isinstance(old, list) or len(old) != len(data)):
            raise ValueError(
                f"old: it is null, or has a row for each of the {len(data)} of data, not "
                f"{shown(old)}"
            )
        before = [None] * len(data) if old is None else map(self._spelled, old)
        pairs = enumerate(zip(map(self._spelled, data), before, strict=True))
        return [
            (MessagePart(f"data[{index}]", row), MessagePart(f"old[{index}]", was))
            for index, (row, was) in pairs
        ]


def is_truncation(payload: Mapping[str, Any]) -> bool:
    """Whether a message has a statement that truncates its table, of whatever type it says that it
    is.
    """
    found = _TRUNCATION.fullmatch(str(payload.get("sql"))) if payload.get("isDdl") is True else None
    if found is None:
        return False
    database, table = ((name or "").strip("`") for name in found.groups())
    return table == payload.get("table") and database in ("", payload.get("database"))


_BOOTSTRAP = "bootstrap-insert"
_OF_MAXWELL = {
    "insert": Operation.CREATE,
    "update": Operation.UPDATE,
    "delete": Operation.DELETE,
    _BOOTSTRAP: Operation.READ,
}
_OF_SCHEMAS = ("table-", "database-")  # create, alter, drop
_OF_BOOTSTRAPS = ("bootstrap-start", "bootstrap-complete")


class MaxwellReader(RowReader):
    """Reads the messages of Maxwell of one table's topics."""

    tool = "Maxwell"

    def _header(self, payload: Mapping[str, Any]) -> Header | Control:
        kind = str(payload.get("type"))
        if kind in _OF_BOOTSTRAPS:
            return Control.SNAPSHOT
        if kind.startswith(_OF_SCHEMAS):
            return Control.SCHEMA_CHANGE
        operation = self._operation("type", payload.get("type"), _OF_MAXWELL)
        database, table = (as_text(part, payload.get(part)) for part in ("database", "table"))
        # seconds, but for DDL
        event_ms = 1000 * payload["ts"] if type(payload.get("ts")) is int else None
        snapshot = kind if kind == _BOOTSTRAP else None
        return Header(
            operation,
            database,
            table,
            event_ms,
            _maxwell_position(payload.get("position")),
            snapshot,
        )

    def _rows(self, payload: Mapping[str, Any]) -> Sequence[tuple[MessagePart, MessagePart]]:
        data, old = self._spelled(payload.get("data")), self._spelled(payload.get("old"))
        return [(MessagePart("data", data), MessagePart("old", old))]


def _maxwell_position(found: Any) -> Position:
    """Of the row's event in the binlog; the rows of one event are in the order of their topic.
    Empty where it has none.
    """
    if found is None:
        return ()
    position = binlog_position(str(found))
    if not position:
        raise ValueError(
            f"position: it is a binlog file and a byte in it, such as mysql-bin.000003:120, not "
            f"{shown(found)}"
        )
    return position


_LOAD = "load"
_OF_DMS = {
    _LOAD: Operation.READ,
    "insert": Operation.CREATE,
    "update": Operation.UPDATE,
    "delete": Operation.DELETE,
}
_DMS_TRUNCATION = "truncate-table"
_OF_DMS_MESSAGE = ("data", "metadata", "control")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


class DmsReader(RowReader):
    """Reads the messages of AWS DMS of one table's topics."""

    tool = "AWS DMS"

    def _header(self, payload: Mapping[str, Any]) -> Header | Control:
        metadata = as_object("metadata", payload.get("metadata"))
        kind, is_control = str(metadata.get("operation")), metadata.get("record-type") == "control"
        if is_control and kind != _DMS_TRUNCATION:
            return Control.SCHEMA_CHANGE
        operation = (
            Operation.TRUNCATE
            if is_control
            else self._operation("metadata.operation", metadata.get("operation"), _OF_DMS)
        )
        schema, table = (
            as_text(f"metadata.{name}", metadata.get(name))
            for name in ("schema-name", "table-name")
        )
        event_ms, snapshot = (
            _milliseconds(metadata.get("commit-timestamp")),
            kind if kind == _LOAD else None,
        )
        return Header(operation, schema, table, event_ms, _dms_position(metadata), snapshot)

    def _rows(self, payload: Mapping[str, Any]) -> Sequence[tuple[MessagePart, MessagePart]]:
        assert isinstance(self._envelope, Dms)
        data, prefix = (
            self._spelled(as_object("data", payload.get("data"))),
            self._envelope.before_prefix,
        )
        before = {
            name: value
            for name, value in data.items()
            if name.startswith(prefix) and name not in self._declared
        }
        row = {name: value for name, value in data.items() if name not in before}
        images = [name for name in payload if name not in _OF_DMS_MESSAGE]
        if len(images) > 1:
            raise ValueError(
                f"{', '.join(images)}: beside data and metadata a message of AWS DMS has a before "
                f"image at most"
            )
        where = images[0] if images else "data"
        image = as_object(where, payload[where] or {}) if images else {}
        old = self._spelled(
            {name.removeprefix(prefix): value for name, value in before.items()} | dict(image)
        )
        return [(MessagePart("data", row), MessagePart(where, old))]


def _dms_position(metadata: Mapping[str, Any]) -> Position:
    """The position in MySQL's binlog, and below it the record's number in its transaction; empty
    where it has none.
    """
    position = binlog_position(str(metadata.get("stream-position")))
    number = metadata.get("transaction-record-id")
    return (*position, number if type(number) is int else 0) if position else ()


def _milliseconds(commit: Any) -> int | None:
    """The time of a commit; None where it has none."""
    try:
        return (datetime_of_iso(commit) - _EPOCH) // datetime.timedelta(milliseconds=1)
    except (TypeError, ValueError):
        return None
