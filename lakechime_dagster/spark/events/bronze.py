"""Brings the events of a feed into their stream's table, with what is known of each payload: the claimed range, appended once."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructField, StructType, TimestampType
from typing_extensions import assert_never

from lakechime_dagster.lake.events import CLUSTERED, REFUSED_BEFORE
from lakechime_dagster.lake.feeds import JsonLines, KafkaTopic
from lakechime_dagster.lake.table_rows import TableRows
from lakechime_dagster.schema.replay import Drained
from lakechime_dagster.spark.events.draining import drain_of, drained
from lakechime_dagster.spark.events.job import EventJob
from lakechime_dagster.spark.events.payloads import PAYLOAD, SCHEMA, told
from lakechime_dagster.spark.events.table_feed import rows_of_table
from lakechime_dagster.spark.feeds.files import SLICE, Line, Slice, batches, check_there, has_message, tasks
from lakechime_dagster.spark.feeds.kafka import read_topics
from lakechime_dagster.spark.feeds.step import PROPERTIES, files_place, ingest_step, kafka_place
from lakechime_dagster.spark.job import Outcome, SourceResult, TableResult
from lakechime_dagster.spark.refresh import OpenLog
from lakechime_dagster.spark.session_confs import session_confs
from lakechime_dagster.triggers.feeds import FilesPlace, KafkaPlace
from lakechime_dagster.triggers.lanes import CommitStamp, Place, ranges_between

SMALL_PAGES = {"parquet.page.row.count.limit": "1000"}  # by whose bounds a reader of one type leaves out the rows of others
TAKEN = "event"  # what rows without a reason are counted as
_READ = StructType([StructField("_src", StringType()), StructField("sent_at", TimestampType()), StructField(PAYLOAD, BinaryType())])
_STATISTICS = {"delta.dataSkippingStatsColumns": "_src,_ingested_at,sent_at,reason,type,producer,hash," + REFUSED_BEFORE}


def ingest_events(spark: SparkSession, job: EventJob, stamp: CommitStamp, open_log: OpenLog) -> TableResult:
    """One attempt at one step of a stream's table, as `feeds.step.ingest_step` says; its rows are counted by why they are refused.

    `_src` names each row for ever: the topic's id, partition and offset; the file and the byte at which the line begins; the
    table's id and the row's, or the file in which the row was appended and its number there. What is drained keeps its name.
    """
    sources: list[SourceResult] = []

    def rows_between(start: Place | None, end: Place) -> DataFrame | None:
        match job.feed:
            case JsonLines():
                read = _of_files(spark, job, job.feed, files_place(start), files_place(end))
            case KafkaTopic():
                read = _of_topics(spark, job, job.feed, kafka_place(start), kafka_place(end))
            case TableRows():
                range_ = ranges_between(start or Place(), end).get(job.feed.name)
                log, read = open_log(job.folder, job.feed.name), None
                if range_ is not None:
                    read, how = rows_of_table(spark, job, job.feed, log, range_, stamp)
                    sources.append(how)
            case _:
                assert_never(job.feed)
        came = [] if read is None else [told(spark, read, job)]
        rows = reduce(DataFrame.unionByName, [*came, *again]) if came or again else None
        return None if rows is None else rows.sortWithinPartitions(*CLUSTERED)  # a type and a variation beside each other

    with session_confs(spark, SMALL_PAGES):
        again, done = _drained(spark, job, open_log)
        stamp = stamp if done is None else replace(stamp, facts={**stamp.facts, **done.to_facts()})
        result = ingest_step(
            spark, job, stamp, open_log, rows_between, SCHEMA, f"coalesce(reason, '{TAKEN}')", cluster_by=CLUSTERED,
            properties=PROPERTIES | _STATISTICS,
        )  # fmt: skip
    is_done = result.outcome is not Outcome.SKIPPED
    return replace(result, sources=tuple(sources), drained=done if is_done else None)


def _drained(spark: SparkSession, job: EventJob, open_log: OpenLog) -> tuple[list[DataFrame], Drained | None]:
    """The rows that a drain brings, and what is told of it; None where none is asked for."""
    if job.drain is None:
        return [], None
    rows = drained(spark, job, open_log(job.location, job.name))
    count = 0 if rows is None else drain_of(rows).rows
    return [rows] if rows is not None and count else [], Drained(drain_id=job.drain, rows=count)


def _of_topics(spark: SparkSession, job: EventJob, feed: KafkaTopic, start: KafkaPlace, end: KafkaPlace) -> DataFrame | None:
    messages = read_topics(spark, feed, start, end, job.environment)
    if messages is None or messages.isEmpty():
        return None
    source = F.concat_ws("/", "topic_id", F.col("partition").cast("string"), F.col("offset").cast("string"))
    payload = F.coalesce(F.col("value"), F.lit(b""))  # a tombstone tells nothing, which is no event
    return messages.select(source.alias("_src"), F.col("timestamp").alias("sent_at"), payload.alias(PAYLOAD))


def _of_files(spark: SparkSession, job: EventJob, feed: JsonLines, start: FilesPlace, end: FilesPlace) -> DataFrame | None:
    folder, spans = Path(job.folder), end.spans_after(start)
    check_there(folder, spans)
    if not has_message(folder, spans):
        return None
    parts = tasks(spans, SLICE)
    read = _Lines(to_arrow_schema(_READ), folder, parts)
    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(read, _READ)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Lines:
    """Reads the lines of some slices; asked by the numbers of tasks."""

    out: pa.Schema
    folder: Path
    parts: list[list[Slice]]

    def __call__(self, asked: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in asked:
            for number in batch.column(0).to_pylist():
                for found in batches(self.folder, self.parts[number]):
                    yield self._batch(found)

    def _batch(self, found: list[Line]) -> pa.RecordBatch:
        sources = pa.array([f"{one.name}@{one.at}" for one in found])
        times = pa.array([one.written_ns // 1_000 for one in found], self.out.field("sent_at").type)
        payloads = pa.array([one.content for one in found], pa.binary())
        return pa.RecordBatch.from_arrays([sources, times, payloads], schema=self.out)
