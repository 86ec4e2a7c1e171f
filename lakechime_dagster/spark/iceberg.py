"""Reads what changed in an Iceberg table between two snapshots.

Spark is given the table's metadata file, which pyiceberg finds in the catalog, so that the session
needs no catalog of its own.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.dce.events import SnapshotId
from lakechime_dagster.dce.snapshots import SnapshotRange, Verdict
from lakechime_dagster.spark.ranges import (
    CHANGE,
    VERSION,
    RangeRead,
    ReadMethod,
    as_changes,
    difference,
)
from lakechime_dagster.spark.session import column, is_comparable

if TYPE_CHECKING:
    from lakechime_dagster.formats.iceberg import IcebergLog, IcebergRange


@dataclass(frozen=True)
class IcebergSource:
    """An Iceberg table by the snapshots of its main branch.

    Appends are read from the files that they added. Where files were replaced, Iceberg's changes
    are the rows of these files, of which the ones that were only copied are left out. Where rows
    are deleted by files of deletes, Iceberg has no changes, and both snapshots are compared.
    """

    spark: SparkSession
    log: "IcebergLog"

    def read_snapshot(self, at: SnapshotId | None) -> tuple[DataFrame, SnapshotId]:
        metadata, snapshot = self.log.pinned(at)
        return self._at(metadata, snapshot), snapshot

    def read_range(self, range_: SnapshotRange) -> RangeRead:
        judged = self.log.judge(range_)
        read = RangeRead(
            snapshot=judged.snapshot,
            method=ReadMethod.WHOLE,
            verdict=judged.verdict,
            note=judged.note,
            end=self._at(judged.metadata, judged.snapshot),
            commits=judged.commits,
            data_commits=judged.data_commits,
        )
        if not judged.verdict.is_incremental:
            return read
        if judged.start is None:
            return replace(read, is_first=True)
        if not judged.data_commits:
            nothing = as_changes(read.end.limit(0), 1)
            return replace(read, method=ReadMethod.NOTHING, changes=nothing, only_appends=True)
        method, changes = self._changes(judged, judged.start, read.end)
        if changes is None:
            note = (
                "columns were renamed or dropped since, or rows with columns of maps were deleted"
            )
            return replace(read, verdict=Verdict.EXPIRED, note=note)
        return replace(read, method=method, changes=changes, only_appends=judged.only_appends)

    def _changes(
        self, judged: "IcebergRange", start: SnapshotId, end: DataFrame
    ) -> tuple[ReadMethod, DataFrame | None]:
        """The changed rows with the columns of the end snapshot; None where they cannot be told."""
        if judged.has_delete_files and not judged.only_appends:
            before = self._at(judged.metadata, start)
            if not is_comparable(end.schema) or not set(before.columns) <= set(end.columns):
                return ReadMethod.WHOLE, None
            return ReadMethod.VERSION_DIFF, difference(before, end)
        between = {"start-snapshot-id": start, "end-snapshot-id": judged.snapshot}
        reader = self.spark.read.format("iceberg").options(**between)
        kind = "" if judged.only_appends else "#changes"
        rows = reader.load(judged.metadata + kind)
        if not set(end.columns) <= set(rows.columns):
            return ReadMethod.WHOLE, None
        columns = [column(name) for name in end.columns]
        if judged.only_appends:
            return ReadMethod.LOG_FILES, as_changes(rows.select(*columns), 1)
        # Iceberg fails where it is handed a condition on `_change_type`, as it would be of an equality
        changes = rows.select(
            *columns,
            F.when(F.ascii("_change_type") == ord("I"), 1).otherwise(-1).alias(CHANGE),
            F.col("_change_ordinal").cast("long").alias(VERSION),
        )
        if is_comparable(end.schema):
            changes = _without_copied(changes)
        return ReadMethod.CHANGE_FEED, changes

    def _at(self, metadata: str, snapshot: SnapshotId) -> DataFrame:
        return self.spark.read.format("iceberg").option("versionAsOf", snapshot).load(metadata)


def _without_copied(changes: DataFrame) -> DataFrame:
    """The changes without those of rows that a snapshot took out of one file and put into another
    as they were.
    """
    whole = [column(name) for name in changes.columns if name != CHANGE]
    net = changes.groupBy(*whole).agg(F.sum(CHANGE).alias("__net")).where("__net != 0")
    each = F.explode(F.array_repeat(F.signum("__net").cast("int"), F.abs("__net").cast("int")))
    return net.withColumn(CHANGE, each).select(*[column(name) for name in changes.columns])
