"""Appends the events of a source to their stream's table."""

import hashlib
import json
import logging
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkAttributeError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from typing_extensions import assert_never

from lakechime_dagster.dce.snapshots import FileAction, SnapshotRange, TableLog, Verdict, own_uid
from lakechime_dagster.errors import ConsumerBlockedError, DeclarationError, TableUnreadableError
from lakechime_dagster.silver.event import Refusal, scanned
from lakechime_dagster.silver.results import EventJob, RequestDone
from lakechime_dagster.sources.spark import (
    PROPERTIES,
    Line,
    file_offsets,
    ingest_source,
    kafka_offsets,
    read_lines,
    read_topics,
)
from lakechime_dagster.spark.job import SourceResult, TableResult
from lakechime_dagster.spark.ranges import (
    RangeRead,
    ReadMethod,
    files_frame,
    live_files,
    names_in_files,
    pinned,
    plain_files,
    read_range,
    root_of,
)
from lakechime_dagster.spark.refresh import OpenLog
from lakechime_dagster.spark.session import column, on_batches, session_confs, struct_of
from lakechime_dagster.tables.events import CLUSTERED, REFUSED_BEFORE
from lakechime_dagster.tables.names import folded
from lakechime_dagster.tables.sources import JsonLines, KafkaTopic, TableRows
from lakechime_dagster.triggers.consumers import (
    Checkpoint,
    CommitMetadata,
    ConsumerId,
    KafkaOffsets,
    ranges_between,
)

TRACKED = "delta.enableRowTracking"
RECREATED = (
    "it was recreated, and is read from its beginning; rows of the former table that were not read "
    "are gone"
)
PAYLOAD = "payload"


def rows_of_table(
    spark: SparkSession,
    job: EventJob,
    source: TableRows,
    log: TableLog,
    range_: SnapshotRange,
    commit_metadata: CommitMetadata,
) -> tuple[DataFrame | None, SourceResult]:
    """The rows of a range as `_src`, `sent_at` and `payload`, None where there is none, and how
    they were read.

    `sent_at` is when the row's file was written.

    Raises:
        ConsumerBlockedError: appended rows cannot be separated from others, as commits do more than
            append, or are gone.
        DeclarationError: the table has no such column of text or bytes.
    """
    read = read_range(spark, log, range_)
    is_recreated = _is_recreated(range_, read)
    if not (read.is_first or is_recreated) and (
        read.changes is None or read.method not in (ReadMethod.NOTHING, ReadMethod.LOG_FILES)
    ):
        raise _refusal(job, source, range_, read, commit_metadata)
    how = SourceResult(
        alias=PAYLOAD,
        table=source.name,
        method=read.method.value,
        verdict=read.verdict,
        start=range_.start,
        end=read.snapshot,
        commits=read.commits,
        data_commits=read.data_commits,
        note=RECREATED if is_recreated else read.note,
    )
    if read.method is ReadMethod.NOTHING:
        return None, how
    rows = _Rows(spark, job.name, source, log, int(read.snapshot))
    found = rows.of_snapshot() if read.is_first or is_recreated else rows.of_files(read.files)
    return (None if found is None or found.isEmpty() else found), how


def _is_recreated(range_: SnapshotRange, read: RangeRead) -> bool:
    """Whether the table is another one than it was at the range's start, of which the claimed
    snapshot is read.
    """
    if read.verdict is not Verdict.RECREATED or read.snapshot != range_.end:
        return False
    before, now = range_.start_uid, range_.table_uid
    return (
        range_.is_recreated
        and before is not None
        and now is not None
        and own_uid(before) != own_uid(now)
    )


def _refusal(
    job: EventJob,
    source: TableRows,
    range_: SnapshotRange,
    read: RangeRead,
    commit_metadata: CommitMetadata,
) -> Exception:
    """Why a range is not read: a newer attempt may read up to another end, or a person must
    decide.
    """
    where = f"{source.name} after version {range_.start} up to {range_.end}"
    if read.verdict is Verdict.RECREATED and read.snapshot != range_.end:
        return TableUnreadableError(f"{where}: {read.note}; the next attempt reads the new one")
    why = read.note or f"commits of it do more than append ({read.method.value})"
    return ConsumerBlockedError(
        f"{where}: {why}; {job.name} takes only what is appended, and takes nothing of these "
        f"versions. Restore the table's "
        f"log, or continue behind version {range_.end} by `lakechime execution skip "
        f"{commit_metadata.execution_id} --reason …`, and append "
        f"again to {source.name} what must not be missing"
    )


class _Rows:
    """Rows of a table at a version, with their identities."""

    def __init__(
        self, spark: SparkSession, reader: str, source: TableRows, log: TableLog, version: int
    ) -> None:
        self.spark, self.reader, self.source, self.log, self.version = (
            spark,
            reader,
            source,
            log,
            version,
        )
        self.is_tracked = log.properties(version).get(TRACKED, "").lower() == "true"
        self.uid, self.root = log.uid, root_of(spark, log.location)

    def of_snapshot(self) -> DataFrame | None:
        """All rows of the version.

        Raises:
            TableUnreadableError: rows of its files are deleted, and it does not track rows.
        """
        if self.is_tracked:
            return self._tracked(pinned(self.spark, self.log.location, self.version))
        files = live_files(self.spark, self.log.location, self.version)
        if any(files.values()):
            problem = (
                "has files with deleted rows and does not track rows, so that the others cannot be "
                "named"
            )
            remedy = (
                f"`REORG TABLE {self.source.name} APPLY (PURGE)` rewrites them, `SET TBLPROPERTIES "
                f"('{TRACKED}' = 'true')` names them"
            )
            raise TableUnreadableError(
                f"{self.source.name} at {self.log.shown_location} {problem}; {remedy}"
            )
        return self._plain(sorted(files))

    def of_files(self, files: Iterable[FileAction]) -> DataFrame | None:
        """The rows of files that commits appended; those that are older than the table's tracking
        are named by their files.
        """
        several = list(files)
        tracked = {
            file.path
            for file in several
            if self.is_tracked and "baseRowId" in json.loads(file.entry)["add"]
        }
        plain = self._plain([file.path for file in several if file.path not in tracked])
        if not tracked:
            return plain
        named = [file for file in several if file.path in tracked]
        found = self._tracked(files_frame(self.spark, self.log.location, self.version, named))
        return found if plain is None else found.unionByName(plain)

    def _tracked(self, rows: DataFrame) -> DataFrame:
        name, _ = self._column
        return self._named(rows, column(name), F.col("_metadata.row_id").cast("string"))

    def _plain(self, paths: list[str]) -> DataFrame | None:
        if not paths:
            return None
        name, kind = self._column
        there = names_in_files(self.spark, self.log.location, self.version)[name]
        rows = plain_files(
            self.spark, self.log.location, paths, StructType([StructField(there, kind)])
        )
        path = F.parse_url(F.col("_metadata.file_path"), F.lit("PATH"))
        own = F.substr(path, F.lit(len(self.root) + 1))  # of a clone some files are another table's
        relative = F.when(path.startswith(self.root), own).otherwise(F.col("_metadata.file_path"))
        return self._named(
            rows,
            column(there),
            F.concat_ws("@", relative, F.col("_metadata.row_index").cast("string")),
        )

    def _named(self, rows: DataFrame, payload: Column, identity: Column) -> DataFrame:
        source = F.concat_ws("/", F.lit(str(self.uid)), identity)
        # a row without a payload is no event, as a topic's tombstone
        content = F.coalesce(payload.cast("binary"), F.lit(b""))
        return rows.select(
            source.alias("_src"),
            F.col("_metadata.file_modification_time").alias("sent_at"),
            content.alias(PAYLOAD),
        )

    @cached_property
    def _column(self) -> tuple[str, DataType]:
        """The column of the payload, as the table spells it, and its type.

        Raises:
            DeclarationError: there is none, or it is of another type, or a partition's.
        """
        schema, wanted = (
            pinned(self.spark, self.log.location, self.version).schema,
            self.source.payload,
        )
        found = [field for field in schema if folded(field.name) == folded(wanted)]
        if not found:
            problem = (
                f"{self.source.name} has no column {wanted!r}; it has {', '.join(schema.names)}"
            )
        elif not isinstance(found[0].dataType, StringType | BinaryType):
            problem = (
                f"{wanted} of {self.source.name} is {found[0].dataType.simpleString()}; name a "
                f"column of text or bytes"
            )
        elif found[0].name in self.log.levels().names:
            problem = f"{wanted} is a partition of {self.source.name}; name another column"
        else:
            return found[0].name, found[0].dataType
        raise DeclarationError(self.reader, "source", problem)


SOURCE = Path(__file__).with_name("JsonScan.java")
PACKAGE = "lakechime.events"
ROW = "reason STRING, type STRING, producer STRING, hash STRING, flags STRING"
JAVA = 8  # of the classes: any Java that runs Spark runs them, whichever compiled them

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tokenizer:
    """The tokenizer of one revision, in the JVM of the sessions that it was loaded for."""

    revision: str

    def registered(
        self, spark: SparkSession, type_field: tuple[str, ...], producer_field: tuple[str, ...]
    ) -> str:
        """The name of a function of this session that makes a struct of `ROW` of a binary payload;
        the same at each call.
        """
        jvm: Any = spark._jvm
        gateway: Any = spark.sparkContext._gateway
        maker = _loaded(_loader(spark), self.revision).getDeclaredConstructor(
            gateway.new_array(jvm.java.lang.Class, 0)
        )
        scan = maker.newInstance(gateway.new_array(jvm.java.lang.Object, 0))
        for name in type_field:
            scan = scan.withType(name.encode(errors="surrogatepass"))
        for name in producer_field:
            scan = scan.withProducer(name.encode(errors="surrogatepass"))
        row = jvm.org.apache.spark.sql.types.StructType.fromDDL(ROW)
        function = scan.asFunction(row)
        name = f"lakechime_json_scan_{self.revision}_{_digest(repr((type_field, producer_field)))}"
        session: Any = spark
        session._jsparkSession.udf().register(name, function)
        return name


def load_tokenizer(
    spark: SparkSession, folder: Path, log: Callable[[str], None] = _logger.warning
) -> Tokenizer | None:
    """The tokenizer of this revision, made known to the session's JVM and its executors; None where
    that cannot be.

    Args:
        spark: A session of the JVM.
        folder: Where jars of tokenizers are kept; one that is there is not compiled again. The
            executors of a cluster read it from the driver for as long as the driver lives.
        log: Called with one line about why there is none.
    """
    try:
        return Tokenizer(_load(spark, folder))
    except PySparkAttributeError:
        why = "a session of Spark Connect loads no classes"
    except (Py4JError, OSError) as error:
        why = f"Spark does not load our tokenizer: {_first_line(error)}"
    log(f"JSON is read in Python, many times slower, because {why}")
    return None


def _load(spark: SparkSession, folder: Path) -> str:
    source = SOURCE.read_text(encoding="utf-8")
    # before its version is asked, which over Spark Connect is another process's
    loader = _loader(spark)
    revision = _digest(f"{spark.version}\0{source}")
    try:
        _loaded(loader, revision)
    except Py4JError:  # which the session does not know yet
        _make_known(spark, _jar(spark, source, revision, folder))
        _loaded(loader, revision)
    return revision


def _jar(spark: SparkSession, source: str, revision: str, folder: Path) -> Path:
    """The jar of a revision, compiled if it is not there; of several processes that do so at once
    each writes the same.
    """
    jar = folder / f"json-scan-{revision}.jar"
    if not zipfile.is_zipfile(jar):
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".json-scan-", dir=folder)
        with (
            os.fdopen(handle, "wb") as stream,
            zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            for class_name, code in _compiled(
                spark, source.replace(f"package {PACKAGE};", f"package {_package(revision)};")
            ).items():
                archive.writestr(f"{class_name.replace('.', '/')}.class", code)
        Path(name).chmod(0o644)
        Path(name).replace(jar)
    return jar


def _compiled(spark: SparkSession, source: str) -> dict[str, bytes]:
    jvm: Any = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setTargetVersion(JAVA)
    compiler.cook(source)
    return {str(name): bytes(code) for name, code in compiler.getBytecodes().items()}


def _make_known(spark: SparkSession, jar: Path) -> None:
    """As `ADD JAR` does it, which fails where the path has a space: it escapes it twice."""
    jvm: Any = spark._jvm
    context: Any = spark.sparkContext
    context._jsc.sc().addJar(str(jar.absolute()))
    _loader(spark).addURL(jvm.java.net.URI(jar.absolute().as_uri()).toURL())


def _loaded(loader: Any, revision: str) -> Any:
    return loader.loadClass(f"{_package(revision)}.JsonScan")


def _loader(spark: SparkSession) -> Any:
    """What loads the classes that any session of this JVM has added."""
    jvm, session = spark._jvm, cast(Any, spark)
    assert jvm is not None
    return session._jsparkSession.sharedState().jarClassLoader()


def _package(revision: str) -> str:
    return f"{PACKAGE}.r{revision}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def _first_line(error: Exception) -> str:
    cause = getattr(error, "java_exception", error)
    return next(iter(str(cause).splitlines()), type(error).__name__)


COLUMNS = ("reason", "type", "producer", "hash", "flags")

_RAW, _SCANNED = "__payload", "__scanned"


def scan(
    frame: DataFrame,
    payload: str,
    type_field: tuple[str, ...],
    producer_field: tuple[str, ...] = (),
    *,
    back_end: Tokenizer | None,
) -> DataFrame:
    """The frame with `COLUMNS` at its end, as `scanned` gives them for each payload; flags are
    joined by commas, null if there are none.

    Args:
        frame: Columns that have these names already are replaced, the others kept.
        payload: The column of payloads, binary or text; null is an empty one.
        type_field: The names of the fields that lead to an event's type.
        producer_field: Of those that lead to its producer; none if no field names it.
        back_end: The tokenizer of the frame's JVM; without one, Python gives the same several times
            slower.
    """
    others = [name for name in frame.columns if name.lower() not in COLUMNS]
    kept, read = [column(name) for name in others], column(payload).cast("binary")
    if back_end is None:
        rows = frame.select(*kept, read.alias(_RAW))
        schema = StructType([*rows.schema.fields[:-1], *struct_of(ROW)])
        # `mapInArrow` finds no column that has a dot in its name
        numbered = rows.toDF(*map(str, range(len(rows.columns))))
        return on_batches(numbered, _Scan(type_field, producer_field, schema.names), schema)
    function = back_end.registered(frame.sparkSession, type_field, producer_field)
    rows = frame.select(*kept, F.call_udf(function, read).alias(_SCANNED))
    return rows.select(*kept, *(F.col(_SCANNED)[name].alias(name) for name in COLUMNS))


@dataclass(frozen=True)
class _Scan:
    """Replaces the last column of batches, the payload, by what `scanned` finds in it."""

    type_field: tuple[str, ...]
    producer_field: tuple[str, ...]
    names: list[str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = [
                self._row(payload or b"")
                for payload in batch.column(batch.num_columns - 1).to_pylist()
            ]
            columns = [
                pa.array([row[i] for row in found], pa.string()) for i in range(len(COLUMNS))
            ]
            yield pa.RecordBatch.from_arrays([*batch.columns[:-1], *columns], names=self.names)

    def _row(self, payload: bytes) -> tuple[str | None, ...]:
        found = scanned(payload, self.type_field, self.producer_field)
        return (
            found.reason,
            found.type,
            found.producer,
            found.typed_hash,
            ",".join(found.flags) or None,
        )


SCHEMA = StructType(
    [
        StructField("_src", StringType()),
        StructField("_ingested_at", TimestampType()),
        StructField("sent_at", TimestampType()),
        *(StructField(name, StringType()) for name in COLUMNS),
        StructField(PAYLOAD, StringType()),
        StructField("payload_bytes", BinaryType()),
        StructField(REFUSED_BEFORE, StringType()),
    ]
)


def scanned_rows(spark: SparkSession, read: DataFrame, job: EventJob) -> DataFrame:
    """Binary payloads with their names as rows of `SCHEMA`; `REFUSED_BEFORE` is null unless
    given.
    """
    tokenizer = load_tokenizer(spark, Path(job.classes)) if job.classes else None
    rows = scan(read, PAYLOAD, job.type_field, job.producer_field, back_end=tokenizer).withColumn(
        "_ingested_at", F.current_timestamp()
    )
    is_text = ~F.col("reason").eqNullSafe(Refusal.NOT_UTF8)
    text = F.when(is_text, F.col(PAYLOAD).cast("string"))
    binary = F.when(~is_text, F.col(PAYLOAD))
    rows = (
        rows
        if REFUSED_BEFORE in read.columns
        else rows.withColumn(REFUSED_BEFORE, F.lit(None).cast("string"))
    )
    return rows.withColumn("payload_bytes", binary).withColumn(PAYLOAD, text).select(*SCHEMA.names)


MAX_KINDS = 100  # of rows that a dry run shows


@dataclass(frozen=True, kw_only=True)
class WouldReprocess:
    """What reprocessing would add: so many rows, and of what they were refused for and are of by
    now, the commonest kinds first.
    """

    rows: int
    kinds: tuple[tuple[str, str, int], ...] = ()


def reprocessed(spark: SparkSession, job: EventJob, log: TableLog) -> DataFrame | None:
    """The rows of the stream's table that are refused there and are events by today's declaration;
    None without a table.
    """
    if not log.exists():
        return None
    held = pinned(spark, job.location, log.version)
    refused = held.where(F.col("reason").isNotNull())
    refused = refused.join(
        held.where(F.col(REFUSED_BEFORE).isNotNull()).select("_src"), "_src", "left_anti"
    )
    payload = F.coalesce(F.col("payload_bytes"), F.col(PAYLOAD).cast("binary"))
    rows = refused.select(
        "_src", "sent_at", payload.alias(PAYLOAD), F.col("reason").alias(REFUSED_BEFORE)
    )
    return scanned_rows(spark, rows, job).where(F.col("reason").isNull())


def reprocess_of(rows: DataFrame) -> WouldReprocess:
    """How many rows are reprocessed, and of which kinds; one job over the refused rows."""
    counted = rows.groupBy(REFUSED_BEFORE, "type").count().collect()
    kinds = sorted(
        ((row[REFUSED_BEFORE], row["type"], row["count"]) for row in counted),
        key=lambda kind: (-kind[2], kind),
    )
    return WouldReprocess(rows=sum(rows for _, _, rows in kinds), kinds=tuple(kinds[:MAX_KINDS]))


# by whose bounds a reader of one type leaves out the rows of others
SMALL_PAGES = {"parquet.page.row.count.limit": "1000"}
TAKEN = "event"  # what rows without a reason are counted as
_READ = StructType(
    [
        StructField("_src", StringType()),
        StructField("sent_at", TimestampType()),
        StructField(PAYLOAD, BinaryType()),
    ]
)
_STATISTICS = {
    "delta.dataSkippingStatsColumns": "_src,_ingested_at,sent_at,reason,type,producer,hash,"
    + REFUSED_BEFORE
}


def ingest_events(
    spark: SparkSession, job: EventJob, commit_metadata: CommitMetadata, open_log: OpenLog
) -> TableResult:
    """One attempt at one execution of a stream's table, as `ingest_source` describes it; its rows
    are counted by why they are refused.

    `_src` names each row for ever: the topic's id, partition and offset; the file and the byte at
    which the line begins; the table's id and the row's, or the file in which the row was appended
    and its number there. What is reprocessed keeps its name.
    """
    sources: list[SourceResult] = []

    def rows_between(start: Checkpoint | None, end: Checkpoint) -> DataFrame | None:
        match job.source:
            case JsonLines():
                spans = file_offsets(end).spans_after(file_offsets(start))
                lines = _Lines(to_arrow_schema(_READ))
                read = read_lines(spark, Path(job.folder), spans, _READ, lines)
            case KafkaTopic():
                read = _of_topics(spark, job, job.source, kafka_offsets(start), kafka_offsets(end))
            case TableRows():
                range_ = ranges_between(start or Checkpoint(), end).get(job.source.name)
                log, read = open_log(job.folder, job.source.name), None
                if range_ is not None:
                    read, how = rows_of_table(spark, job, job.source, log, range_, commit_metadata)
                    sources.append(how)
            case _:
                assert_never(job.source)
        arrived = [] if read is None else [scanned_rows(spark, read, job)]
        rows = reduce(DataFrame.unionByName, [*arrived, *again]) if arrived or again else None
        # a type and a variation beside each other
        return None if rows is None else rows.sortWithinPartitions(*CLUSTERED)

    with session_confs(spark, SMALL_PAGES):
        again, done = _reprocessed(spark, job, commit_metadata.consumer, open_log)
        commit_metadata = (
            commit_metadata
            if done is None
            else replace(commit_metadata, facts={**commit_metadata.facts, **done.to_facts()})
        )
        result = ingest_source(
            spark,
            job,
            commit_metadata,
            open_log,
            rows_between,
            SCHEMA,
            f"coalesce(reason, '{TAKEN}')",
            cluster_by=CLUSTERED,
            properties=PROPERTIES | _STATISTICS,
        )
    return replace(result, sources=tuple(sources))


def _reprocessed(
    spark: SparkSession, job: EventJob, consumer: ConsumerId, open_log: OpenLog
) -> tuple[list[DataFrame], RequestDone | None]:
    """The rows that reprocessing adds, and what is recorded of it; None where none is asked for."""
    if job.reprocess is None:
        return [], None
    log = open_log(job.location, job.name)
    last = log.last_committed(consumer)
    done = None if last is None else RequestDone.of(last.commit_metadata.facts)
    if done is not None and done.request_id == job.reprocess:
        return [], done  # by an execution that died before it closed the request
    rows = reprocessed(spark, job, log)
    count = 0 if rows is None else reprocess_of(rows).rows
    return [rows] if rows is not None and count else [], RequestDone(
        request_id=job.reprocess, added=count
    )


def _of_topics(
    spark: SparkSession, job: EventJob, topic: KafkaTopic, start: KafkaOffsets, end: KafkaOffsets
) -> DataFrame | None:
    messages = read_topics(spark, topic, start, end, job.environment)
    if messages is None or messages.isEmpty():
        return None
    source = F.concat_ws(
        "/", "topic_id", F.col("partition").cast("string"), F.col("offset").cast("string")
    )
    payload = F.coalesce(F.col("value"), F.lit(b""))  # a tombstone is no event
    return messages.select(
        source.alias("_src"), F.col("timestamp").alias("sent_at"), payload.alias(PAYLOAD)
    )


@dataclass(frozen=True)
class _Lines:
    """Makes rows of lines."""

    out: pa.Schema

    def __call__(self, several: Iterator[list[Line]]) -> Iterator[pa.RecordBatch]:
        return map(self._batch, several)

    def _batch(self, found: list[Line]) -> pa.RecordBatch:
        sources = pa.array([f"{one.name}@{one.at}" for one in found])
        times = pa.array([one.written_ns // 1_000 for one in found], self.out.field("sent_at").type)
        payloads = pa.array([one.content for one in found], pa.binary())
        return pa.RecordBatch.from_arrays([sources, times, payloads], schema=self.out)
