"""Rows of a dump that another tool made, as messages of the table that follows the database's: what a snapshot would have read there.

Each value becomes just what the column's own messages would tell, or is refused: nothing is rounded, cut or guessed. A message
has the columns that the dump has. Of one that came to the database's table later nothing is told, so that its row gets, as
every older one does, the default with which it came (`defaults`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from functools import cached_property
from math import isfinite
from typing import Any

from lakechime_dagster.cdc.canonical import Kind, Twin, lake_twin
from lakechime_dagster.cdc.comparing.compare import Key
from lakechime_dagster.cdc.comparing.log_place import BinlogPlace, StatedPlace
from lakechime_dagster.cdc.comparing.monitored import key_shown
from lakechime_dagster.cdc.comparing.repair import OF_BINLOG, Texts, Words, message
from lakechime_dagster.cdc.comparing.told_place import binlog_at, wal_at
from lakechime_dagster.cdc.messages.reading import EnvelopeReader
from lakechime_dagster.cdc.messages.record import Changes, Record, Unreadable
from lakechime_dagster.cdc.order import Position
from lakechime_dagster.cdc.schemas.columns import decoded
from lakechime_dagster.cdc.schemas.connect import ConnectSchema
from lakechime_dagster.cdc.schemas.natural import natural_type
from lakechime_dagster.cdc.schemas.values import InexactNumberError, ValueType, value_type
from lakechime_dagster.cdc.schemas.written import written
from lakechime_dagster.errors import LakeChimeError

_KINDS = {  # what a text says, by the name of its schema
    "io.debezium.data.Uuid": Kind.UUID, "io.debezium.data.VariableScaleDecimal": Kind.NUMBER,
    "org.apache.kafka.connect.data.Decimal": Kind.NUMBER,
    **dict.fromkeys(("org.apache.kafka.connect.data.Time", *(f"io.debezium.time.{unit}Time" for unit in ("", "Micro", "Nano"))), Kind.TIME),
}  # fmt: skip


class DumpError(LakeChimeError):
    """A dump cannot be told to a table; names the file, the row and the column, as far as it is the fault of one."""


@dataclass(frozen=True)
class DumpColumn:
    """How a value of a dump becomes one of a message: what is read of it, and its canonical text, which is written by the schema."""

    schema: ConnectSchema
    type: ValueType
    twin: Twin

    @staticmethod
    def of(schema: ConnectSchema) -> "DumpColumn":
        """The column of a schema.

        Raises:
            ValueError: No such values are written.
        """
        ddl = value_type(schema).ddl
        if ddl != "string":
            return DumpColumn(schema, natural_type(ddl), lake_twin(ddl))
        kind = _KINDS.get(schema.name or "", Kind.TEXT)
        return DumpColumn(schema, ValueType(ddl, _number if kind is Kind.NUMBER else _text), lake_twin(ddl, kind))

    def text(self, name: str, value: Any) -> str | None:
        """The canonical text of a value; None of null.

        Raises:
            ValueError: It is no value of the column; the message begins with the name.
        """
        if isinstance(value, bytes) and self.type.ddl == "binary":
            return self.twin(value)  # which JSON has no value for
        try:
            found = None if value is None else decoded(name, self.type, _plain(value))
        except InexactNumberError:
            raise ValueError(f"{name}: {value!r} is a binary fraction, which is no exact {self.type.ddl}; dump decimals as such") from None
        if found is None and not self.schema.is_optional:
            raise ValueError(f"{name}: {value!r} is null, and the database's column is NOT NULL")
        try:
            return None if found is None else self.twin(found)
        except OverflowError as problem:
            raise ValueError(f"{name}: {value!r} is no {self.type.ddl}: {problem}") from problem


@dataclass(frozen=True, kw_only=True)
class DumpWriter:
    """Writes the rows of one dump.

    Attributes:
        words: In which they are written; its columns are the dump's.
        at: The dump's place, as the connector's `source` tells it.
        keys: The columns that name a row.
        left_out: Columns of the dump of which messages do not tell.
        reader: What reads the table's messages.
    """

    words: Words
    at: Mapping[str, Any]
    keys: tuple[str, ...]
    left_out: tuple[str, ...]
    reader: EnvelopeReader

    @cached_property
    def columns(self) -> dict[str, DumpColumn]:
        found = dict[str, DumpColumn]()
        for name, schema in self.words.columns.items():
            try:
                found[name] = DumpColumn.of(schema)
            except ValueError as problem:
                kind = schema.name or schema.type
                remedy = "let the connector read the table by a snapshot of its own"
                raise DumpError(f"{self.words.table}: column {name}, {kind}, cannot be written: {problem}; {remedy}") from problem
        return found

    def record(self, at: Record, row: Mapping[str, Any]) -> tuple[Key, Record]:
        """The key of a row, and its message at a coordinate, which was read back.

        Raises:
            ValueError: It has other columns than the first row, or a value that no message can tell; the message says which.
        """
        if len(row) != len(self.columns) + len(self.left_out) or not row.keys() >= self.columns.keys():
            raise ValueError(f"it has the columns {', '.join(row)}, and the first row {', '.join([*self.columns, *self.left_out])}")
        texts = {name: one.text(name, row[name]) for name, one in self.columns.items()}
        after = {name: None if text is None else self._written(name, text) for name, text in texts.items()}
        key = tuple(text for name in self.keys if (text := texts[name]) is not None)
        record = replace(at, key=key_shown(key).encode(), value=message(self.words, self.at, None, after))
        self._check(record, texts)
        return key, record

    def _written(self, name: str, text: str) -> Any:
        schema = self.columns[name].schema
        try:
            return written(schema, text)
        except (ValueError, ArithmeticError, KeyError) as problem:
            raise ValueError(f"{name}: {text!r} has no form as {schema.name or schema.type}: {problem}") from problem

    def _check(self, record: Record, texts: Texts) -> None:
        """Hold what the table will read of a message against what was to be told."""
        reading = self.reader.read(record)
        if not isinstance(reading, Changes) or len(reading.changes) != 1:
            raise ValueError(reading.reason if isinstance(reading, Unreadable) else f"its message would be read as {reading}")
        (change,) = reading.changes
        for name, text in texts.items():
            value = change.columns.get(name)
            if name not in change.columns or (None if value is None else self.columns[name].twin(value)) != text:
                raise ValueError(f"{name}: {text!r} would become {value!r} in a message")


def writer_of(
    now: Words, then: Words, at: Mapping[str, Any], keys: tuple[str, ...], columns: Collection[str], reader: EnvelopeReader
) -> DumpWriter:
    """What writes the rows of a dump with these columns: as messages tell them now, or told them then.

    Args:
        now: The words of the table's newest message.
        then: Those of the newest one below the dump's place.
        at: The dump's place, as the connector's `source` tells it.
        keys: The columns that name a row.
        columns: Those of the dump.
        reader: What reads the table's messages.

    Raises:
        DumpError: The dump lacks a column of the key, or one that the database's table had then.
    """
    table = now.table
    if lacking := [name for name in keys if name not in columns]:
        raise DumpError(f"{table}: the dump has no column {', '.join(lacking)} of the key, only {', '.join(columns)}; dump it too")
    if lacking := [name for name in now.columns if name in then.columns and name not in columns]:
        problem = f"the dump has no column {', '.join(lacking)}, of which messages told below its place"
        raise DumpError(f"{table}: {problem}, so that its values then are not known; dump it too")
    left_out = tuple(name for name in columns if name not in now.columns and name not in then.columns)
    return DumpWriter(words=_narrowed(now, then, columns), at=at, keys=keys, left_out=left_out, reader=reader)


def _narrowed(now: Words, then: Words, columns: Collection[str]) -> Words:
    """The words of now, with these columns alone; those that are gone are as they were then. Its time is that of then."""
    told = {
        part["field"]: part
        for words in (then, now)
        for one in words.schema["fields"] if one["field"] == "after"
        for part in one["fields"] if part["field"] in columns
    }  # fmt: skip
    row = [{**one, "fields": [*told.values()]} if one["field"] in ("before", "after") else one for one in now.schema["fields"]]
    known = {**then.columns, **now.columns}
    return replace(now, schema={**now.schema, "fields": row}, columns={name: known[name] for name in told}, newest_ms=then.newest_ms)


def check_place(words: Words, place: StatedPlace) -> None:
    """Refuse a place of another database's log than that of the messages.

    Raises:
        DumpError: It is one.
    """
    connector = words.source["connector"]
    if isinstance(place, BinlogPlace) != (connector in OF_BINLOG):
        known = "a binary log, such as mysql-bin.000003:1234" if connector in OF_BINLOG else "PostgreSQL, such as 0/16B3748"
        raise DumpError(f"{words.table}: as_of {place} is no place of {connector}; state one of {known}")


def source_at(words: Words, place: StatedPlace, newest: Position) -> dict[str, Any]:
    """A dump's place, as the connector's `source` tells it.

    A transaction of PostgreSQL tells in the first part of its positions where the one before it had ended, and its changes may
    lie anywhere in the log. Among the positions whose first part is not above the dump's place the greatest first part is
    that of one transaction alone. It is the first above the dump, or the last in it that changed the table, whose rows the
    dump has too. So the dump stands below it, and above all others.

    Args:
        words: Of the table's messages.
        place: What was stated.
        newest: The greatest position whose first part is not above the place.
    """
    if isinstance(place, BinlogPlace):
        return binlog_at(words.source["file"], place)
    return {**wal_at(words, newest[0], 0), "lsn": place.lsn}


def _plain(value: Any) -> Any:
    """A value as tools write it in JSON, which `natural` reads."""
    match value:
        case datetime():
            return value.isoformat(" ")
        case date() | time():
            return value.isoformat()
        case float() if not isfinite(value):
            return {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")
        case _:
            return value


def _number(value: Any) -> str:
    if isinstance(value, float):
        raise InexactNumberError
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal) or not (found := Decimal(value)).is_finite():
        raise ValueError("it is a number")
    return format(found, "f")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("it is text")
    return value
