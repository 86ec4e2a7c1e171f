"""Refreshes one table: reads ranges, computes, validates, compares and commits."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, StringType, TimestampNTZType, TimestampType

from lakechime_dagster.dce.events import TableFormat
from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.spark.commit import (
    CHANGE_FEED,
    LISTED,
    Target,
    can_insert,
    commit,
    create_if_missing,
    is_own,
    newest_commit,
    retrying,
    transaction,
)
from lakechime_dagster.spark.hive import HiveTarget
from lakechime_dagster.spark.iceberg import IcebergTarget
from lakechime_dagster.spark.inputs import (
    Input,
    Scope,
    Work,
    fallback_note,
    groups_work,
    open_inputs,
    ordered_notes,
    reread_note,
    rows_work,
    whole,
    with_ordered,
    within_partitions,
)
from lakechime_dagster.spark.job import Counts, Observer, Outcome, Seen, TableJob, TableResult
from lakechime_dagster.spark.ranges import narrowed
from lakechime_dagster.spark.rows import (
    OPERATION,
    REASON,
    Difference,
    Sifted,
    keyed_difference,
    same_type,
    shaped,
    sift,
    unkeyed_difference,
)
from lakechime_dagster.spark.session import (
    Phases,
    column,
    local,
    local_rows,
    plain,
    require_columns,
    spelled,
    sql_over,
)
from lakechime_dagster.tables.options import ReadMode
from lakechime_dagster.tables.tables import RefreshMode
from lakechime_dagster.triggers.consumers import CommitMetadata, Committed

if TYPE_CHECKING:
    from lakechime_dagster.formats.delta import DeltaLog

RowTarget = Target | IcebergTarget  # of which single rows change
TableTarget = RowTarget | HiveTarget
OpenLog = Callable[[str, str], "DeltaLog"]


def refresh(
    spark: SparkSession,
    job: TableJob,
    commit_metadata: CommitMetadata,
    open_log: OpenLog,
    observer: Observer | None = None,
) -> TableResult:
    """One attempt at one execution: process the ranges of the job and commit the outcome with the
    commit metadata, at most once ever.

    Args:
        spark: The session; its confs and views are as before when this returns.
        job: What to read and how to compute.
        commit_metadata: Consumer, number, attempt and the end that the commit will record. The
            watermark is completed from the rows.
        open_log: Gives the log of a table by location and table name, such as
            `formats.delta.DeltaLog`.
        observer: Sees the computation before any row of it is computed; what it raises ends the
            attempt.

    Raises:
        ConsumerConflictError: the consumer has moved on.
        TableUnreadableError: an input, or the snapshot to read of it, is not there.
    """
    target = target_of(job, open_log)
    last = newest_commit(target, commit_metadata)
    if last and last.commit_metadata.number == commit_metadata.number:
        return skipped(last)
    with Attempt(spark, job, commit_metadata, target, last, open_log, observer) as attempt:
        return attempt.run()


def target_of(job: TableJob, open_log: OpenLog) -> TableTarget:
    """The table to write, by its format."""
    stored = {"name": job.name, "keys": job.keys, "partitioned_by": job.partitioned_by}
    declared = {**stored, "comment": job.comment, "personal": job.personal}
    log = job.log if job.log is not None else open_log(job.location, job.name)
    if log.table_format is TableFormat.HIVE:
        return HiveTarget(log=log, location=job.location, **stored)
    if log.table_format is TableFormat.ICEBERG:
        return IcebergTarget(log=log, write_mode=job.write_mode, **declared)
    return Target(location=job.location, log=log, **declared)


def skipped(committed: Committed) -> TableResult:
    """The result of an attempt whose execution another one has committed: it wrote nothing, so that
    it counts nothing.
    """
    attempt = committed.commit_metadata.attempt
    note = (
        f"skipped: attempt {attempt} committed"
        if attempt
        else "skipped: an earlier attempt committed"
    )
    return TableResult(outcome=Outcome.SKIPPED, committed=committed, notes=(note,))


@dataclass
class Attempt:
    """One attempt's frames and clock; what it keeps in memory is let go when it ends.

    `last` is the newest commit of the consumer in the target, by an earlier execution.
    """

    spark: SparkSession
    job: TableJob
    commit_metadata: CommitMetadata
    target: TableTarget
    last: Committed | None
    open_log: OpenLog
    observer: Observer | None
    held: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self._phase = Phases(self.spark, self.job.name)
        self._seen: Seen | None = None

    def __enter__(self) -> "Attempt":
        return self

    def __exit__(self, *_: object) -> None:
        self.held.close()

    def run(self) -> TableResult:
        with self._phase("read"):
            inputs = [
                self._kept_changes(one)
                for one in with_ordered(self.job, open_inputs(self.spark, self.job, self.open_log))
            ]
            work = self._kept_rows(self._as_stored(self._work(inputs)))
        with self._phase("compute"):
            computed = self._named(self._compute(work))
            work = self._as_computed(work, computed)
            sifted = sift(
                self._in_scope(self._nulled(computed), work), self.job.keys, self.job.expect
            )
            self.held.callback(sifted.kept.unpersist)
            commit_metadata = replace(
                self.commit_metadata, watermark=self._watermark(sifted.good, work)
            )
            rows_in = sum(self._rows_in(one, work) for one in inputs)
        with self._phase("quarantine"):
            self._quarantine(sifted)
        with self._phase("write"):
            self.target.prepare(self.spark, sifted.good.schema)
            written = write(self.spark, self.job, self.target, commit_metadata, sifted, work)
        if written.outcome is Outcome.SKIPPED and written.committed:
            return replace(skipped(written.committed), seen=self._seen)
        return replace(
            written,
            counts=replace(
                written.counts,
                rows_in=rows_in,
                returned=sifted.computed + written.counts.deleted,
                deduplicated=sifted.deduplicated,
                quarantined=sifted.quarantined,
            ),
            sources=tuple(result for one in inputs if (result := one.result()) is not None),
            watermark=commit_metadata.watermark,
            schema=tuple(
                (name, kind.simpleString())
                for name, kind in ((f.name, f.dataType) for f in sifted.good.schema)
            ),
            seconds=dict(self._phase.seconds),
            notes=(*work.notes, *ordered_notes(self.job)),
            seen=self._seen,
        )

    def _work(self, inputs: Sequence[Input]) -> Work:
        """What to compute on, by verdicts and refresh mode."""
        broken = fallback_note(inputs)
        mode = self.job.refresh
        if mode is RefreshMode.PARTITIONS and self.job.partitions:
            work = within_partitions(inputs, self._fired(inputs))
            return replace(work, notes=(broken,)) if broken else work
        again = reread_note(self.job, inputs, self.last)
        if broken or mode is RefreshMode.FULL:
            return whole(inputs, broken)
        if again:
            return whole(inputs, again)
        if mode is RefreshMode.ROWS:
            return rows_work(self.job, inputs, self._hold)
        return groups_work(
            inputs,
            self.job.keys if mode is RefreshMode.AFFECTED_KEYS else self.job.partitioned_by,
            self._hold,
        )

    def _fired(self, inputs: Sequence[Input]) -> Scope:
        """The partitions that the trigger fired for, in the types that the inputs' columns have."""
        names = self.job.partitioned_by
        rows = [
            tuple(
                None
                if value is None
                else str(value).lower()
                if isinstance(value, bool)
                else str(value)
                for value in values
            )
            for values in self.job.partitions
        ]
        values = local_rows(self.spark, names, [StringType()] * len(names), rows)
        for one in inputs:
            mapping = one.source_columns(names)
            if set(mapping) == set(names):
                types = one.end.select(*[mapping[name].alias(name) for name in names]).schema
                values = values.select(
                    *[column(name).cast(types[name].dataType).alias(name) for name in names]
                )
                break
        return Scope(columns=names, values=values)

    def _compute(self, work: Work) -> DataFrame:
        tables = {one.alias: one.table for one in self.job.inputs}
        if self.observer is None:
            return self._computed_on(
                {alias: frame.alias(alias) for alias, frame in work.frames.items()}, tables
            )
        frames = {
            alias: self.observer.stand_in(frame, tables[alias]).alias(alias)
            for alias, frame in work.frames.items()
        }
        computed, self._seen = self.observer.computed(
            self.spark, lambda: self._computed_on(frames, tables)
        )
        return computed

    def _computed_on(self, frames: Mapping[str, DataFrame], tables: Mapping[str, str]) -> DataFrame:
        if self.job.sql is not None:
            return sql_over(
                self.spark,
                self.job.name,
                self.job.sql,
                {tables[alias]: frame for alias, frame in frames.items()},
            )
        if self.job.compute is None:
            raise DeclarationError(self.job.name, "compute", "has neither a function nor SQL")
        computed = self.job.compute(**frames)
        if not isinstance(computed, DataFrame):
            raise DeclarationError(
                self.job.name,
                "compute",
                f"returned a {type(computed).__name__}; return a DataFrame",
            )
        return computed

    def _named(self, computed: DataFrame) -> DataFrame:
        """The computed rows with the declared columns in their declared spelling."""
        declared = (*self.job.keys, *self.job.partitioned_by)
        require_columns(self.job.name, computed, declared)
        return spelled(computed, [*declared, *([self.job.watermark] if self.job.watermark else [])])

    def _as_stored(self, work: Work) -> Work:
        """The work with its scope as the target holds it."""
        scope = work.scope
        if scope is None or scope.values is None:
            return work
        nulled = self._nulled(scope.values)
        return (
            work
            if nulled is scope.values
            else replace(work, scope=replace(scope, values=self._hold(nulled.distinct())))
        )

    def _as_computed(self, work: Work, computed: DataFrame) -> Work:
        """The work with its scope in the types of the computed columns; what is no value there is
        null, which computing makes of it too.
        """
        scope = work.scope
        if scope is None or scope.values is None:
            return work
        types = {field.name: field.dataType for field in computed.schema}
        cast = {
            field.name: column(field.name).try_cast(types[field.name])
            for field in scope.values.schema
            if field.name in types and not same_type(field.dataType, types[field.name])
        }
        return (
            replace(work, scope=replace(scope, values=scope.values.withColumns(cast)))
            if cast
            else work
        )

    def _nulled(self, rows: DataFrame) -> DataFrame:
        """The rows with null for the empty string in partition columns: Delta's partitions do not
        distinguish them.
        """
        texts = [
            field
            for field in rows.schema
            if field.name in self.job.partitioned_by and isinstance(field.dataType, StringType)
        ]
        nulled = {
            field.name: F.nullif(column(field.name), F.lit("")).alias(
                field.name, metadata=field.metadata
            )
            for field in texts
        }
        return (
            rows.select(*[nulled.get(name, column(name)) for name in rows.columns])
            if nulled
            else rows
        )

    def _in_scope(self, computed: DataFrame, work: Work) -> DataFrame:
        """Only what the scope asks for; a group whose inputs were read whole is computed, but not
        answered for.
        """
        scope = work.scope
        if self.job.refresh is RefreshMode.ROWS or scope is None or scope.values is None:
            return computed
        return narrowed(computed, scope.values, {name: column(name) for name in scope.columns})

    def _kept_changes(self, one: Input) -> Input:
        if one.read is None or one.read.changes is None:
            return one
        return replace(one, read=replace(one.read, changes=self._keep(one.read.changes)))

    def _kept_rows(self, work: Work) -> Work:
        frames = {
            alias: self._keep(work.frames[alias]) if alias in work.narrowed else work.frames[alias]
            for alias in work.frames
        }
        return replace(work, frames=frames)

    def _hold(self, values: DataFrame) -> DataFrame:
        held = local(values)
        return self._keep(values) if held is None else held

    def _keep(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self.held.callback(kept.unpersist)
        return kept

    def _rows_in(self, one: Input, work: Work) -> int:
        """The rows of an input read as changes that this execution rests on: what it was given row
        by row, else what changed.
        """
        if one.job.mode is not ReadMode.CHANGES:
            return 0
        if one.job.alias in work.narrowed or (one.is_changed and one.changes is None):
            return work.frames[one.job.alias].count()
        return one.changes.count() if one.is_changed and one.changes is not None else 0

    def _watermark(self, rows: DataFrame, work: Work) -> int | None:
        """The newest event time, in milliseconds, among the rows and before; among the rows alone
        where they are all of the table.
        """
        name = self.job.watermark
        kinds = (DateType, TimestampType, TimestampNTZType)
        if (
            name is None
            or name not in rows.columns
            or not isinstance(rows.schema[name].dataType, kinds)
        ):
            return self.commit_metadata.watermark
        newest = rows.agg(F.unix_millis(F.max(column(name)).cast("timestamp"))).collect()[0][0]
        before = None if work.replace else self.target.log.watermark()
        return max(
            (one for one in (newest, before, self.commit_metadata.watermark) if one is not None),
            default=None,
        )

    def _quarantine(self, sifted: Sifted) -> None:
        if sifted.bad is None:
            return
        location = quarantine_location(self.job.location)
        name = f"{self.job.name}__quarantine"
        table = Target(
            name=name,
            location=location,
            log=self.open_log(location, name),
            comment=f"Rows that {self.job.name} refused",
        )
        quarantine(self.spark, table, self.commit_metadata, sifted.bad)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a write found to do; planned again when a concurrent writer was first. `write` is None
    when nothing differs.
    """

    difference: Difference = field(default_factory=Difference)
    write: Callable[[], None] | None = None
    replaced: bool = False

    def let_go(self) -> None:
        if self.difference.changes is not None:
            self.difference.changes.unpersist()


def write(
    spark: SparkSession,
    job: TableJob,
    target: TableTarget,
    commit_metadata: CommitMetadata,
    sifted: Sifted,
    work: Work,
) -> TableResult:
    """Bring the target to the good rows and commit with the commit metadata; nothing is written
    when nothing differs.

    With nothing to do, a first attempt leaves no commit and a later one an empty one (law 13).
    """
    plan = Plan()

    def prepare() -> Callable[[], None] | None:
        nonlocal plan
        plan.let_go()
        is_alone = not commit_metadata.consumer.key
        plan = _planned(job, target, sifted, work, is_alone=is_alone)
        if plan.write is None and not job.may_complete_empty:
            return lambda: target.append_nothing(spark)
        return plan.write

    try:
        held = commit(spark, target, commit_metadata, prepare)
        return _written(target, commit_metadata, plan, held)
    finally:
        plan.let_go()


def _planned(
    job: TableJob, target: TableTarget, sifted: Sifted, work: Work, *, is_alone: bool
) -> Plan:
    """Compare with the target as it is now; `write` is None when nothing differs.

    Rows that are all new are inserted by a consumer that is alone in its table: consumers of keys
    would be in each other's way.
    """
    since = target.since
    good, stored = sifted.good, target.read(sifted.good.sparkSession)
    now = spelled(stored, good.columns)
    if work.replace or job.refresh is RefreshMode.FULL:
        difference = _whole_difference(target, good, now)
        # in any order: the partition columns of a Hive table come last
        new_schema = {f.name: f.dataType for f in good.schema} != {
            f.name: f.dataType for f in now.schema
        }
        wanted = job.always_write or new_schema or not difference.is_empty
        write = (lambda: target.replace_all(good)) if wanted else None
        return Plan(difference=difference, write=write, replaced=wanted)
    rows = shaped(job.name, good, now.schema)
    now = shaped(job.name, now, rows.schema)  # with fields of structs that it is about to have
    if job.refresh is RefreshMode.PARTITIONS:
        return _planned_partitions(target, rows, now, work.scope)
    assert not isinstance(target, HiveTarget)  # which is declared with other modes
    if not target.keys:
        added = Difference(inserted=sifted.good_count)
        return Plan(difference=added, write=None if added.is_empty else lambda: target.append(rows))
    can_be_inserted = is_alone and can_insert(rows, stored)
    if can_be_inserted and target.is_just_made():
        return _inserting(target, since, rows, Difference(inserted=sifted.good_count))
    difference = _scoped_difference(job, target, rows, now, work.scope)
    changes = difference.changes
    if changes is None or difference.is_empty:
        return Plan(difference=difference)
    if can_be_inserted and difference.inserted and not (difference.updated or difference.deleted):
        new = changes.where(F.col(OPERATION) == "I").select(*map(column, rows.columns))
        return _inserting(target, since, new, difference)
    return Plan(difference=difference, write=lambda: target.merge(changes))


def _inserting(
    target: Target | IcebergTarget, since: Any, rows: DataFrame, difference: Difference
) -> Plan:
    write = None if difference.is_empty else lambda: target.insert(since, rows)
    return Plan(difference=difference, write=write)


def _planned_partitions(
    target: TableTarget, rows: DataFrame, now: DataFrame, scope: Scope | None
) -> Plan:
    """Replace those partitions of the scope in which anything differs."""
    names = list(target.partitioned_by)
    levels = [column(name) for name in names]
    if scope is None or scope.values is None:
        return Plan()
    wanted = scope.values
    # an outer level only: all partitions below it, old and new
    if set(scope.columns) != set(names):
        both = now.select(*levels).union(rows.select(*levels)).distinct()
        below = narrowed(both, scope.values, {name: column(name) for name in scope.columns})
        wanted = local(below) or below
    difference = _difference(target, rows, _narrowed(target, now, wanted, names), by=names)
    if difference.is_empty:
        return Plan(difference=difference)
    partitions = difference.groups
    if target.keys and not set(names) <= set(target.keys):  # a key may have moved from any of them
        travelling = [plain(column(name), rows.schema[name].dataType) for name in names]
        partitions = [
            tuple(row) for row in wanted.select(*levels).distinct().select(*travelling).collect()
        ]
    return Plan(difference=difference, write=lambda: target.replace_partitions(rows, partitions))


def _difference(
    target: TableTarget, new: DataFrame, old: DataFrame, by: Sequence[str] = ()
) -> Difference:
    return (
        keyed_difference(new, old, target.keys, by=by)
        if target.keys
        else unkeyed_difference(new, old, by)
    )


def _whole_difference(target: TableTarget, new: DataFrame, old: DataFrame) -> Difference:
    """The difference of two whole tables; where a column has another type now, all rows are deleted
    and inserted.
    """
    were = {field.name: field.dataType.simpleString() for field in old.schema}
    if any(
        were.get(field.name, field.dataType.simpleString()) != field.dataType.simpleString()
        for field in new.schema
    ):
        return Difference(inserted=new.count(), deleted=old.count())
    return _difference(target, new, old)


def _scoped_difference(
    job: TableJob, target: TableTarget, rows: DataFrame, now: DataFrame, scope: Scope | None
) -> Difference:
    """The difference by key among the rows that were computed and those that the scope answers
    for.
    """
    if scope is None or scope.values is None:
        return keyed_difference(
            rows, _narrowed(target, now, rows, target.keys), target.keys, F.lit(False), keep=True
        )
    if job.refresh is RefreshMode.AFFECTED_KEYS:
        return keyed_difference(
            rows, _narrowed(target, now, scope.values, scope.columns), target.keys, keep=True
        )
    levels = [column(name) for name in scope.columns]
    old = _narrowed(target, now, scope.values.union(rows.select(*levels)), scope.columns)
    answers = scope.values.select(
        *[value.alias(f"__scope_{i}") for i, value in enumerate(levels)],
        F.lit(True).alias("__in_scope"),
    )
    condition = reduce(
        lambda a, b: a & b,
        [value.eqNullSafe(F.col(f"__scope_{i}")) for i, value in enumerate(levels)],
    )
    marked = old.join(answers, condition, "left")
    return keyed_difference(rows, marked, target.keys, F.col("__in_scope").isNotNull(), keep=True)


def _narrowed(
    target: TableTarget, now: DataFrame, values: DataFrame, names: Sequence[str]
) -> DataFrame:
    """The target's rows that hold one of the values; of a target just made nobody asks which.

    What others write to it meanwhile is none of them, though a frame of a Delta table shows its
    newest snapshot.
    """
    if target.is_just_made():
        return now.limit(0)
    return narrowed(now, values, {name: column(name) for name in names})


def _written(
    target: TableTarget, commit_metadata: CommitMetadata, plan: Plan, held: Committed | None
) -> TableResult:
    """What a write did: counts of the target's rows, and the log's record of the commit."""
    difference = plan.difference
    counts = Counts(
        inserted=difference.inserted,
        updated=difference.updated,
        deleted=difference.deleted,
        unchanged=difference.unchanged,
    )
    if held is None:
        return TableResult(outcome=Outcome.NOTHING, counts=counts)
    if not is_own(held, commit_metadata):
        return TableResult(outcome=Outcome.SKIPPED, committed=held)
    written = target.written(held)
    if written.merged:  # as the MERGE itself counted
        inserted, updated, deleted = written.merged
        counts = replace(counts, inserted=inserted, updated=updated, deleted=deleted)
    return TableResult(
        outcome=Outcome.FENCED if plan.write is None else Outcome.COMMITTED,
        committed=held,
        replaced=plan.replaced,
        counts=counts,
        partitions=written.partitions,
        files=written.files,
        bytes=written.bytes,
    )


SUFFIX = "__quarantine"
# not of the rows, which may hold anything
STATISTICS = {LISTED: "consumer,number,execution,reason"}
ATTEMPTS = 1024  # transactions of one execution, in the order of its attempts
AS_TEXT = {
    "ignoreNullFields": "false",
    # by default to the millisecond, which makes different rows one
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def quarantine_location(location: str) -> str:
    return location.rstrip("/") + SUFFIX


def quarantine(
    spark: SparkSession, target: Target, commit_metadata: CommitMetadata, bad: DataFrame
) -> int:
    """Add the bad rows of an execution, each once, whichever of its attempts is first; return how
    many were new.

    An attempt may have read further than the one before it, so it adds what is not there yet. It
    has a transaction of its own, below those of later attempts: one that wakes up late adds
    nothing.
    """
    consumer, number = str(commit_metadata.consumer), commit_metadata.number
    source = [
        F.lit(consumer).alias("consumer"),
        F.lit(number).cast("long").alias("number"),
        F.lit(commit_metadata.execution_id).alias("execution"),
    ]
    values = F.struct(*[column(name) for name in bad.columns if name != REASON])
    rows = bad.select(F.col(REASON).alias("reason"), F.to_json(values, AS_TEXT).alias("row"))
    create_if_missing(
        spark, target, rows.select(*source, "reason", "row").schema, CHANGE_FEED | STATISTICS
    )
    version, count = number * ATTEMPTS + min(commit_metadata.attempt, ATTEMPTS - 1), 0
    for tried in retrying():
        with tried:
            held = target.read(spark).where(
                (F.col("consumer") == consumer) & (F.col("number") == number)
            )
            new = rows.exceptAll(held.select("reason", "row"))
            count = new.count()
            if count:
                with transaction(spark, consumer, version, commit_metadata.to_text()):
                    new.select(*source, "reason", "row").write.format("delta").mode("append").save(
                        target.location
                    )
    return count
