"""Brings the messages of a feed into their table: exactly the claimed range, appended once."""

from collections.abc import Callable
from pathlib import Path
from typing import assert_never

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from lakechime_dagster.cdc.messages.bronze import COLUMNS
from lakechime_dagster.lake.feeds import JsonLines, KafkaTopic
from lakechime_dagster.spark.commit import Target, append, append_nothing, commit, commit_at, create_if_missing, is_own, newest_commit
from lakechime_dagster.spark.delta_files import files_frame
from lakechime_dagster.spark.following.bronze_job import BronzeJob
from lakechime_dagster.spark.following.kafka import Messages, read_topics
from lakechime_dagster.spark.following.lines import SLICE, Lines, check_there, has_message, tasks
from lakechime_dagster.spark.job import Counts, Outcome, TableResult
from lakechime_dagster.spark.phases import Phases
from lakechime_dagster.spark.refresh import OpenLog, skipped
from lakechime_dagster.triggers.feeds import FeedPlace, FilesPlace, KafkaPlace
from lakechime_dagster.triggers.lanes import CommitStamp

PROPERTIES = {"delta.appendOnly": "true"}
DDL = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())


def ingest(spark: SparkSession, job: BronzeJob, stamp: CommitStamp, open_log: OpenLog) -> TableResult:
    """One attempt at one step: append what the feed holds up to the stamp's end under the stamp, at most once ever.

    Args:
        spark: The session; its confs are as before when this returns.
        job: What to read and how.
        stamp: Lane, step, attempt and the end that the commit will record.
        open_log: Gives the log of a table by location and table name, such as `capture.delta.DeltaLog`.

    Raises:
        LaneConflictError: the lane has moved on.
        FeedUnreadableError: the feed does not hold any more what was claimed.
    """
    target = Target(name=job.name, location=job.location, log=open_log(job.location, job.name), comment=job.comment)
    last = newest_commit(target, stamp)
    if last and last.stamp.step == stamp.step:
        return skipped(last)
    is_lost = last is None and job.has_committed
    start = None if is_lost or job.start is None else job.start.feed
    note = f"{job.name} no longer holds what its lane has committed: its feed is read again from the beginning"
    phase = Phases(spark, job.name)
    with phase("read"):
        rows = _rows(spark, job, start, stamp.end.feed)
    with phase("write"):
        if rows is not None or not job.may_settle_empty:
            create_if_missing(spark, target, bronze_schema(), PROPERTIES)
        held = commit(spark, target, stamp, lambda: _write(spark, job, target, rows))
    if held is None:
        return TableResult(outcome=Outcome.NOTHING, seconds=phase.seconds)
    if not is_own(held, stamp):
        return skipped(held)
    with phase("count"):
        record = commit_at(target.log, int(held.version))
        frame = files_frame(spark, job.location, int(held.version), record.added).groupBy("kind").count()
        kinds = {row["kind"]: row["count"] for row in frame.collect()} if record.added else {}
    count = sum(kinds.values())
    return TableResult(
        outcome=Outcome.FENCED if rows is None else Outcome.COMMITTED, committed=held,
        counts=Counts(rows_in=count, returned=count, inserted=count), partitions=record.partitions, files=len(record.added),
        bytes=sum(file.size for file in record.added), schema=tuple(COLUMNS.items()), seconds=phase.seconds, events=kinds,
        notes=(note,) if is_lost else (),
    )  # fmt: skip


def bronze_schema() -> StructType:
    """The columns of every table of messages."""
    schema = StructType.fromDDL(DDL)
    assert isinstance(schema, StructType)
    return schema


def _write(spark: SparkSession, job: BronzeJob, target: Target, rows: DataFrame | None) -> Callable[[], None] | None:
    if rows is not None:
        return lambda: append(rows, target)
    return None if job.may_settle_empty else lambda: append_nothing(spark, target)


def _rows(spark: SparkSession, job: BronzeJob, start: FeedPlace | None, end: FeedPlace | None) -> DataFrame | None:
    """The messages between two places; None where there is none."""
    match job.feed:
        case JsonLines():
            return _of_files(spark, job, job.feed, _files(start), _files(end))
        case KafkaTopic():
            return _of_topics(spark, job, job.feed, _topics(start), _topics(end))
        case _:
            assert_never(job.feed)


def _files(place: FeedPlace | None) -> FilesPlace:
    return place if isinstance(place, FilesPlace) else FilesPlace()


def _topics(place: FeedPlace | None) -> KafkaPlace:
    return place if isinstance(place, KafkaPlace) else KafkaPlace()


def _of_topics(spark: SparkSession, job: BronzeJob, feed: KafkaTopic, start: KafkaPlace, end: KafkaPlace) -> DataFrame | None:
    messages = read_topics(spark, feed, start, end, job.environment)
    if messages is None or messages.isEmpty():
        return None
    schema = bronze_schema()
    read = Messages(out=to_arrow_schema(schema), reader=job.format.reader)
    return messages.mapInArrow(read, schema)  # type: ignore[arg-type]


def _of_files(spark: SparkSession, job: BronzeJob, feed: JsonLines, start: FilesPlace, end: FilesPlace) -> DataFrame | None:
    folder, spans = Path(job.folder), end.spans_after(start)
    check_there(folder, spans)
    if not has_message(folder, spans):
        return None
    parts = tasks(spans, SLICE)
    schema = bronze_schema()
    read = Lines(out=to_arrow_schema(schema), folder=folder, parts=parts, is_records=feed.records, reader=job.format.reader)
    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(read, schema)  # type: ignore[arg-type]
