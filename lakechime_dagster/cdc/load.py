"""Rows of a database at a consistent snapshot: read for a repair, or of a dump."""

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from decimal import Decimal
from functools import cached_property
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from lakechime_dagster.cdc.canonical import ValueKind, lake_twin, value_of
from lakechime_dagster.cdc.change import (
    REPAIRS,
    BinlogPosition,
    Position,
    StatedPosition,
    WalPosition,
    row_text,
)
from lakechime_dagster.cdc.compare import Comparison, Key
from lakechime_dagster.cdc.debezium import is_envelope, source_block, unflattened
from lakechime_dagster.cdc.job import MessageFormat
from lakechime_dagster.cdc.record import Changes, Record, parsed, parts_of
from lakechime_dagster.cdc.values import (
    EXACT,
    ConnectSchema,
    InexactNumberError,
    ValueType,
    connect_schema,
    decoded,
    natural_type,
)
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.tables.databases import Debezium, Maxwell

LOADS = f"{REPAIRS}load/"  # with which the topic ids of loaded rows begin
ORIGIN = "lakechime-origin"  # the header that says what wrote a row
OF_BINLOG, OF_WAL = ("mariadb", "mysql"), "postgresql"  # connectors, by the kind of their log
_DIGITS = {
    "org.apache.kafka.connect.data.Time": 3,
    "io.debezium.time.Time": 3,
    "io.debezium.time.MicroTime": 6,
    "io.debezium.time.NanoTime": 9,
}
_KINDS = {  # what a text means, by the name of its schema
    "io.debezium.data.Uuid": ValueKind.UUID,
    "io.debezium.data.VariableScaleDecimal": ValueKind.NUMBER,
    "org.apache.kafka.connect.data.Decimal": ValueKind.NUMBER,
    **dict.fromkeys(_DIGITS, ValueKind.TIME),
}
Texts = Mapping[str, str | None]  # the canonical texts of a row, by column


class UnrepairableError(LakeChimeError):
    """A row cannot be repaired or loaded; says why, and what can be done instead."""


class DumpError(LakeChimeError):
    """A dump cannot be loaded; names the file, the row and the column, as far as it is the fault of
    one.
    """


class LoadGapError(LakeChimeError):
    """Changes may be lost between the rows of a load and the first change that was streamed."""


def check_reach(table: str, source: str, stated: StatedPosition, first: Position | None) -> None:
    """Refuse a dump below which the stream does not begin.

    Args:
        table: The one to load.
        source: The one of the database, as its messages name it.
        stated: The position of the dump.
        first: That of the first change that was streamed; None where there is none.

    Raises:
        LoadGapError: no message would report what lies between them.
    """
    if first is not None and first[: len(stated.position)] <= stated.position:
        return
    if first is None:
        why = (
            f"no message of {source} was streamed yet, so that what changes from now on may not be "
            f"streamed"
        )
    else:
        begins = (
            BinlogPosition(first) if isinstance(stated, BinlogPosition) else WalPosition(first[0])
        )
        why = (
            f"the stream of {source} begins at {begins}, above {stated}: no message reports what "
            f"changed between them"
        )
    raise LoadGapError(
        f"{table}: {why}; start the connector, wait for a change of a row, and load what was "
        f"dumped since"
    )


@dataclass(frozen=True, kw_only=True)
class Form:
    """In what form the rows of a table are written, by one of its messages.

    Attributes:
        table: The one that errors name.
        source: The table of the server, as the message names it.
        connector: What wrote the message; MySQL's where the envelope is one of MySQL's alone.
        newest_ms: The newest time that the messages report.
        types: The types of the columns, in Spark's words.
        defaults: The constant defaults of columns.
        row: The columns that the message carries.
        schemas: The schemas of the columns, where the message has them.
        parts: How many parts a position has.
        is_first: It is of the first transaction that PostgreSQL's connector streamed, which does
            not report where the one before ended.
    """

    table: str
    source: str
    connector: str
    newest_ms: int | None
    types: Mapping[str, str]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    row: Mapping[str, Any] = field(default_factory=dict)
    schemas: Mapping[str, ConnectSchema] = field(default_factory=dict)
    parts: int = 3
    is_first: bool = False

    def record(
        self,
        at: Record,
        position: Position,
        key: Key,
        row: Mapping[str, Any],
        *,
        is_deleted: bool = False,
    ) -> Record:
        """A row at a position of the log as a record, which `record.SnapshotRowReader` reads; of
        one that the database does not have its key alone.

        It reports no later time than the messages do, which would say that all changes before it
        arrived.
        """
        value = {
            "source": self.source,
            "position": position,
            "ts_ms": self.newest_ms,
            "types": dict(self.types),
            "defaults": orjson.Fragment(row_text(self.defaults)),
            "row": orjson.Fragment(row_text(row)),
            "deleted": is_deleted,
        }
        return replace(at, key=orjson.dumps(list(key)), value=orjson.dumps(value))

    def value(self, name: str, kind: ValueKind, text: str) -> Any:
        """The value that a column has for a canonical text.

        Raises:
            ValueError, ArithmeticError: The column has no such value.
        """
        ddl = self.types[name]
        found = value_of(ddl, text)
        if ddl == "string" and kind is ValueKind.TIME:
            return self._time(name, text)
        schema = self.schemas.get(name)
        if ddl == "string" and kind is ValueKind.NUMBER and schema and "scale" in schema.parameters:
            return format(
                Decimal(text).quantize(
                    Decimal(1).scaleb(-int(schema.parameters["scale"])), context=EXACT
                ),
                "f",
            )
        return found

    def _time(self, name: str, text: str) -> str:
        """A time of day as the table's messages spell it: with the digits of its schema, or of the
        value that the message has.
        """
        schema, example = self.schemas.get(name), str(self.row.get(name) or "")
        zone = (
            "Z"
            if example.endswith(("Z", "+00:00"))
            or (schema and schema.name == "io.debezium.time.ZonedTime")
            else ""
        )
        whole, _, fraction = text.partition(".")
        if not zone:
            known = _DIGITS.get(schema.name or "") if schema else None
            digits = (
                known if known is not None else len(example.partition(".")[2]) if example else 6
            )
            fraction = fraction.ljust(digits, "0")
        return whole + (f".{fraction}" if fraction else "") + zone


def form_of(table: str, message: Record, messages: MessageFormat, newest_ms: int | None) -> Form:
    """The form of the rows of a table.

    Args:
        table: The one that errors name.
        message: One that reports a row.
        messages: How it is read.
        newest_ms: The newest time that the messages report.

    Raises:
        UnrepairableError: The message does not report the types of its columns, or a position that
            is known to have an order.
    """
    remedy = f"load the rows of {table} again by that tool, as by a new snapshot of the connector"
    reading = messages.reader().read(message)
    if not isinstance(reading, Changes) or not reading.changes or not reading.types:
        raise UnrepairableError(
            f"{table}: the types of its columns are not known yet, as its messages have no schema: "
            f"{reading}; {remedy}"
        )
    schema, payload = parts_of(parsed(message.value or b"null", "value", is_exact=False))
    change, source = reading.changes[-1], {}
    if isinstance(messages.envelope, Debezium):
        source = source_block(payload if is_envelope(payload) else unflattened(payload))
    connector = (
        str(source.get("connector")) if isinstance(messages.envelope, Debezium) else OF_BINLOG[1]
    )
    sequence = source.get("sequence")
    if connector not in (*OF_BINLOG, OF_WAL) or (connector == OF_WAL and not sequence):
        raise UnrepairableError(
            f"{table}: its messages have no position of MariaDB's, MySQL's or PostgreSQL's log, so "
            f"that rows that are read there have no "
            f"order among them; {remedy}"
        )
    described = connect_schema(schema) if schema else None
    row = described and (described.field("after") or described)
    return Form(
        table=table,
        source=change.source,
        connector=connector,
        newest_ms=newest_ms,
        types=reading.types,
        defaults=reading.defaults,
        row=change.columns,
        schemas=dict(row.fields) if row else {},
        parts=2 if isinstance(messages.envelope, Maxwell) else 3,
        is_first=connector == OF_WAL and orjson.loads(str(sequence))[0] is None,
    )


def snapshot_position(form: Form, stated: StatedPosition, newest: int) -> Position:
    """The position of rows that were read in the database at a position of its log.

    Positions of PostgreSQL begin with the position at which the transaction before had ended, which
    is below what lies above the snapshot. So the greatest that messages had before the snapshot is
    used: what they report has no greater one, and is in the snapshot. What is later has a greater
    one, or lies above the snapshot by its own part.

    Args:
        form: Of the table's rows.
        stated: Of the snapshot.
        newest: The greatest first part of positions that the messages had before the snapshot was
            taken; any of a binary log.

    Raises:
        UnrepairableError: The messages are of another database, or have positions that this one's
            log has not reached.
    """
    remedy = "let Monitor(database=…) name the server that the connector reads"
    if isinstance(stated, BinlogPosition) != (form.connector in OF_BINLOG):
        raise UnrepairableError(
            f"{form.table}: its messages are those of {form.connector}, and {stated} is no "
            f"position of it; {remedy}"
        )
    if isinstance(stated, BinlogPosition):
        return _of_binlog(form, stated)
    if newest > stated.lsn:
        raise UnrepairableError(
            f"{form.table}: its messages have {WalPosition(newest)}, which the database, at "
            f"{stated}, has not reached; {remedy}"
        )
    return newest, stated.lsn - 1


def dump_position(form: Form, stated: StatedPosition, newest: Position) -> Position:
    """The position of rows of a dump.

    The position of a change of PostgreSQL begins with the position at which the transaction before
    had ended, and its own part may be anywhere in the log. Among the positions whose first part is
    not above the dump's position the greatest first part is that of one transaction alone. It is
    the first above the dump, or the last in it that changed the table, whose rows the dump has too.
    So the dump stands below it, and above all others.

    Args:
        form: Of the table's rows.
        stated: The position that was stated.
        newest: The greatest position whose first part is not above that.

    Raises:
        DumpError: The position is of another kind of log.
    """
    if isinstance(stated, BinlogPosition) != (form.connector in OF_BINLOG):
        known = (
            "PostgreSQL, such as 0/16B3748"
            if form.connector == OF_WAL
            else "a binary log, such as mysql-bin.000003:1234"
        )
        raise DumpError(
            f"{form.table}: as_of {stated} is no position of {form.connector}; state one of {known}"
        )
    return _of_binlog(form, stated) if isinstance(stated, BinlogPosition) else (newest[0], 0)


def _of_binlog(form: Form, stated: BinlogPosition) -> Position:
    return (*stated.position[:2], 0)[: form.parts]


@dataclass(frozen=True, kw_only=True)
class RowWriter:
    """Writes what the database has for keys at one position."""

    form: Form
    position: Position
    comparison: Comparison

    def record(self, at: Record, key: Key, row: Texts | None) -> Record:
        """The row of a key as a record at a coordinate; None is no row there.

        Columns that messages do not have are left out.

        Raises:
            UnrepairableError: A value cannot be written, or would become another one.
        """
        texts = dict(zip(self.comparison.keys, key, strict=True)) if row is None else row
        values = {
            name: None if text is None else self._value(name, text)
            for name, text in texts.items()
            if name in self.form.types
        }
        return self.form.record(at, self.position, key, values, is_deleted=row is None)

    def _value(self, name: str, text: str) -> Any:
        found, ddl = self.comparison.columns[name], self.form.types[name]
        try:
            value = self.form.value(name, found.kind, text)
            written = found.twin(value)
        except (ValueError, ArithmeticError, TypeError, AttributeError) as problem:
            raise UnrepairableError(
                f"{self.form.table}: column {name}: {text!r} is no value of {ddl}: {problem}"
            ) from problem
        if written != text:
            raise UnrepairableError(
                f"{self.form.table}: column {name}: {text!r} would become {value!r}, which is "
                f"written as {written!r}"
            )
        return value


def left_out(
    form: Form, source: Collection[str], lake: Sequence[str], comparison: Comparison
) -> list[str]:
    """The columns of the lake's table that a row must have and cannot.

    One that neither the database nor its messages have any more is none of them: rows keep what
    they had. It may have another name here, though, where the lake lacks a column that the messages
    have.
    """
    has_all = all(name in comparison.columns or name not in form.types for name in source)
    gone = {name for name in lake if has_all and name not in source and name not in form.types}
    return [
        name
        for name in lake
        if name not in gone and (name not in form.types or name not in comparison.columns)
    ]


@dataclass(frozen=True)
class DumpColumn:
    """How a value of a dump becomes one of the column: one of its type, spelled as messages spell
    it.
    """

    form: Form
    name: str
    kind: ValueKind
    type: ValueType

    @staticmethod
    def of(form: Form, name: str) -> "DumpColumn":
        """A column.

        Raises:
            ValueError: Such values cannot be read from a dump.
        """
        ddl, schema = form.types[name], form.schemas.get(name)
        kind = _KINDS.get((schema.name if schema else None) or "", ValueKind.TEXT)
        if ddl != "string":
            return DumpColumn(form, name, ValueKind.TEXT, natural_type(ddl))
        return DumpColumn(
            form, name, kind, ValueType(ddl, _number if kind is ValueKind.NUMBER else _text)
        )

    def value(self, value: Any) -> Any:
        """A value of the dump as one of the column.

        Raises:
            ValueError: It is none; the message begins with the name.
        """
        if value is None or (isinstance(value, bytes) and self.type.ddl == "binary"):
            return value
        try:
            found = decoded(self.name, self.type, _plain(value))
        except InexactNumberError:
            raise ValueError(
                f"{self.name}: {value!r} is a binary fraction, which is no exact {self.type.ddl}; "
                f"dump decimals as such"
            ) from None
        if found is None or self.type.ddl != "string" or self.kind is ValueKind.TEXT:
            return found
        return self.form.value(self.name, self.kind, lake_twin("string", self.kind)(found))


@dataclass(frozen=True, kw_only=True)
class DumpWriter:
    """Writes the rows of one dump.

    Attributes:
        form: Of its rows; its columns are the dump's.
        position: The dump's.
        keys: The columns that name a row.
        left_out: Columns of the dump that messages do not have.
    """

    form: Form
    position: Position
    keys: tuple[str, ...]
    left_out: tuple[str, ...]

    @cached_property
    def columns(self) -> dict[str, DumpColumn]:
        found = dict[str, DumpColumn]()
        for name, ddl in self.form.types.items():
            try:
                found[name] = DumpColumn.of(self.form, name)
            except ValueError as problem:
                remedy = "let the connector read the table by a snapshot of its own"
                raise DumpError(
                    f"{self.form.table}: column {name}, {ddl}, cannot be loaded: {problem}; "
                    f"{remedy}"
                ) from problem
        return found

    def record(self, at: Record, row: Mapping[str, Any]) -> tuple[Key, Record]:
        """The key of a row, in canonical texts, and the row as a record at a coordinate.

        Raises:
            ValueError: It has other columns than the first row, or a value that is none of its
                column; the message says which.
        """
        if (
            len(row) != len(self.columns) + len(self.left_out)
            or not row.keys() >= self.columns.keys()
        ):
            raise ValueError(
                f"it has the columns {', '.join(row)}, and the first row "
                f"{', '.join([*self.columns, *self.left_out])}"
            )
        values = {name: one.value(row[name]) for name, one in self.columns.items()}
        if lacking := next((name for name in self.keys if values[name] is None), None):
            raise ValueError(
                f"{lacking}: {row[lacking]!r} is null, and a column of the key has a value in each "
                f"row"
            )
        key = tuple(lake_twin(self.form.types[name])(values[name]) for name in self.keys)
        return key, self.form.record(at, self.position, key, values)


def writer_of(
    now: Form, then: Form, position: Position, keys: tuple[str, ...], columns: Collection[str]
) -> DumpWriter:
    """What writes the rows of a dump with these columns: as messages have them now, or had them
    then.

    A row has the columns that the dump has. One that was added to the database's table later gets,
    as every older row does, the default with which it was added.

    Args:
        now: The form by the table's newest message.
        then: That by the newest one below the dump's position.
        position: The dump's.
        keys: The columns that name a row.
        columns: Those of the dump.

    Raises:
        DumpError: The dump lacks a column of the key, or one that the database's table had then.
    """
    table = now.table
    if lacking := [name for name in keys if name not in columns]:
        raise DumpError(
            f"{table}: the dump has no column {', '.join(lacking)} of the key, only "
            f"{', '.join(columns)}; dump it too"
        )
    if lacking := [name for name in now.types if name in then.types and name not in columns]:
        problem = (
            f"the dump has no column {', '.join(lacking)}, which messages had below its position"
        )
        raise DumpError(f"{table}: {problem}, so that its values then are not known; dump it too")
    unknown = tuple(name for name in columns if name not in now.types and name not in then.types)
    by_name = {
        name: now if name in now.types else then
        for name in [*then.types, *now.types]
        if name in columns
    }
    form = replace(
        now,
        newest_ms=then.newest_ms,
        types={name: one.types[name] for name, one in by_name.items()},
        defaults={
            name: one.defaults[name] for name, one in by_name.items() if name in one.defaults
        },
        row={**then.row, **now.row},
        schemas={name: one.schemas[name] for name, one in by_name.items() if name in one.schemas},
    )
    return DumpWriter(form=form, position=position, keys=keys, left_out=unknown)


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
    if (
        isinstance(value, bool)
        or not isinstance(value, int | str | Decimal)
        or not (found := Decimal(value)).is_finite()
    ):
        raise ValueError("it is a number")
    return format(found, "f")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("it is text")
    return value


PARQUET, JSON_LINES = (".parquet",), (".jsonl", ".ndjson", ".json")
BATCH = 2_000  # rows of Parquet in memory
Placed = tuple[str, Mapping[str, Any]]  # where a row stands, for people, and its values by column


@dataclass(frozen=True)
class Dump:
    """A file, or a folder of files side by side, in the order of their names. What begins with a
    dot or an underscore is none.

    Files are Parquet, or JSON lines with an object a line: a row with the columns' names in the
    database. All rows have the same columns.
    """

    path: Path

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """The files.

        Raises:
            DumpError: There are none, or there is something else beside them.
        """
        if self.path.is_file():
            found = [self.path]
        elif self.path.is_dir():
            found = sorted(
                one for one in self.path.iterdir() if not one.name.startswith((".", "_"))
            )
        else:
            raise DumpError(
                f"{self.path}: there is no such file or folder; name the dump, or mount it here"
            )
        known = (*PARQUET, *JSON_LINES)
        if odd := [one for one in found if not one.is_file() or one.suffix.lower() not in known]:
            raise DumpError(
                f"{odd[0]} is no file of {', '.join('*' + one for one in known)}; a dump's files "
                f"lie side by side, and alone"
            )
        if not found:
            raise DumpError(f"{self.path} holds no file; name the folder of the dump")
        return tuple(found)

    def columns(self) -> tuple[str, ...]:
        """Those of the first row; empty of a dump without rows.

        Raises:
            DumpError: It cannot be read.
        """
        return next((tuple(row) for _, row in self.rows()), ())

    def rows(self) -> Iterator[Placed]:
        """All rows, in an order that is the same each time.

        Raises:
            DumpError: A file cannot be read.
        """
        return chain.from_iterable(
            _of_parquet(file) if file.suffix.lower() in PARQUET else _of_json_lines(file)
            for file in self.files
        )


def _of_parquet(file: Path) -> Iterator[Placed]:
    number = 0
    try:
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(batch_size=BATCH):
                for row in _in_microseconds(batch).to_pylist():
                    number += 1
                    yield f"{file.name}, row {number}", row
    except (pa.ArrowException, OSError, ValueError, OverflowError) as problem:
        raise DumpError(
            f"{file} cannot be read as Parquet after row {number}: {str(problem).splitlines()[0]}"
        ) from problem


def _in_microseconds(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same with times of a microsecond, the finest ones of the lake.

    Raises:
        pa.ArrowInvalid: A time would be truncated.
    """
    arrays = list[pa.Array]()
    for values in batch.columns:
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.timestamp("us", values.type.tz))
        elif pa.types.is_time64(values.type):
            values = values.cast(pa.time64("us"))
        arrays.append(values)
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _of_json_lines(file: Path) -> Iterator[Placed]:
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield (
                        f"{file.name}, line {number}",
                        _row_of(f"{file.name}, line {number}", line),
                    )
    except (OSError, UnicodeDecodeError) as problem:
        raise DumpError(f"{file} cannot be read as JSON lines: {problem}") from problem


def _row_of(where: str, line: str) -> Mapping[str, Any]:
    try:
        found = json.loads(line, parse_float=Decimal)
    except (ValueError, RecursionError) as problem:
        raise DumpError(
            f"{where}: it is no JSON: {problem}; a row is an object on one line"
        ) from problem
    if not isinstance(found, dict):
        raise DumpError(f"{where}: it is no row; write an object of the columns, on one line")
    return found


def first_repeated(keys: Iterable[tuple[str, str]]) -> tuple[str, str, str] | None:
    """A key that is there twice, and where; None where there is none. They are kept in a file
    meanwhile, and sorted there.

    Args:
        keys: Where each stands, and its text.
    """
    # a temporary file, which is removed with the connection
    with closing(sqlite3.connect("")) as kept:
        kept.execute("CREATE TABLE keys (position TEXT, key TEXT)")
        kept.executemany("INSERT INTO keys VALUES (?, ?)", keys)
        found = kept.execute(
            "SELECT key, MIN(rowid), MAX(rowid) FROM keys GROUP BY key HAVING COUNT(*) > 1 LIMIT 1"
        ).fetchone()
        if found is None:
            return None
        key, *rows = found
        first, last = (
            kept.execute("SELECT position FROM keys WHERE rowid = ?", (row,)).fetchone()[0]
            for row in rows
        )
        return key, first, last
