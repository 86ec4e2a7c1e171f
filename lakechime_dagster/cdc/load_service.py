"""Repairs rows of a CDC table, and loads a dump: appends rows of the database to its bronze table."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sqlglot import exp

from lakechime_dagster.cdc.change import READ, REPAIRS, BinlogPosition, Order, Position, StatedPosition, WalPosition, stated_place
from lakechime_dagster.cdc.compare import Comparison, Key, comparison_of, in_batches, key_shown
from lakechime_dagster.cdc.job import MessageFormat, format_of
from lakechime_dagster.cdc.load import (
    LOADS,
    OF_BINLOG,
    ORIGIN,
    DumpError,
    DumpWriter,
    Form,
    RowWriter,
    Texts,
    UnrepairableError,
    check_reach,
    dump_position,
    form_of,
    left_out,
    snapshot_position,
    writer_of,
)
from lakechime_dagster.cdc.merge import BEFORE_ALL
from lakechime_dagster.cdc.record import COLUMNS, Kind, Message, Record, bronze_row
from lakechime_dagster.cdc.service import state_rows
from lakechime_dagster.cdc.state import Role, TableSchema
from lakechime_dagster.cdc.wire import order_of
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.runtime.reconcile import reconcile_table
from lakechime_dagster.tables.cdc import STATE, CDCTable
from lakechime_dagster.tables.databases import Canal, Monitor, Snapshot
from lakechime_dagster.tables.names import spelled_as

if TYPE_CHECKING:
    from lakechime_dagster.cdc.database import TableSide
    from lakechime_dagster.cdc.load import Dump, Placed
    from lakechime_dagster.formats.delta import DeltaLog


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
    """Rows of a dump that were appended in one commit of the bronze table; `total` with those of the chunks before, `last` their last key.

    `version` is the commit; None in a dry run.
    """

    cut: str
    rows: int
    total: int
    last: Key
    version: int | None


def task_of(platform: Platform, table: CDCTable) -> LoadTask:
    """The task of a declared table."""
    location = platform.location(table.name, table.location)
    return LoadTask(
        name=table.name,
        log=platform.log_at(location, table.name),
        bronze=platform.log(table.bronze.name, table.bronze.location),
        state=platform.log_at(location.rstrip("/") + STATE, table.name + STATE),
        keys=table.keys,
        format=format_of(table.bronze),
    )


def repair_declared(platform: Platform, table: CDCTable, monitor: Monitor, keys: Sequence[Key], *, dry_run: bool = False) -> Repaired:
    """Repair keys of a declared table, and register the commit, so that the table's trigger sees it at once.

    Raises:
        As `repaired`.
    """
    task = task_of(platform, table)
    done = repaired(task, monitor, keys, platform.store.now(), dry_run=dry_run)
    if done.version is not None:
        reconcile_table(platform, task.bronze, table.bronze.levels)
    return done


def repaired(
    task: LoadTask,
    monitor: Monitor,
    keys: Sequence[Key],
    now_ms: int,
    *,
    dry_run: bool = False,
    pause: Callable[[float], None] = time.sleep,
) -> Repaired:
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
        cut=str(place),
        rows=tuple(key for key, row in texts.items() if row is not None),
        deletions=tuple(key for key, row in texts.items() if row is None),
    )
    if dry_run or not records:
        return done
    return replace(done, version=append_records(task, records, "repair", place, now_ms))


def _records(writer: RowWriter, at: Record, rows: Mapping[Key, Texts | None]) -> list[Record]:
    """Rows as records, from a coordinate on."""
    return [writer.record(replace(at, offset=at.offset + number), key, row) for number, (key, row) in enumerate(rows.items())]


def append_records(task: LoadTask, records: Sequence[Record], origin: str, place: StatedPosition, now_ms: int) -> int:
    """Append rows that were read at a place of the database's log to the bronze table, in one commit; returns the version."""
    from lakechime_dagster.formats.delta_rows import append_rows

    reader, headers = task.format.reader(), [(ORIGIN, origin.encode())]
    rows = [bronze_row(Message(replace(one, headers=dict(headers)), headers, now_ms), reader) for one in records]
    return append_rows(task.bronze, list(COLUMNS), rows, {"lakechime.origin": origin, "lakechime.cut": str(place)})


@contextmanager
def _snapshot(
    task: LoadTask, form: Form, monitor: Monitor, pause: Callable[[float], None]
) -> "Iterator[tuple[StatedPosition, RowWriter, TableSide]]":
    """A consistent snapshot of the database's table, which ends with the context: its place, what writes its rows, and the rows.

    Its position loses to all changes that the snapshot does not see, and wins against all that the messages had before it.
    Changes that it sees, and of which no message had come yet, win too, and say the same or come before others that do; key
    changes among them take what their rows were before the snapshot (`Order.is_read_after`).
    """
    from lakechime_dagster.cdc.database import TableSide, column_types, completed

    newest = 0 if form.connector in OF_BINLOG else _newest_position(task.bronze)  # before the snapshot, so that it is in there
    where = monitor.source_table
    with completed(monitor.url(os.environ), *where, seconds=STATEMENT_SECONDS, pause=pause) as found:
        position = snapshot_position(form, found.place, newest)
        comparison = _comparison(task, form, found.cut.dialect, column_types(found.cut.connection, *where))
        writer = RowWriter(form=form, position=position, comparison=comparison)
        yield found.place, writer, TableSide(found.cut.connection, comparison.source(*where))


def _comparison(task: LoadTask, form: Form, dialect: Any, source: Mapping[str, str]) -> Comparison:
    """The columns of the database's table that rows can have.

    Raises:
        UnrepairableError: the lake's table is not there yet, or has a column that they cannot have.
    """
    from lakechime_dagster.formats.delta_rows import DeltaRows

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
    from lakechime_dagster.formats.delta_rows import TABLE, DeltaRows, column, known

    newest = exp.Max(this=exp.func("array_element", column("position"), exp.Literal.number(1))).as_("newest")
    (row,) = DeltaRows(bronze).query(exp.select(newest).from_(TABLE).where(known("position")))
    return row["newest"] or 0


# What the messages of a table report


def messages_form(task: LoadTask) -> Form:
    """The form of a table's rows, by the newest message that reports one.

    Raises:
        UnrepairableError: there is none, several tables source this one, or rows that are read have no order among its messages.
    """
    from lakechime_dagster.formats.delta_rows import TABLE, DeltaRows, column, known, texts

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
        raise UnrepairableError(f"{task.name}: several tables source it ({names}), and a key is not known to be of one")
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
    from lakechime_dagster.formats.delta_rows import DeltaRows, texts

    if not task.format.is_typed_elsewhere:
        return task.format
    rows = DeltaRows(task.state).select(where=(texts("role", Role.SCHEMA.value),))
    return replace(task.format, tables=tuple(map(TableSchema.of_row, state_rows(rows))))


def _check_epochs(task: LoadTask, source: str) -> None:
    """Refuse a source whose positions have begun anew: rows that are read have positions of its first epoch."""
    from lakechime_dagster.formats.delta_rows import DeltaRows, texts

    places = DeltaRows(task.state).select("source", "order", where=(texts("role", Role.PLACE.value),))
    if any(order_of(row["order"]).epoch > 0 for row in places if row["source"] == source):
        raise UnrepairableError(
            f"{task.name}: the positions of {source} have begun anew, and a repair cannot be put behind that yet; let the connector take a "
            "new snapshot"
        )


def streamed() -> tuple[exp.Condition, ...]:
    """That a message reports a change that was streamed, with its position; rows that a snapshot read, or we, are not."""
    from lakechime_dagster.formats.delta_rows import column, known, texts

    own = column("topic_id").like(f"{REPAIRS}%")
    return texts("op", "c", "u", "d", "t"), known("position"), column("snapshot").is_(exp.Null()), exp.not_(own)


def first_streamed(task: LoadTask) -> tuple[str, Position | None]:
    """The source of a table's changes, and the lowest position that was streamed of it."""
    from lakechime_dagster.formats.delta_rows import TABLE, DeltaRows, column, texts

    places = [exp.func("array_element", column("position"), exp.Literal.number(index)) for index in (1, 2, 3)]
    own = column("topic_id").like(f"{REPAIRS}%")
    rows = DeltaRows(task.bronze)
    found = rows.query(exp.select("source", "position").from_(TABLE).where(*streamed()).order_by(*places).limit(1))
    if found:
        return found[0]["source"], tuple(found[0]["position"])
    (any_,) = rows.select("source", where=(texts("kind", Kind.CHANGE.value), exp.not_(own)), limit=1)
    return any_["source"], None


def dump_loaded(
    task: LoadTask, snapshot: Snapshot, path: Path, size: int, now: Callable[[], int], *, dry_run: bool = False
) -> Iterator[Chunk]:
    """Load a dump chunk by chunk of so many rows; each is appended when it is given back. A dry run gives back one of all rows.

    Memory holds a chunk, however long the dump is. A dump without rows gives back nothing. Rows that are loaded again mean the same.

    Raises:
        LoadGapError: the stream does not reach back to the dump's position.
        DumpError: the dump cannot be read, or a row does not fit.
        UnrepairableError: its rows cannot be written.
    """
    from lakechime_dagster.cdc.load import Dump

    dump, place = Dump(path), stated_place(snapshot.as_of)
    columns = dump.columns()
    if not columns:
        return
    writer = _writer(task, place, columns)
    total, last = _checked(dump, writer, task.name)
    if dry_run:
        yield Chunk(cut=str(place), rows=total, total=total, last=last, version=None)
        return
    # a topic of this process alone: its offsets only go forward, whatever others append meanwhile
    at = Record(topic=f"{task.name} loaded", topic_id=LOADS + uuid4().hex, value=None)
    rows, loaded = dump.rows(), 0
    while chunk := list(islice(rows, size)):
        written = [_told(writer, replace(at, offset=loaded + number), *placed) for number, placed in enumerate(chunk)]
        loaded += len(chunk)
        version = append_records(task, [record for _, record in written], "load", place, now())
        yield Chunk(cut=str(place), rows=len(chunk), total=loaded, last=written[-1][0], version=version)


def _checked(dump: "Dump", writer: DumpWriter, table: str) -> tuple[int, Key]:
    """How many rows there are, and the key of the last one, once each was written for trial.

    Raises:
        DumpError: a row cannot be told, or two have one key.
    """
    from lakechime_dagster.cdc.load import first_repeated

    trial = _Trial(writer, Record(topic=f"{table} loaded", value=None))
    if repeated := first_repeated(trial.keys(dump.rows())):
        key, *places = repeated
        where = " and ".join(places)
        raise DumpError(f"{table}: key {key} is there twice, at {where}, and nobody knows which is its row; dump it at one place")
    return trial.rows, trial.last


@dataclass
class _Trial:
    """Writes all rows of a dump, and keeps none."""

    writer: DumpWriter
    at: Record
    rows: int = 0
    last: Key = ()

    def keys(self, rows: "Iterable[Placed]") -> Iterator[tuple[str, str]]:
        """Where each row stands, and its key."""
        for where, row in rows:
            self.last, _ = _told(self.writer, self.at, where, row)
            self.rows += 1
            yield where, key_shown(self.last)


def _told(writer: DumpWriter, at: Record, where: str, row: Mapping[str, Any]) -> tuple[Key, Record]:
    try:
        return writer.record(at, row)
    except ValueError as problem:
        raise DumpError(f"{where}: {problem}") from problem


def _writer(task: LoadTask, place: StatedPosition, columns: tuple[str, ...]) -> DumpWriter:
    """What writes the rows of a dump of a place, in the form of the table's newest message.

    Raises:
        LoadGapError: the stream does not reach back to the place.
        DumpError: it has not passed the place, or the table has forgotten what was above it.
    """
    now = messages_form(task)
    dump_position(now, place, (0,))  # that it is a place of such a log
    source, first = first_streamed(task)
    check_reach(task.name, source, place, first)
    newest, then = _newest_below(task, place)
    if not isinstance(place, BinlogPosition):
        _check_passed(task, source, place, then)
    position = dump_position(now, place, newest)
    _check_remembered(task, source, place, position)
    return writer_of(now, then, position, task.format.message_keys, columns)


def _newest_below(task: LoadTask, place: StatedPosition) -> tuple[Position, Form]:
    """The newest change that was streamed and is not above a place, as far as its position says it; there is one.

    Returns:
        Its position, and the form of the rows then.
    """
    from lakechime_dagster.formats.delta_rows import TABLE, DeltaRows, column, known

    file, byte, row = _parts()
    bound = list(map(exp.Literal.number, place.position))
    below = file <= bound[0] if len(bound) == 1 else exp.or_(file < bound[0], exp.and_(file.eq(bound[0]), byte <= bound[1]))
    query = exp.select(*map(column, (*MESSAGE, "position", "ts_ms"))).from_(TABLE).where(*streamed(), known("value"), below)
    for part in (file, byte, row):
        query = query.order_by(exp.Ordered(this=part, desc=True))
    (one,) = DeltaRows(task.bronze).query(query.limit(1))
    return tuple(one["position"]), read_form(task, one, one["ts_ms"])


def _check_passed(task: LoadTask, source: str, place: WalPosition, then: Form) -> None:
    """See that what lies at a place of PostgreSQL's log is known, as the stream comes in the order of commits and is above it."""
    from lakechime_dagster.formats.delta_rows import TABLE, DeltaRows

    if then.is_first:
        raise DumpError(
            f"{task.name}: {place} lies in the first transaction that was streamed, whose place in the order of commits is not "
            "known; dump later"
        )
    before, own, _ = _parts()
    above = exp.or_(before > exp.Literal.number(place.lsn), own >= exp.Literal.number(place.lsn))
    if not DeltaRows(task.bronze).query(exp.select("source").from_(TABLE).where(*streamed(), above).limit(1)):
        problem = f"no change of {source} above the dump's position was streamed yet, so that it is not known what lies below"
        raise DumpError(f"{task.name}: {problem}; wait for a change of a row")


def _check_remembered(task: LoadTask, source: str, place: StatedPosition, position: Position) -> None:
    """See that it is not forgotten which rows were deleted above the dump."""
    from lakechime_dagster.formats.delta_rows import DeltaRows, texts

    rows = DeltaRows(task.state).select("source", "order", where=(texts("role", Role.LOW_WATERMARK.value),))
    low_watermark = max((order_of(row["order"]) for row in rows if row["source"] == source), default=BEFORE_ALL)
    if low_watermark > Order(position=position, rank=READ):
        raise DumpError(
            f"{task.name}: it is forgotten which rows were deleted since {place}; declare an allowed_lateness longer than the dump is old, "
            f"let `lakechime trigger seek {task.name} --to beginning` make the table anew from its messages, and load then"
        )


def _parts() -> tuple[exp.Condition, exp.Condition, exp.Condition]:
    """The parts of a position."""
    from lakechime_dagster.formats.delta_rows import column

    return tuple(exp.func("array_element", column("position"), exp.Literal.number(index)) for index in (1, 2, 3))  # pyright: ignore[reportReturnType]


def history_loaded(
    platform: Platform, table: CDCTable, snapshot: Snapshot, path: Path, size: int, *, dry_run: bool = False
) -> Iterator[Chunk]:
    """Load a dump into a declared table, and register each commit, so that the table's trigger sees it at once.

    Raises:
        As `dump_loaded`.
    """
    task = task_of(platform, table)
    for chunk in dump_loaded(task, snapshot, path, size, platform.store.now, dry_run=dry_run):
        if chunk.version is not None:
            reconcile_table(platform, task.bronze, table.bronze.levels)
        yield chunk
