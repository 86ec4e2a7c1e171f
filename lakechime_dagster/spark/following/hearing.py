"""Hears the messages of a step: what each tells, in its epoch, beside what was remembered before."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.cdc.remembering.open_transactions import Probe, Until, until
from lakechime_dagster.cdc.remembering.table_schema import TableSchema
from lakechime_dagster.cdc.schemas.drift import spellings
from lakechime_dagster.lake.envelopes import Debezium
from lakechime_dagster.spark.commit import Target
from lakechime_dagster.spark.ddl import arrow_of
from lakechime_dagster.spark.following.change_job import ChangeJob
from lakechime_dagster.spark.following.change_rows import MESSAGE, STATE_DDL, TOLD_DDL, Reading, Respelled
from lakechime_dagster.spark.following.epochs import in_epochs
from lakechime_dagster.spark.following.remembered import OPENED, Seen, columns_in, seen_before
from lakechime_dagster.spark.following.rows import Computing, Rows
from lakechime_dagster.spark.following.stages import Heard
from lakechime_dagster.spark.following.told_schemas import readings_in, told_schemas
from lakechime_dagster.spark.ranges import CHANGE, RangeRead, ReadMethod, pinned
from lakechime_dagster.spark.refresh import OpenLog
from lakechime_dagster.triggers.lanes import Committed

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

    def heard(self, read: RangeRead, columns: Iterable[str]) -> Heard:
        """The messages of a range; names of columns that differ from those of the table in case alone are the table's.

        Raises:
            LaneHeldError: positions begin anew, or a change of the columns was told too late.
        """
        before = None if read.images is None else self._state_before()
        known = Seen() if before is None else seen_before(before)
        messages = read.end if read.images is None else read.images.where(F.col(CHANGE) == 1)
        tables = self._tables(messages, known) if self.job.format.is_typed_elsewhere else []
        apart = spread(messages.select(*MESSAGE), read) if self.compute is self.compute.workers else messages.select(*MESSAGE)
        told = self._told(apart, [TableSchema.of_row(row) for row in known.tables] + tables)
        ordered = in_epochs(self.spark, self.job.name, told, read.end, known)
        probe = self.job.asked.probe
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
            probes=() if probe is None else (probe.row(),),
        )
        fed = self.open_log(self.job.bronze.location, self.job.bronze.table).fed(read.version)
        return Heard(read, rows, before, seen, known, has_more=fed is not None and fed.has_more)

    def _tables(self, messages: DataFrame, known: Seen) -> list[TableSchema]:
        """What a step adds to what is known of the columns of the database's tables, the same for every attempt.

        A table that is made anew keeps the readings of the one before: schema changes are told again, these by nobody.
        """
        is_told = isinstance(self.job.format.envelope, Debezium)  # of others a schema change tells a statement alone
        told = told_schemas(self.job.name, messages, map(TableSchema.of_row, known.tables), known.places) if is_told else []
        if self.decided is not None:
            of_step = pinned(self.spark, self.state.location, int(self.decided.version)).where(F.col("step") == self.step)
            return [*told, *readings_in(of_step)]
        is_anew = not known.tables and self.state.log.exists()
        earlier = readings_in(pinned(self.spark, self.state.location, self.state.log.version)) if is_anew else []
        return [*told, *earlier, *([] if self.job.reading is None else [self.job.reading])]

    def _told(self, rows: DataFrame, tables: Sequence[TableSchema]) -> Rows:
        merge, envelope = self.job.merge, self.job.format.envelope
        messages = replace(self.job.format, tables=tuple(tables)) if self.job.format.is_typed_elsewhere else self.job.format
        reading = Reading(
            out=arrow_of(TOLD_DDL), reader=messages.reader, takes=merge.takes, names=dict(self.job.names),
            ignores_truncates=not merge.apply_as_truncates, ignores_nulls=merge.ignore_null_updates,
            has_bare_tombstones=isinstance(envelope, Debezium) and envelope.tombstones_delete,
        )  # fmt: skip
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
            return self.decided.stamp.facts.get(AS_OF)
        return self.state.log.version if self.state.log.exists() else None


def spread(messages: DataFrame, read: RangeRead) -> DataFrame:
    """The messages of a range in as many parts as there are cores: those of one file would be read by one of them.

    Those of a partition of a topic stay beside each other: where their positions go back they would all be looked at here.
    """
    cores = messages.sparkSession.sparkContext.defaultParallelism
    if read.method is not ReadMethod.LOG_FILES or len(read.files) >= cores:
        return messages
    return messages.repartitionByRange(cores, "topic_id", "partition", "offset")


def known_until(job: ChangeJob, heard: Heard) -> Until | None:
    """Up to when nothing of any source can come any more, by what was remembered before the step; None where that is not known.

    It is not known while the feed holds more: of what a partition tells, another one may have earlier changes there.
    """
    known, seen = heard.known, heard.seen
    newest = known.beaten({**known.newest_ms, **seen.newest_ms})  # of a source in both the one of now is the later one
    sources = {row.source for row in (*known.places, *seen.places) if row.op != OPENED}
    if job.max_transaction is None or heard.has_more or sources - newest.keys():
        return None
    return until(newest, known.beaten(known.newest_ms), list(map(Probe.of, known.probes)), job.max_transaction)
