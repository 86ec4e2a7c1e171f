"""Rows of a database, read again and appended to a CDC table's bronze table, from which the table's runs merge them.

A repair reads keys, a load the whole table in chunks, for a connector that took no snapshot or a topic whose retention removed the
beginning. Each is read at a consistent snapshot, and its rows stand at the position of that snapshot. So a change below it loses
against the row, and one above it wins, whichever of them comes first: nothing is locked, and no run stops. A row that is
deleted after its chunk was read is deleted by the stream; so does one come that is inserted below the key that was reached.

What must hold is that the stream reports all changes above the first snapshot. It is checked that a streamed change is at or below
that snapshot, in the same epoch, so that the connector had begun. It is not checked, and a person must know, that the
connector goes on without a gap from there: it has not been set up anew since, and no log or topic was cut above that place
(a feed that is cut above what was read holds its lane). Rows that the lake has and the database has not stay. A
comparison finds them.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sqlglot import exp

from lakechime_dagster.cdc.compare import Comparison, Key, comparison_of, in_batches
from lakechime_dagster.cdc.load import (
    LOAD,
    LOADS,
    OF_BINLOG,
    ORIGIN,
    Form,
    Progress,
    RowWriter,
    Texts,
    UnrepairableError,
    check_reach,
    form_of,
    left_out,
    snapshot_position,
)
from lakechime_dagster.cdc.meaning.wire import order_of
from lakechime_dagster.cdc.messages.bronze import COLUMNS, Kind
from lakechime_dagster.cdc.messages.bronze_rows import Message, bronze_row
from lakechime_dagster.cdc.messages.readers import MessageFormat, format_of
from lakechime_dagster.cdc.messages.record import Record
from lakechime_dagster.cdc.order import REPAIRS, Position
from lakechime_dagster.cdc.position import StatedPlace
from lakechime_dagster.cdc.remembering.state import Role
from lakechime_dagster.cdc.remembering.table_schema import TableSchema
from lakechime_dagster.lake.change_tables import STATE, ChangeTable
from lakechime_dagster.lake.envelopes import Canal
from lakechime_dagster.lake.monitors import Monitor
from lakechime_dagster.lake.names import spelled_as
from lakechime_dagster.resources.following.followed import state_rows
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.resources.reconcile import reconcile_table

if TYPE_CHECKING:
    from lakechime_dagster.capture.delta import DeltaLog
    from lakechime_dagster.sources.tables import TableSide

AT_ONCE = 500  # keys of a statement
STATEMENT_SECONDS = 60
HIDDEN = "__"  # with which the names of columns begin that the database does not have
MESSAGE = ("topic", "topic_id", "partition", "offset", "key", "value")


@dataclass(frozen=True, kw_only=True)
class LoadTask:
    """What a repair or a load needs to know of a table: its log, those of its bronze table and its state, its key, its messages."""

    name: str
    log: "DeltaLog"
    bronze: "DeltaLog"
    state: "DeltaLog"
    keys: tuple[str, ...]
    format: MessageFormat


@dataclass(frozen=True, kw_only=True)
class Repaired:
    """What the database has for keys, and the commit of the bronze table that has it; None in a dry run.

    Attributes:
        cut: The place of the database's log at which they were read.
        rows: Keys that have a row there.
        deletions: Keys that have none.
    """

    cut: str
    rows: tuple[Key, ...]
    deletions: tuple[Key, ...]
    version: int | None = None


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Rows of the database that were appended in one commit of the bronze table.

    Attributes:
        load: The id of the load.
        cut: The place of the database's log at which they were read.
        rows: Of this chunk.
        total: Rows of the load so far, with those that others of its processes appended.
        last: The key up to which the load is done; None of an empty table.
        is_last: There is no row above.
        version: The commit; None in a dry run, and where there was no row.
    """

    load: str
    cut: str
    rows: int
    total: int
    last: Key | None
    is_last: bool
    version: int | None


def task_of(platform: Platform, table: ChangeTable) -> LoadTask:
    """The task of a declared table."""
    location = platform.location(table.name, table.location)
    return LoadTask(
        name=table.name, log=platform.log_at(location, table.name), bronze=platform.log(table.bronze.name, table.bronze.location),
        state=platform.log_at(location.rstrip("/") + STATE, table.name + STATE), keys=table.keys, format=format_of(table.bronze),
    )  # fmt: skip


def repair_declared(platform: Platform, table: ChangeTable, monitor: Monitor, keys: Sequence[Key], *, dry_run: bool = False) -> Repaired:
    """Repair keys of a declared table, and register the commit, so that the table's trigger sees it at once.

    Raises:
        As `repaired`.
    """
    task = task_of(platform, table)
    done = repaired(task, monitor, keys, platform.store.now(), dry_run=dry_run)
    if done.version is not None:
        reconcile_table(platform, task.bronze, table.bronze.levels)
    return done


def load_declared(
    platform: Platform, table: ChangeTable, monitor: Monitor, size: int, *, restart: bool = False, dry_run: bool = False
) -> Iterator[Chunk]:
    """Load a declared table, and register each commit, so that the table's trigger sees it at once.

    Raises:
        As `chunks_loaded`.
    """
    task = task_of(platform, table)
    for chunk in chunks_loaded(task, monitor, size, platform.store.now, restart=restart, dry_run=dry_run):
        if chunk.version is not None:
            reconcile_table(platform, task.bronze, table.bronze.levels)
        yield chunk


def repaired(
    task: LoadTask, monitor: Monitor, keys: Sequence[Key], now_ms: int, *, dry_run: bool = False,
    pause: Callable[[float], None] = time.sleep,
) -> Repaired:  # fmt: skip
    """Read these keys in the database at one snapshot, and append what it has for them to the bronze table, in one commit.

    Raises:
        UnrepairableError: they cannot be written.
        TableBusyError: transactions that have written to PostgreSQL's table do not end.
        SourceUnreadableError: the database cannot be asked.
        TableAbsentError: the lake has no such table.
    """
    with _snapshot(task, messages_form(task), monitor, pause) as (place, writer, side):
        found = {key: row for some in in_batches(dict.fromkeys(keys), AT_ONCE) for key, row in side.values_at(some).items()}
    columns = writer.comparison.columns
    texts = {key: dict(zip(columns, found[key], strict=True)) if key in found else None for key in dict.fromkeys(keys)}
    at = Record(topic=f"{task.name} repaired", topic_id=REPAIRS + task.name, value=None, offset=now_ms * 1_000_000)
    records = _records(writer, at, texts)
    done = Repaired(
        cut=str(place), rows=tuple(key for key, row in texts.items() if row is not None),
        deletions=tuple(key for key, row in texts.items() if row is None),
    )  # fmt: skip
    if dry_run or not records:
        return done
    return replace(done, version=append_records(task, records, [(ORIGIN, b"repair")], place, now_ms))


def chunks_loaded(
    task: LoadTask, monitor: Monitor, size: int, now: Callable[[], int], *, restart: bool = False, dry_run: bool = False,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[Chunk]:  # fmt: skip
    """Load chunk after chunk of so many rows; each is appended when it is given back. A dry run reads the first one alone.

    It continues above the last chunk of the newest load, if that is not finished and nobody asks for a restart. A load stays
    unfinished if the rows above its last chunk are deleted before the next one. Two loads at once append rows twice, which
    means the same.

    Raises:
        LoadGapError: the stream does not reach back to a snapshot.
        UnrepairableError: a row cannot be written.
        TableBusyError: transactions that have written to PostgreSQL's table do not end.
        SourceUnreadableError: the database cannot be asked.
        NotFoundError: it has no such table.
    """
    form = messages_form(task)
    source, first = first_streamed(task)
    before = None if restart else newest_progress(task)
    progress = before if before is not None and not before.is_last and not before.dump else Progress(load=uuid4().hex)
    # a topic of this process alone: its positions only go forward, whatever others append meanwhile
    at = Record(topic=f"{task.name} loaded", topic_id=LOADS + uuid4().hex, value=None)
    while not progress.is_last:
        with _snapshot(task, form, monitor, pause) as (place, writer, side):
            check_reach(task.name, source, place, first)
            found = side.values_above(progress.last, size + 1)
        rows = {key: dict(zip(writer.comparison.columns, row, strict=True)) for key, row in list(found.items())[:size]}
        start, progress = progress.rows, progress.after(list(rows), is_last=len(found) <= size)
        records = _records(writer, replace(at, offset=start), rows)
        version = append_chunk(task, records, progress, place, now()) if records and not dry_run else None
        yield Chunk(
            load=progress.load, cut=str(place), rows=len(rows), total=progress.rows, last=progress.last, is_last=progress.is_last,
            version=version,
        )  # fmt: skip
        if dry_run:
            return


def _records(writer: RowWriter, at: Record, rows: Mapping[Key, Texts | None]) -> list[Record]:
    """Rows as records, from a coordinate on."""
    return [writer.record(replace(at, offset=at.offset + number), key, row) for number, (key, row) in enumerate(rows.items())]


def append_chunk(task: LoadTask, records: Sequence[Record], progress: Progress, place: StatedPlace, now_ms: int) -> int:
    """Append a chunk of a load; returns the version."""
    return append_records(task, records, [(ORIGIN, b"load"), (LOAD, progress.to_json())], place, now_ms)


def append_records(
    task: LoadTask, records: Sequence[Record], headers: Sequence[tuple[str, bytes]], place: StatedPlace, now_ms: int
) -> int:  # fmt: skip
    """Append rows that were read at a place of the database's log to the bronze table, in one commit; returns the version."""
    from lakechime_dagster.capture.appending import append_rows

    reader = task.format.reader()
    rows = [bronze_row(Message(replace(one, headers=dict(headers)), headers, now_ms), reader) for one in records]
    facts = {"lakechime.origin": dict(headers)[ORIGIN].decode(), "lakechime.cut": str(place)}
    return append_rows(task.bronze, list(COLUMNS), rows, facts)


@contextmanager
def _snapshot(
    task: LoadTask, form: Form, monitor: Monitor, pause: Callable[[float], None]
) -> "Iterator[tuple[StatedPlace, RowWriter, TableSide]]":
    """A consistent snapshot of the database's table, which ends with the context: its place, what writes its rows, and the rows.

    Its position loses to all changes that the snapshot does not see, and wins against all that the messages had before it.
    Changes that it sees, and of which no message had come yet, win too, and say the same or come before others that do; key
    changes among them take what their rows were before the snapshot (`Order.is_read_after`).
    """
    from lakechime_dagster.sources.snapshot import settled
    from lakechime_dagster.sources.tables import TableSide, column_types

    newest = 0 if form.connector in OF_BINLOG else _newest_position(task.bronze)  # before the snapshot, so that it is in there
    where = monitor.source_table
    with settled(monitor.url(os.environ), *where, seconds=STATEMENT_SECONDS, pause=pause) as found:
        position = snapshot_position(form, found.place, newest)
        comparison = _comparison(task, form, found.cut.dialect, column_types(found.cut.connection, *where))
        writer = RowWriter(form=form, position=position, comparison=comparison)
        yield found.place, writer, TableSide(found.cut.connection, comparison.source(*where))


def _comparison(task: LoadTask, form: Form, dialect: Any, source: Mapping[str, str]) -> Comparison:
    """The columns of the database's table that rows can have.

    Raises:
        UnrepairableError: the lake's table is not there yet, or has a column that they cannot have.
    """
    from lakechime_dagster.capture.rows import DeltaRows

    lake = {name: kind for name, kind in DeltaRows(task.log).types().items() if not name.startswith(HIDDEN)}
    if not lake:
        raise UnrepairableError(f"{task.name}: the table is not there yet; wait for its first step")
    comparison, _ = comparison_of(dialect, source, lake, task.keys, None)
    if lacking := left_out(form, source, list(spelled_as(source, lake)), comparison):
        raise UnrepairableError(
            f"{task.name}: its rows cannot be read with {', '.join(lacking)}; repair them by a new snapshot of the connector"
        )
    return comparison


def _newest_position(bronze: "DeltaLog") -> int:
    """The greatest first part of the positions in the bronze table, also of rows that were loaded."""
    from lakechime_dagster.capture.rows import TABLE, DeltaRows, column, known

    newest = exp.Max(this=exp.func("array_element", column("position"), exp.Literal.number(1))).as_("newest")
    (row,) = DeltaRows(bronze).query(exp.select(newest).from_(TABLE).where(known("position")))
    return row["newest"] or 0


# What the messages of a table report


def messages_form(task: LoadTask) -> Form:
    """The form of a table's rows, by the newest message that reports one.

    Raises:
        UnrepairableError: there is none, several tables feed this one, or rows that are read have no order among its messages.
    """
    from lakechime_dagster.capture.rows import TABLE, DeltaRows, column, known, texts

    if task.format.shards:
        raise UnrepairableError(f"{task.name}: no row of a shard can be written yet; let the connector of that shard take a new snapshot")
    bronze, own = DeltaRows(task.bronze), exp.not_(column("topic_id").like(f"{REPAIRS}%"))
    is_change = texts("kind", Kind.CHANGE.value)  # a heartbeat and a message of another table have a source too
    bare = (is_change, texts("op", "c", "u", "d"), column("position").is_(exp.Null()), own)
    if isinstance(task.format.envelope, Canal) or bronze.select("offset", where=bare, limit=1):
        tool = type(task.format.envelope).__name__
        raise UnrepairableError(
            f"{task.name}: messages of {tool} without a position in the database's log have no order among rows that are read there; "
            "load the rows again by that tool"
        )
    newest = exp.Max(this=column("ts_ms")).as_("newest")
    told = bronze.query(exp.select(column("source"), newest).from_(TABLE).where(is_change, own).group_by(column("source")))
    if len(told) > 1:
        names = ", ".join(sorted(row["source"] for row in told))
        raise UnrepairableError(f"{task.name}: several tables feed it ({names}), and a key is not known to be of one")
    found = bronze.select(*MESSAGE, where=(texts("op", "c", "u", "r"), known("value"), own), newest=("timestamp", "offset"), limit=1)
    if not found:
        raise UnrepairableError(
            f"{task.name}: no message reports a row yet, so that the form of its rows is not known; start the connector, and wait "
            "for its first change of a row"
        )
    _check_epochs(task, told[0]["source"])
    return read_form(task, found[0], told[0]["newest"])


def read_form(task: LoadTask, row: Mapping[str, Any], newest_ms: int | None) -> Form:
    """The form by one message, as the bronze table has it."""
    record = Record(topic=row["topic"], topic_id=row["topic_id"] or "", offset=row["offset"], value=row["value"].encode())
    return form_of(task.name, record, _typed(task), newest_ms)


def _typed(task: LoadTask) -> MessageFormat:
    """How messages are read, with what is remembered of columns that they do not describe themselves."""
    from lakechime_dagster.capture.rows import DeltaRows, texts

    if not task.format.is_typed_elsewhere:
        return task.format
    rows = DeltaRows(task.state).select(where=(texts("role", Role.SCHEMA.value),))
    return replace(task.format, tables=tuple(map(TableSchema.of_row, state_rows(rows))))


def _check_epochs(task: LoadTask, source: str) -> None:
    """Refuse a source whose positions have begun anew: rows that are read have positions of its first epoch."""
    from lakechime_dagster.capture.rows import DeltaRows, texts

    places = DeltaRows(task.state).select("source", "order", where=(texts("role", Role.PLACE.value),))
    if any(order_of(row["order"]).epoch > 0 for row in places if row["source"] == source):
        raise UnrepairableError(
            f"{task.name}: the positions of {source} have begun anew, and a repair cannot be put behind that yet; let the connector take a "
            "new snapshot"
        )


def streamed() -> tuple[exp.Condition, ...]:
    """That a message reports a change that was streamed, with its position; rows that a snapshot read, or we, are not."""
    from lakechime_dagster.capture.rows import column, known, texts

    own = column("topic_id").like(f"{REPAIRS}%")
    return texts("op", "c", "u", "d", "t"), known("position"), column("snapshot").is_(exp.Null()), exp.not_(own)


def first_streamed(task: LoadTask) -> tuple[str, Position | None]:
    """The source of a table's changes, and the lowest position that was streamed of it."""
    from lakechime_dagster.capture.rows import TABLE, DeltaRows, column, texts

    places = [exp.func("array_element", column("position"), exp.Literal.number(index)) for index in (1, 2, 3)]
    own = column("topic_id").like(f"{REPAIRS}%")
    rows = DeltaRows(task.bronze)
    found = rows.query(exp.select("source", "position").from_(TABLE).where(*streamed()).order_by(*places).limit(1))
    if found:
        return found[0]["source"], tuple(found[0]["position"])
    (any_,) = rows.select("source", where=(texts("kind", Kind.CHANGE.value), exp.not_(own)), limit=1)
    return any_["source"], None


def newest_progress(task: LoadTask) -> Progress | None:
    """How far the newest load of a table is, by its last row; None where there was none."""
    from lakechime_dagster.capture.rows import DeltaRows, column

    own = column("topic_id").like(f"{LOADS}%")
    found = DeltaRows(task.bronze).select("headers", where=(own,), newest=("timestamp", "offset"), limit=1)
    return Progress.from_json({one["key"]: one["value"] for one in found[0]["headers"]}[LOAD]) if found else None
