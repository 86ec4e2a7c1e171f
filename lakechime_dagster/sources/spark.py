"""Reads exact ranges of message sources in Spark, and appends them once."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakechime_dagster.errors import MessagesUnreadableError
from lakechime_dagster.sources.source import SourceJob
from lakechime_dagster.spark.commit import (
    Target,
    commit,
    commit_at,
    create_if_missing,
    is_own,
    newest_commit,
)
from lakechime_dagster.spark.driver import description
from lakechime_dagster.spark.job import Counts, Outcome, TableResult
from lakechime_dagster.spark.ranges import files_frame
from lakechime_dagster.spark.refresh import OpenLog, skipped
from lakechime_dagster.spark.session import Batches, Phases
from lakechime_dagster.tables.sources import KafkaTopic, java_settings, without_secrets
from lakechime_dagster.triggers.consumers import (
    Checkpoint,
    CommitMetadata,
    FileOffsets,
    KafkaOffsets,
    MessageSpan,
)

SLICE = 32 << 20  # bytes that one task reads
ROWS, BYTES = 10_000, 8 << 20  # of a batch that is handed over


@dataclass(frozen=True)
class Slice:
    """Some bytes of a file: the lines that begin in them, the last of which may end behind them."""

    name: str
    start: int
    stop: int


def tasks(spans: Mapping[str, MessageSpan], size: int) -> list[list[Slice]]:
    """The spans of files as tasks of about one size: a large file in several, many small ones in
    one.
    """
    found: list[list[Slice]] = []
    room = 0
    for name, (start, stop) in spans.items():
        while start < stop:
            if room <= 0:
                found.append([])
                room = size
            end = min(stop, start + room)
            found[-1].append(Slice(name, start, end))
            room -= end - start
            start = end
    return found


def check_there(folder: Path, spans: Mapping[str, MessageSpan]) -> None:
    """Refuse to read files that do not hold any more what was claimed of them.

    Raises:
        MessagesUnreadableError: naming the file and both sizes.
    """
    for name, (_, stop) in spans.items():
        path = folder / name
        try:
            size = path.stat().st_size
        except OSError as error:
            raise MessagesUnreadableError(
                f"{path}, of which {stop:,} bytes are to be read, is not there: {error.strerror}; "
                f"put it back"
            ) from error
        if size < stop:
            raise MessagesUnreadableError(
                f"{path} holds {size:,} bytes, and {stop:,} of it are to be read; put it back as "
                f"it was"
            )


def has_message(folder: Path, spans: Mapping[str, MessageSpan]) -> bool:
    """Whether any line between these bytes is not empty."""
    return any(
        True
        for name, (start, stop) in spans.items()
        for _ in lines(folder, Slice(name, start, stop))
    )


def lines(folder: Path, part: Slice) -> Iterator[tuple[int, bytes]]:
    """The lines that begin in a slice, without their ends, each with the byte at which it begins;
    empty ones are left out.

    Raises:
        MessagesUnreadableError: the file ends before.
    """
    with (folder / part.name).open("rb") as file:
        at = part.start
        if at:  # a line that begins before is another slice's
            file.seek(at - 1)
            at += len(file.readline()) - 1
        while at < part.stop:
            line = file.readline()
            if not line.endswith(b"\n"):
                raise MessagesUnreadableError(
                    f"{folder / part.name} ends at byte {at + len(line):,}, and is to be read up "
                    f"to {part.stop:,}"
                )
            if content := line.rstrip(b"\r\n"):
                yield at, content
            at += len(line)


class Line(NamedTuple):
    """A line of a file: the byte at which it begins, and when the file was written last, in
    nanoseconds.
    """

    name: str
    at: int
    content: bytes
    written_ns: int


def batches(folder: Path, parts: Iterable[Slice]) -> Iterator[list[Line]]:
    """The lines of slices in lists of at most `ROWS`, and of about `BYTES`.

    Raises:
        MessagesUnreadableError: a file ends before its slice does.
    """
    found: list[Line] = []
    size = 0
    for part in parts:
        written_ns = (folder / part.name).stat().st_mtime_ns
        for at, content in lines(folder, part):
            found.append(Line(part.name, at, content, written_ns))
            size += len(content)
            if len(found) >= ROWS or size >= BYTES:
                yield found
                found, size = [], 0
    if found:
        yield found


LineRows = Callable[[Iterator[list[Line]]], Batches]


def read_lines(
    spark: SparkSession,
    folder: Path,
    spans: Mapping[str, MessageSpan],
    schema: StructType,
    rows: LineRows,
) -> DataFrame | None:
    """What a function makes of the lines between these bytes, as rows of a schema; None where there
    is none.

    Raises:
        MessagesUnreadableError: as `check_there`.
    """
    check_there(folder, spans)
    if not has_message(folder, spans):
        return None
    parts = tasks(spans, SLICE)
    read = _Lines(folder, parts, rows)
    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(read, schema)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Lines:
    """Reads the lines of some slices; asked by the numbers of tasks."""

    folder: Path
    parts: list[list[Slice]]
    rows: LineRows

    def __call__(self, asked: Batches) -> Batches:
        numbers = (number for batch in asked for number in batch.column(0).to_pylist())
        return self.rows(
            found for number in numbers for found in batches(self.folder, self.parts[number])
        )


EARLIEST = -2  # Spark's word for the first offset that is there
KAFKA_ROWS = 500_000  # offsets that one task reads
MILLISECONDS = 15_000  # that a cluster has to answer
_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")


def read_topics(
    spark: SparkSession,
    source: KafkaTopic,
    start: KafkaOffsets,
    end: KafkaOffsets,
    environment: Mapping[str, str],
) -> DataFrame | None:
    """The messages between two checkpoints, as topic, topic_id, partition, offset, timestamp, key,
    value, headers; None without an offset.

    What an aborted transaction wrote, and the marks that end transactions, are offsets without a
    row: rows are counted, never subtracted from offsets. A partition that the start does not know
    is read from the first offset that is there. Offsets that are gone by the time of reading end
    the read: nothing is left out.

    Raises:
        MessagesUnreadableError: The cluster cannot be asked, or a topic is not there any more, or
            another one of its name.
        InvalidValueError: An option is not in the environment.
    """
    spans = spans_after(start, end)
    if not spans:
        return None
    settings = java_settings(source, environment)
    ids = {end.topics[topic_id].name: topic_id for topic_id in spans}
    _expect_ids(spark, source, settings, ids, environment)
    named = {name: spans[topic_id] for name, topic_id in ids.items()}
    options = {f"kafka.{name}": value for name, value in settings.items()} | {
        "kafka.isolation.level": "read_committed",
        "assign": json.dumps({name: list(partitions) for name, partitions in named.items()}),
        "startingOffsets": json.dumps(
            {
                name: {str(number): span[0] for number, span in of.items()}
                for name, of in named.items()
            }
        ),
        "endingOffsets": json.dumps(
            {
                name: {str(number): span[1] for number, span in of.items()}
                for name, of in named.items()
            }
        ),
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        "maxRecordsPerPartition": str(KAFKA_ROWS),
    }
    frame = spark.read.format("kafka").options(**options).load()
    topic_ids = F.create_map(*map(F.lit, chain.from_iterable(ids.items())))
    return frame.select("topic", topic_ids[F.col("topic")].alias("topic_id"), *_COLUMNS)


def spans_after(start: KafkaOffsets, end: KafkaOffsets) -> dict[str, dict[int, MessageSpan]]:
    """What lies between two checkpoints, by the topic's id and partition."""
    spans: dict[str, dict[int, MessageSpan]] = {}
    for topic_id, topic in sorted(end.topics.items()):
        known = start.topics[topic_id].offsets if topic_id in start.topics else {}
        found = {
            number: (known.get(number, EARLIEST), stop)
            for number, stop in sorted(topic.offsets.items())
        }
        grown = {
            number: (first, stop) for number, (first, stop) in found.items() if max(first, 0) < stop
        }
        spans |= {topic_id: grown} if grown else {}
    return spans


def _expect_ids(
    spark: SparkSession,
    source: KafkaTopic,
    settings: Mapping[str, str],
    ids: Mapping[str, str],
    environment: Mapping[str, str],
) -> None:
    """Refuses to read a topic by its name that is not the one of the checkpoint."""
    jvm: Any = spark.sparkContext._jvm
    properties = jvm.java.util.Properties()
    for name, value in {
        **settings,
        "default.api.timeout.ms": str(MILLISECONDS),
        "request.timeout.ms": str(MILLISECONDS),
    }.items():
        properties.setProperty(name, value)
    try:
        client = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
        try:
            described = client.describeTopics(list(ids)).allTopicNames().get()
            found = {name: described[name].topicId().toString() for name in ids}
        finally:
            client.close()
    except Py4JJavaError as error:
        raise MessagesUnreadableError(
            f"{source} cannot be read: {without_secrets(description(error), source, environment)}"
        ) from error
    for name, topic_id in ids.items():
        if topic_id not in (found[name], name):  # its name where the cluster had no ids
            raise MessagesUnreadableError(
                f"{name} is to be read with id {topic_id}, and has id {found[name]} now: it was "
                f"created again"
            )


PROPERTIES = {"delta.appendOnly": "true"}
# between two checkpoints; None where there is none
Rows = Callable[[Checkpoint | None, Checkpoint], DataFrame | None]


def ingest_source(
    spark: SparkSession,
    job: SourceJob,
    commit_metadata: CommitMetadata,
    open_log: OpenLog,
    rows_between: Rows,
    schema: StructType,
    kinds: str,
    cluster_by: tuple[str, ...] = (),
    properties: Mapping[str, str] = PROPERTIES,
) -> TableResult:
    """One attempt at one execution: append what the source holds up to the end in the commit
    metadata, at most once ever.

    Args:
        spark: The session; its confs are as before when this returns.
        job: What to read and how.
        commit_metadata: Consumer, number, attempt and the end that the commit will record.
        open_log: Gives the log of a table by location and table name, such as
            `formats.delta.DeltaLog`.
        rows_between: What the source holds, as rows of `schema`.
        schema: Of the table.
        kinds: An expression over its columns, by which the result counts the rows.
        cluster_by: Columns by which rows lie together.
        properties: Of the table, when it is made.

    Raises:
        ConsumerConflictError: the consumer has moved on.
        MessagesUnreadableError: the source does not hold any more what was claimed.
    """
    target = Target(
        name=job.name,
        location=job.location,
        log=open_log(job.location, job.name),
        comment=job.comment,
        cluster_by=cluster_by,
    )
    last = newest_commit(target, commit_metadata)
    if last and last.commit_metadata.number == commit_metadata.number:
        return skipped(last)
    is_lost = last is None and job.has_committed
    start = None if is_lost else job.start
    note = (
        f"{job.name} no longer holds what its consumer has committed: its source is read again "
        f"from the beginning"
    )
    phase = Phases(spark, job.name)
    with phase("read"):
        rows = rows_between(start, commit_metadata.end)
    with phase("write"):
        if rows is not None or not job.may_complete_empty:
            create_if_missing(spark, target, schema, properties)
        held = commit(spark, target, commit_metadata, lambda: _write(spark, job, target, rows))
    if held is None:
        return TableResult(outcome=Outcome.NOTHING, seconds=phase.seconds)
    if not is_own(held, commit_metadata):
        return skipped(held)
    with phase("count"):
        record = commit_at(target.log, int(held.version))
        counts = (
            _counted(files_frame(spark, job.location, int(held.version), record.added), kinds)
            if record.added
            else {}
        )
    count = sum(counts.values())
    return TableResult(
        outcome=Outcome.FENCED if rows is None else Outcome.COMMITTED,
        committed=held,
        counts=Counts(rows_in=count, returned=count, inserted=count),
        partitions=record.partitions,
        files=len(record.added),
        bytes=sum(file.size for file in record.added),
        schema=tuple((field.name, field.dataType.simpleString()) for field in schema),
        seconds=phase.seconds,
        events=counts,
        notes=(note,) if is_lost else (),
    )


def file_offsets(checkpoint: Checkpoint | None) -> FileOffsets:
    """A checkpoint in files; the beginning where there is none."""
    return (
        checkpoint.offsets
        if checkpoint is not None and isinstance(checkpoint.offsets, FileOffsets)
        else FileOffsets()
    )


def kafka_offsets(checkpoint: Checkpoint | None) -> KafkaOffsets:
    """A checkpoint in topics; the beginning where there is none."""
    return (
        checkpoint.offsets
        if checkpoint is not None and isinstance(checkpoint.offsets, KafkaOffsets)
        else KafkaOffsets()
    )


def _counted(frame: DataFrame, kinds: str) -> dict[str, int]:
    counted = frame.groupBy(F.expr(kinds).alias("kind")).agg(F.count(F.lit(1)).alias("rows"))
    return {row["kind"]: row["rows"] for row in counted.collect()}


def _write(
    spark: SparkSession, job: SourceJob, target: Target, rows: DataFrame | None
) -> Callable[[], None] | None:
    if rows is not None:
        return lambda: target.append(rows)
    return None if job.may_complete_empty else lambda: target.append_nothing(spark)
