"""Decides what a table's commit contains."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.dce.events import changed_fact
from lakechime_dagster.dce.snapshots import TableCommit
from lakechime_dagster.spark.commit import (
    CHANGE_FEED,
    LISTED,
    Target,
    append,
    append_nothing,
    can_insert,
    commit,
    commit_at,
    create_if_missing,
    insert,
    is_own,
    merge,
    replace_all,
    replace_partitions,
    retrying,
    transaction,
)
from lakechime_dagster.spark.compare import OPERATION, Difference, keyed_difference, unkeyed_difference
from lakechime_dagster.spark.inputs import Scope, Work
from lakechime_dagster.spark.job import Counts, Outcome, Partition, TableJob
from lakechime_dagster.spark.ranges import narrowed
from lakechime_dagster.spark.rows import REASON, Sifted, shaped
from lakechime_dagster.spark.session import column, local, plain, spelled
from lakechime_dagster.tables.tables import RefreshMode
from lakechime_dagster.triggers.consumers import CommitMetadata, Committed


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a write did: counts of the target's rows, and what the log says of the commit."""

    outcome: Outcome
    committed: Committed | None = None
    replaced: bool = False
    counts: Counts = field(default_factory=Counts)
    partitions: tuple[Partition | None, ...] = ()
    files: int = 0
    bytes: int = 0


@dataclass
class Plan:
    """What the newest try at a write found to do; made anew when a concurrent writer was first."""

    difference: Difference | None = None
    fenced: bool = False
    replaced: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)

    def let_go(self) -> None:
        if self.difference is not None and self.difference.changes is not None:
            self.difference.changes.unpersist()


def write(spark: SparkSession, job: TableJob, target: Target, commit_metadata: CommitMetadata, sifted: Sifted, work: Work) -> Written:
    """Bring the target to the good rows and commit with the commit metadata; nothing is written when nothing differs.

    With nothing to do, a first attempt leaves no commit and a later one an empty one (law 13).
    """
    plan = Plan()

    def prepare() -> Callable[[], None] | None:
        plan.let_go()
        since = target.log.version
        found = _planned(spark, job, target, sifted, work, since, is_alone=not commit_metadata.consumer.key)
        plan.difference, plan.replaced, plan.fenced = found.difference, found.replaced, found.write is None
        plan.facts = changed_fact(found.difference.changed, since) if found.is_of_values else {}
        if found.write is None and not job.may_complete_empty:
            return lambda: append_nothing(spark, target)
        return found.write

    try:
        held = commit(spark, target, commit_metadata, prepare, lambda: plan.facts)
        return _written(target, commit_metadata, plan, held)
    finally:
        plan.let_go()


@dataclass(frozen=True, kw_only=True)
class _Planned:
    """What there is to write. `is_of_values`: nothing but values in rows that stay, in columns that the difference names."""

    difference: Difference
    write: Callable[[], None] | None
    replaced: bool = False
    is_of_values: bool = False


def _planned(spark: SparkSession, job: TableJob, target: Target, sifted: Sifted, work: Work, since: int, *, is_alone: bool) -> _Planned:
    """Compare with the target as it is now, at a version since; `write` is None when nothing differs.

    Rows that are all new are inserted by a consumer that is alone in its table: consumers of keys would be in each other's way.
    """
    good, stored = sifted.good, target.read(spark)
    now = spelled(stored, good.columns)
    if work.replace or job.refresh is RefreshMode.FULL:
        difference = _whole_difference(target, good, now)
        new_schema = [(f.name, f.dataType) for f in good.schema] != [(f.name, f.dataType) for f in now.schema]
        wanted = job.always_write or new_schema or not difference.is_empty
        has_as_many = difference.is_of_values and sifted.good_count == now.count()  # no row lacks a key, and none has another's
        is_of_values = not new_schema and has_as_many
        write = (lambda: replace_all(good, target)) if wanted else None
        return _Planned(difference=difference, write=write, replaced=wanted, is_of_values=is_of_values)
    held = now.schema
    rows = shaped(job.name, good, held)
    now = shaped(job.name, now, rows.schema)  # with fields of structs that it is about to have
    if job.refresh is RefreshMode.PARTITIONS:
        return _planned_partitions(target, rows, now, work.scope)
    if not target.keys:
        added = Difference(inserted=sifted.good_count)
        return _Planned(difference=added, write=None if added.is_empty else lambda: append(rows, target))
    can_be_inserted = is_alone and can_insert(rows, stored)
    if can_be_inserted and _is_just_made(target, since):
        return _inserting(spark, target, since, rows, Difference(inserted=sifted.good_count))
    difference = _scoped_difference(job, target, rows, now, work.scope)
    changes = difference.changes
    if changes is None or difference.is_empty:
        return _Planned(difference=difference, write=None)
    if can_be_inserted and difference.inserted and not (difference.updated or difference.deleted):
        new = changes.where(F.col(OPERATION) == "I").select(*map(column, rows.columns))
        return _inserting(spark, target, since, new, difference)
    is_of_values = difference.is_of_values and rows.schema.simpleString() == held.simpleString()
    return _Planned(difference=difference, write=lambda: merge(spark, target, changes), is_of_values=is_of_values)


def _inserting(spark: SparkSession, target: Target, since: int, rows: DataFrame, difference: Difference) -> _Planned:
    return _Planned(difference=difference, write=None if difference.is_empty else lambda: insert(spark, target, since, rows))


def _is_just_made(target: Target, version: int) -> bool:
    """Whether the target holds nothing yet."""
    return version == 0 and not commit_at(target.log, 0).added


def _planned_partitions(target: Target, rows: DataFrame, now: DataFrame, scope: Scope | None) -> _Planned:
    """Replace those partitions of the scope in which anything differs."""
    names = list(target.partitioned_by)
    levels = [column(name) for name in names]
    if scope is None or scope.values is None:
        return _Planned(difference=Difference(), write=None)
    wanted = scope.values
    if set(scope.columns) != set(names):  # an outer level only: all partitions below it, old and new
        both = now.select(*levels).union(rows.select(*levels)).distinct()
        below = narrowed(both, scope.values, {name: column(name) for name in scope.columns})
        wanted = local(below) or below
    difference = _difference(target, rows, _narrowed(target, now, wanted, names), by=names)
    if difference.is_empty:
        return _Planned(difference=difference, write=None)
    partitions = difference.groups
    if target.keys and not set(names) <= set(target.keys):  # a key may have come from any of them
        travelling = [plain(column(name), rows.schema[name].dataType) for name in names]
        partitions = [tuple(row) for row in wanted.select(*levels).distinct().select(*travelling).collect()]
    return _Planned(difference=difference, write=lambda: replace_partitions(rows, target, partitions))


def _difference(target: Target, new: DataFrame, old: DataFrame, by: Sequence[str] = (), *, named: bool = False) -> Difference:
    return keyed_difference(new, old, target.keys, by=by, named=named) if target.keys else unkeyed_difference(new, old, by)


def _whole_difference(target: Target, new: DataFrame, old: DataFrame) -> Difference:
    """The difference of two whole tables; where a column has another type now, all rows come and all go: their values do not compare."""
    were = {field.name: field.dataType.simpleString() for field in old.schema}
    if any(were.get(field.name, field.dataType.simpleString()) != field.dataType.simpleString() for field in new.schema):
        return Difference(inserted=new.count(), deleted=old.count())
    return _difference(target, new, old, named=True)


def _scoped_difference(job: TableJob, target: Target, rows: DataFrame, now: DataFrame, scope: Scope | None) -> Difference:
    """The difference by key among the rows that were computed and those that the scope answers for."""
    if scope is None or scope.values is None:
        return keyed_difference(rows, _narrowed(target, now, rows, target.keys), target.keys, F.lit(False), keep=True, named=True)
    if job.refresh is RefreshMode.AFFECTED_KEYS:
        return keyed_difference(rows, _narrowed(target, now, scope.values, scope.columns), target.keys, keep=True, named=True)
    levels = [column(name) for name in scope.columns]
    old = _narrowed(target, now, scope.values.union(rows.select(*levels)), scope.columns)
    answers = scope.values.select(*[value.alias(f"__scope_{i}") for i, value in enumerate(levels)], F.lit(True).alias("__in_scope"))
    condition = reduce(lambda a, b: a & b, [value.eqNullSafe(F.col(f"__scope_{i}")) for i, value in enumerate(levels)])
    marked = old.join(answers, condition, "left")
    return keyed_difference(rows, marked, target.keys, F.col("__in_scope").isNotNull(), keep=True, named=True)


def _narrowed(target: Target, now: DataFrame, values: DataFrame, names: Sequence[str]) -> DataFrame:
    """The target's rows that hold one of the values; of a target just made nobody asks which.

    What others write to it meanwhile is none of them, though a frame of a Delta table shows its newest snapshot.
    """
    if _is_just_made(target, target.log.version):
        return now.limit(0)
    return narrowed(now, values, {name: column(name) for name in names})


def _written(target: Target, commit_metadata: CommitMetadata, plan: Plan, held: Committed | None) -> Written:
    """The record of a write, counted by what the log says where it says it."""
    difference = plan.difference
    counts = (
        Counts()
        if difference is None
        else Counts(inserted=difference.inserted, updated=difference.updated, deleted=difference.deleted, unchanged=difference.unchanged)
    )
    if held is None:
        return Written(outcome=Outcome.NOTHING, counts=counts)
    if not is_own(held, commit_metadata):
        return Written(outcome=Outcome.SKIPPED, committed=held)
    record = commit_at(target.log, int(held.version))
    return Written(
        outcome=Outcome.FENCED if plan.fenced else Outcome.COMMITTED,
        committed=held,
        replaced=plan.replaced,
        counts=_counted(counts, record),
        partitions=record.partitions,
        files=len(record.added),
        bytes=sum(file.size for file in record.added),
    )


def _counted(counts: Counts, record: TableCommit) -> Counts:
    """Inserted, updated and deleted rows as a MERGE itself counted them, and rows of an append."""
    metrics = record.metrics
    if record.operation == "MERGE":
        return Counts(
            inserted=int(metrics["numTargetRowsInserted"]),
            updated=int(metrics["numTargetRowsUpdated"]),
            deleted=int(metrics["numTargetRowsDeleted"]),
            unchanged=counts.unchanged,
        )
    return counts


SUFFIX = "__quarantine"
STATISTICS = {LISTED: "consumer,step,execution,reason"}  # not of the rows, which may hold anything
ATTEMPTS = 1024  # transactions of one step, in the order of its attempts
KEPT = ("consumer", "step", "execution", "reason", "row")
AS_TEXT = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXXXX",  # by default to the millisecond, which makes different rows one
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def quarantine_location(location: str) -> str:
    return location.rstrip("/") + SUFFIX


def quarantine(spark: SparkSession, target: Target, commit_metadata: CommitMetadata, bad: DataFrame) -> int:
    """Add the bad rows of a step, each once, whichever of its attempts comes first; give how many were new.

    An attempt may have read further than the one before it, so it adds what is not there yet. It has a transaction of its
    own, below those of later attempts: one that wakes up late adds nothing.
    """
    values = [column(name) for name in bad.columns if name != REASON]
    rows = bad.select(
        F.lit(str(commit_metadata.consumer)).alias("consumer"),
        F.lit(commit_metadata.step).cast("long").alias("step"),
        F.lit(commit_metadata.execution_id).alias("execution"),
        F.col(REASON).alias("reason"),
        F.to_json(F.struct(*values), AS_TEXT).alias("row"),
    )
    create_if_missing(spark, target, rows.schema, CHANGE_FEED | STATISTICS)
    count = 0
    version = commit_metadata.step * ATTEMPTS + min(commit_metadata.attempt, ATTEMPTS - 1)
    for tried in retrying():
        with tried:
            held = target.read(spark).where((F.col("consumer") == str(commit_metadata.consumer)) & (F.col("step") == commit_metadata.step))
            new = rows.select("reason", "row").exceptAll(held.select("reason", "row"))
            new = new.select(*[F.lit(value).alias(name) for name, value in _who(commit_metadata)], "reason", "row").select(*KEPT)
            count = new.count()
            if count:
                with transaction(spark, str(commit_metadata.consumer), version, commit_metadata.to_text()):
                    new.withColumn("step", F.col("step").cast("long")).write.format("delta").mode("append").save(target.location)
    return count


def _who(commit_metadata: CommitMetadata) -> tuple[tuple[str, str | int], ...]:
    return ("consumer", str(commit_metadata.consumer)), ("step", commit_metadata.step), ("execution", commit_metadata.execution_id)
