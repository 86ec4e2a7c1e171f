"""Appends change messages to the bronze table, exactly the claimed range, once."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from typing_extensions import assert_never

from lakechime_dagster.cdc.job import BronzeJob
from lakechime_dagster.cdc.record import COLUMNS, EnvelopeReader, Message, Record, bronze_row, shown
from lakechime_dagster.sources.spark import (
    PROPERTIES,
    Line,
    file_offsets,
    ingest_source,
    kafka_offsets,
    read_lines,
    read_topics,
)
from lakechime_dagster.spark.commit import LISTED
from lakechime_dagster.spark.job import TableResult
from lakechime_dagster.spark.refresh import OpenLog
from lakechime_dagster.spark.session import Batches, record_batches, struct_of
from lakechime_dagster.tables.sources import JsonLines, KafkaTopic
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, KafkaOffsets


@dataclass(frozen=True, kw_only=True)
class Messages:
    """Makes rows of the bronze table of what `read_topics` reads, for `mapInArrow`."""

    out: pa.Schema
    reader: Callable[[], EnvelopeReader]

    def __call__(self, batches: Batches) -> Batches:
        reader = self.reader()
        for batch in batches:
            yield from record_batches(
                [bronze_row(_message(row), reader) for row in batch.to_pylist()], self.out
            )


def _message(row: Mapping[str, Any]) -> Message:
    headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
    record = Record(
        topic=row["topic"],
        topic_id=row["topic_id"],
        partition=row["partition"],
        offset=row["offset"],
        key=row["key"],
        value=row["value"],
        headers={name: content for name, content in headers if content is not None},
    )
    return Message(
        record=record, headers=headers, timestamp_ms=round(row["timestamp"].timestamp() * 1000)
    )


def message_of(name: str, at: int, line: bytes, written_ms: int | None) -> Message:
    """A line that is the value of a message: its topic is the file, its offset the byte at which it
    begins there.
    """
    return Message(record=Record(topic=name, value=line, offset=at), timestamp_ms=written_ms)


def record_of(name: str, at: int, line: bytes, written_ms: int | None) -> Message:
    """A line that holds the parts of a message as Kafka has them; another one is an unreadable
    message whose value it is.
    """
    try:
        return _record(line)
    except ValueError as problem:
        return Message(
            record=Record(topic=name, value=line, offset=at),
            timestamp_ms=written_ms,
            problem=f"record: {problem}",
        )


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Makes rows of the bronze table of lines."""

    out: pa.Schema
    is_records: bool
    reader: Callable[[], EnvelopeReader]

    def __call__(self, several: Iterator[list[Line]]) -> Batches:
        reader, of_line = self.reader(), record_of if self.is_records else message_of
        for found in several:
            rows = [
                bronze_row(
                    of_line(one.name, one.at, one.content, one.written_ns // 1_000_000), reader
                )
                for one in found
            ]
            yield from record_batches(rows, self.out)


def _record(line: bytes) -> Message:
    """The message of a line.

    Raises:
        ValueError: It is none.
    """
    match found := orjson.loads(line):
        case {
            "topic": str(topic),
            "partition": int(partition),
            "offset": int(offset),
            "key": str() | None as key,
            "value": str() | None as value,
        } if 0 <= partition < 2**31 and 0 <= offset < 2**63:
            headers, written_ms, topic_id = (
                found.get("headers") or [],
                found.get("timestamp_ms"),
                found.get("topic_id", ""),
            )
        case _:
            raise ValueError(
                f"a line is an object of topic, partition, offset, key and value, not "
                f"{shown(found)}"
            )
    if not isinstance(written_ms, int | None) or not isinstance(topic_id, str):
        raise ValueError(
            f"timestamp_ms is a whole number, and topic_id text, not "
            f"{shown((written_ms, topic_id))}"
        )
    try:
        pairs = [
            (str(name), None if content is None else content.encode()) for name, content in headers
        ]
    except (AttributeError, TypeError, ValueError) as problem:
        raise ValueError(
            f"headers are pairs of a name and a text, not {shown(headers)}"
        ) from problem
    record = Record(
        topic=topic,
        topic_id=topic_id,
        partition=partition,
        offset=offset,
        key=None if key is None else key.encode(),
        value=None if value is None else value.encode(),
        headers={name: content for name, content in pairs if content is not None},
    )
    return Message(record=record, headers=pairs, timestamp_ms=written_ms)


DDL = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
# not of what rows hold
STATISTICS = {LISTED: "topic,topic_id,partition,offset,timestamp,kind,source,op,ts_ms,transaction"}


def ingest(
    spark: SparkSession, job: BronzeJob, commit_metadata: CommitMetadata, open_log: OpenLog
) -> TableResult:
    """One attempt at one execution of a table of messages, as `ingest_source` describes it; its
    rows are counted by their kinds.
    """
    properties = PROPERTIES | STATISTICS
    return ingest_source(
        spark,
        job,
        commit_metadata,
        open_log,
        lambda start, end: _rows(spark, job, start, end),
        bronze_schema(),
        "kind",
        properties=properties,
    )


def bronze_schema() -> StructType:
    """The columns of every table of messages."""
    return struct_of(DDL)


def _rows(
    spark: SparkSession, job: BronzeJob, start: Checkpoint | None, end: Checkpoint
) -> DataFrame | None:
    """The messages between two checkpoints; None where there is none."""
    match job.source:
        case JsonLines():
            schema, spans = bronze_schema(), file_offsets(end).spans_after(file_offsets(start))
            read = Lines(
                out=to_arrow_schema(schema), is_records=job.source.records, reader=job.format.reader
            )
            return read_lines(spark, Path(job.folder), spans, schema, read)
        case KafkaTopic():
            return _of_topics(spark, job, job.source, kafka_offsets(start), kafka_offsets(end))
        case _:
            assert_never(job.source)


def _of_topics(
    spark: SparkSession, job: BronzeJob, source: KafkaTopic, start: KafkaOffsets, end: KafkaOffsets
) -> DataFrame | None:
    messages = read_topics(spark, source, start, end, job.environment)
    if messages is None or messages.isEmpty():
        return None
    schema = bronze_schema()
    read = Messages(out=to_arrow_schema(schema), reader=job.format.reader)
    return messages.mapInArrow(read, schema)  # type: ignore[arg-type]
