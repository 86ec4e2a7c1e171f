"""Compares a CDC table with its database at a consistent snapshot while its runs continue."""

import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.cdc import change
from lakechime_dagster.cdc.change import (
    REPAIRS,
    BinlogPosition,
    LogPosition,
    Operation,
    key_of,
    key_text,
)
from lakechime_dagster.cdc.compare import (
    Comparison,
    DatabasePart,
    Differences,
    Monitored,
    Queries,
    Run,
    canonical_key,
    chunks,
    compare,
    comparison_of,
    confirmed,
    in_batches,
    named_there,
    parts_of,
    together,
)
from lakechime_dagster.cdc.database import column_types, run_on, taken
from lakechime_dagster.cdc.record import Changes, EnvelopeReader, record_of, shard_of
from lakechime_dagster.cdc.service import ReplicaTables
from lakechime_dagster.cdc.spark_changes import MESSAGE
from lakechime_dagster.dce.events import SnapshotId
from lakechime_dagster.errors import SourceUnreadableError
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.spark.driver import Driver, open_driver
from lakechime_dagster.spark.inputs import source_of
from lakechime_dagster.spark.ranges import pinned
from lakechime_dagster.spark.session import (
    Batches,
    arrow_of,
    column,
    columns_of,
    on_batches,
    record_batches,
    session_confs,
)
from lakechime_dagster.tables.databases import Monitor
from lakechime_dagster.tables.names import DELETED_AT, END_SEQ, OWN_COLUMNS

VIEW = "lakechime_monitored"
RANGE = 500_000  # rows of a range, which the database reads by one statement
AT_ONCE = 500  # keys of a statement
STATEMENT_SECONDS = 300
POLL_SECONDS = 2.0  # between two readings of the lake, while what is missing may still arrive
# else Delta's parser does not bind parameters in Spark 4.1
_BOUND = {"spark.sql.legacy.parameterSubstitution.constantsOnly": "true"}
_KEYS_DDL = "`key` string"
_TRANSACTION = (
    "coalesce(get_json_object(value, '$.payload.source.txId'), get_json_object(value, "
    "'$.source.txId'))"
)


def opened_driver(
    platform: Platform, log: Callable[[str], None]
) -> "AbstractContextManager[Driver]":
    """A driver of Spark as the settings ask for it."""
    settings = platform.settings
    return open_driver(settings.spark, settings.home, jars=settings.jars, log=log)


def monitored(
    spark: SparkSession,
    tables: ReplicaTables,
    monitor: Monitor,
    *,
    pause: Callable[[float], None] = time.sleep,
) -> Monitored:
    """Compare a table with that of the database, once; of shards each with its own, one after the
    other.

    The database is read at a consistent snapshot, the lake at its newest version. Keys that changes
    above the snapshot touched are left out. A row that differs otherwise is read again, until
    nothing below the snapshot can be on its way, or for as long as the monitor lets the lake be
    behind.

    Raises:
        InvalidValueError: the environment has no URL, or the monitor names a column that does not
            exist.
        SourceUnreadableError: the database cannot be queried.
        NotFoundError: it has no such table.
        TableAbsentError: the lake has none.
    """
    found = dict[str, Monitored]()
    for part in parts_of(monitor, tables.format.keys, tables.format.shards):
        try:
            found[part.name] = _compared(spark, tables, monitor, part, pause)
        except SourceUnreadableError as error:
            raise SourceUnreadableError(f"{part.label}{error}") from error
    return together(tables.name, found)


def _compared(
    spark: SparkSession,
    tables: ReplicaTables,
    monitor: Monitor,
    part: DatabasePart,
    pause: Callable[[float], None],
) -> Monitored:
    start, where = time.monotonic(), part.database.source_table
    address = part.database.address(os.environ)
    with taken(address, seconds=STATEMENT_SECONDS, table=where) as snapshot:
        version = version_of(tables)
        rows = _current_rows(spark, tables, version)
        lake_types = {
            name: kind for name, kind in columns_of(rows.schema).items() if name not in part.shard
        }
        source_types = column_types(snapshot.connection, *where)
        comparison = comparison_of(
            snapshot.dialect, source_types, lake_types, part.own_keys, monitor.columns
        )
        source = comparison.source(run_on(snapshot.connection), *where)
        lake = comparison.lake(run_in(spark), VIEW, only=part.shard)
        compared = compare(source, _of(rows, lake), ranges=list(chunks(source, RANGE)))
        kept = [row for keys in in_batches(compared.faults, AT_ONCE) for row in source.at(keys)]
    found, touched = _without_touched(
        spark, tables, version, snapshot.position, part, comparison, compared
    )
    left_out = len(compared.faults) - len(found.faults)
    end = start + monitor.within.total_seconds()
    while (
        found.faults
        and not (touched.is_passed or touched.is_truncated)
        and (left := end - time.monotonic()) > 0
    ):
        pause(min(POLL_SECONDS, left))
        if (newest := version_of(tables)) != version:
            version = newest
            again = confirmed(
                found, kept, _of(_current_rows(spark, tables, version), lake), at_once=AT_ONCE
            )
            found, touched = _without_touched(
                spark, tables, version, snapshot.position, part, comparison, again
            )
            left_out += len(again.faults) - len(found.faults)
    return Monitored(
        table=tables.name,
        snapshot=str(snapshot.position),
        version=int(version.rows),
        source_rows=found.source_rows,
        lake_rows=found.lake_rows,
        faults={part.whole(key): fault for key, fault in found.faults.items()},
        left_out=left_out,
        unchecked=comparison.unchecked,
        unresolved=len(found.unresolved),
        is_passed=touched.is_passed,
        is_truncated=touched.is_truncated,
        seconds=time.monotonic() - start,
    )


# The lake's side


@dataclass(frozen=True, kw_only=True)
class Version:
    """A snapshot of the table's rows, and the version of its bronze table that is merged in it;
    None where that is unknown.
    """

    rows: SnapshotId
    bronze: int | None


def version_of(tables: ReplicaTables) -> Version:
    """The newest version.

    Raises:
        TableAbsentError: the table does not exist.
    """
    # both before the snapshot is read, so that this is not behind them
    checkpoint = tables.checkpoint()
    committed = tables.rows.log.last_committed(tables.consumer)
    uid = tables.bronze.uid if tables.bronze.exists() else None
    ends = [
        checkpoint,
        committed.commit_metadata.end.sources.get(tables.bronze.table) if committed else None,
    ]
    merged = [
        int(one.snapshot_id)
        for one in ends
        if one is not None and one.snapshot_id is not None and one.table_uid == uid
    ]
    return Version(rows=tables.rows.log.newest, bronze=max(merged, default=None))


def _current_rows(spark: SparkSession, tables: ReplicaTables, version: Version) -> DataFrame:
    """The rows that the database's table has, as the lake has them: without ended and soft-deleted
    ones, their columns as the database names them.
    """
    rows, _ = source_of(spark, tables.rows.log).read_snapshot(version.rows)
    for end in (END_SEQ, DELETED_AT):
        rows = rows.where(F.col(end).isNull()) if end in rows.columns else rows
    rows = rows.drop(*OWN_COLUMNS)
    named = named_there(tables.names, rows.columns)
    return rows.select([column(here).alias(there) for there, here in named.items()])


def _of(rows: DataFrame, lake: Queries) -> Queries:
    """The lake's side, of these rows."""
    rows.createOrReplaceTempView(VIEW)
    return lake


def run_in(spark: SparkSession) -> Run:
    """Runs the queries of a comparison on views of a session."""

    def run(sql: str, parameters: Mapping[str, Any]) -> list[Any]:
        with session_confs(spark, _BOUND):
            return spark.sql(sql, args=dict(parameters)).collect()

    return run


# Changes above the snapshot


@dataclass(frozen=True, kw_only=True)
class Touched:
    """What changes above a snapshot touched.

    Attributes:
        keys: Of the rows.
        is_truncated: All rows, by a truncation.
        is_passed: Each partition that brings such changes has brought one above the snapshot: all
            below it has arrived.
    """

    keys: frozenset[change.Key] = frozenset()
    is_truncated: bool = False
    is_passed: bool = False


def _without_touched(
    spark: SparkSession,
    tables: ReplicaTables,
    version: Version,
    position: LogPosition,
    part: DatabasePart,
    comparison: Comparison,
    found: Differences,
) -> tuple[Differences, Touched]:
    """The differences but for keys that changes above the snapshot touched, and these changes."""
    if not found.faults:
        return found, Touched()
    touched = touched_above(spark, tables, version, position, part.shard)
    keys = {canonical_key(comparison, part.own(key)) for key in touched.keys}
    return replace(
        found, faults={key: fault for key, fault in found.faults.items() if key not in keys}
    ), touched


def touched_above(
    spark: SparkSession,
    tables: ReplicaTables,
    version: Version,
    position: LogPosition,
    shard: Mapping[str, str],
) -> Touched:
    """What the messages that are merged in a version report of changes above a position; one
    without a position is ignored.

    Of a `shard`, which is named by what its topics name, only they count.
    """
    if version.bronze is None:
        return Touched()
    rows = pinned(spark, tables.bronze.location, version.bronze).where(
        (F.col("kind") == "change") & F.col("position").isNotNull()
    )
    if shard:
        shards = re.compile(tables.format.shards)
        topics = [
            topic
            for (topic,) in rows.select("topic").distinct().collect()
            if shard_of(shards, topic) == shard
        ]
        rows = rows.where(F.col("topic").isin(topics))
    above = is_above(position)
    passed = (
        rows.where(~F.col("topic_id").startswith(REPAIRS))
        .groupBy("topic", "partition")  # a topic that was created again goes on where it ended
        .agg(F.bool_or(above).alias("passed"))
        .collect()
    )
    passed = [row["passed"] for row in passed]
    if not any(passed):
        return Touched()
    keys = Keys(out=arrow_of(_KEYS_DDL), reader=tables.typed_format().reader)
    found = on_batches(rows.where(above).select(*MESSAGE), keys, _KEYS_DDL).distinct().collect()
    return Touched(
        keys=frozenset(key_of(key) for (key,) in found if key is not None),
        is_truncated=any(key is None for (key,) in found),
        is_passed=all(passed),
    )


@dataclass(frozen=True)
class Keys:
    """The keys of the changes that messages report; null of a truncation."""

    out: pa.Schema
    reader: Callable[[], EnvelopeReader]

    def __call__(self, batches: Batches) -> Batches:
        reader = self.reader()
        for batch in batches:
            readings = [reader.read(record_of(message)) for message in batch.to_pylist()]
            changes = [
                change
                for reading in readings
                if isinstance(reading, Changes)
                for change in reading.changes
            ]
            keys = {
                None if change.operation is Operation.TRUNCATE else key_text(change.key)
                for change in changes
            }
            yield from record_batches([(key,) for key in keys], self.out)


def is_above(position: LogPosition) -> Column:
    """Whether a message reports a change that is not in the snapshot: by its place in the binary log,
    in PostgreSQL by its transaction, whose numbers restart after 32 bits.
    """
    if isinstance(position, BinlogPosition):
        file, byte = position.position[:2]
        at_file, at_byte = F.col("position")[0], F.col("position")[1]
        return (at_file > file) | ((at_file == file) & (at_byte >= byte))
    transaction = F.expr(_TRANSACTION).cast("bigint")
    is_later = F.pmod(transaction - position.end, F.lit(2**32)) < 2**31
    is_open = (
        F.pmod(transaction, F.lit(2**32)).isin(*position.open) if position.open else F.lit(False)
    )
    return F.coalesce(is_later | is_open, F.col("position")[1] >= position.lsn)
