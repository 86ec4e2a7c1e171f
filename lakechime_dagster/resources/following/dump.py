"""A dump of a database's table, loaded into a CDC table's bronze table as the rows that were there at its place.

All rows are read for trial first, so that a dump with a row that does not fit loads nothing. Then they are appended in chunks, each in one
commit, at the place that the dump states. A change below it loses against the row, and one above it wins, whichever of them comes
first, as it is with a load from the database (`load`). No database is asked. What must hold, and cannot be checked, is that the dump is the
state of the place that it states.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sqlglot import exp

from lakechime_dagster.cdc.compare import Key, key_shown
from lakechime_dagster.cdc.load import LOADS, DumpError, DumpWriter, Form, Progress, check_reach, dump_position, writer_of
from lakechime_dagster.cdc.meaning.fold import BEFORE_ALL
from lakechime_dagster.cdc.meaning.wire import order_of
from lakechime_dagster.cdc.messages.record import Record
from lakechime_dagster.cdc.order import READ, Order, Position
from lakechime_dagster.cdc.position import BinlogPlace, StatedPlace, WalPlace, stated_place
from lakechime_dagster.cdc.remembering.state import Role
from lakechime_dagster.lake.change_tables import ChangeTable
from lakechime_dagster.lake.snapshots import Snapshot
from lakechime_dagster.resources.following.load import (
    MESSAGE,
    Chunk,
    LoadTask,
    append_chunk,
    first_streamed,
    messages_form,
    newest_progress,
    read_form,
    streamed,
    task_of,
)
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.resources.reconcile import reconcile_table

if TYPE_CHECKING:
    from lakechime_dagster.sources.dump import Dump, Placed


def dump_loaded(
    task: LoadTask, snapshot: Snapshot, path: Path, size: int, now: Callable[[], int], *, restart: bool = False, dry_run: bool = False
) -> Iterator[Chunk]:
    """Load a dump chunk by chunk of so many rows; each is appended when it is given back. A dry run gives back one.

    It continues after the last chunk of the table's newest load, if that is of this very dump and not finished, and nobody asks
    for a restart. Memory holds a chunk, however long the dump is. A dump without rows gives back nothing.

    Raises:
        LoadGapError: the stream does not reach back to the dump's place.
        DumpError: the dump cannot be read, or a row does not fit.
        UnrepairableError: its rows cannot be written.
    """
    from lakechime_dagster.sources.dump import Dump

    dump, place = Dump(path), stated_place(snapshot.as_of)
    columns = dump.columns()
    if not columns:
        return
    writer, identity = _writer(task, place, columns), dump.identity(snapshot.as_of)
    total, last = _checked(dump, writer, task.name)
    before = None if restart else newest_progress(task)
    is_begun = before is not None and before.dump == identity and not before.is_last
    progress = before if is_begun and before is not None else Progress(load=uuid4().hex, dump=identity)
    if dry_run:
        yield Chunk(load=progress.load, cut=str(place), rows=total - progress.rows, total=total, last=last, is_last=True, version=None)
        return
    # a topic of this process alone: its offsets only go forward, whatever others append meanwhile
    at = Record(topic=f"{task.name} loaded", topic_id=LOADS + uuid4().hex, value=None)
    rest = islice(dump.rows(), progress.rows, None)
    while chunk := list(islice(rest, size)):
        if dump.identity(snapshot.as_of) != identity:
            raise DumpError(f"{path} was written anew meanwhile; load it again, when it is whole")
        start = progress.rows
        written = [_told(writer, replace(at, offset=start + number), *placed) for number, placed in enumerate(chunk)]
        progress = progress.after([key for key, _ in written], is_last=start + len(chunk) >= total)
        version = append_chunk(task, [record for _, record in written], progress, place, now())
        yield Chunk(
            load=progress.load, cut=str(place), rows=len(chunk), total=progress.rows, last=progress.last, is_last=progress.is_last,
            version=version,
        )  # fmt: skip


def _checked(dump: "Dump", writer: DumpWriter, table: str) -> tuple[int, Key | None]:
    """How many rows there are, and the key of the last one, once each was written for trial.

    Raises:
        DumpError: a row cannot be told, or two have one key.
    """
    from lakechime_dagster.sources.dump import first_repeated

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
    last: Key | None = None

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


def _writer(task: LoadTask, place: StatedPlace, columns: tuple[str, ...]) -> DumpWriter:
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
    if not isinstance(place, BinlogPlace):
        _check_passed(task, source, place, then)
    position = dump_position(now, place, newest)
    _check_remembered(task, source, place, position)
    return writer_of(now, then, position, task.format.message_keys, columns)


def _newest_below(task: LoadTask, place: StatedPlace) -> tuple[Position, Form]:
    """The newest change that was streamed and is not above a place, as far as its position says it; there is one.

    Returns:
        Its position, and the form of the rows then.
    """
    from lakechime_dagster.capture.rows import TABLE, DeltaRows, column, known

    file, byte, row = _parts()
    bound = list(map(exp.Literal.number, place.position))
    below = file <= bound[0] if len(bound) == 1 else exp.or_(file < bound[0], exp.and_(file.eq(bound[0]), byte <= bound[1]))
    query = exp.select(*map(column, (*MESSAGE, "position", "ts_ms"))).from_(TABLE).where(*streamed(), known("value"), below)
    for part in (file, byte, row):
        query = query.order_by(exp.Ordered(this=part, desc=True))
    (one,) = DeltaRows(task.bronze).query(query.limit(1))
    return tuple(one["position"]), read_form(task, one, one["ts_ms"])


def _check_passed(task: LoadTask, source: str, place: WalPlace, then: Form) -> None:
    """See that what lies at a place of PostgreSQL's log is known, as the stream comes in the order of commits and is above it."""
    from lakechime_dagster.capture.rows import TABLE, DeltaRows

    if then.is_first:
        raise DumpError(
            f"{task.name}: {place} lies in the first transaction that was streamed, whose place in the order of commits is not "
            "known; dump later"
        )
    before, own, _ = _parts()
    above = exp.or_(before > exp.Literal.number(place.lsn), own >= exp.Literal.number(place.lsn))
    if not DeltaRows(task.bronze).query(exp.select("source").from_(TABLE).where(*streamed(), above).limit(1)):
        problem = f"no change of {source} above the dump's place was streamed yet, so that it is not known what lies below"
        raise DumpError(f"{task.name}: {problem}; wait for a change of a row")


def _check_remembered(task: LoadTask, source: str, place: StatedPlace, position: Position) -> None:
    """See that it is not forgotten which rows were deleted above the dump."""
    from lakechime_dagster.capture.rows import DeltaRows, texts

    rows = DeltaRows(task.state).select("source", "order", where=(texts("role", Role.FRONTIER.value),))
    frontier = max((order_of(row["order"]) for row in rows if row["source"] == source), default=BEFORE_ALL)
    if frontier > Order(position=position, rank=READ):
        raise DumpError(
            f"{task.name}: it is forgotten which rows were deleted since {place}; declare an allowed_lateness longer than the dump is old, "
            f"let `lakechime cdc rebuild {task.name}` make the table anew from its messages, and load then"
        )


def _parts() -> tuple[exp.Condition, exp.Condition, exp.Condition]:
    """The parts of a position."""
    from lakechime_dagster.capture.rows import column

    return tuple(exp.func("array_element", column("position"), exp.Literal.number(index)) for index in (1, 2, 3))  # pyright: ignore[reportReturnType]


def history_loaded(
    platform: Platform, table: ChangeTable, snapshot: Snapshot, path: Path, size: int, *, restart: bool = False, dry_run: bool = False
) -> Iterator[Chunk]:
    """Load a dump into a declared table, and register each commit, so that the table's trigger sees it at once.

    Raises:
        As `dump_loaded`.
    """
    task = task_of(platform, table)
    for chunk in dump_loaded(task, snapshot, path, size, platform.store.now, restart=restart, dry_run=dry_run):
        if chunk.version is not None:
            reconcile_table(platform, task.bronze, table.bronze.levels)
        yield chunk
