"""Parses the messages of an execution on Spark's workers, with what was kept before."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.cdc.incremental_merge import Fate, Need
from lakechime_dagster.cdc.job import ChangeJob
from lakechime_dagster.cdc.schema import Evolution, spellings, widened
from lakechime_dagster.cdc.spark_changes import MESSAGE, STATE_DDL, TOLD_DDL, Reading, Respelled, What
from lakechime_dagster.cdc.spark_epochs import in_epochs
from lakechime_dagster.cdc.spark_remembered import OPENED, STATE_COLUMNS, Seen, columns_in, seen_before
from lakechime_dagster.cdc.spark_rows import Computing, Rows
from lakechime_dagster.cdc.state import Defaults, Role, StateRow, TableSchema
from lakechime_dagster.spark.commit import Target
from lakechime_dagster.spark.ranges import CHANGE, RangeRead, ReadMethod, pinned
from lakechime_dagster.spark.refresh import OpenLog
from lakechime_dagster.spark.rows import REASON
from lakechime_dagster.spark.session import arrow_of
from lakechime_dagster.tables.databases import Debezium
from lakechime_dagster.triggers.consumers import HOUR_MS, Committed


def remembered_schemas(state: DataFrame) -> list[TableSchema]:
    """What rows of a table of what is remembered tell of the columns of the database's tables."""
    rows = state.where(F.col("role") == Role.SCHEMA.value).select(*STATE_COLUMNS).collect()
    return [TableSchema.of_row(StateRow(*row)) for row in rows]


BAD = ("topic", "partition", "offset", "key", "message", REASON)
FITS_NOT = "its columns are of types that the table cannot hold: "


def is_conflicting(seen: Seen, evolution: Evolution) -> Column:
    """Whether a change is of a schema of which the table cannot hold a column."""
    names = [
        schema.name for schema in seen.schemas if any(_conflicts(schema.types.get(one), one, evolution) for one in evolution.conflicts)
    ]
    return F.coalesce(F.col("schema").isin(names) & F.col("columns").isNotNull(), F.lit(False))


def _conflicts(ddl: str | None, name: str, evolution: Evolution) -> bool:
    holds = evolution.columns.get(name)
    return ddl is not None and (holds is None or widened(holds, ddl) != holds)


def bad_rows(told: DataFrame, conflicting: DataFrame | None, found: DataFrame) -> DataFrame:
    """What is quarantined, with its place and the reason (`BAD`)."""
    unreadable = told.where(F.col("fate") == Fate.QUARANTINED.value).withColumn(REASON, F.col("reason")).select(*BAD)
    refused = found.where(F.col("what") == What.REFUSED).withColumn("message", F.col("columns"))
    bad = unreadable.unionByName(refused.withColumn(REASON, F.col("reason")).select(*BAD))
    if conflicting is None:
        return bad
    why = F.concat(F.lit(FITS_NOT), F.coalesce("types", "schema"))
    return bad.unionByName(conflicting.withColumn("message", F.col("columns")).withColumn(REASON, why).select(*BAD))


Counted = Mapping[tuple[str, str | None], int]  # rows by what they are, and their operation


@dataclass(frozen=True)
class Parsed:
    """The messages of a step, and what was known before it.

    Attributes:
        read: How they were read.
        told: What they tell (`change_rows.TOLD_DDL`), each change in its epoch.
        before: What was remembered before the step; None of a table that begins.
        seen: What of the messages concerns more than their own keys.
        known: The same of what was remembered.
        has_more: The feed held more than was read of it: what comes next may be older than what came, and belong to a snapshot that
            has ended.
    """

    read: RangeRead
    told: Rows
    before: Rows | None
    seen: Seen
    known: Seen
    has_more: bool = False

    @property
    def is_new(self) -> bool:
        """Whether the table is made of these messages alone."""
        return self.read.images is None

    @cached_property
    def ended(self) -> list[StateRow]:
        """The truncations that snapshots mean which are complete now; none before all of their rows are read for certain."""
        return [] if self.has_more else self.seen.ended(self.known)

    @property
    def ends(self) -> tuple[StateRow, ...]:
        """All truncations."""
        return (*self.seen.truncations, *self.known.truncations, *self.ended)

    @property
    def marks(self) -> tuple[StateRow, ...]:
        """The first and last rows of snapshots, without their columns."""
        return tuple(one._replace(role=Role.MARK.value, columns=None) for one in self.seen.marks)

    @cached_property
    def defaults(self) -> Defaults:
        """What rows got that were there when a column was added."""
        return Defaults.of([*self.known.columns, *self.seen.columns])

    @cached_property
    def concerns_all(self) -> bool:
        """Whether rows may change of which no message tells."""
        return bool(self.seen.truncations or self.ended) or self.defaults.concern_others(Defaults.of(self.known.columns))

    def late_ends(self, complete_ms: int) -> list[int]:
        """The hour (since 1970) of each truncation among the messages whose hour was complete before; one without a time has none."""
        end_ms = complete_ms // HOUR_MS * HOUR_MS
        return [row.ts_ms // HOUR_MS for row in (*self.seen.truncations, *self.ended) if row.ts_ms and row.ts_ms < end_ms]

    @property
    def of_sources(self) -> list[StateRow]:
        """What is to be remembered of whole sources."""
        seen = self.seen
        return [*seen.truncations, *self.ended, *self.marks, *seen.places, *seen.beats, *seen.columns, *seen.tables]


@dataclass(frozen=True)
class Merge:
    """What merging made of them.

    Attributes:
        found: The rows of `change_rows.merged_ddl`.
        counted: How many of them there are of each kind (`What.COUNTS`).
        evolution: What becomes of the table's columns.
        groups: Of each key that continues another one, or is continued, the group that is merged together.
        conflicting: The changes whose columns the table cannot hold, which were not merged; None where there are none.
    """

    found: Rows
    counted: Counted
    evolution: Evolution
    groups: Mapping[str, str]
    conflicting: DataFrame | None

    def rows(self, *needs: str) -> int:
        """How many rows of the table need one of these."""
        return sum(self.counted.get((What.ROWS, need), 0) for need in needs)

    @property
    def inserted(self) -> int:
        return self.rows(Need.INSERT, Need.RETURN)

    @property
    def updated(self) -> int:
        return self.rows(Need.UPDATE, Need.AMEND)

    @property
    def deleted(self) -> int:
        """How many rows the database deleted, whether they stay or not."""
        return self.rows(Need.DELETE, Need.END)

    @property
    def unchanged(self) -> int:
        return self.rows(Need.NOTHING)

    @property
    def changed(self) -> int:
        return self.inserted + self.updated + self.deleted

    @property
    def late(self) -> dict[int, int]:
        """How many changes came later than their hour was complete, by that hour (since 1970), the oldest first."""
        return dict(sorted((int(hour or 0), count) for (what, hour), count in self.counted.items() if what == What.LATE))

    def fates(self, parsed: Parsed, quarantined: int) -> dict[str, int]:
        """How many changes met which fate."""
        found = {fate.value: parsed.seen.fates[fate.value] + self.counted.get((What.FATE, fate.value), 0) for fate in Fate}
        return found | {Fate.QUARANTINED.value: quarantined}


AS_OF = "state"  # among the facts of a commit of the state: the version that it was computed from


@dataclass(frozen=True)
class Hearing:
    """What one attempt hears of its messages by.

    Attributes:
        spark: The session.
        job: How messages are read.
        state: The table of what is remembered.
        decided: The commit by which another attempt remembered the step.
        step: Its number.
        open_log: Gives the log of a table.
        compute: By whom plain functions are called.
    """

    spark: SparkSession
    job: ChangeJob
    state: Target
    decided: Committed | None
    step: int
    open_log: OpenLog
    compute: Computing

    def parsed(self, read: RangeRead, columns: Iterable[str]) -> Parsed:
        """The messages of a range; names of columns that differ from those of the table in case alone are the table's.

        Raises:
            ConsumerBlockedError: positions begin anew.
        """
        before = None if read.images is None else self._state_before()
        known = Seen() if before is None else seen_before(before)
        messages = read.end if read.images is None else read.images.where(F.col(CHANGE) == 1)
        tables = self._tables(known) if self.job.format.is_typed_elsewhere else []
        apart = spread(messages.select(*MESSAGE), read) if self.compute is self.compute.workers else messages.select(*MESSAGE)
        told = self._told(apart, [TableSchema.of_row(row) for row in known.tables] + tables)
        ordered = in_epochs(self.spark, self.job.name, told, read.end, known)
        names = spellings([*columns, *self.job.merge.named], ordered.seen.columns_met())
        found, rows = ordered.seen, ordered.told
        if names:
            schemas = {one.name: one.spelled(names).name for one in found.schemas}
            found, rows = found.spelled(names), rows.on_batches(Respelled(arrow_of(TOLD_DDL), names, schemas), TOLD_DDL)
        seen = replace(
            found,
            places=ordered.places,
            columns=columns_in(found, known),
            tables=tuple(one.row for one in tables),
        )
        fed = self.open_log(self.job.bronze.location, self.job.bronze.table).fed(read.version)
        return Parsed(read, rows, before, seen, known, has_more=fed is not None and fed.has_more)

    def _tables(self, known: Seen) -> list[TableSchema]:
        """What a step adds to what is known of the columns of the database's tables, the same for every attempt.

        A table that is rebuilt keeps the readings of the one before.
        """
        if self.decided is not None:
            of_step = pinned(self.spark, self.state.location, int(self.decided.version)).where(F.col("step") == self.step)
            return remembered_schemas(of_step)
        is_rebuilt = not known.tables and self.state.log.exists()
        earlier = remembered_schemas(pinned(self.spark, self.state.location, self.state.log.version)) if is_rebuilt else []
        return [*earlier, *([] if self.job.reading is None else [self.job.reading])]

    def _told(self, rows: DataFrame, tables: Sequence[TableSchema]) -> Rows:
        merge, envelope = self.job.merge, self.job.format.envelope
        messages = replace(self.job.format, tables=tuple(tables)) if self.job.format.is_typed_elsewhere else self.job.format
        reading = Reading(
            out=arrow_of(TOLD_DDL),
            reader=messages.reader,
            takes=merge.takes,
            names=dict(self.job.names),
            ignores_truncates=not merge.apply_as_truncates,
            ignores_nulls=merge.ignore_null_updates,
            has_bare_tombstones=isinstance(envelope, Debezium) and envelope.tombstones_delete,
        )
        return self.compute.rows(rows, are_few=True).on_batches(reading, TOLD_DDL)

    def _state_before(self) -> Rows | None:
        """What was remembered before the step: by the version that the attempt which decided it read, else by the newest."""
        version = self.version_before()
        if version is None:
            return None
        compute = self.compute if self.state.log.size(version) <= self.job.few else self.compute.workers
        return compute.of_version(self.state.log, version, STATE_DDL)

    def version_before(self) -> int | None:
        """The version of what was remembered that the step is computed from; None where there was none."""
        if self.decided is not None:
            return self.decided.commit_metadata.facts.get(AS_OF)
        return self.state.log.version if self.state.log.exists() else None


def spread(messages: DataFrame, read: RangeRead) -> DataFrame:
    """The messages of a range in as many parts as there are cores: those of one file would be read by one of them.

    Those of a partition of a topic stay beside each other: where their positions go back they would all be looked at here.
    """
    cores = messages.sparkSession.sparkContext.defaultParallelism
    if read.method is not ReadMethod.LOG_FILES or len(read.files) >= cores:
        return messages
    return messages.repartitionByRange(cores, "topic_id", "partition", "offset")


def known_until(job: ChangeJob, parsed: Parsed) -> int | None:
    """Up to when, in milliseconds, nothing of any source can come any more; None where that is not known.

    That is the newest time of each source less the longest that a transaction lasts. It is not known while the feed holds more: of what
    one partition reports, another one may have earlier changes there.
    """
    known, seen = parsed.known, parsed.seen
    newest = known.beaten({**known.newest_ms, **seen.newest_ms})  # of a source in both the one of now is the later one
    sources = {row.source for row in (*known.places, *seen.places) if row.op != OPENED}
    if job.merge.max_transaction is None or parsed.has_more or not newest or sources - newest.keys():
        return None
    return min(newest.values()) - job.merge.max_transaction // timedelta(milliseconds=1)
