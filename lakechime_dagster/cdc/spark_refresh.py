"""Refreshes a CDC table: reads new messages, merges their changes, commits."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.cdc.job import CDCJob
from lakechime_dagster.cdc.merge import ChangeOutcome, Need
from lakechime_dagster.cdc.schema import TEXT, Evolution, evolved, spellings, why_not_taken
from lakechime_dagster.cdc.spark_changes import (
    GROUPED_DDL,
    MESSAGE,
    PARSED_DDL,
    STATE_DDL,
    AsText,
    KeyColumns,
    Merging,
    Numbering,
    Reading,
    TargetRows,
    What,
    merged_ddl,
    shared_columns,
    table_columns,
)
from lakechime_dagster.cdc.spark_parse import (
    Merge,
    Parsed,
    bad_rows,
    in_epochs,
    known_until,
    remembered_schemas,
    spread,
)
from lakechime_dagster.cdc.spark_remembered import (
    Seen,
    collected_state,
    columns_in,
    components,
    is_worth_while,
    seen_before,
)
from lakechime_dagster.cdc.spark_rows import Computing, Here, InWorkers, Rows
from lakechime_dagster.cdc.state import COLUMNS, Role, TableSchema, truncations_of
from lakechime_dagster.dce.snapshots import TableSize
from lakechime_dagster.errors import ConsumerBlockedError
from lakechime_dagster.spark.commit import (
    LISTED,
    Target,
    commit,
    create_if_missing,
    is_own,
    newest_commit,
)
from lakechime_dagster.spark.iceberg import IcebergTarget
from lakechime_dagster.spark.job import Counts, Outcome, SourceResult, TableResult
from lakechime_dagster.spark.ranges import (
    CHANGE,
    MAX_LISTED,
    RangeRead,
    ReadMethod,
    are_listed,
    narrowed,
    pinned,
    read_range,
)
from lakechime_dagster.spark.refresh import (
    OpenLog,
    RowTarget,
    quarantine,
    quarantine_location,
    skipped,
)
from lakechime_dagster.spark.rows import OPERATION
from lakechime_dagster.spark.session import (
    MAX_LITERALS,
    Phases,
    arrow_of,
    column,
    columns_of,
    ddl_of,
    on_batches,
    session_confs,
    struct_of,
)
from lakechime_dagster.tables.cdc import STATE
from lakechime_dagster.tables.databases import Debezium
from lakechime_dagster.tables.names import DELETED_AT, HIDDEN, SPAN, START_SEQ, folded
from lakechime_dagster.triggers.consumers import COMPLETE, LATE, CommitMetadata, Committed

AS_OF = "state"  # among the facts of a commit of the state: the version that it was computed from
SMALL = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # which is for rows that may be others when they are computed again
    "spark.databricks.delta.merge.materializeSource": "none",
}


def write_rows(
    spark: SparkSession,
    target: RowTarget,
    commit_metadata: CommitMetadata,
    merged: Merge,
    columns: str,
    *,
    is_new: bool,
    may_complete_empty: bool,
) -> Committed | None:
    """Bring the table of these columns to the merged rows, and say whose commit the execution
    holds; None where it holds all already.

    Where it `is_new`, what the table held before is replaced. Where columns were widened, all rows
    are rewritten: no reader needs to know how a column is widened in place. Rows that are all new,
    be they none, are appended with new columns: a merge would look for their keys again.
    """
    evolution = merged.evolution
    if not evolution.columns:
        return None
    target.prepare(spark, struct_of(columns))
    need = F.col("operation")
    operation = F.when(need.isin(Need.END, Need.RETURN, Need.AMEND), Need.UPDATE).otherwise(need)
    rows = merged.found.where({"what": [What.ROW]}).frame.where(need != Need.NOTHING)
    changes = rows.select("row.*", operation.alias(OPERATION))

    def prepare() -> Callable[[], None] | None:
        if is_new and not target.is_just_made():
            return lambda: target.replace_all(changes.drop(OPERATION))
        if evolution.widened:
            return lambda: target.replace_all(
                _rewritten(spark, target, changes, columns, evolution.texts)
            )
        if not merged.changed and (is_new or not evolution.added):
            return None if may_complete_empty else lambda: target.append_nothing(spark)
        if merged.changed == merged.rows(Need.INSERT):
            return lambda: target.append(changes.drop(OPERATION))
        return lambda: _merge(
            spark, target, changes, is_small=merged.found.are_here and merged.changed <= MAX_LISTED
        )

    return commit(spark, target, commit_metadata, prepare)


def _merge(spark: SparkSession, target: RowTarget, changes: DataFrame, *, is_small: bool) -> None:
    """Few changes whose keys a condition lists meet as few rows: their shuffles have one part, and
    need no plan of their own.
    """
    if not is_small or not are_listed([changes.schema[key].dataType for key in target.keys]):
        target.merge(changes, is_bounded=True)
        return
    with session_confs(spark, SMALL):
        target.merge(changes, is_bounded=True, listed=MAX_LISTED)


def _rewritten(
    spark: SparkSession, target: RowTarget, changes: DataFrame, columns: str, texts: Collection[str]
) -> DataFrame:
    """All rows in the types that the columns have now; some became text."""
    now, keys, wanted = target.read(spark), list(target.keys), struct_of(columns)
    before = columns_of(now.schema)
    if any(before.get(name, TEXT) != TEXT for name in texts):
        ddl = ddl_of({name: TEXT if name in texts else kind for name, kind in before.items()})
        now = on_batches(now, AsText(arrow_of(ddl)), ddl)
    cast = [
        (column(one.name) if one.name in now.columns else F.lit(None))
        .cast(one.dataType)
        .alias(one.name)
        for one in wanted
    ]
    stays = (
        now.select(*cast)
        .join(changes.select(*map(column, keys)), keys, "left_anti")
        .select(*map(column, wanted.names))
    )
    return stays.unionByName(changes.where(F.col(OPERATION) != Need.DELETE).drop(OPERATION))


# not of the values and keys of rows
STATE_STATISTICS = {LISTED: "number,role,source,transaction,ts_ms"}


def refresh_cdc(
    spark: SparkSession, job: CDCJob, commit_metadata: CommitMetadata, open_log: OpenLog
) -> TableResult:
    """One attempt at one execution: merge the changes of the range and commit the outcome with the
    commit metadata, at most once ever.

    An attempt that finds the execution remembered by another one takes that one's range.

    Args:
        spark: The session; its confs are as before when this returns.
        job: What to read and how to merge.
        commit_metadata: Consumer, number, attempt and the end that the commits will record.
        open_log: Gives the log of a table by location and table name, such as
            `formats.delta.DeltaLog`.

    Raises:
        ConsumerConflictError: the consumer has moved on.
        ConsumerBlockedError: a person must decide: positions restart, or the columns changed in a
            way that is not declared.
        TableUnreadableError: the bronze table, or the snapshot to read of it, is not there.
    """
    location, log_of = job.location.rstrip("/") + STATE, open_log
    target = _target(job, open_log)
    state = Target(name=job.name + STATE, location=location, log=log_of(location, job.name + STATE))
    while True:
        last = newest_commit(target, commit_metadata)
        if last and last.commit_metadata.number == commit_metadata.number:
            return skipped(last)
        job = job.after(
            empty_executions=commit_metadata.number
            - 1
            - (last.commit_metadata.number if last else 0)
        )
        decided = newest_commit(state, commit_metadata)
        decided = (
            decided
            if decided
            and decided.commit_metadata.number == commit_metadata.number
            and not decided.is_commit_metadata_lost
            else None
        )
        if job.bronze.range is None:
            return _nothing_new(spark, job, commit_metadata, target, state)
        if decided is not None:
            commit_metadata = replace(commit_metadata, end=decided.commit_metadata.end)
        with CDCRefresh(spark, job, commit_metadata, target, state, decided, open_log) as refresh:
            result = refresh.run()
        if result is not None:
            return result


def _target(job: CDCJob, open_log: OpenLog) -> RowTarget:
    """The table of the rows, by its format."""
    declared = {
        "name": job.name,
        "keys": (*job.merge.keys, START_SEQ) if job.has_history else job.merge.keys,
        "comment": job.comment,
        "personal": (*job.personal, HIDDEN) if job.personal else (),
    }
    if job.log is not None:
        return IcebergTarget(log=job.log, write_mode=job.write_mode, **declared)
    return Target(
        location=job.location,
        log=open_log(job.location, job.name),
        cluster_by=job.cluster_by,
        properties={"delta.enableDeletionVectors": str(job.has_deletion_vectors).lower()},
        **declared,
    )


def _nothing_new(
    spark: SparkSession,
    job: CDCJob,
    commit_metadata: CommitMetadata,
    target: RowTarget,
    state: Target,
) -> TableResult:
    """The result where the bronze table has nothing new; a later attempt leaves a fence (law
    13).
    """
    if state.log.exists():
        commit(spark, state, commit_metadata, lambda: lambda: state.append_nothing(spark))
    if job.may_complete_empty or not target.log.exists():
        return TableResult(outcome=Outcome.NOTHING)
    commit_metadata = replace(commit_metadata, watermark=target.log.watermark())
    held = commit(spark, target, commit_metadata, lambda: lambda: target.append_nothing(spark))
    assert held is not None  # since something was to be written
    return (
        TableResult(outcome=Outcome.FENCED, committed=held)
        if is_own(held, commit_metadata)
        else skipped(held)
    )


@dataclass
class CDCRefresh:
    """The frames of one attempt, which are computed here where its messages are few; what it keeps
    is let go when it ends.

    `decided` is the commit by which another attempt remembered the execution.
    """

    spark: SparkSession
    job: CDCJob
    commit_metadata: CommitMetadata
    target: RowTarget
    state: Target
    decided: Committed | None
    open_log: OpenLog

    def __post_init__(self) -> None:
        self._compute: Computing = InWorkers(self.spark)
        self._phase = Phases(self.spark, self.job.name)
        self._complete_ms: int | None = None  # up to when hours were complete before the execution

    def __enter__(self) -> "CDCRefresh":
        return self

    def __exit__(self, *_: object) -> None:
        self._compute.close()

    def run(self) -> TableResult | None:
        """The attempt's result; None when another attempt remembered the execution first, with
        another end.
        """
        with self._phase("read"):
            read = self._read()
            self._check_replacing(read)
            if self._table is not None:
                self.job = replace(self.job, merge=self.job.merge.spelled_as(self._table.columns))
            self._compute = Here(self._compute.workers) if self._is_few(read) else self._compute
        with self._phase("read"), session_confs(self.spark, self._compute.confs):
            parsed = self._parsed(read)
            self._complete_ms = self._complete_before(parsed)
            complete = self._complete(parsed, known_until(self.job, parsed))
            self.commit_metadata = self._with_watermark(complete)
        if parsed.concerns_all and not self._has_few_rows():
            self._compute = self._compute.workers
        with self._phase("merge"), session_confs(self.spark, self._compute.confs):
            merge = self._merge(parsed)
            if parsed.ended and not parsed.is_new:
                self._check_deletions(merge)
        with self._phase("quarantine"):
            quarantined = self._quarantine(parsed, merge)
        with self._phase("remember"):
            committed = self._remember(parsed, merge)
            if (
                committed.commit_metadata.end != self.commit_metadata.end
                and not committed.is_commit_metadata_lost
            ):
                return None
        with self._phase("write"):
            held = write_rows(
                self.spark,
                self.target,
                self._with_late(merge),
                merge,
                ddl_of(self._columns(merge.evolution)),
                is_new=parsed.is_new,
                may_complete_empty=self.job.may_complete_empty,
            )
        result = self._result(read, held, merge, merge.outcomes(parsed, quarantined))
        return replace(result, watermark=self.commit_metadata.watermark, complete=complete)

    # Reading

    @cached_property
    def _table(self) -> DataFrame | None:
        """The table before the execution; None where there is none."""
        if not self.target.log.exists():
            return None
        self.target.begin()
        return self.target.read(self.spark)

    @cached_property
    def _watermark(self) -> int | None:
        """Up to when it was complete."""
        return None if self._table is None else self.target.log.watermark()

    def _read(self) -> RangeRead:
        """The range of the bronze table up to the end that the commit metadata records."""
        bronze, end = self.job.bronze, self.commit_metadata.end.sources.get(self.job.bronze.table)
        range_ = bronze.range
        assert range_ is not None  # `refresh_cdc` asked
        if end is not None and end.snapshot_id is not None:
            range_ = replace(range_, end=end.snapshot_id, table_uid=end.table_uid)
        return read_range(self.spark, self.open_log(bronze.location, bronze.table), range_)

    def _parsed(self, read: RangeRead) -> Parsed:
        """The messages of a range; names of columns that differ from those of the table in case
        alone are the table's.

        Raises:
            ConsumerBlockedError: positions restart.
        """
        before = None if read.changes is None else self._state_before()
        known = Seen() if before is None else seen_before(before)
        messages = read.end if read.changes is None else read.changes.where(F.col(CHANGE) == 1)
        messages = messages.select(*MESSAGE)
        if self._compute is self._compute.workers:
            messages = spread(messages, read)
        tables = self._tables(known) if self.job.format.is_typed_externally else []
        reading = self._reading([TableSchema.of_row(row) for row in known.tables] + tables)

        brought = self._compute.rows(messages, are_few=True)
        columns = () if read.changes is None or self._table is None else self._table.columns
        declared = [*columns, *self.job.merge.named]

        def parsed(spelled: Mapping[str, str]) -> tuple[Rows, Seen]:
            def parse(numbering: Numbering) -> Rows:
                by_epoch = replace(reading, numbering=numbering, spelled=spelled)
                return brought.on_batches(by_epoch, PARSED_DDL)

            return in_epochs(self.spark, self.job.name, parse, read.end, known)

        spelled = {folded(name): name for name in reversed(declared)}
        rows, found = parsed(spelled)
        if clashes := spellings(declared, found.columns_met()):  # among columns that are new
            rows, found = parsed({folded(name): name for name in clashes.values()} | spelled)
        seen = replace(
            found, columns=columns_in(found, known), tables=tuple(one.row for one in tables)
        )
        fed = self.open_log(self.job.bronze.location, self.job.bronze.table).fed(int(read.snapshot))
        return Parsed(read, rows, before, seen, known, has_more=fed is not None and fed.has_more)

    def _tables(self, known: Seen) -> list[TableSchema]:
        """What an execution adds to what is known of the columns of the database's tables, the same
        for every attempt.

        A table that is rebuilt keeps the readings of the one before.
        """
        if self.decided is not None:
            of_execution = pinned(self.spark, self.state.location, int(self.decided.version)).where(
                F.col("number") == self.commit_metadata.number
            )
            return remembered_schemas(of_execution)
        is_rebuilt = not known.tables and self.state.log.exists()
        earlier = (
            remembered_schemas(pinned(self.spark, self.state.location, self.state.log.version))
            if is_rebuilt
            else []
        )
        return [*earlier, *([] if self.job.reading is None else [self.job.reading])]

    def _reading(self, tables: Sequence[TableSchema]) -> Reading:
        merge, messages = self.job.merge, self.job.format
        if messages.is_typed_externally:
            messages = replace(messages, tables=tuple(tables))
        envelope = messages.envelope
        return Reading(
            out=arrow_of(PARSED_DDL),
            reader=messages.reader,
            takes=merge.takes,
            names=dict(self.job.names),
            ignores_truncates=not merge.apply_as_truncates,
            ignores_nulls=merge.ignore_null_updates,
            has_bare_tombstones=isinstance(envelope, Debezium) and envelope.tombstones_delete,
        )

    def _state_before(self) -> Rows | None:
        """What was remembered before the execution: by the version that the attempt which decided
        it read, else by the newest.
        """
        version = self._version_before()
        if version is None:
            return None
        is_few = self.state.log.size(version) <= self.job.few
        compute = self._compute if is_few else self._compute.workers
        return compute.of_version(self.state.log, version, STATE_DDL)

    def _version_before(self) -> int | None:
        """The version of what was remembered that the execution is computed from; None where there
        was none.
        """
        if self.decided is not None:
            return self.decided.commit_metadata.facts.get(AS_OF)
        return self.state.log.version if self.state.log.exists() else None

    def _has_few_rows(self) -> bool:
        """Whether the table's log says that its rows are few."""
        return self._table is None or self.target.size() <= self.job.few

    def _is_few(self, read: RangeRead) -> bool:
        """Whether the log says that the messages are few."""
        if read.changes is None:
            return (
                self.open_log(self.job.bronze.location, self.job.bronze.table).size(
                    int(read.snapshot)
                )
                <= self.job.few
            )
        return (
            read.method in (ReadMethod.LOG_FILES, ReadMethod.NOTHING)
            and TableSize.of(read.files) <= self.job.few
        )

    def _check_replacing(self, read: RangeRead) -> None:
        """Block the consumer where the table would be rebuilt, and nobody asked for that or knows
        that it can be; or made of new messages alone, though it had rows.
        """
        name = self.job.name
        if (
            read.must_replace
            and self.job.start is not None
            and self.job.start.sources.get(self.job.bronze.table)
        ):
            raise ConsumerBlockedError(
                f"{name}: the new messages of {self.job.bronze.table} cannot be distinguished from "
                f"others ({read.verdict.value}: "
                f"{read.note}); if it still holds all of them, `lakechime trigger seek {name} --to "
                f"beginning` rebuilds the table"
            )
        if read.changes is None and self._table is not None and HIDDEN not in self._table.columns:
            raise ConsumerBlockedError(
                f"{name}: there is a table at {self.target.log.shown_location} that replicates no "
                f"database; move it away, or declare another name or location"
            )
        if read.changes is not None and self._table is None and self.job.has_committed:
            raise ConsumerBlockedError(
                f"{name}: there is no table at {self.target.log.shown_location} any more, or not in "
                f"the format that is declared; `lakechime trigger seek {name} --to beginning` makes "
                f"it of {self.job.bronze.table}"
            )
        if read.changes is not None and self._table is not None:
            self._check_kept(self._table.columns)

    def _check_kept(self, columns: Collection[str]) -> None:
        """Block the consumer where the table keeps what was deleted otherwise than is declared, but
        for one that begins to keep it.
        """
        name, has = self.job.name, {*SPAN, DELETED_AT} & {*columns}
        keeps = (
            "histories"
            if SPAN[0] in has
            else "rows that were deleted"
            if has
            else "what is there alone"
        )
        if has != {*self._columns(Evolution(columns={}))} - {HIDDEN} and (
            has or self.job.has_history
        ):
            raise ConsumerBlockedError(
                f"{name}: the table holds {keeps}, and is not declared so any more; declare "
                f"stored_as_scd_type= and deletes= as before, or "
                f"give this execution up (`lakechime execution skip`) and rebuild it (`lakechime "
                f"trigger seek {name} --to beginning`)"
            )

    def _evolution(self, parsed: Parsed) -> Evolution:
        known = {} if parsed.is_new or self._table is None else columns_of(self._table.schema)
        schemas = [schema.types for schema in parsed.seen.schemas]
        evolution = evolved(
            shared_columns(known, self.job.table_format),
            [shared_columns(types, self.job.table_format) for types in schemas],
            self.job.on_drift,
            self.job.merge.keys,
        )
        if evolution.refused:
            raise ConsumerBlockedError(f"{self.job.name}: {'; '.join(evolution.refused)}")
        begins = (
            {DELETED_AT: "timestamp"}
            if self.job.keeps_deleted and known and DELETED_AT not in known
            else {}
        )
        refused = {
            name: why
            for types in schemas
            for name, ddl in types.items()
            if (why := why_not_taken(name, ddl, self.job.table_format))
        }
        remedies = {
            name: f"{why}; give it another name by names={{{name!r}: …}}"
            for name, why in refused.items()
        }
        return replace(
            evolution,
            added={**evolution.added, **begins},
            left_out={**evolution.left_out, **remedies},
        )

    def _complete(self, parsed: Parsed, at_ms: int | None) -> tuple[int, int] | None:
        """From when up to when the execution reports hours as complete; None where that adds
        nothing to the table's watermark.

        It repeats what executions without a commit reported. A table that is rewritten may report
        less than before.
        """
        before = self._watermark
        if parsed.is_new and before is not None and at_ms is not None:
            before = min(before, at_ms)
        end = max((one for one in (at_ms, self._complete_ms) if one is not None), default=None)
        adds_nothing = end == before and at_ms != before
        return None if end is None or adds_nothing else (before or end, end)

    def _complete_before(self, parsed: Parsed) -> int | None:
        """Up to when earlier executions reported the table as complete, those without a commit
        included.

        None for a new table, and for one without complete hours.
        """
        if parsed.is_new or self._table is None or self.job.merge.max_transaction is None:
            return None
        version = self._version_before()
        remembered = None if version is None else self.state.log.watermark(version)
        return max((one for one in (remembered, self._watermark) if one is not None), default=None)

    def _with_watermark(self, complete: tuple[int, int] | None) -> CommitMetadata:
        """The commit metadata that says up to when the table is complete; an execution that says
        nothing new repeats what was known.
        """
        if complete is None:
            return replace(self.commit_metadata, watermark=self._watermark)
        return replace(
            self.commit_metadata,
            watermark=complete[1],
            facts={**self.commit_metadata.facts, COMPLETE: list(complete)},
        )

    def _with_late(self, merge: Merge) -> CommitMetadata:
        """The commit metadata of the table's commit, which names the hours of late changes, so that
        whoever finds it registers them.
        """
        return (
            replace(
                self.commit_metadata,
                facts={**self.commit_metadata.facts, LATE: [*merge.late.items()]},
            )
            if merge.late
            else self.commit_metadata
        )

    # Merging

    def _merge(self, parsed: Parsed) -> Merge:
        evolution = self._evolution(parsed)
        groups = components([*parsed.seen.links, *parsed.known.links])
        found = self._merged(parsed, groups, evolution)
        counted = _counted(found)
        ending = (Need.DELETE, Need.END, *([Need.UPDATE] if self.job.has_history else []))
        if self._complete_ms is not None and any(counted[What.ROWS, need] for need in ending):
            counted.update((What.LATE, str(hour)) for hour in parsed.late_ends(self._complete_ms))
        return Merge(found, counted, evolution, groups)

    def _merging(self, parsed: Parsed, evolution: Evolution) -> Merging:
        return Merging(
            out=arrow_of(self._ddl(evolution)),
            keys=self.job.merge.keys,
            truncated=truncations_of(parsed.ends),
            low_watermarks=parsed.known.low_watermark,
            defaults=parsed.defaults,
            track=self.job.track,
            keeps_deleted=self.job.keeps_deleted,
            complete_ms=self._complete_ms,
        )

    def _ddl(self, evolution: Evolution) -> str:
        """The rows that merging gives back."""
        return merged_ddl(self._columns(evolution))

    def _columns(self, evolution: Evolution) -> dict[str, str]:
        """All columns of the table."""
        return table_columns(
            evolution.columns,
            has_history=self.job.has_history,
            keeps_deleted=self.job.keeps_deleted,
        )

    def _merged(self, parsed: Parsed, groups: Mapping[str, str], evolution: Evolution) -> Rows:
        """The changes of each key, merged with what is known of it and of all keys that continue
        it; of all keys if it concerns all.
        """
        new = parsed.rows.where({"role": [Role.CHANGE.value]})
        together = new.shaped(GROUPED_DDL, {"group": "key"}, {"is_new": True})
        touched = None if parsed.concerns_all else self._touched(new, groups)
        if parsed.before is not None:
            together = together.union(self._compute.near(_known_rows(parsed.before, touched)))
        if not parsed.is_new and self._table is not None:
            together = together.union(self._target_rows(self._table, touched, evolution))
        grouped = together.translated("group", groups) if groups else together
        return grouped.on_batches(
            self._merging(parsed, evolution), self._ddl(evolution), by="group"
        )

    def _touched(self, new: Rows, groups: Mapping[str, str]) -> Rows:
        """The keys of new changes, and all that are merged together with one."""
        keys = new.distinct("key").kept()
        if not groups:
            return keys
        met = {groups[key] for (key,) in keys.where({"key": list(groups)}).tuples("key")}
        linked = self._compute.made(
            [(key,) for key, group in groups.items() if group in met], "`key` string"
        )
        return keys.union(linked).distinct("key").kept()

    def _check_deletions(self, merge: Merge) -> None:
        """Block the consumer where a complete snapshot lacks too many of the table's rows."""
        deleted, before = merge.deleted, merge.deleted + merge.rows(Need.UPDATE, Need.NOTHING)
        if deleted > self.job.merge.max_delete_ratio * before:
            raise ConsumerBlockedError(
                f"{self.job.name}: a complete snapshot lacks {deleted:,} of {before:,} rows, more "
                f"than max_delete_ratio="
                f"{self.job.merge.max_delete_ratio:g}; is it whole? If it is, declare a greater "
                f"max_delete_ratio and resume"
            )

    def _target_rows(self, rows: DataFrame, touched: Rows | None, evolution: Evolution) -> Rows:
        keys = self.job.merge.keys
        if touched is not None:
            ddl = ddl_of({name: evolution.columns[name] for name in keys})
            values = touched.on_batches(KeyColumns(arrow_of(ddl)), ddl)
            rows = narrowed(
                rows,
                values.frame,
                {name: column(name) for name in keys},
                MAX_LISTED if values.are_here else MAX_LITERALS,
            )
        # of a key there are many rows in a history
        here = self._compute.rows(rows, are_few=touched is None or not self.job.has_history)
        return here.on_batches(TargetRows(arrow_of(GROUPED_DDL), keys), GROUPED_DDL, keep=False)

    # Writing

    def _remember(self, parsed: Parsed, merge: Merge) -> Committed:
        """Commit what is to be remembered, be it nothing: the range of each execution is found
        here, whatever became of the ledger.

        Now and then what need not be remembered any more is forgotten, though not while the source
        holds more, whose times are unknown.
        """
        before = parsed.before
        rows = (
            merge.found.where({"what": [What.STATE]})
            .shaped(STATE_DDL)
            .union(self._compute.made(parsed.of_sources, STATE_DDL))
        )
        version = self._version_before() if before is not None else None
        write = self.state.append if before is not None else self.state.replace_all
        if before is not None and not parsed.has_more and self._collects(before, version):
            state = before.union(rows)
            rows = collected_state(
                self._compute.workers, state.frame, seen_before(state), self.job, merge.groups
            )
            write = self.state.replace_all
        frame = rows.shaped(ddl_of(COLUMNS), values={"number": self.commit_metadata.number}).frame
        create_if_missing(self.spark, self.state, frame.schema, STATE_STATISTICS)
        commit_metadata = replace(
            self.commit_metadata, facts={**self.commit_metadata.facts, AS_OF: version}
        )
        held = commit(self.spark, self.state, commit_metadata, lambda: lambda: write(frame))
        assert held is not None  # since something was to be written
        return held

    def _collects(self, before: Rows, version: int | None) -> bool:
        """Whether enough need not be remembered any more; the log says that there may be so much at
        all.
        """
        least = self.job.collects_above
        rows = None if version is None else self.state.log.size(version).rows
        return (rows is None or rows >= least) and is_worth_while(
            before.frame, self.job.merge.allowed_lateness, least
        )

    def _quarantine(self, parsed: Parsed, merge: Merge) -> int:
        """Keep what cannot be taken, and say how much that is."""
        refused = merge.counted.get((What.REFUSALS, None), 0)
        quarantined = parsed.seen.outcomes[ChangeOutcome.QUARANTINED.value] + refused
        if not quarantined:
            return 0
        location, name = quarantine_location(self.job.location), f"{self.job.name}__quarantine"
        table = Target(
            name=name,
            location=location,
            log=self.open_log(location, name),
            comment=f"Changes that {self.job.name} refused",
        )
        quarantine(
            self.spark, table, self.commit_metadata, bad_rows(parsed.rows.frame, merge.found.frame)
        )
        return quarantined

    def _result(
        self, read: RangeRead, held: Committed | None, merge: Merge, outcomes: Mapping[str, int]
    ) -> TableResult:
        if held is not None and not is_own(held, self.commit_metadata):
            return skipped(held)
        evolution, quarantined = merge.evolution, outcomes[ChangeOutcome.QUARANTINED.value]
        counts = Counts(
            rows_in=sum(outcomes.values()),
            returned=merge.changed + merge.unchanged + quarantined,
            inserted=merge.inserted,
            updated=merge.updated,
            deleted=merge.deleted,
            unchanged=merge.unchanged,
            quarantined=quarantined,
        )
        written = self.target.written(held) if held is not None else None
        outcome = (
            Outcome.NOTHING
            if held is None
            else Outcome.COMMITTED
            if counts.changed or evolution.added
            else Outcome.FENCED
        )
        return TableResult(
            outcome=outcome,
            committed=held,
            replaced=read.changes is None,
            counts=counts,
            sources=(_source(self.job, read),),
            events={name: n for name, n in outcomes.items() if n},
            partitions=written.partitions if written else (),
            files=written.files if written else 0,
            bytes=written.bytes if written else 0,
            schema=tuple(evolution.columns.items()),
            late=merge.late,
            seconds=dict(self._phase.seconds),
            notes=_notes(evolution),
        )


def _known_rows(before: Rows, touched: Rows | None) -> Rows:
    rows = before.where({"role": [Role.BASE.value, Role.CHANGE.value]})
    rows = rows if touched is None else rows.among("key", touched)
    return rows.shaped(GROUPED_DDL, {"group": "key"}, {"is_new": False})


def _counted(found: Rows) -> Counter[tuple[str, str | None]]:
    """Counts of rows, refusals and outcomes, each the sum of what every part of the merging
    counted.
    """
    counted = Counter[tuple[str, str | None]]()
    for what, operation, count in found.where({"what": What.COUNTS}).tuples(
        "what", "operation", "count"
    ):
        counted[what, operation] += count
    return counted


def _source(job: CDCJob, read: RangeRead) -> SourceResult:
    range_ = job.bronze.range
    return SourceResult(
        alias=job.bronze.alias,
        table=job.bronze.table,
        method=read.method.value,
        verdict=read.verdict,
        start=range_.start if range_ else None,
        end=read.snapshot,
        commits=read.commits,
        data_commits=read.data_commits,
        note=read.note,
    )


def _notes(evolution: Evolution) -> tuple[str, ...]:
    notes = [f"column {name} was added, as {ddl}" for name, ddl in evolution.added.items()]
    why = {name: f", as {why}" for name, why in evolution.texts.items()}
    notes += [
        f"column {name} was widened to {ddl}{why.get(name, '')}; all rows were rewritten"
        for name, ddl in evolution.widened.items()
    ]
    notes += [
        f"column {name} is not taken: {why}" for name, why in sorted(evolution.left_out.items())
    ]
    return tuple(notes)
