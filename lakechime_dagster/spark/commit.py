"""Writes a target so that a step of a lane commits at most once, and says afterwards whose commit the step holds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import tenacity
from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
)
from delta.tables import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from lakechime_dagster.dce.commits import TableCommit
from lakechime_dagster.errors import LakeChimeError, LaneConflictError
from lakechime_dagster.lake.personal import column_of as column_name
from lakechime_dagster.spark.compare import OPERATION, values_of
from lakechime_dagster.spark.literals import MAX_LITERALS, sql_literal
from lakechime_dagster.spark.names import quoted, spelled
from lakechime_dagster.spark.narrow import literal_filter
from lakechime_dagster.spark.shape import holds
from lakechime_dagster.spark.stamp import TargetLog, stamped
from lakechime_dagster.triggers.lanes import CommitStamp, Committed

MAX_TRIES = 6
CHANGE_FEED = {"delta.enableChangeDataFeed": "true"}
CONFLICTS = (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
)  # another writer was first; Delta's Python classes of them have no common base


class CommitLostError(LakeChimeError):
    """A write returned, but the target's log holds no commit of its step."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A table to write: where it lies, its key, its partition columns, its log, and those of its columns that are personal."""

    name: str
    location: str
    log: TargetLog
    keys: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    comment: str = ""
    personal: tuple[str, ...] = ()

    def read(self, spark: SparkSession) -> DataFrame:
        return spark.read.format("delta").load(self.location)


def newest_commit(target: Target, stamp: CommitStamp) -> Committed | None:
    """The commit of this step, if some attempt made it already, else the newest that the lane made before.

    Raises:
        LaneConflictError: the lane has moved on, so this attempt is too late to write anything.
    """
    if not target.log.exists():
        return None
    found = target.log.committed(stamp.lane, stamp.step) or target.log.last_committed(stamp.lane)
    if found and found.stamp.step > stamp.step:
        raise LaneConflictError(
            f"{target.name}: attempt {stamp.attempt} at step {stamp.step} comes too late, its lane has committed step {found.stamp.step}"
        )
    return found


def create_if_missing(spark: SparkSession, target: Target, schema: StructType, properties: Mapping[str, str] | None = None) -> None:
    """Make an empty target, with its change feed on unless the properties say otherwise.

    A table that is there, or that another run makes meanwhile, is left as it is.
    """
    for tried in retrying(AnalysisException):  # which is what Delta calls a folder that another run has only begun to fill
        with tried:
            if not target.log.exists():
                _create(spark, target, schema, CHANGE_FEED if properties is None else properties)


def _create(spark: SparkSession, target: Target, schema: StructType, properties: Mapping[str, str]) -> None:
    builder = DeltaTable.createIfNotExists(spark).location(target.location)
    for name, value in properties.items():
        builder = builder.property(name, value)
    builder = builder.addColumns(StructType([StructField(f.name, f.dataType, True, f.metadata) for f in schema]))
    if target.partitioned_by:
        builder = builder.partitionedBy(*target.partitioned_by)
    if target.cluster_by:
        builder = builder.clusterBy(*target.cluster_by)
    if target.comment:
        builder = builder.comment(target.comment)
    builder.execute()


def commit(
    spark: SparkSession, target: Target, stamp: CommitStamp, prepare: Callable[[], Callable[[], None] | None],
    told: Callable[[], Mapping[str, Any]] = dict,
) -> Committed | None:  # fmt: skip
    """Write under the stamp, and ask the log whose commit the step holds then: this attempt's or another's.

    `prepare` reads the target and gives the write, or None when there is nothing to do: that is decided before the
    transaction is set, with which even a write of nothing commits. Both are repeated when a concurrent writer was first.
    `told` gives the facts that the commit tells beside those of the stamp, asked once it is prepared.

    Raises:
        CommitLostError: the write was skipped or changed nothing, and no commit of the step is there.
    """
    for tried in retrying():
        with tried:
            found = newest_commit(target, stamp)
            if found and found.stamp.step == stamp.step:
                return found
            write = prepare()
            if write is None:
                return None
            try:
                with stamped(spark, replace(stamp, facts={**stamp.facts, **told()})):
                    write()
            except ConcurrentTransactionException:
                pass  # another attempt at this step was first: the log says which
    found = target.log.committed(stamp.lane, stamp.step)
    if found is None:
        raise CommitLostError(
            f"{target.name}: step {stamp.step} of lane {stamp.lane} was written, but is not in the log at"
            f" {target.log.shown_location}; run it again"
        )
    return found


def is_own(found: Committed, stamp: CommitStamp) -> bool:
    """Whether a commit is this attempt's."""
    return (found.stamp.attempt, found.stamp.execution_id) == (stamp.attempt, stamp.execution_id) and not found.is_stamp_lost


def append(rows: DataFrame, target: Target) -> None:
    """Add rows, with new columns if there are any; rows of nothing make a commit too, which is the fence of law 13."""
    rows.write.format("delta").mode("append").option("mergeSchema", "true").save(target.location)


def append_nothing(spark: SparkSession, target: Target) -> None:
    """An empty commit: later attempts at this step find it and stand back."""
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in target.read(spark).schema]
    rows = spark.range(0).select(*nulls)
    rows.write.format("delta").mode("append").save(target.location)


def replace_all(rows: DataFrame, target: Target) -> None:
    """Replace the whole table, its schema included."""
    writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    (writer.partitionBy(*target.partitioned_by) if target.partitioned_by else writer).save(target.location)


def replace_partitions(rows: DataFrame, target: Target, partitions: Sequence[Sequence[Any]]) -> None:
    """Replace these partitions with those of the rows that are in them; one for which there is no row is emptied."""
    predicate = partition_predicate(target, rows.schema, partitions)
    writer = rows.where(predicate).write.format("delta").mode("overwrite").option("replaceWhere", predicate).option("mergeSchema", "true")
    writer.save(target.location)


def partition_predicate(target: Target, schema: StructType, partitions: Sequence[Sequence[Any]]) -> str:
    """SQL that is true of just these partitions, whose values come plain (`literals.plain`)."""
    kinds = [schema[name].dataType for name in target.partitioned_by]
    names = [quoted(name) for name in target.partitioned_by]

    def one(values: Sequence[Any]) -> str:
        parts = [
            f"{name} IS NULL" if value is None else f"{name} = {sql_literal(value, kind)}"
            for name, kind, value in zip(names, kinds, values, strict=True)
        ]
        return "(" + " AND ".join(parts) + ")"

    return " OR ".join(one(values) for values in partitions) or "false"


def merge(spark: SparkSession, target: Target, changes: DataFrame, *, is_bounded: bool = False, listed: int = MAX_LITERALS) -> None:
    """Apply keyed changes (`compare.OPERATION`): one row per key, so that no two of them meet one target row.

    Delta opens the files alone that may hold the partitions of these keys, or where it `is_bounded` the keys themselves: by
    their list where no more are to be `listed`, or by the least and the greatest of them. The log tells the condition, so that it
    says nothing of keys that are personal.
    """
    columns = values_of(changes)
    source = changes.where(F.col(OPERATION).isin("I", "U", "D"))
    assignments = {quoted(name): column_of("s", name) for name in columns}
    condition = reduce(lambda a, b: a & b, [column_of("t", key) == column_of("s", key) for key in target.keys])
    hidden = {column_name(name).lower() for name in target.personal}
    by_key = [name for name in target.keys if name.lower() not in hidden and (is_bounded or name in target.partitioned_by)]
    if by_key:
        within = literal_filter(source, {name: column_of("t", name) for name in by_key}, listed)
        condition = condition if within is None else condition & within
    deletes, writes = column_of("s", OPERATION) == "D", column_of("s", OPERATION) != "D"
    table = DeltaTable.forPath(spark, target.location)
    merger = table.alias("t").merge(source.alias("s"), condition)
    if not holds(spelled(table.toDF(), columns).schema, StructType([changes.schema[name] for name in columns])):
        merger = merger.withSchemaEvolution()
    (
        merger.whenMatchedDelete(deletes)
        .whenMatchedUpdate(writes, assignments)  # type: ignore[arg-type]
        .whenNotMatchedInsert(writes, assignments)  # type: ignore[arg-type]
        .execute()
    )


def column_of(alias: str, name: str) -> Column:
    return F.col(f"{alias}.{quoted(name)}")


def commit_at(log: TargetLog, version: int) -> TableCommit:
    """The log's record of one commit."""
    return log.commits(version - 1, version)[0]


def retrying(*others: type[Exception]) -> tenacity.Retrying:
    """Try again while concurrent writers of the table are first, and after these other errors."""
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type((*CONFLICTS, *others)),
        stop=tenacity.stop_after_attempt(MAX_TRIES),
        wait=tenacity.wait_random_exponential(multiplier=0.2, max=5),
        reraise=True,
    )
