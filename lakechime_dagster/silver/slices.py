"""What a stream's table holds between two versions, counted by type, and the tables of the types."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakechime_dagster.dce.events import SnapshotId
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint, SnapshotRange, TableLog
from lakechime_dagster.errors import ConsumerConflictError, LakeChimeError, TableUnreadableError
from lakechime_dagster.silver.event import JsonEvent, Kind, Variation, event_of, shape_of, variation_of, within_columns
from lakechime_dagster.silver.results import REBUILT, GroupJob, Part, Replayed
from lakechime_dagster.silver.rows import RESCUED
from lakechime_dagster.silver.schema import KnownType, Prototype, TypeCheckpoint, personal_columns
from lakechime_dagster.spark.commit import CommitLostError, Target, TargetLog, keep_listed, properties_of, retrying
from lakechime_dagster.spark.ranges import ReadMethod, read_range, remove_folder
from lakechime_dagster.spark.refresh import OpenLog
from lakechime_dagster.spark.rows import holds
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, Committed, ConsumerId

COLUMNS = ("_src", "_ingested_at", "reason", "type", "producer", "hash", "flags", "payload")


@dataclass
class Slices:
    """The rows of a stream's table up to an end, behind any checkpoint.

    Attributes:
        cuts: Versions at which what is read is cut, so that types with several checkpoints read each file in one segment.
    """

    spark: SparkSession
    table: str
    log: TableLog
    end: SnapshotCheckpoint
    cuts: tuple[int, ...] = ()
    _frames: dict[tuple[int, int], DataFrame] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """The version that is the end."""
        assert self.end.snapshot_id is not None
        return int(self.end.snapshot_id)

    def start(self, checkpoint: TypeCheckpoint) -> int:
        """The version behind which a checkpoint reads: its own, or the beginning where the table was made anew since."""
        return checkpoint.version if checkpoint.uid in (None, self.end.table_uid) else -1

    def is_anew(self, checkpoint: TypeCheckpoint) -> bool:
        """Whether the table was made anew since a type was read up to a checkpoint: what its own table has of it cannot be told."""
        return checkpoint.commits > 0 and checkpoint.uid not in (None, self.end.table_uid)

    def after(self, start: int) -> DataFrame:
        """The rows of all versions behind one, -1 for all.

        Raises:
            TableUnreadableError: they cannot be told from those before, as the log was cleaned up, or rows were changed.
        """
        return self.segment(start, self.version)

    def between(self, start: int, end: int) -> DataFrame:
        """The rows of the versions behind one, up to another, by the segments of all types.

        Raises:
            TableUnreadableError: they cannot be told from others.
        """
        segments = self.segments(start, end)
        try:
            return reduce(DataFrame.union, [self.segment(*one) for one in segments])
        except TableUnreadableError:
            if len(segments) == 1:
                raise
        return self.segment(start, end)  # a version between may be gone, whose rows the end still has

    def segments(self, start: int, end: int) -> list[tuple[int, int]]:
        """What lies between two versions, cut where others begin; each is a version behind which rows are, and their last one."""
        return list(pairwise([start, *sorted({cut for cut in self.cuts if start < cut < end}), end]))

    def segment(self, start: int, end: int) -> DataFrame:
        """The same, read as one."""
        if (start, end) not in self._frames:
            self._frames[start, end] = self._read(start, end)
        return self._frames[start, end]

    def _read(self, start: int, end: int) -> DataFrame:
        range_ = SnapshotRange(
            table=self.table,
            table_uid=self.end.table_uid,
            start=None if start < 0 else SnapshotId(str(start)),
            end=SnapshotId(str(end)),
            start_uid=self.end.table_uid,
        )
        read = read_range(self.spark, self.log, range_)
        rows = read.end if read.is_first else read.changes
        if rows is None or read.method not in (ReadMethod.NOTHING, ReadMethod.LOG_FILES, ReadMethod.WHOLE):
            why = read.note or f"commits of it do more than append ({read.method.value})"
            remedy = (
                "put its log back as it was, or rebuild the table of each such type: `lakechime schema replay TYPE --rebuild --reason …`"
            )
            raise TableUnreadableError(f"{self.table} after version {start}: {read.verdict.value}, {why}; {remedy}")
        return rows.select(*COLUMNS)


@dataclass(frozen=True, kw_only=True)
class Events:
    """The events of a part, each type's behind its own checkpoint: frames, each with all of its types, and why types cannot be read."""

    frames: tuple[DataFrame, ...]
    unread: dict[str, Exception]


def events_of(slices: Slices, part: Part) -> Events:
    """What a part reads: one frame that opens each file once; types whose oldest segment is gone are looked for by themselves."""
    behind = part.behind
    parts = list[tuple[int, DataFrame]]()
    lost = -2  # behind which nothing is readable by segments
    for start, end in reversed(slices.segments(min(behind.values()), part.end)) if behind else ():
        try:
            parts.append((start, slices.segment(start, end)))
        except TableUnreadableError:
            lost = start
            break
    together = {name: start for name, start in behind.items() if start > lost}
    segments = [of_types(rows, [name for name, begin in together.items() if begin <= start]) for start, rows in parts] if together else []
    frames, unread = [reduce(DataFrame.union, segments)] if segments else [], dict[str, Exception]()
    for start in sorted({behind[name] for name in {*behind} - {*together}}):
        names = [name for name, begin in behind.items() if begin == start]
        try:
            frames.append(of_types(slices.segment(start, part.end), names))
        except TableUnreadableError as error:
            unread |= dict.fromkeys(names, error)
    return Events(frames=tuple(frames), unread=unread)


def of_types(rows: DataFrame, names: Collection[str]) -> DataFrame:
    """The events of these types; refused rows are of none."""
    return rows.where(F.col("reason").isNull() & F.col("type").isin(*names)) if names else rows.limit(0)


FEW_ROWS = 200_000  # which one file holds
MAX_TOLD = 20  # commits of others that are told, the last ones: a store that was lost does not know of all
PROPERTIES = {"delta.enableChangeDataFeed": "true", "delta.dataSkippingNumIndexedCols": "32"}
FILES = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """What a table holds beyond what is known of it: its own checkpoint, and the commits that led there, of which the last makes it."""

    checkpoint: TypeCheckpoint
    commits: tuple[Committed, ...]

    @property
    def schema_version(self) -> int:
        """The number of the schema that the newest of them was written with."""
        return max(int(one.commit_metadata.facts.get("schema_version", 0)) for one in self.commits)


def ahead_of(checkpoint: TypeCheckpoint, log: TargetLog, consumer: ConsumerId, source: str) -> Ahead | None:
    """What the table of a type holds beyond a checkpoint; None where that is its last one.

    Raises:
        LakeChimeError: it holds something, and its log no longer says up to where.
    """
    last = log.last_committed(consumer) if log.exists() else None
    if last is None or last.commit_metadata.step <= checkpoint.commits:
        return None
    end = last.commit_metadata.end.sources.get(source)
    if last.is_commit_metadata_lost or end is None or end.snapshot_id is None:
        problem = f"its log at {log.shown_location} no longer tells up to where its commit {last.commit_metadata.step} read {source}"
        raise LakeChimeError(f"{problem}; put the log back")
    steps = range(max(checkpoint.commits, last.commit_metadata.step - MAX_TOLD) + 1, last.commit_metadata.step)
    before = [one for step in steps if (one := log.committed(consumer, step)) is not None and not one.is_commit_metadata_lost]
    reached = TypeCheckpoint(uid=end.table_uid, version=int(end.snapshot_id), commits=last.commit_metadata.step)
    return Ahead(checkpoint=reached, commits=(*before, last))


def append_after(checkpoint: TypeCheckpoint, target: Target, rows: DataFrame, count: int, commit_metadata: CommitMetadata) -> Committed:
    """Write what lies behind a checkpoint, and tell whose commit holds it then: this attempt's, or another's that came before.

    Rows that bring no column are files by Spark and a commit by the table's log, which costs less than Delta's; others are Delta's.

    Args:
        checkpoint: Behind which the rows lie; the commit metadata's step follows its commits.
        target: The table, which the first write makes.
        rows: With all columns of their schema.
        count: Of the rows, about; few are written as one file.
        commit_metadata: Of this attempt.

    Raises:
        CommitLostError: the write returned, and no commit of its number is there.
    """
    assert commit_metadata.step == checkpoint.commits + 1
    one = rows.coalesce(1) if count <= FEW_ROWS else rows
    for tried in retrying(ConsumerConflictError):
        with tried:
            columns = target.log.plain_columns()
            if target.log.committed(commit_metadata.consumer, commit_metadata.step) is None:
                if columns is not None and holds(StructType.fromJson(json.loads(columns)), one.schema):
                    _add(target, one, commit_metadata)
                else:
                    _write(target, one, commit_metadata)
    found = target.log.committed(commit_metadata.consumer, commit_metadata.step)
    if found is None:
        raise CommitLostError(
            f"{target.name}: commit {commit_metadata.step} of {commit_metadata.consumer} was written, and is not in its log"
        )
    return found


def _write(target: Target, rows: DataFrame, commit_metadata: CommitMetadata) -> None:
    """A commit by Delta, which makes the table, or its columns, where they are not there."""
    options = {
        "mergeSchema": "true",
        "txnAppId": commit_metadata.txn_app_id,
        "txnVersion": str(commit_metadata.step),
        "userMetadata": commit_metadata.to_text(),
    }
    is_new = not target.log.exists()
    made = PROPERTIES | properties_of(rows.schema, target) if is_new else {}
    keep_listed(rows.sparkSession, target, rows.schema)
    rows.write.format("delta").mode("append").options(**options, **made).save(target.location)
    if not is_new:
        keep_listed(rows.sparkSession, target, rows.schema)  # what follows adds files without Spark


def _add(target: Target, rows: DataFrame, commit_metadata: CommitMetadata) -> None:
    """Files in a folder of their own, and a commit that names them.

    They are removed where no commit was tried. Where one was, be it refused, some store may have kept it: what no commit names
    then goes like all such files, by a vacuum.
    """
    folder = uuid4().hex
    location = f"{target.location}/{folder}"
    try:
        rows.write.options(**FILES).parquet(location)
    except Exception:
        remove_folder(rows.sparkSession, location)
        raise
    if not target.log.add_folder(folder, commit_metadata):
        remove_folder(rows.sparkSession, location)


@dataclass(frozen=True, kw_only=True)
class TypeTables:
    """The tables as one attempt at a step sees them."""

    job: GroupJob
    open_log: OpenLog

    def target(self, known: KnownType) -> Target:
        """The table of a type, be it there or not."""
        home = self._home(known)
        name, location = f"{home}.{known.table}", f"{self.job.warehouse}/{home}/{known.table}"
        paths = self.job.group.personal
        hidden = (*personal_columns(known.schema, paths), RESCUED) if paths else ()
        return Target(name=name, location=location, log=self.open_log(location, name), personal=hidden)

    def ahead(self, known: KnownType) -> Ahead | None:
        """What a type's table holds beyond what is known of it.

        Raises:
            LakeChimeError: it cannot be asked, or does not tell up to where it holds something.
        """
        return ahead_of(known.checkpoint, self.target(known).log, self._consumer(known), self.job.group.stream.table.name)

    def last_committed(self, known: KnownType) -> Committed | None:
        """The last commit of the group in a type's table."""
        return self.target(known).log.last_committed(self._consumer(known))

    def commit_metadata(self, known: KnownType, checkpoint: TypeCheckpoint, start: int, end: int, rows: int) -> CommitMetadata:
        """What this attempt's commit of what lies behind a checkpoint says: the version behind which it reads, its last one, the events."""
        facts = {"type": known.type, "after": start, "schema_version": known.schema_version, "rows": rows}
        return self._commit_metadata(known, checkpoint, end, facts, {"schema_version": str(known.schema_version)})

    def replay_commit_metadata(self, known: KnownType, done: Replayed) -> CommitMetadata:
        """What this attempt's commit of a replay says: how many rows it replaced and added, behind the type's checkpoint none."""
        facts = {
            "type": known.type,
            "schema_version": known.schema_version,
            "rows": 0,
            "replay": done.replay_id,
            "replaced": done.replaced,
            "added": done.added,
        }
        tags = {"schema_version": str(known.schema_version), "cause": "replay"}
        return self._commit_metadata(known, known.checkpoint, known.checkpoint.version, facts, tags)

    def rebuild_commit_metadata(self, known: KnownType, start: int, end: int, rows: int, written: int, done: Replayed) -> CommitMetadata:
        """What this attempt's commit says that makes the table anew: all of the stream's table is in it, of which `rows` events, and as
        many of their rows as are `written`, lie behind the version up to which the type was read.
        """
        facts = {
            "type": known.type,
            "after": start,
            "schema_version": known.schema_version,
            "rows": rows,
            "written": written,
            "replay": done.replay_id,
            REBUILT: True,
            "replaced": done.replaced,
            "added": done.added,
            "removed": done.removed,
        }
        tags = {"schema_version": str(known.schema_version), "cause": "rebuild", "breaking": "true"}
        return self._commit_metadata(known, known.checkpoint, end, facts, tags)

    def _commit_metadata(
        self, known: KnownType, checkpoint: TypeCheckpoint, end: int, facts: Mapping[str, Any], tags: Mapping[str, str]
    ) -> CommitMetadata:
        reached = SnapshotCheckpoint(table_uid=self.job.end.table_uid, snapshot_id=SnapshotId(str(end)))
        return CommitMetadata(
            consumer=self._consumer(known),
            step=checkpoint.commits + 1,
            attempt=self.job.attempt,
            execution_id=self.job.execution_id,
            end=Checkpoint(sources={self.job.group.stream.table.name: reached}),
            facts=facts,
            tags=tags,
        )

    def is_own(self, held: Committed) -> bool:
        """Whether a commit is this attempt's."""
        return (held.commit_metadata.attempt, held.commit_metadata.execution_id) == (self.job.attempt, self.job.execution_id)

    def _consumer(self, known: KnownType) -> ConsumerId:
        """The line of its table's commits, which stays one whichever group has the type."""
        return ConsumerId(self.job.deployment, self._home(known), known.type)

    def _home(self, known: KnownType) -> str:
        return known.home or self.job.group.name


MAX_COUNTED = 1_000  # variations of a type, the commonest first: of events of others nothing is known but their type
MAX_LOOKED = 200  # of these that were not known: an event of each is kept as what it tells; of others the paths and kinds alone
MAX_JOINED = 20_000  # paths and kinds of others that a step takes in of a type, the commonest first


@dataclass(frozen=True, kw_only=True)
class TypeCount:
    """The events of a type in a slice.

    Attributes:
        variations: Those without a flag, by the hash of their variation; of the commonest variations, also of events with a flag.
        is_cut: There are further variations.
    """

    rows: int
    variations: Mapping[str, int]
    is_cut: bool = False


NOTHING = TypeCount(rows=0, variations={})


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What came: the types by name, and the rows that no type could be told of, by reason."""

    types: tuple[str, ...]
    refused: Mapping[str, int]


def seen(rows: DataFrame) -> Seen:
    """What is there of all groups; one job over the two columns that tell it."""
    kinds = rows.groupBy("reason", F.when(F.col("reason").isNull(), F.col("type")).alias("type")).count().collect()
    return Seen(
        types=tuple(sorted(row["type"] for row in kinds if row["reason"] is None)),
        refused={row["reason"]: row["count"] for row in kinds if row["reason"] is not None},
    )


def counted(events: DataFrame) -> dict[str, TypeCount]:
    """The events of each type, none of them refused, counted; one job over the columns that tell it."""
    plain = F.count_if(F.col("flags").isNull()).alias("plain")
    each = events.groupBy("type", "hash").agg(F.count(F.lit(1)).alias("rows"), plain)
    order = Window.partitionBy("type").orderBy(F.col("rows").desc(), "hash")
    total = F.sum("rows").over(Window.partitionBy("type"))
    ranked = each.withColumn("total", total).withColumn("rank", F.row_number().over(order))
    found: dict[str, list[Row]] = {}
    for row in ranked.where(F.col("rank") <= MAX_COUNTED + 1).collect():
        found.setdefault(row["type"], []).append(row)
    return {name: _type_count(rows) for name, rows in found.items()}


def _type_count(rows: Sequence[Row]) -> TypeCount:
    variations = {row["hash"]: row["plain"] for row in rows[:MAX_COUNTED]}
    return TypeCount(rows=rows[0]["total"], variations=variations, is_cut=len(rows) > MAX_COUNTED)


def prototypes(
    events: DataFrame, unknown: Mapping[str, Collection[str]], position: int, cut: Collection[str] = ()
) -> dict[str, list[Prototype]]:
    """What the variations tell that were not known, by type: an event of each, the first by `_src`, in the order of their hashes.

    Of more than MAX_LOOKED, and of types in `cut`, of which more variations came than are counted, the others are joined.
    """
    wanted = {(kind, one) for kind, several in unknown.items() for one in sorted(several)[:MAX_LOOKED]}
    if not wanted and not cut:
        return {}
    kinds, hashes = sorted({kind for kind, _ in wanted}), sorted({one for _, one in wanted})
    first = F.min_by(F.struct("payload", "producer"), "_src").alias("first")
    told = (first, F.min("_src").alias("source"))
    found: dict[str, list[Prototype]] = {}
    if wanted:
        chosen = events.where(F.col("type").isin(kinds) & F.col("hash").isin(hashes))
        for row in sorted(chosen.groupBy("type", "hash").agg(*told).collect(), key=lambda row: (row["type"], row["hash"])):
            if (row["type"], row["hash"]) in wanted:
                found.setdefault(row["type"], []).append(_prototype(row, position))
    many = sorted({*cut, *(kind for kind, several in unknown.items() if len(several) > MAX_LOOKED)})
    if many:
        for row in _joined(events.where(F.col("type").isin(many))).collect():
            found.setdefault(row["type"], []).append(_of_several(row, position))
    return found


def _prototype(row: Row, position: int) -> Prototype:
    event = event_of(row["first"]["payload"])
    assert isinstance(event, JsonEvent)  # as its row has no reason
    variation = variation_of(event)
    return Prototype(
        typed_hash=row["hash"],
        names_hash=variation.names_hash,
        variation=within_columns(variation),
        shape=shape_of(event),
        source=row["source"],
        position=position,
        producer=row["first"]["producer"],
    )


def _joined(events: DataFrame) -> DataFrame:
    """The paths and kinds of all variations of types, a row of each type."""
    first = F.min_by(F.struct("payload", "producer"), "_src").alias("first")
    each = events.groupBy("type", "hash").agg(first, F.min("_src").alias("source"))
    pairs = each.select("type", "source", "first.payload", "first.producer").mapInArrow(_pairs, _PAIRS)  # type: ignore[arg-type]
    by_pair = pairs.groupBy("type", "path", "kind").agg(F.count(F.lit(1)).alias("n"), F.min(F.struct("source", "producer")).alias("first"))
    commonest = F.row_number().over(Window.partitionBy("type").orderBy(F.col("n").desc(), "path", "kind"))
    kept = by_pair.withColumn("rank", commonest).where(F.col("rank") <= MAX_JOINED)
    one = F.collect_list(F.struct("path", "kind")).alias("pairs")
    return kept.groupBy("type").agg(one, F.min("first").alias("first")).orderBy("type")


_PAIRS = "type string, source string, producer string, path string, kind string"


def _pairs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Of each event a row for each of its paths and kinds."""
    for batch in batches:
        told = [
            (at, path, kind)
            for at, payload in enumerate(batch.column("payload").to_pylist())
            if isinstance(event := event_of(payload), JsonEvent)
            for path, kind in within_columns(variation_of(event)).kinds
        ]
        rows = batch.select(["type", "source", "producer"]).take(pa.array([at for at, _, _ in told], pa.int64()))
        more = [pa.array([path for _, path, _ in told], pa.string()), pa.array([kind.value for *_, kind in told], pa.string())]
        yield pa.RecordBatch.from_arrays([*rows.columns, *more], names=[*rows.schema.names, "path", "kind"])


def _of_several(row: Row, position: int) -> Prototype:
    variation = Variation(frozenset((one["path"], Kind(one["kind"])) for one in row["pairs"]))
    return Prototype(
        typed_hash=variation.typed_hash,
        names_hash=variation.names_hash,
        variation=variation,
        shape="",
        source=row["first"]["source"],
        position=position,
        producer=row["first"]["producer"],
        is_joined=True,
    )
