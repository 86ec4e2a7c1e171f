"""Repairs rows of a CDC table, and loads a dump: appends rows of the database to its bronze
table.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

from lakechime_dagster.cdc.change import (
    READ,
    REPAIRS,
    BinlogPosition,
    Order,
    Position,
    StatedPosition,
    WalPosition,
    order_of,
)
from lakechime_dagster.cdc.compare import (
    Comparison,
    Key,
    Queries,
    comparison_of,
    in_batches,
    key_shown,
    named_there,
)
from lakechime_dagster.cdc.database import column_types, completed_snapshot, run_on
from lakechime_dagster.cdc.load import (
    LOADS,
    OF_BINLOG,
    ORIGIN,
    Dump,
    DumpError,
    DumpWriter,
    Form,
    RowWriter,
    Texts,
    UnrepairableError,
    check_reach,
    dump_position,
    first_repeated,
    form_of,
    left_out,
    snapshot_position,
    writer_of,
)
from lakechime_dagster.cdc.merge import BEFORE_ALL
from lakechime_dagster.cdc.record import COLUMNS, Message, Record, bronze_row
from lakechime_dagster.cdc.service import Replica, ReplicaTables
from lakechime_dagster.formats.delta_rows import DeltaRows, append_rows
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.runtime.reconcile import reconcile_table
from lakechime_dagster.tables.cdc import CDCTable
from lakechime_dagster.tables.databases import Canal, Monitor
from lakechime_dagster.tables.names import spelled_as

AT_ONCE = 500  # keys of a statement
STATEMENT_SECONDS = 60
HIDDEN = "__"  # begins the names of columns that the database does not have
_MESSAGE = """topic, topic_id, "partition", "offset", key, value"""
_FIRST, _SECOND, _THIRD = (f"array_element(position, {part})" for part in (1, 2, 3))
_OWN = f"topic_id LIKE '{REPAIRS}%'"  # rows of a repair or a load
# changes with a position
_STREAMED = (
    f"op IN ('c', 'u', 'd', 't') AND position IS NOT NULL AND snapshot IS NULL AND NOT {_OWN}"
)


@dataclass(frozen=True, kw_only=True)
class Repaired:
    """What the database has for keys, and the commit of the bronze table that has it; None in a dry
    run.

    Attributes:
        snapshot: The position of the database's log at which they were read.
        rows: Keys that have a row there.
        deletions: Keys that have none.
    """

    snapshot: str
    rows: tuple[Key, ...]
    deletions: tuple[Key, ...]
    version: int | None = None


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Rows of a dump that were appended in one commit of the bronze table; `total` with those of
    the chunks before, `last` their last key.

    `version` is the commit; None in a dry run.
    """

    snapshot: str
    rows: int
    total: int
    last: Key
    version: int | None


def repair_declared(
    platform: Platform,
    table: CDCTable,
    monitor: Monitor,
    keys: Sequence[Key],
    *,
    dry_run: bool = False,
) -> Repaired:
    """Repair keys of a declared table, and register the commit, so that the table's trigger sees it
    at once.

    Raises:
        As `repaired`.
    """
    tables = Replica(platform, table).tables
    done = repaired(tables, monitor, keys, platform.store.now(), dry_run=dry_run)
    if done.version is not None:
        reconcile_table(platform, tables.bronze, table.bronze.levels)
    return done


def repaired(
    tables: ReplicaTables,
    monitor: Monitor,
    keys: Sequence[Key],
    now_ms: int,
    *,
    dry_run: bool = False,
    pause: Callable[[float], None] = time.sleep,
) -> Repaired:
    """Read these keys in the database at one snapshot, and append what it has for them to the
    bronze table, in one commit.

    Raises:
        UnrepairableError: they cannot be written.
        TableBusyError: transactions that have written to PostgreSQL's table do not end.
        SourceUnreadableError: the database cannot be queried.
        TableAbsentError: the lake has no such table.
    """
    at = Record(
        topic=f"{tables.name} repaired",
        topic_id=REPAIRS + tables.name,
        value=None,
        offset=now_ms * 1_000_000,
    )
    with _snapshot(tables, messages_form(tables), monitor, pause) as (position, writer, side):
        for key in keys:
            writer.record(at, key, None)  # refuses what is no key before the database is asked
        found = {
            key: row
            for some in in_batches(dict.fromkeys(keys), AT_ONCE)
            for key, row in side.values_at(some).items()
        }
    columns = writer.comparison.columns
    texts: dict[Key, Texts | None] = {
        key: dict(zip(columns, found[key], strict=True)) if key in found else None
        for key in dict.fromkeys(keys)
    }
    records = [
        writer.record(replace(at, offset=at.offset + number), key, row)
        for number, (key, row) in enumerate(texts.items())
    ]
    done = Repaired(
        snapshot=str(position),
        rows=tuple(key for key, row in texts.items() if row is not None),
        deletions=tuple(key for key, row in texts.items() if row is None),
    )
    if dry_run or not records:
        return done
    return replace(done, version=append_records(tables, records, "repair", position, now_ms))


def append_records(
    tables: ReplicaTables,
    records: Sequence[Record],
    origin: str,
    position: StatedPosition,
    now_ms: int,
) -> int:
    """Append rows that were read at a position of the database's log to the bronze table, in one
    commit; returns the version.
    """
    reader, headers = tables.format.reader(), [(ORIGIN, origin.encode())]
    rows = [
        bronze_row(Message(replace(one, headers=dict(headers)), headers, now_ms), reader)
        for one in records
    ]
    return append_rows(
        tables.bronze,
        list(COLUMNS),
        rows,
        {"lakechime.origin": origin, "lakechime.position": str(position)},
    )


@contextmanager
def _snapshot(
    tables: ReplicaTables, form: Form, monitor: Monitor, pause: Callable[[float], None]
) -> Iterator[tuple[StatedPosition, RowWriter, Queries]]:
    """A consistent snapshot of the database's table, which ends with the context: its position,
    what writes its rows, and the rows.

    Its position loses to all changes that the snapshot does not see, and wins against all that the
    messages had before it. Changes that it sees, and of which no message had arrived yet, win too,
    and say the same or come before others that do; key changes among them take what their rows were
    before the snapshot (`Order.is_read_after`).
    """
    # before the snapshot, so that it is in there
    newest = 0 if form.connector in OF_BINLOG else _newest_position(tables)
    (database,) = monitor.databases.values()
    where = database.source_table
    with completed_snapshot(
        database.address(os.environ), *where, seconds=STATEMENT_SECONDS, pause=pause
    ) as found:
        position = snapshot_position(form, found.position, newest)
        connection = found.snapshot.connection
        comparison = _comparison(
            tables, form, found.snapshot.dialect, column_types(connection, *where)
        )
        writer = RowWriter(form=form, position=position, comparison=comparison)
        yield found.position, writer, comparison.source(run_on(connection), *where)


def _comparison(
    tables: ReplicaTables, form: Form, dialect: Any, source: Mapping[str, str]
) -> Comparison:
    """The columns of the database's table that rows can have.

    Raises:
        UnrepairableError: the lake's table does not exist yet, or has a column that they cannot
            have.
    """
    types = {
        name: kind for name, kind in tables.rows.types().items() if not name.startswith(HIDDEN)
    }
    lake = {there: types[here] for there, here in named_there(tables.names, types).items()}
    if not lake:
        raise UnrepairableError(
            f"{tables.name}: the table does not exist yet; wait for its first execution"
        )
    comparison = comparison_of(dialect, source, lake, tables.format.keys)
    if lacking := left_out(form, source, list(spelled_as(source, lake)), comparison):
        raise UnrepairableError(
            f"{tables.name}: its rows cannot be read with {', '.join(lacking)}; repair them by a "
            f"new snapshot of the connector"
        )
    return comparison


def _newest_position(tables: ReplicaTables) -> int:
    """The greatest first part of the positions in the bronze table, also of rows that were
    loaded.
    """
    (row,) = DeltaRows(tables.bronze).query(
        f"SELECT max({_FIRST}) AS newest FROM t WHERE position IS NOT NULL"
    )
    return row["newest"] or 0


# What the messages of a table report


def messages_form(tables: ReplicaTables) -> Form:
    """The form of a table's rows, by the newest message that reports one.

    Raises:
        UnrepairableError: there is none, several tables feed this one, or rows that are read have
            no order among its messages.
    """
    if tables.format.shards:
        raise UnrepairableError(
            f"{tables.name}: no row of a shard can be written yet; let the connector of that shard "
            f"take a new snapshot"
        )
    bronze = DeltaRows(tables.bronze)
    without_position = (
        f"kind = 'change' AND op IN ('c', 'u', 'd') AND position IS NULL AND NOT {_OWN}"
    )
    if isinstance(tables.format.envelope, Canal) or bronze.select(
        "offset", where=(without_position,), limit=1
    ):
        tool = type(tables.format.envelope).__name__
        raise UnrepairableError(
            f"{tables.name}: messages of {tool} without a position in the database's log have no "
            f"order among rows that are read there; "
            "load the rows again by that tool"
        )
    # a heartbeat and a message of another table have a source too
    sources = bronze.query(
        f"SELECT source, max(ts_ms) AS newest FROM t WHERE kind = 'change' AND NOT {_OWN} GROUP BY "
        f"source"
    )
    if len(sources) > 1:
        names = ", ".join(sorted(row["source"] for row in sources))
        raise UnrepairableError(
            f"{tables.name}: several tables feed it ({names}), and the one of a key is unknown"
        )
    found = bronze.query(
        f"""SELECT {_MESSAGE} FROM t WHERE op IN ('c', 'u', 'r') AND value IS NOT NULL AND NOT {_OWN}
        ORDER BY "timestamp" DESC NULLS LAST, "offset" DESC LIMIT 1"""
    )
    if not found:
        raise UnrepairableError(
            f"{tables.name}: no message reports a row yet, so that the form of its rows is "
            f"unknown; start the connector, and wait for its "
            "first change of a row"
        )
    _check_epochs(tables, sources[0]["source"])
    return _form(tables, found[0], sources[0]["newest"])


def _form(tables: ReplicaTables, row: Mapping[str, Any], newest_ms: int | None) -> Form:
    """The form by one message, as the bronze table has it."""
    record = Record(
        topic=row["topic"],
        topic_id=row["topic_id"] or "",
        offset=row["offset"],
        value=row["value"].encode(),
    )
    return form_of(tables.name, record, tables.typed_format(), newest_ms)


def _check_epochs(tables: ReplicaTables, source: str) -> None:
    """Refuse a source whose positions have restarted: rows that are read have positions of its
    first epoch.
    """
    if any(order.epoch > 0 for order in _orders(tables, "position", source)):
        raise UnrepairableError(
            f"{tables.name}: the positions of {source} have restarted, and a repair cannot be "
            f"ordered after that yet; let the connector "
            "take a new snapshot"
        )


def _orders(tables: ReplicaTables, role: str, source: str) -> list[Order]:
    """The orders that the state has of a source, in rows of a role."""
    rows = DeltaRows(tables.state).query(
        """SELECT "order" FROM t WHERE role = :role AND source = :source""",
        role=role,
        source=source,
    )
    return [order_of(row["order"]) for row in rows]


def first_streamed(tables: ReplicaTables) -> tuple[str, Position | None]:
    """The source of a table's changes, and the lowest position that was streamed of it."""
    bronze = DeltaRows(tables.bronze)
    lowest = (
        f"SELECT source, position FROM t WHERE {_STREAMED} ORDER BY {_FIRST}, {_SECOND}, {_THIRD} "
        f"LIMIT 1"
    )
    if found := bronze.query(lowest):
        return found[0]["source"], tuple(found[0]["position"])
    (any_,) = bronze.query(f"SELECT source FROM t WHERE kind = 'change' AND NOT {_OWN} LIMIT 1")
    return any_["source"], None


# Dumps


def load_dump(
    platform: Platform,
    table: CDCTable,
    path: Path,
    stated: StatedPosition,
    size: int,
    *,
    dry_run: bool = False,
) -> Iterator[Chunk]:
    """Load a dump into a declared table, and register each commit, so that the table's trigger sees
    it at once.

    Raises:
        As `dump_loaded`.
    """
    tables = Replica(platform, table).tables
    for chunk in dump_loaded(tables, path, stated, size, platform.store.now, dry_run=dry_run):
        if chunk.version is not None:
            reconcile_table(platform, tables.bronze, table.bronze.levels)
        yield chunk


def dump_loaded(
    tables: ReplicaTables,
    path: Path,
    stated: StatedPosition,
    size: int,
    now: Callable[[], int],
    *,
    dry_run: bool = False,
) -> Iterator[Chunk]:
    """Load a dump chunk by chunk of so many rows, once all rows were checked. A dry run gives back
    one chunk of all rows.

    Memory holds a chunk, however long the dump is. A dump without rows gives back nothing. Rows
    that are loaded again mean the same.

    Raises:
        LoadGapError: the stream does not reach back to the dump's position.
        DumpError: the dump cannot be read, or a row does not fit, or two rows have one key.
        UnrepairableError: its rows cannot be written.
    """
    dump = Dump(path)
    columns = dump.columns()
    if not columns:
        return
    writer = _writer(tables, stated, columns)
    checked = _Checked(writer, Record(topic=f"{tables.name} loaded", value=None))
    if repeated := first_repeated(checked.keys(dump.rows())):
        key, *where = repeated
        raise DumpError(
            f"{tables.name}: key {key} is there twice, at {' and '.join(where)}, and only one can "
            f"be its row; dump at one position"
        )
    if dry_run:
        yield Chunk(
            snapshot=str(stated),
            rows=checked.rows,
            total=checked.rows,
            last=checked.last,
            version=None,
        )
        return
    # a topic of this process alone: its offsets only go forward, whatever others append meanwhile
    at = Record(topic=f"{tables.name} loaded", topic_id=LOADS + uuid4().hex, value=None)
    rows, loaded = dump.rows(), 0
    while chunk := list(islice(rows, size)):
        written = [
            _written(writer, replace(at, offset=loaded + number), *one)
            for number, one in enumerate(chunk)
        ]
        loaded += len(chunk)
        version = append_records(tables, [record for _, record in written], "load", stated, now())
        yield Chunk(
            snapshot=str(stated),
            rows=len(chunk),
            total=loaded,
            last=written[-1][0],
            version=version,
        )


@dataclass
class _Checked:
    """Writes all rows of a dump, and keeps none: how many there are, and the last key."""

    writer: DumpWriter
    at: Record
    rows: int = 0
    last: Key = ()

    def keys(self, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[tuple[str, str]]:
        """Where each row stands, and its key."""
        for where, row in rows:
            self.last, _ = _written(self.writer, self.at, where, row)
            self.rows += 1
            yield where, key_shown(self.last)


def _written(
    writer: DumpWriter, at: Record, where: str, row: Mapping[str, Any]
) -> tuple[Key, Record]:
    try:
        return writer.record(at, row)
    except ValueError as problem:
        raise DumpError(f"{where}: {problem}") from problem


def _writer(tables: ReplicaTables, stated: StatedPosition, columns: tuple[str, ...]) -> DumpWriter:
    """What writes the rows of a dump at a position, in the form of the table's newest message.

    Raises:
        LoadGapError: the stream does not reach back to the position.
        DumpError: it has not passed the position, or the state of what was deleted above it is
            gone.
    """
    now = messages_form(tables)
    dump_position(now, stated, (0,))  # that it is a position of such a log
    source, first = first_streamed(tables)
    check_reach(tables.name, source, stated, first)
    newest, then = _newest_below(tables, stated)
    if not isinstance(stated, BinlogPosition):
        _check_passed(tables, source, stated, then)
    position = dump_position(now, stated, newest)
    low_watermark = max(_orders(tables, "low_watermark", source), default=BEFORE_ALL)
    if low_watermark > Order(position=position, rank=READ):
        raise DumpError(
            f"{tables.name}: the state of rows that were deleted since {stated} is gone; declare "
            f"an allowed_lateness longer than the dump "
            f"is old, rebuild the table by `lakechime trigger seek {tables.name} --to beginning`, "
            f"and load then"
        )
    return writer_of(now, then, position, tables.format.message_keys, columns)


def _newest_below(tables: ReplicaTables, stated: StatedPosition) -> tuple[Position, Form]:
    """The newest change that was streamed and is not above a position, as far as its own says it;
    there is one.

    Returns:
        Its position, and the form of the rows then.
    """
    below = f"{_FIRST} <= :first"
    if len(stated.position) > 1:
        below = f"({_FIRST} < :first OR ({_FIRST} = :first AND {_SECOND} <= :second))"
    (one,) = DeltaRows(tables.bronze).query(
        f"""SELECT {_MESSAGE}, position, ts_ms FROM t WHERE {_STREAMED} AND value IS NOT NULL AND {below}
        ORDER BY {", ".join(f"{part} DESC NULLS LAST" for part in (_FIRST, _SECOND, _THIRD))} LIMIT 1""",
        **dict(zip(("first", "second"), stated.position, strict=False)),
    )
    return tuple(one["position"]), _form(tables, one, one["ts_ms"])


def _check_passed(tables: ReplicaTables, source: str, stated: WalPosition, then: Form) -> None:
    """See that the stream, which comes in the order of commits, is above a position of PostgreSQL's
    log.
    """
    if then.is_first:
        raise DumpError(
            f"{tables.name}: {stated} lies in the first transaction that was streamed, whose "
            f"position in the order of commits is unknown; "
            "dump later"
        )
    above = (
        f"SELECT source FROM t WHERE {_STREAMED} AND ({_FIRST} > :lsn OR {_SECOND} >= :lsn) LIMIT 1"
    )
    if not DeltaRows(tables.bronze).query(above, lsn=stated.lsn):
        problem = (
            f"no change of {source} above the dump's position was streamed yet, so that it is "
            f"unknown what lies below"
        )
        raise DumpError(f"{tables.name}: {problem}; wait for a change of a row")
