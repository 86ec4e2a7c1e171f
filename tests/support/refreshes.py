"""A small lake for refresh tests: sources written by delta-rs, targets refreshed by Spark,
consumers kept by hand.
"""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from lakechime_dagster.dce.events import Position, SnapshotId
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint, SnapshotRange
from lakechime_dagster.formats.delta import DeltaLog
from lakechime_dagster.formats.iceberg import IcebergLog
from lakechime_dagster.spark.job import InputJob, TableJob, TableResult
from lakechime_dagster.spark.refresh import refresh
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, ConsumerId

FLIGHTS = pa.schema(
    [("day", pa.date32()), ("k", pa.int64()), ("origin", pa.string()), ("delay", pa.int64())]
)
DAYS = [dt.date(2013, 1, 1) + dt.timedelta(days=i) for i in range(3)]
CHANGE_FEED = {"delta.enableChangeDataFeed": "true"}


def open_log(location: str, table: str) -> DeltaLog:
    return DeltaLog(location, table)


def read_rows(location: Path | str, version: int | None = None) -> list[tuple[Any, ...]]:
    """All rows of a table, sorted, read by delta-rs: an engine that did not write them."""
    query = (
        QueryBuilder()
        .register("t", DeltaTable(str(location), version=version))
        .execute("select * from t")
    )
    return sorted((tuple(row.values()) for row in pa.table(query).to_pylist()), key=repr)


@dataclass
class Source:
    """A table that others write."""

    location: Path
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    change_feed: bool = True

    def write(self, *rows: tuple[Any, ...], mode: Any = "append", **options: Any) -> None:
        data = pa.Table.from_pylist(
            [dict(zip(self.schema.names, row, strict=True)) for row in rows], schema=self.schema
        )
        configuration = CHANGE_FEED if self.change_feed else None
        partition_by = list(self.partition_by) or None
        write_deltalake(
            str(self.location),
            data,
            mode=mode,
            partition_by=partition_by,
            configuration=configuration,
            **options,
        )  # type: ignore[call-overload]

    def delete(self, predicate: str | None = None) -> None:
        DeltaTable(str(self.location)).delete(predicate)

    def update(self, updates: Mapping[str, str], predicate: str | None = None) -> None:
        DeltaTable(str(self.location)).update(updates=dict(updates), predicate=predicate)

    def optimize(self) -> None:
        DeltaTable(str(self.location)).optimize.compact()

    def restore(self, version: int) -> None:
        DeltaTable(str(self.location)).restore(version)

    @property
    def log(self) -> DeltaLog:
        return DeltaLog(str(self.location), self.location.name)

    def range(self, start: int | None, end: int | None = None) -> SnapshotRange:
        uid, end = self.log.uid, self.log.version if end is None else end
        return SnapshotRange(
            table=self.location.name,
            table_uid=uid,
            start=None if start is None else SnapshotId(str(start)),
            end=SnapshotId(str(end)),
            start_uid=None if start is None else uid,
        )


def flights_source(folder: Path, *rows: tuple[Any, ...]) -> Source:
    """A table of flights by day; two flights where no rows are given."""
    source = Source(folder / "flights", FLIGHTS, ("day",))
    source.write(*(rows or [(DAYS[0], 1, "JFK", 5), (DAYS[1], 2, "LGA", 7)]))
    return source


@dataclass
class Subscription:
    """A target with its consumer: each `run` is the next execution over everything new in the
    sources.
    """

    spark: SparkSession
    job: TableJob
    sources: dict[str, Source]
    consumer: ConsumerId = field(default_factory=lambda: ConsumerId("test", "subscription"))
    number: int = 0
    checkpoint: dict[str, SnapshotCheckpoint] = field(default_factory=dict)
    position: Position = Position.ORIGIN

    def run(self, **changes: Any) -> TableResult:
        self.number += 1
        result, end = self.attempt(self.number, 1, **changes)
        self.checkpoint, self.position = end, Position(0, self.number)
        return result

    def attempt(
        self, number: int, attempt: int, **changes: Any
    ) -> tuple[TableResult, dict[str, SnapshotCheckpoint]]:
        """One attempt at an execution over what is new since the checkpoint; the checkpoint is left
        where it is.
        """
        end = {
            alias: SnapshotCheckpoint(
                table_uid=s.log.uid, snapshot_id=SnapshotId(str(s.log.version))
            )
            for alias, s in self.sources.items()
        }
        commit_metadata = CommitMetadata(
            consumer=self.consumer,
            number=number,
            attempt=attempt,
            execution_id=f"e{number}",
            end=Checkpoint(position=Position(0, number), sources=end),
        )
        start = Checkpoint(position=self.position, sources=dict(self.checkpoint))
        job = replace(
            self.job,
            inputs=tuple(self._input(one, end) for one in self.job.inputs),
            start=start,
            **changes,
        )
        return refresh(self.spark, job, commit_metadata, open_log), end

    def _input(self, one: InputJob, end: Mapping[str, SnapshotCheckpoint]) -> InputJob:
        was, now = self.checkpoint.get(one.alias, SnapshotCheckpoint()), end[one.alias]
        assert now.snapshot_id is not None
        if was == now:
            return replace(one, pinned=now.snapshot_id)
        range_ = SnapshotRange(
            table=one.table,
            table_uid=now.table_uid,
            start=was.snapshot_id,
            end=now.snapshot_id,
            start_uid=was.table_uid,
        )
        return replace(one, range=range_)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The target's rows, sorted, read by an engine that did not write them."""
        if not isinstance(self.job.log, IcebergLog):
            return read_rows(self.job.location)
        catalog = load_catalog("lakechime", **self.job.log.catalog)
        found = catalog.load_table(self.job.log.table).scan().to_arrow()
        return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


def make_subscription(
    spark: SparkSession,
    folder: Path,
    sources: dict[str, Source],
    compute: Callable[..., Any] | None = None,
    **fields: Any,
) -> Subscription:
    """A subscription whose inputs are all read as changes; `inputs` gives further fields of an
    input by alias.
    """
    more: Mapping[str, Mapping[str, Any]] = fields.pop("inputs", {})
    inputs = tuple(
        InputJob(alias=alias, table=alias, location=str(source.location), **more.get(alias, {}))
        for alias, source in sources.items()
    )
    job = TableJob(
        name="target", location=str(folder / "target"), inputs=inputs, compute=compute, **fields
    )
    return Subscription(spark, job, sources)


def balanced(result: TableResult) -> TableResult:
    """The result, whose counts add up."""
    assert result.counts.is_balanced, result.counts
    return result
