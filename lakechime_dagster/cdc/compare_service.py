"""Compares a CDC table with its database at a consistent snapshot while its runs continue."""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from lakechime_dagster.cdc.compare import (
    Comparison,
    Differences,
    Fault,
    KeptRows,
    Key,
    Monitored,
    Part,
    canonical_key,
    chunks,
    compare,
    comparison_of,
    confirmed,
    in_batches,
    parts_of,
    together,
)
from lakechime_dagster.cdc.readers import format_of
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.errors import SourceUnreadableError
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.tables.cdc import ChangeTable
from lakechime_dagster.tables.databases import Monitor, url_in
from lakechime_dagster.triggers.consumers import ConsumerId

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakechime_dagster.cdc.change import LogPosition
    from lakechime_dagster.cdc.spark_compare import FollowedTable, TableState
    from lakechime_dagster.spark.driver import Driver


RANGE = 500_000  # rows of a range, which the database reads by one statement
AT_ONCE = 500  # keys of a statement
STATEMENT_SECONDS = 300
LOOK_SECONDS = 2.0  # between two looks at whether what is missing has arrived


def opened_driver(platform: Platform, log: Callable[[str], None]) -> "AbstractContextManager[Driver]":
    """A driver of Spark as the settings ask for it."""
    from lakechime_dagster.spark.driver import open_driver

    settings = platform.settings
    return open_driver(settings.spark, settings.home, jars=settings.jars, log=log)


def followed(platform: Platform, table: ChangeTable) -> "FollowedTable":
    """A declared table as monitors look at it."""
    from lakechime_dagster.cdc.spark_compare import FollowedTable

    def completed() -> SnapshotCheckpoint | None:
        row = platform.ledger.subscription(table.name)
        consumer = platform.ledger.consumers(row).get("") if row is not None else None
        return consumer.checkpoint.sources.get(table.bronze.name) if consumer is not None else None

    return FollowedTable(
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


def monitored(spark: "SparkSession", table: "FollowedTable", monitor: Monitor, *, pause: Callable[[float], None] = time.sleep) -> Monitored:
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


def _compared(spark: "SparkSession", table: "FollowedTable", monitor: Monitor, part: Part, pause: Callable[[float], None]) -> Monitored:
    from lakechime_dagster.cdc.database import TableSide, column_types, taken
    from lakechime_dagster.cdc.spark_compare import VIEW, columns_in, side_of, state_of

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
        table: "FollowedTable",
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
        from lakechime_dagster.cdc.spark_compare import VIEW, side_of, state_of

        state = state_of(self._table)
        if state == self.state:
            return
        self.state = state
        lake = side_of(self._spark, self._table, state, self._comparison.lake(VIEW, only=self._part.shard))
        self._found = confirmed(self._found, self._kept, lake, at_once=AT_ONCE)
        self._leave_out()

    def _leave_out(self) -> None:
        from lakechime_dagster.cdc.spark_compare import touched_above

        if not self._found.faults:
            return
        touched = touched_above(self._spark, self._table, self.state, self._cut, self._part.shard)
        self.is_passed, self.is_truncated = touched.is_passed, touched.is_truncated
        keys = {canonical_key(self._comparison, self._part.own(key)) for key in touched.keys}
        faults = {key: fault for key, fault in self._found.faults.items() if key not in keys}
        self.left_out += len(self._found.faults) - len(faults)
        self._found = replace(self._found, faults=faults)
