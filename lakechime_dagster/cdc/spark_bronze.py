"""Appends change messages to the bronze table, exactly the claimed range, once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from lakechime_dagster.cdc.record import COLUMNS, EnvelopeReader, Message, Record, as_object, bronze_row, shown
from lakechime_dagster.sources.spark import (
    PROPERTIES,
    SLICE,
    Slice,
    batches,
    check_there,
    file_offsets,
    has_message,
    ingest_step,
    kafka_offsets,
    read_topics,
    tasks,
)
from lakechime_dagster.spark.commit import LISTED
from lakechime_dagster.spark.job import TableResult
from lakechime_dagster.spark.refresh import OpenLog
from lakechime_dagster.spark.session import struct_of
from lakechime_dagster.tables.sources import JsonLines, KafkaTopic
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, FileOffsets, KafkaOffsets


@dataclass(frozen=True, kw_only=True)
class Messages:
    """Makes rows of the bronze table of what `read_topics` reads, for `mapInArrow`."""

    out: pa.Schema
    reader: Callable[[], EnvelopeReader]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = self.reader()
        for batch in batches:
            rows = [bronze_row(_message(row), reader) for row in batch.to_pylist()]
            if rows:
                arrays = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), self.out, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.out)


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
    return Message(record=record, headers=headers, timestamp_ms=round(row["timestamp"].timestamp() * 1000))


Batches = Iterator[pa.RecordBatch]


def message_of(name: str, at: int, line: bytes, written_ms: int | None) -> Message:
    """A line that is the value of a message: its topic is the file, its offset the byte at which it begins there."""
    return Message(record=Record(topic=name, value=line, offset=at), timestamp_ms=written_ms)


def record_of(name: str, at: int, line: bytes, written_ms: int | None) -> Message:
    """A line that holds the parts of a message as Kafka has them; one that does not is a message whose value it is."""
    try:
        return _record(line)
    except ValueError as problem:
        return Message(record=Record(topic=name, value=line, offset=at), timestamp_ms=written_ms, problem=f"record: {problem}")


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Reads the messages of some slices as rows of the bronze table; asked by the numbers of tasks."""

    out: pa.Schema
    folder: Path
    parts: Sequence[Sequence[Slice]]
    is_records: bool
    reader: Callable[[], EnvelopeReader]

    def __call__(self, asked: Batches) -> Batches:
        reader = self.reader()
        for batch in asked:
            for number in batch.column(0).to_pylist():
                yield from self._rows(self.parts[number], reader)

    def _rows(self, parts: Sequence[Slice], reader: EnvelopeReader) -> Batches:
        told = record_of if self.is_records else message_of
        for found in batches(self.folder, parts):
            yield self._batch([bronze_row(told(one.name, one.at, one.content, one.written_ns // 1_000_000), reader) for one in found])

    def _batch(self, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
        arrays = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), self.out, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.out)


def _record(line: bytes) -> Message:
    try:
        found = as_object("line", orjson.loads(line))
    except orjson.JSONDecodeError as problem:
        raise ValueError(f"{line[:60]!r} is no JSON: {problem}") from problem
    pairs = _headers(found.get("headers"))
    record = Record(
        topic=_part(found, "topic", str),
        topic_id=_part(found, "topic_id", str, ""),
        partition=_number(found, "partition", 31),
        offset=_number(found, "offset", 63),
        key=_bytes(found, "key"),
        value=_bytes(found, "value"),
        headers={name: content for name, content in pairs if content is not None},
    )
    return Message(record=record, headers=pairs, timestamp_ms=_part(found, "timestamp_ms", int, None))


def _part(found: Mapping[str, Any], name: str, kind: type, default: Any = ...) -> Any:
    value = found.get(name, default)
    if value is default or (value is None and default is None):
        if default is ...:
            raise ValueError(f"{name} is not there; a line holds {', '.join(('topic', 'partition', 'offset', 'key', 'value'))}")
        return default
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{name}: it is {'text' if kind is str else 'a whole number'}, not {shown(value)}")
    return value


def _number(found: Mapping[str, Any], name: str, bits: int) -> int:
    value = _part(found, name, int)
    if not 0 <= value < 2**bits:
        raise ValueError(f"{name}: it is a number of at most {bits} bits, not {shown(value)}")
    return value


def _bytes(found: Mapping[str, Any], name: str) -> bytes | None:
    if name not in found:
        raise ValueError(f"{name} is not there; a message without one has null")
    text = _part(found, name, str, None)
    return None if text is None else text.encode()


def _headers(found: Any) -> list[tuple[str, bytes | None]]:
    if found is None:
        return []
    pairs = found if isinstance(found, list) else None
    if pairs is None or not all(isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) for one in pairs):
        raise ValueError(f"headers: they are pairs of a name and a text, not {shown(found)}")
    if not all(isinstance(content, str | None) for _, content in pairs):
        raise ValueError(f"headers: they are pairs of a name and a text, not {shown(found)}")
    return [(name, None if content is None else content.encode()) for name, content in pairs]


DDL = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
STATISTICS = {LISTED: "topic,topic_id,partition,offset,timestamp,kind,source,op,ts_ms,transaction"}  # not of what rows hold


def ingest(spark: SparkSession, job: BronzeJob, commit_metadata: CommitMetadata, open_log: OpenLog) -> TableResult:
    """One attempt at one step of a table of messages, as `sources.step.ingest_step` says; its rows are counted by their kinds."""
    properties = PROPERTIES | STATISTICS
    return ingest_step(
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


def _rows(spark: SparkSession, job: BronzeJob, start: Checkpoint | None, end: Checkpoint) -> DataFrame | None:
    """The messages between two places; None where there is none."""
    match job.source:
        case JsonLines():
            return _of_files(spark, job, job.source, file_offsets(start), file_offsets(end))
        case KafkaTopic():
            return _of_topics(spark, job, job.source, kafka_offsets(start), kafka_offsets(end))
        case _:
            assert_never(job.source)


def _of_topics(spark: SparkSession, job: BronzeJob, source: KafkaTopic, start: KafkaOffsets, end: KafkaOffsets) -> DataFrame | None:
    messages = read_topics(spark, source, start, end, job.environment)
    if messages is None or messages.isEmpty():
        return None
    schema = bronze_schema()
    read = Messages(out=to_arrow_schema(schema), reader=job.format.reader)
    return messages.mapInArrow(read, schema)  # type: ignore[arg-type]


def _of_files(spark: SparkSession, job: BronzeJob, source: JsonLines, start: FileOffsets, end: FileOffsets) -> DataFrame | None:
    folder, spans = Path(job.folder), end.spans_after(start)
    check_there(folder, spans)
    if not has_message(folder, spans):
        return None
    parts = tasks(spans, SLICE)
    schema = bronze_schema()
    read = Lines(out=to_arrow_schema(schema), folder=folder, parts=parts, is_records=source.records, reader=job.format.reader)
    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(read, schema)  # type: ignore[arg-type]
