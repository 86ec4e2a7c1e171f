"""One step of a table that holds what a feed brings: exactly the claimed range, appended once."""

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakechime_dagster.spark.commit import Target, append, append_nothing, commit, commit_at, create_if_missing, is_own, newest_commit
from lakechime_dagster.spark.delta_files import files_frame
from lakechime_dagster.spark.feeds.job import FeedJob
from lakechime_dagster.spark.job import Counts, Outcome, TableResult
from lakechime_dagster.spark.phases import Phases
from lakechime_dagster.spark.refresh import OpenLog, skipped
from lakechime_dagster.triggers.feeds import FilesPlace, KafkaPlace
from lakechime_dagster.triggers.lanes import CommitStamp, Place

PROPERTIES = {"delta.appendOnly": "true"}
Rows = Callable[[Place | None, Place], DataFrame | None]  # between two places; None where there is none


def ingest_step(
    spark: SparkSession, job: FeedJob, stamp: CommitStamp, open_log: OpenLog, rows_between: Rows, schema: StructType, kinds: str,
    cluster_by: tuple[str, ...] = (), properties: Mapping[str, str] = PROPERTIES,
) -> TableResult:  # fmt: skip
    """One attempt at one step: append what the feed holds up to the stamp's end under the stamp, at most once ever.

    Args:
        spark: The session; its confs are as before when this returns.
        job: What to read and how.
        stamp: Lane, step, attempt and the end that the commit will record.
        open_log: Gives the log of a table by location and table name, such as `capture.delta.DeltaLog`.
        rows_between: What the feed holds, as rows of `schema`.
        schema: Of the table.
        kinds: An expression over its columns, by which the result counts the step's rows.
        cluster_by: Columns by which rows lie together.
        properties: Of the table, when it is made.

    Raises:
        LaneConflictError: the lane has moved on.
        FeedUnreadableError: the feed does not hold any more what was claimed.
    """
    target = Target(name=job.name, location=job.location, log=open_log(job.location, job.name), comment=job.comment, cluster_by=cluster_by)
    last = newest_commit(target, stamp)
    if last and last.stamp.step == stamp.step:
        return skipped(last)
    is_lost = last is None and job.has_committed
    start = None if is_lost else job.start
    note = f"{job.name} no longer holds what its lane has committed: its feed is read again from the beginning"
    phase = Phases(spark, job.name)
    with phase("read"):
        rows = rows_between(start, stamp.end)
    with phase("write"):
        if rows is not None or not job.may_settle_empty:
            create_if_missing(spark, target, schema, properties)
        held = commit(spark, target, stamp, lambda: _write(spark, job, target, rows))
    if held is None:
        return TableResult(outcome=Outcome.NOTHING, seconds=phase.seconds)
    if not is_own(held, stamp):
        return skipped(held)
    with phase("count"):
        record = commit_at(target.log, int(held.version))
        counts = _counted(files_frame(spark, job.location, int(held.version), record.added), kinds) if record.added else {}
    count = sum(counts.values())
    return TableResult(
        outcome=Outcome.FENCED if rows is None else Outcome.COMMITTED, committed=held,
        counts=Counts(rows_in=count, returned=count, inserted=count), partitions=record.partitions, files=len(record.added),
        bytes=sum(file.size for file in record.added), schema=tuple((field.name, field.dataType.simpleString()) for field in schema),
        seconds=phase.seconds, events=counts, notes=(note,) if is_lost else (),
    )  # fmt: skip


def files_place(place: Place | None) -> FilesPlace:
    """A place in files; the beginning where there is none."""
    return place.feed if place is not None and isinstance(place.feed, FilesPlace) else FilesPlace()


def kafka_place(place: Place | None) -> KafkaPlace:
    """A place in topics; the beginning where there is none."""
    return place.feed if place is not None and isinstance(place.feed, KafkaPlace) else KafkaPlace()


def _counted(frame: DataFrame, kinds: str) -> dict[str, int]:
    counted = frame.groupBy(F.expr(kinds).alias("kind")).agg(F.count(F.lit(1)).alias("rows"))
    return {row["kind"]: row["rows"] for row in counted.collect()}


def _write(spark: SparkSession, job: FeedJob, target: Target, rows: DataFrame | None) -> Callable[[], None] | None:
    if rows is not None:
        return lambda: append(rows, target)
    return None if job.may_settle_empty else lambda: append_nothing(spark, target)
