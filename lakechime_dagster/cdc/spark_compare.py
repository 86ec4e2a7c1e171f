"""Compares a CDC table with its database at a consistent snapshot while its runs continue."""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.cdc import change
from lakechime_dagster.cdc.change import REPAIRS, BinlogPosition, LogPosition, Operation
from lakechime_dagster.cdc.compare import (
    Comparison,
    Differences,
    Fault,
    KeptRows,
    Key,
    Monitored,
    Part,
    Queries,
    Query,
    Row,
    Summary,
    canonical_key,
    chunks,
    compare,
    comparison_of,
    confirmed,
    in_batches,
    parts_of,
    together,
)
from lakechime_dagster.cdc.database import TableSide, column_types, taken
from lakechime_dagster.cdc.job import MessageFormat, format_of
from lakechime_dagster.cdc.record import Changes, EnvelopeReader, record_of, shard_of
from lakechime_dagster.cdc.spark_changes import MESSAGE
from lakechime_dagster.cdc.spark_parse import remembered_schemas
from lakechime_dagster.cdc.wire import key_of, key_text
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.errors import SourceUnreadableError
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.spark.driver import Driver, open_driver
from lakechime_dagster.spark.ranges import pinned
from lakechime_dagster.spark.refresh import OpenLog
from lakechime_dagster.spark.session import Batches, arrow_of, columns_of, on_batches, record_batches
from lakechime_dagster.tables.cdc import STATE, CDCTable
from lakechime_dagster.tables.databases import Monitor, url_in
from lakechime_dagster.tables.names import DELETED_AT, END_SEQ, OWN_COLUMNS
from lakechime_dagster.triggers.consumers import ConsumerId

_LITERALS = "spark.sql.legacy.parameterSubstitution.constantsOnly"


@dataclass(frozen=True)
class LakeSide:
    """A table that the session finds by the name in its queries, at one version of it."""

    spark: SparkSession
    queries: Queries

    def summary(self, low: Key | None, high: Key | None) -> Summary:
        """The checksum of a range."""
        ((count, distinct, total),) = self._ask(self.queries.summary(low, high))
        return Summary(count, distinct, int(total))

    def rows(self, low: Key | None, high: Key | None) -> list[Row]:
        """All rows of a range."""
        return self._rows(self.queries.rows(low, high))

    def middle(self, low: Key | None, high: Key | None, offset: int) -> Key | None:
        """The key of the row before which so many rows of the range come."""
        return next(iter(self._ask(self.queries.middle(low, high, offset))), None)

    def at(self, keys: Sequence[Key]) -> list[Row]:
        """All rows of these keys."""
        return self._rows(self.queries.at(keys))

    def _rows(self, query: Query) -> list[Row]:
        return [(tuple(key), value) for *key, value in self._ask(query)]

    def _ask(self, query: Query) -> list[tuple[Any, ...]]:
        with _binding(self.spark):
            return [tuple(row) for row in self.spark.sql(query.sql, args=dict(query.parameters)).collect()]


@contextmanager
def _binding(spark: SparkSession) -> Iterator[None]:
    """Statements whose parameters are bound: Delta's parser leaves them where Spark 4.1 replaces them before it parses."""
    before = spark.conf.get(_LITERALS, None)
    spark.conf.set(_LITERALS, "true")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_LITERALS)
        else:
            spark.conf.set(_LITERALS, before)


VIEW = "lakechime_monitored"
KEYS_DDL = "`key` string"
_TRANSACTION = "coalesce(get_json_object(value, '$.payload.source.txId'), get_json_object(value, '$.source.txId'))"


@dataclass(frozen=True, kw_only=True)
class ComparedTable:
    """A table, its table of messages, and how these are read.

    Attributes:
        consumer: Whose commits brought the table to where it is.
        completed: Up to where the consumer has come in the table of messages, where that is known otherwise.
    """

    name: str
    location: str
    bronze: str
    bronze_location: str
    keys: tuple[str, ...]
    format: MessageFormat
    consumer: ConsumerId
    open_log: OpenLog
    completed: Callable[[], SnapshotCheckpoint | None] = lambda: None


@dataclass(frozen=True, kw_only=True)
class TableState:
    """A version of the table, and the version of its table of messages of which all is in it; None where that is not known."""

    version: int
    bronze: int | None


def state_of(table: ComparedTable) -> TableState:
    """The table as it is.

    Raises:
        TableAbsentError: it is not there.
    """
    completed = table.completed()  # before the version is asked, so that this is not behind it
    log, messages = table.open_log(table.location, table.name), table.open_log(table.bronze_location, table.bronze)
    version = log.version
    committed = log.last_committed(table.consumer)
    uid = messages.uid if messages.exists() else None
    places = [completed, committed.commit_metadata.end.sources.get(table.bronze) if committed else None]
    read = [int(one.snapshot_id) for one in places if one is not None and one.snapshot_id is not None and one.table_uid == uid]
    return TableState(version=max(version, int(committed.version) if committed else 0), bronze=max(read, default=None))


def rows_of(spark: SparkSession, table: ComparedTable, state: TableState) -> DataFrame:
    """The rows that the database's table has, as the lake has them: without those that ended, or were deleted."""
    rows = pinned(spark, table.location, state.version)
    for end in (END_SEQ, DELETED_AT):
        rows = rows.where(F.col(end).isNull()) if end in rows.columns else rows
    return rows.drop(*OWN_COLUMNS)


def columns_in(spark: SparkSession, table: ComparedTable, state: TableState) -> dict[str, str]:
    """The columns of the table and their types."""
    return columns_of(rows_of(spark, table, state).schema)


def side_of(spark: SparkSession, table: ComparedTable, state: TableState, queries: Queries) -> LakeSide:
    """The table as one side of a comparison; the queries are of `VIEW`."""
    rows_of(spark, table, state).createOrReplaceTempView(VIEW)
    return LakeSide(spark, queries)


@dataclass(frozen=True, kw_only=True)
class Touched:
    """What changes above a cut touched.

    Attributes:
        keys: Of the rows.
        is_truncated: All rows, by a truncation.
        is_passed: Each partition that brings such changes has brought one above the cut: all below it is there.
    """

    keys: frozenset[change.Key] = frozenset()
    is_truncated: bool = False
    is_passed: bool = False


def touched_above(spark: SparkSession, table: ComparedTable, state: TableState, cut: LogPosition, shard: Mapping[str, str]) -> Touched:
    """What the messages that are in a state of the table say of changes above a cut; one without a position says nothing.

    Of a `shard`, which is named by what its topics tell, only they count.
    """
    if state.bronze is None:
        return Touched()
    rows = pinned(spark, table.bronze_location, state.bronze).where((F.col("kind") == "change") & F.col("position").isNotNull())
    if shard:
        rows = rows.where(F.col("topic").isin(_topics(rows, re.compile(table.format.shards), shard)))
    is_above = _is_above(cut)
    lines = rows.groupBy("topic_id", "partition").agg(F.bool_or(is_above).alias("passed")).collect()
    lines = [line for line in lines if not line["topic_id"].startswith(REPAIRS)]
    if not any(line["passed"] for line in lines):
        return Touched()
    keys = Keys(out=arrow_of(KEYS_DDL), reader=_format(spark, table).reader)
    told = on_batches(rows.where(is_above).select(*MESSAGE), keys, KEYS_DDL).distinct().collect()
    return Touched(
        keys=frozenset(key_of(key) for (key,) in told if key is not None),
        is_truncated=any(key is None for (key,) in told),
        is_passed=all(line["passed"] for line in lines),
    )


def _topics(rows: DataFrame, shards: re.Pattern[str], shard: Mapping[str, str]) -> list[str]:
    return [topic for (topic,) in rows.select("topic").distinct().collect() if shard_of(shards, topic) == shard]


def _format(spark: SparkSession, table: ComparedTable) -> MessageFormat:
    """How messages are read, with what is remembered of columns that they do not tell themselves."""
    if not table.format.is_typed_elsewhere:
        return table.format
    location = table.location.rstrip("/") + STATE
    state = pinned(spark, location, table.open_log(location, table.name + STATE).version)
    return replace(table.format, tables=tuple(remembered_schemas(state)))


@dataclass(frozen=True)
class Keys:
    """The keys of the changes that messages tell; null of a truncation."""

    out: pa.Schema
    reader: Callable[[], EnvelopeReader]

    def __call__(self, batches: Batches) -> Batches:
        reader = self.reader()
        for batch in batches:
            readings = [reader.read(record_of(message)) for message in batch.to_pylist()]
            changes = [change for reading in readings if isinstance(reading, Changes) for change in reading.changes]
            keys = {None if change.operation is Operation.TRUNCATE else key_text(change.key) for change in changes}
            yield from record_batches([(key,) for key in keys], self.out)


def _is_above(cut: LogPosition) -> Column:
    """Whether a message tells a change that is not in the cut, as `LogPosition.includes` says it."""
    if isinstance(cut, BinlogPosition):
        file, byte = cut.position[:2]
        at_file, at_byte = F.col("position")[0], F.col("position")[1]
        return (at_file > file) | ((at_file == file) & (at_byte >= byte))
    transaction = F.expr(_TRANSACTION).cast("bigint")
    is_later = F.pmod(transaction - cut.end, F.lit(2**32)) < 2**31
    is_open = F.pmod(transaction, F.lit(2**32)).isin(*cut.open) if cut.open else F.lit(False)
    return F.coalesce(is_later | is_open, F.col("position")[1] >= cut.lsn)


RANGE = 500_000  # rows of a range, which the database reads by one statement
AT_ONCE = 500  # keys of a statement
STATEMENT_SECONDS = 300
LOOK_SECONDS = 2.0  # between two looks at whether what is missing has arrived


def opened_driver(platform: Platform, log: Callable[[str], None]) -> "AbstractContextManager[Driver]":
    """A driver of Spark as the settings ask for it."""
    settings = platform.settings
    return open_driver(settings.spark, settings.home, jars=settings.jars, log=log)


def compared_table(platform: Platform, table: CDCTable) -> "ComparedTable":
    """A declared table as monitors look at it."""

    def completed() -> SnapshotCheckpoint | None:
        row = platform.ledger.subscription(table.name)
        consumer = platform.ledger.consumers(row).get("") if row is not None else None
        return consumer.checkpoint.sources.get(table.bronze.name) if consumer is not None else None

    return ComparedTable(
        name=table.name,
        location=platform.location(table.name, table.location),
        bronze=table.bronze.name,
        bronze_location=platform.location(table.bronze.name, table.bronze.location),
        keys=table.keys,
        format=format_of(table.bronze),
        consumer=ConsumerId(platform.ledger.deployment, table.name),
        open_log=platform.log_at,
        completed=completed,
    )


def monitored(spark: "SparkSession", table: "ComparedTable", monitor: Monitor, *, pause: Callable[[float], None] = time.sleep) -> Monitored:
    """Compare a table with that of the database, once; of shards each with its own, one after the other.

    The database is read at a cut, the lake at its newest version. Keys that changes above the cut touched are left out. A row
    that differs otherwise is read again, until it is known that nothing below the cut is on its way, or for as long as the
    monitor lets the lake be behind.

    Raises:
        InvalidValueError: the environment has no URL, or the monitor names a column that is not there.
        SourceUnreadableError: the database cannot be asked.
        NotFoundError: it has no such table.
        TableAbsentError: the lake has none.
    """
    found = dict[str, Monitored]()
    for part in parts_of(monitor, table.keys, table.format.shards):
        try:
            found[part.name] = _compared(spark, table, monitor, part, pause)
        except SourceUnreadableError as error:
            raise SourceUnreadableError(f"{part.told}{error}") from error
    return together(table.name, found)


def _compared(spark: "SparkSession", table: "ComparedTable", monitor: Monitor, part: Part, pause: Callable[[float], None]) -> Monitored:

    start, where = time.monotonic(), part.database.source_table
    with taken(url_in(os.environ, part.database.url, "database"), seconds=STATEMENT_SECONDS) as cut:
        state = state_of(table)
        columns = column_types(cut.connection, *where)
        lake = {name: kind for name, kind in columns_in(spark, table, state).items() if name not in part.shard}
        comparison, unchecked = comparison_of(cut.dialect, columns, lake, part.own_keys, monitor.columns)
        source = TableSide(cut.connection, comparison.source(*where))
        queries = comparison.lake(VIEW, only=part.shard)
        found = compare(source, side_of(spark, table, state, queries), ranges=list(chunks(source, RANGE)))
        kept = KeptRows([row for keys in in_batches(found.faults, AT_ONCE) for row in source.at(keys)])
        place = cut.place
    again = _Suspects(spark, table, part, comparison, kept, place, found, state)
    end = start + monitor.within.total_seconds()
    while again.is_open and (left := end - time.monotonic()) > 0:
        pause(min(LOOK_SECONDS, left))
        again.look()
    return Monitored(
        table=table.name,
        cut=str(place),
        version=again.state.version,
        source_rows=found.source_rows,
        lake_rows=found.lake_rows,
        faults={part.whole(key): fault for key, fault in again.faults.items()},
        left_out=again.left_out,
        unchecked=unchecked,
        unresolved=len(found.unresolved),
        is_passed=again.is_passed,
        is_truncated=again.is_truncated,
        seconds=time.monotonic() - start,
    )


class _Suspects:
    """Keys that differ, as long as what is missing may be on its way."""

    def __init__(
        self,
        spark: "SparkSession",
        table: "ComparedTable",
        part: Part,
        comparison: Comparison,
        kept: KeptRows,
        cut: "LogPosition",
        found: Differences,
        state: "TableState",
    ) -> None:
        self._spark, self._table, self._part, self._comparison, self._kept, self._cut = spark, table, part, comparison, kept, cut
        self._found = found
        self.state = state
        self.left_out, self.is_passed, self.is_truncated = 0, False, False
        self._leave_out()

    @property
    def faults(self) -> dict[Key, Fault]:
        return dict(self._found.faults)

    @property
    def is_open(self) -> bool:
        return bool(self._found.faults) and not self.is_passed and not self.is_truncated

    def look(self) -> None:
        """Read the lake again, where it has gone on."""
        state = state_of(self._table)
        if state == self.state:
            return
        self.state = state
        lake = side_of(self._spark, self._table, state, self._comparison.lake(VIEW, only=self._part.shard))
        self._found = confirmed(self._found, self._kept, lake, at_once=AT_ONCE)
        self._leave_out()

    def _leave_out(self) -> None:

        if not self._found.faults:
            return
        touched = touched_above(self._spark, self._table, self.state, self._cut, self._part.shard)
        self.is_passed, self.is_truncated = touched.is_passed, touched.is_truncated
        keys = {canonical_key(self._comparison, self._part.own(key)) for key in touched.keys}
        faults = {key: fault for key, fault in self._found.faults.items() if key not in keys}
        self.left_out += len(self._found.faults) - len(faults)
        self._found = replace(self._found, faults=faults)
