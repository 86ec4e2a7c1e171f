"""Brings the messages of a feed into their table: exactly the claimed range, appended once."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from typing_extensions import assert_never

from lakechime_dagster.cdc.messages.bronze import COLUMNS
from lakechime_dagster.lake.feeds import JsonLines, KafkaTopic
from lakechime_dagster.spark.ddl import struct_of
from lakechime_dagster.spark.feeds.files import SLICE, check_there, has_message, tasks
from lakechime_dagster.spark.feeds.kafka import read_topics
from lakechime_dagster.spark.feeds.step import PROPERTIES, files_place, ingest_step, kafka_place
from lakechime_dagster.spark.following.bronze_job import BronzeJob
from lakechime_dagster.spark.following.kafka import Messages
from lakechime_dagster.spark.following.lines import Lines
from lakechime_dagster.spark.job import TableResult
from lakechime_dagster.spark.refresh import OpenLog
from lakechime_dagster.spark.statistics import LISTED
from lakechime_dagster.triggers.feeds import FilesPlace, KafkaPlace
from lakechime_dagster.triggers.lanes import CommitStamp, Place

DDL = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
STATISTICS = {LISTED: "topic,topic_id,partition,offset,timestamp,kind,source,op,ts_ms,transaction"}  # not of what rows hold


def ingest(spark: SparkSession, job: BronzeJob, stamp: CommitStamp, open_log: OpenLog) -> TableResult:
    """One attempt at one step of a table of messages, as `feeds.step.ingest_step` says; its rows are counted by their kinds."""
    properties = PROPERTIES | STATISTICS
    return ingest_step(
        spark, job, stamp, open_log, lambda start, end: _rows(spark, job, start, end), bronze_schema(), "kind", properties=properties
    )


def bronze_schema() -> StructType:
    """The columns of every table of messages."""
    return struct_of(DDL)


def _rows(spark: SparkSession, job: BronzeJob, start: Place | None, end: Place) -> DataFrame | None:
    """The messages between two places; None where there is none."""
    match job.feed:
        case JsonLines():
            return _of_files(spark, job, job.feed, files_place(start), files_place(end))
        case KafkaTopic():
            return _of_topics(spark, job, job.feed, kafka_place(start), kafka_place(end))
        case _:
            assert_never(job.feed)


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
