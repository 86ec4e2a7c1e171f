"""Messages of Canal, Maxwell and AWS DMS: rows without a schema, as changes of declared types."""

import datetime
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from lakechime_dagster.cdc.change import Change, Key, Operation, Position, binlog_position
from lakechime_dagster.cdc.declared_values import NaturalColumns
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
from lakechime_dagster.compat import datetime_of_iso
from lakechime_dagster.tables.databases import Absent, BinaryText, Canal, Dms, Maxwell
from lakechime_dagster.tables.names import spelled_as


@dataclass(frozen=True)
class Part:
    """A row, or some columns of one, and the part of the message that it is, which errors name."""

    where: str
    found: Any


class Rows:
    """Makes changes of the rows of a table.

    Args:
        keys: The columns of the table's key, in their order.
        types: The type of each column of the table, in Spark's words. An inserted row is whole: a column that it lacks is null.
        binary: How bytes are written.
        absent: What it means where an update lacks a column.

    Raises:
        ValueError: A column of the key has no type, or one has a type of which such tools write no values.
    """

    def __init__(self, keys: Sequence[str], types: Mapping[str, str], binary: BinaryText, absent: Absent) -> None:
        for name in keys:
            if name not in types:
                raise ValueError(f"keys: no type is declared for {name}; name it in types=")
        self._keys = tuple(keys)
        self._columns = NaturalColumns(types, binary)
        self.ddl = self._columns.ddl
        self._table = dict.fromkeys(types)
        self._absent = absent

    def changes(self, told: Change, row: Part, old: Part) -> tuple[Change, ...]:
        """The changes of one row: one, or two where its key changed.

        Args:
            told: The change, without its key and columns.
            row: What the row is after the change; of a deletion what it was, of which the key alone is read.
            old: What columns were before an update, of those that it changed or of more; None where nothing is known.

        Raises:
            ValueError: A column of the key has no value, no type is known for a column, or a value is not of its type.
        """
        found = as_object(row.where, row.found)
        if told.operation is Operation.DELETE:
            return (replace(told, key=key_of(self._key_columns(found, row.where), self._keys, row.where)),)
        is_whole = told.operation is not Operation.UPDATE or self._absent is Absent.NULL
        columns = self._columns.read({**self._table, **found} if is_whole else found, row.where)
        is_partial = not is_whole and self._absent is Absent.UNCHANGED
        omitted = tuple(name for name in self._table if name not in found) if is_partial else ()
        upsert = replace(told, key=key_of(columns, self._keys, row.where), columns=columns, omitted=omitted)
        before = self._old_key(upsert, old)
        return (upsert,) if before is None else key_change(upsert, before)

    def _old_key(self, upsert: Change, old: Part) -> Key | None:
        """The key that this row had before, if it was another one."""
        if upsert.operation is not Operation.UPDATE or old.found is None:
            return None
        before = {**upsert.columns, **self._key_columns(as_object(old.where, old.found), old.where)}
        key = tuple(before[name] for name in self._keys)
        return key if None not in key and key != upsert.key else None

    def _key_columns(self, row: Mapping[str, Any], where: str) -> dict[str, Any]:
        return self._columns.read({name: row[name] for name in self._keys if name in row}, where)


class RowReader(EnvelopeReader):
    """Reads the messages of one table's topics that hold rows without their types.

    Args:
        envelope: The declared envelope.
        keys: The columns of the table's key, in their order.
        types: The type that the lake declares for each column of a row.
        only: The tables whose messages are read.

    Raises:
        ValueError: A column of the key has no type, or one has a type of which such tools write no values.
    """

    tool: ClassVar[str]

    def __init__(
        self, envelope: Canal | Maxwell | Dms, keys: Sequence[str], types: Mapping[str, str], only: TableFilter | None = None
    ) -> None:
        self._envelope, self._only = envelope, only or TableFilter()
        self._rows = Rows(keys, types, envelope.binary, envelope.absent)
        self._declared = dict.fromkeys((*keys, *types))

    def _read(self, record: Record, is_exact: bool) -> Reading:
        payload = message_of(record, self.tool, is_exact)
        return Tombstone(None, coordinate(record)) if payload is None else self._told(record, payload)

    @abstractmethod
    def _told(self, record: Record, payload: Mapping[str, Any]) -> Reading:
        """The same of the object that a message is."""

    def _spelled(self, row: Any) -> Any:
        """A row with the names of its columns as the lake declares them; what is no row as it is."""
        return row if not isinstance(row, dict) or row.keys() <= self._declared.keys() else spelled_as(self._declared, row)


_OF_CANAL = {"INSERT": Operation.CREATE, "UPDATE": Operation.UPDATE, "DELETE": Operation.DELETE, "TRUNCATE": Operation.TRUNCATE}
_NAME = r"(`[^`]+`|[\w$]+)"
_TRUNCATION = re.compile(rf"\s*(?:/\*.*?\*/\s*)*TRUNCATE\s+(?:TABLE\s+)?(?:{_NAME}\s*\.\s*)?{_NAME}\s*;?\s*", re.IGNORECASE | re.DOTALL)


class CanalReader(RowReader):
    """Reads the messages of Canal of one table's topics."""

    tool = "Canal"

    def _told(self, record: Record, payload: Mapping[str, Any]) -> Reading:
        operation = Operation.TRUNCATE if is_truncation(payload) else _OF_CANAL.get(str(payload.get("type")))
        if payload.get("isDdl") is True and operation is not Operation.TRUNCATE:
            return Control.SCHEMA_CHANGE
        if operation is None:
            known = ", ".join(_OF_CANAL)
            raise ValueError(f"type: a message of Canal that is no DDL has one of {known}, not {shown(payload.get('type'))}")
        database, table = (as_text(part, payload.get(part)) for part in ("database", "table"))
        if other := self._only.other(database, table):
            return other
        told = Change(
            source=f"{database}.{table}",
            operation=operation,
            order=order_of(record, operation, ()),
            event_ms=payload["es"] if type(payload.get("es")) is int else None,
        )
        if operation is Operation.TRUNCATE:
            return Changes((told,), self._rows.ddl)
        data = payload.get("data")
        if not isinstance(data, list) or not data:
            raise ValueError(f"data: a message of Canal that is no DDL has rows there, not {shown(data)}")
        data = list(map(self._spelled, data))
        old = payload.get("old")
        old = list(map(self._spelled, old)) if isinstance(old, list) else old
        return Changes(tuple(self._changes(told, data, old)), self._rows.ddl)

    def _changes(self, told: Change, data: Sequence[Any], old: Any) -> Iterator[Change]:
        if old is not None and (not isinstance(old, list) or len(old) != len(data)):
            raise ValueError(f"old: it is null, or has a row for each of the {len(data)} of data, not {shown(old)}")
        for index, row in enumerate(data):
            of_row = replace(told, order=told.order._replace(item=2 * index))  # and the next one, where its key changed
            before = Part(f"old[{index}]", None if old is None else old[index])
            yield from self._rows.changes(of_row, Part(f"data[{index}]", row), before)


def is_truncation(payload: Mapping[str, Any]) -> bool:
    """Whether a message tells a statement that truncates its table, of whatever type it says that it is."""
    found = _TRUNCATION.fullmatch(str(payload.get("sql"))) if payload.get("isDdl") is True else None
    if found is None:
        return False
    database, table = ((name or "").strip("`") for name in found.groups())
    return table == payload.get("table") and database in ("", payload.get("database"))


_BOOTSTRAP = "bootstrap-insert"
_OF_MAXWELL = {"insert": Operation.CREATE, "update": Operation.UPDATE, "delete": Operation.DELETE, _BOOTSTRAP: Operation.READ}
_OF_SCHEMAS = ("table-", "database-")  # create, alter, drop
_OF_BOOTSTRAPS = ("bootstrap-start", "bootstrap-complete")


class MaxwellReader(RowReader):
    """Reads the messages of Maxwell of one table's topics."""

    tool = "Maxwell"

    def _told(self, record: Record, payload: Mapping[str, Any]) -> Reading:
        kind = str(payload.get("type"))
        control = _maxwell_control(kind)
        if control is not None:
            return control
        if kind not in _OF_MAXWELL:
            known = ", ".join(_OF_MAXWELL)
            raise ValueError(f"type: a message of Maxwell about a row has one of {known}, not {shown(payload.get('type'))}")
        database, table = (as_text(part, payload.get(part)) for part in ("database", "table"))
        if other := self._only.other(database, table):
            return other
        told = Change(
            source=f"{database}.{table}",
            operation=_OF_MAXWELL[kind],
            order=order_of(record, _OF_MAXWELL[kind], _maxwell_position(payload.get("position"))),
            event_ms=1000 * payload["ts"] if type(payload.get("ts")) is int else None,  # seconds, but for DDL
            snapshot=kind if kind == _BOOTSTRAP else None,
        )
        data, old = self._spelled(payload.get("data")), self._spelled(payload.get("old"))
        return Changes(self._rows.changes(told, Part("data", data), Part("old", old)), self._rows.ddl)


def _maxwell_control(kind: str) -> Control | None:
    """What a message of a type that tells of no row is; None if it tells of one."""
    if kind in _OF_BOOTSTRAPS:
        return Control.SNAPSHOT
    return Control.SCHEMA_CHANGE if kind.startswith(_OF_SCHEMAS) else None


def _maxwell_position(found: Any) -> Position:
    """Of the row's event in the binlog; the rows of one event are in the order of their topic. Empty where it is not told."""
    if found is None:
        return ()
    place = binlog_position(str(found))
    if not place:
        raise ValueError(f"position: it is a binlog file and a byte in it, such as mysql-bin.000003:120, not {shown(found)}")
    return place


_LOAD = "load"
_OF_DMS = {_LOAD: Operation.READ, "insert": Operation.CREATE, "update": Operation.UPDATE, "delete": Operation.DELETE}
_DMS_TRUNCATION = "truncate-table"
_OF_DMS_MESSAGE = ("data", "metadata", "control")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


class DmsReader(RowReader):
    """Reads the messages of AWS DMS of one table's topics."""

    tool = "AWS DMS"

    def _told(self, record: Record, payload: Mapping[str, Any]) -> Reading:
        metadata = as_object("metadata", payload.get("metadata"))
        kind, is_control = str(metadata.get("operation")), metadata.get("record-type") == "control"
        if is_control and kind != _DMS_TRUNCATION:
            return Control.SCHEMA_CHANGE
        operation = Operation.TRUNCATE if is_control else _OF_DMS.get(kind)
        if operation is None:
            known = ", ".join(_OF_DMS)
            raise ValueError(f"metadata.operation: a message of AWS DMS has one of {known}, not {shown(metadata.get('operation'))}")
        schema, table = (as_text(f"metadata.{name}", metadata.get(name)) for name in ("schema-name", "table-name"))
        if other := self._only.other(schema, table):
            return other
        told = Change(
            source=f"{schema}.{table}",
            operation=operation,
            order=order_of(record, operation, _dms_position(metadata)),
            event_ms=_milliseconds(metadata.get("commit-timestamp")),
            snapshot=kind if kind == _LOAD else None,
        )
        if operation is Operation.TRUNCATE:
            return Changes((told,), self._rows.ddl)
        return self._changes(told, payload)

    def _changes(self, told: Change, payload: Mapping[str, Any]) -> Changes:
        assert isinstance(self._envelope, Dms)
        data, prefix = self._spelled(as_object("data", payload.get("data"))), self._envelope.before_prefix
        before = {name: value for name, value in data.items() if name.startswith(prefix) and name not in self._declared}
        row = {name: value for name, value in data.items() if name not in before}
        images = [name for name in payload if name not in _OF_DMS_MESSAGE]
        if len(images) > 1:
            raise ValueError(f"{', '.join(images)}: beside data and metadata a message of AWS DMS has a before image at most")
        where = images[0] if images else "data"
        before_image = as_object(where, payload[where] or {}) if images else {}
        old = self._spelled({name.removeprefix(prefix): value for name, value in before.items()} | dict(before_image))
        return Changes(self._rows.changes(told, Part("data", row), Part(where, old)), self._rows.ddl)


def _dms_position(metadata: Mapping[str, Any]) -> Position:
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
