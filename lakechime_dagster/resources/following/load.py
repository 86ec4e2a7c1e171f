"""The whole table of a database, read in chunks and told to the messages of the table that follows it, while its lane goes on.

It is for rows that no message told: the connector took no snapshot, or a topic's retention took the beginning. Each chunk is
read in a cut of its own, and its rows are told at the place of that cut. So a change below it loses against the row, and one
above it wins, whichever of them comes first: nothing is locked, and no lane stops. A row that is deleted after its chunk was
read is deleted by the stream; one that comes below the key that was reached is told by the stream.

What must hold is that the stream tells all changes above the first cut. It is seen that a change which the connector streamed
lies at or below that cut, in the same epoch, so that the connector had begun. It is not seen, and a person must know, that the
connector goes on without a hole from there: it has not been set up anew since, and no log or topic was cut above that place
(a feed that is cut above what was read holds its lane). Rows that the lake has and the database has not are left alone. A
comparison (`cdc monitor`) tells whether all is well.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from sqlglot import exp

from lakechime_dagster.cdc.comparing.compare import Key
from lakechime_dagster.cdc.comparing.load import LOAD, LOADS, ORIGIN, Progress, check_reach
from lakechime_dagster.cdc.comparing.repair import RowWriter, Texts, Words
from lakechime_dagster.cdc.messages.bronze import COLUMNS, Kind
from lakechime_dagster.cdc.messages.bronze_rows import Message, bronze_row
from lakechime_dagster.cdc.messages.record import Record
from lakechime_dagster.cdc.order import REPAIRS, Position
from lakechime_dagster.lake.change_tables import ChangeTable
from lakechime_dagster.lake.monitors import Monitor
from lakechime_dagster.resources.following.repair import RepairTask, comparison_at, task_of, words_told
from lakechime_dagster.resources.following.told_cut import ToldCut, cut_told
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.resources.reconcile import reconcile_table


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Rows of the database that were told in one commit of the table of messages.

    Attributes:
        load: The id of the load.
        cut: The place of the database's log at which they were read.
        rows: Of this chunk.
        total: Rows of the load so far, with those that others of its processes told.
        last: The key up to which the load has come; None of an empty table.
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


def chunks_loaded(
    task: RepairTask, monitor: Monitor, size: int, now: Callable[[], int], *, restart: bool = False, dry_run: bool = False,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[Chunk]:  # fmt: skip
    """Load chunk after chunk of so many rows; each is told when it is given back. A dry run reads the first one and tells nothing.

    It goes on above the last chunk of the newest load, if that is not finished and nobody asks for a restart. A load stays
    unfinished if the rows above its last chunk are deleted before the next one. Two loads at once tell rows twice, which
    means the same.

    Raises:
        LoadGapError: the stream does not reach back to a cut.
        UnrepairableError: no message can tell a row.
        TableBusyError: transactions that have written to PostgreSQL's table do not end.
        SourceUnreadableError: the database cannot be asked.
        NotFoundError: it has no such table.
    """
    from lakechime_dagster.capture.appending import append_rows

    words = words_told(task)
    source, first = first_streamed(task)
    before = None if restart else newest_progress(task)
    progress = before if before is not None and not before.is_last and not before.dump else Progress(load=uuid4().hex)
    # a topic of this process alone: its positions only go forward, whatever others tell meanwhile
    at = Record(topic=f"{task.name} loaded", topic_id=LOADS + uuid4().hex, value=None)
    while not progress.is_last:
        with cut_told(task.bronze, words, monitor, pause) as cut:
            check_reach(task.name, source, cut.place, first)
            writer, found = _read(task, monitor, words, cut, progress.last, size + 1)
        told = dict(list(found.items())[:size])
        start, progress = progress.rows, progress.after(list(told), is_last=len(found) <= size)
        messages = _messages(writer, replace(at, offset=start), told, progress, now())
        version = None
        if messages and not dry_run:
            facts = {"lakechime.origin": "load", "lakechime.cut": str(cut.place)}
            version = append_rows(task.bronze, list(COLUMNS), messages, facts)
        yield Chunk(
            load=progress.load, cut=str(cut.place), rows=len(told), total=progress.rows, last=progress.last, is_last=progress.is_last,
            version=version,
        )  # fmt: skip
        if dry_run:
            return


def newest_progress(task: RepairTask) -> Progress | None:
    """How far the newest load of a table has come, by its last message; None where there was none."""
    from lakechime_dagster.capture.rows import DeltaRows, column

    own = column("topic_id").like(f"{LOADS}%")
    found = DeltaRows(task.bronze).select("headers", where=(own,), newest=("timestamp", "offset"), limit=1)
    return Progress.from_json(_headers(found[0])[LOAD]) if found else None


def _headers(row: Mapping[str, Any]) -> dict[str, bytes]:
    return {one["key"]: one["value"] for one in row["headers"]}


def streamed() -> tuple[exp.Condition, ...]:
    """That a message tells of a change that was streamed, with its position; rows that a snapshot read, or we, are not."""
    from lakechime_dagster.capture.rows import column, known, texts

    own = column("topic_id").like(f"{REPAIRS}%")
    return texts("op", "c", "u", "d", "t"), known("position"), column("snapshot").is_(exp.Null()), exp.not_(own)


def first_streamed(task: RepairTask) -> tuple[str, Position | None]:
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


def _read(
    task: RepairTask, monitor: Monitor, words: Words, told: ToldCut, low: Key | None, most: int
) -> tuple[RowWriter, dict[Key, Texts]]:
    """The first so many rows above a key as the database has them at a cut, and what writes messages of them."""
    from lakechime_dagster.sources.tables import TableSide

    where = monitor.source_table
    comparison = comparison_at(told.cut, task, words, where)
    found = TableSide(told.cut.connection, comparison.source(*where)).values_above(low, most)
    writer = RowWriter(words=words, at=told.at, comparison=comparison, reader=task.format.reader())
    return writer, {key: dict(zip(comparison.columns, row, strict=True)) for key, row in found.items()}


def _messages(writer: RowWriter, at: Record, rows: Mapping[Key, Texts], progress: Progress, now_ms: int) -> list[tuple[Any, ...]]:
    """The rows of a chunk as rows of the table of messages, from a coordinate on."""
    headers = [ORIGIN, (LOAD, progress.to_json())]
    at = replace(at, headers=dict(headers))
    records = [writer.record(replace(at, offset=at.offset + number), key, row) for number, (key, row) in enumerate(rows.items())]
    return [bronze_row(Message(record, headers, now_ms), writer.reader) for record in records]


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
