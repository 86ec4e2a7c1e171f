"""A dump of a database's table, told to the messages of the table that follows it as the rows that were there at its place.

All rows are read and written for trial first, so that a dump with a row that cannot be told tells nothing. Then they are told in
chunks, each in one commit, at the place that the dump states. A change below it loses against the row, and one above it
wins, whichever of them comes first, as it is with a load from the database (`load`). No database is asked. What must hold, and
cannot be seen, is that the dump is the state of the place that it states.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import orjson
from sqlglot import exp

from lakechime_dagster.cdc.comparing.compare import Key
from lakechime_dagster.cdc.comparing.dump import DumpError, DumpWriter, check_place, source_at, writer_of
from lakechime_dagster.cdc.comparing.load import LOAD, LOADS, ORIGIN, Progress, check_reach
from lakechime_dagster.cdc.comparing.log_place import BinlogPlace, StatedPlace, WalPlace, stated_place
from lakechime_dagster.cdc.comparing.monitored import key_shown
from lakechime_dagster.cdc.comparing.repair import Words, words_of
from lakechime_dagster.cdc.meaning.fold import BEFORE_ALL
from lakechime_dagster.cdc.meaning.wire import order_of
from lakechime_dagster.cdc.messages.bronze import COLUMNS
from lakechime_dagster.cdc.messages.bronze_rows import Message, bronze_row
from lakechime_dagster.cdc.messages.record import Record
from lakechime_dagster.cdc.order import READ, Order, Position
from lakechime_dagster.cdc.position import position_of
from lakechime_dagster.cdc.remembering.state import Role
from lakechime_dagster.lake.change_tables import ChangeTable
from lakechime_dagster.lake.snapshots import Snapshot
from lakechime_dagster.resources.following.load import Chunk, first_streamed, newest_progress, streamed
from lakechime_dagster.resources.following.repair import RepairTask, task_of, words_told
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.resources.reconcile import reconcile_table

if TYPE_CHECKING:
    from lakechime_dagster.sources.dump import Dump, Placed


def dump_loaded(
    task: RepairTask, snapshot: Snapshot, path: Path, size: int, now: Callable[[], int], *, restart: bool = False, dry_run: bool = False
) -> Iterator[Chunk]:
    """Tell a dump chunk by chunk of so many rows; each is told when it is given back. A dry run gives back one chunk that was not told.

    It goes on after the last chunk of the table's newest load, if that is of this very dump and not finished, and nobody asks
    for a restart. Memory holds a chunk, however long the dump is. A dump without rows gives back nothing.

    Raises:
        LoadGapError: the stream does not reach back to the dump's place.
        DumpError: the dump cannot be read, or a row cannot be told.
        UnrepairableError: no message can tell a row of the table.
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
    # a topic of this process alone: its offsets only go forward, whatever others tell meanwhile
    at = Record(topic=f"{task.name} loaded", topic_id=LOADS + uuid4().hex, value=None)
    rest = islice(dump.rows(), progress.rows, None)
    while chunk := list(islice(rest, size)):
        if dump.identity(snapshot.as_of) != identity:
            raise DumpError(f"{path} was written anew meanwhile; load it again, when it is whole")
        start = progress.rows
        written = [_told(writer, replace(at, offset=start + number), *placed) for number, placed in enumerate(chunk)]
        progress = progress.after([key for key, _ in written], is_last=start + len(chunk) >= total)
        version = _append(task, writer, place, [record for _, record in written], progress, now())
        yield Chunk(
            load=progress.load, cut=str(place), rows=len(chunk), total=progress.rows, last=progress.last, is_last=progress.is_last,
            version=version,
        )  # fmt: skip


def _append(task: RepairTask, writer: DumpWriter, place: StatedPlace, records: list[Record], progress: Progress, now_ms: int) -> int:
    from lakechime_dagster.capture.appending import append_rows

    headers = [ORIGIN, (LOAD, progress.to_json())]
    rows = [bronze_row(Message(replace(one, headers=dict(headers)), headers, now_ms), writer.reader) for one in records]
    return append_rows(task.bronze, list(COLUMNS), rows, {"lakechime.origin": "load", "lakechime.cut": str(place)})


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


def _writer(task: RepairTask, place: StatedPlace, columns: tuple[str, ...]) -> DumpWriter:
    """What writes the rows of a dump of a place, in the words of the table's newest message.

    Raises:
        LoadGapError: the stream does not reach back to the place.
        DumpError: it has not passed the place, or the table has forgotten what lay above it.
    """
    words = words_told(task)
    source, first = first_streamed(task)
    check_place(words, place)
    check_reach(task.name, source, place, first)
    newest = _newest_below(task, place)
    then = words_of(task.name, newest.record, newest.ts_ms)
    if not isinstance(place, BinlogPlace):
        _check_passed(task, source, place, then)
    at = source_at(words, place, newest.position)
    _check_remembered(task, source, place, position_of({**words.source, **at}))
    return writer_of(words, then, at, task.format.message_keys, columns, task.format.reader())


@dataclass(frozen=True)
class _Streamed:
    """A message of a streamed change."""

    record: Record
    position: Position
    ts_ms: int | None


def _newest_below(task: RepairTask, place: StatedPlace) -> _Streamed:
    """The newest change that was streamed and is not above a place, as far as its position tells; there is one."""
    from lakechime_dagster.capture.rows import TABLE, DeltaRows, column, known

    file, byte, row = _parts()
    bound = list(map(exp.Literal.number, place.position))
    below = file <= bound[0] if len(bound) == 1 else exp.or_(file < bound[0], exp.and_(file.eq(bound[0]), byte <= bound[1]))
    columns = map(column, ("topic", "offset", "value", "position", "ts_ms"))
    query = exp.select(*columns).from_(TABLE).where(*streamed(), known("value"), below)
    for part in (file, byte, row):
        query = query.order_by(exp.Ordered(this=part, desc=True))
    (one,) = DeltaRows(task.bronze).query(query.limit(1))
    record = Record(topic=one["topic"], offset=one["offset"], value=one["value"].encode())
    return _Streamed(record, tuple(one["position"]), one["ts_ms"])


def _check_passed(task: RepairTask, source: str, place: WalPlace, then: Words) -> None:
    """See that what lies at a place of PostgreSQL's log is known, as the stream comes in the order of commits and is above it."""
    from lakechime_dagster.capture.rows import TABLE, DeltaRows

    if orjson.loads(then.source.get("sequence") or "[null]")[0] is None:
        raise DumpError(f"{task.name}: {place} lies in the first transaction that was streamed, of which it is not told where; dump later")
    before, own, _ = _parts()
    above = exp.or_(before > exp.Literal.number(place.lsn), own >= exp.Literal.number(place.lsn))
    if not DeltaRows(task.bronze).query(exp.select("source").from_(TABLE).where(*streamed(), above).limit(1)):
        problem = f"no change of {source} above the dump's place was streamed yet, so that it is not known what lies below"
        raise DumpError(f"{task.name}: {problem}; wait for a change of a row")


def _check_remembered(task: RepairTask, source: str, place: StatedPlace, position: Position) -> None:
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
    """Tell a dump to a declared table, and register each commit, so that the table's trigger sees it at once.

    Raises:
        As `dump_loaded`.
    """
    task = task_of(platform, table)
    for chunk in dump_loaded(task, snapshot, path, size, platform.store.now, restart=restart, dry_run=dry_run):
        if chunk.version is not None:
            reconcile_table(platform, task.bronze, table.bronze.levels)
        yield chunk
