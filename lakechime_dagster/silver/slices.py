"""What a stream's table holds between two versions, counted by type, and the tables of the
types.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakechime_dagster.dce.events import SnapshotId, TableFormat
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint, SnapshotRange, TableLog
from lakechime_dagster.errors import ConsumerConflictError, LakeChimeError, TableUnreadableError
from lakechime_dagster.silver.event import (
    JsonEvent,
    Kind,
    Variation,
    event_of,
    variation_of,
    within_columns,
)
from lakechime_dagster.silver.results import REBUILT, GroupJob, Part, RequestDone
from lakechime_dagster.silver.rows import RESCUED
from lakechime_dagster.silver.schema import KnownType, Prototype, TypeCheckpoint, personal_columns
from lakechime_dagster.spark.commit import CommitLostError, Target, commit, keep_listed, retrying
from lakechime_dagster.spark.iceberg import IcebergTarget
from lakechime_dagster.spark.ranges import ReadMethod, read_range, remove_folder
from lakechime_dagster.spark.refresh import RowTarget
from lakechime_dagster.spark.rows import holds
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, Committed, ConsumerId

if TYPE_CHECKING:
    from lakechime_dagster.runtime.platform import FormatLog

COLUMNS = ("_src", "_ingested_at", "reason", "type", "hash", "flags", "payload")


@dataclass
class Slices:
    """The rows of a stream's table up to an end, behind any checkpoint."""

    spark: SparkSession
    table: str
    log: TableLog
    end: SnapshotCheckpoint
    _frames: dict[tuple[int, int], DataFrame] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """The version that is the end."""
        assert self.end.snapshot_id is not None
        return int(self.end.snapshot_id)

    def start(self, checkpoint: TypeCheckpoint) -> int:
        """The version behind which a checkpoint reads: its own, or the beginning where the table
        was recreated since.
        """
        return checkpoint.version if checkpoint.uid in (None, self.end.table_uid) else -1

    def is_recreated(self, checkpoint: TypeCheckpoint) -> bool:
        """Whether the table was recreated since a type was read up to a checkpoint: nobody knows
        what the type's table has of it.
        """
        return checkpoint.commits > 0 and checkpoint.uid not in (None, self.end.table_uid)

    def rows(self, start: int, end: int | None = None) -> DataFrame:
        """The rows of the versions behind one, -1 for all, up to another, or to the end.

        Raises:
            TableUnreadableError: they cannot be separated from others, as the log was cleaned up,
                or rows were changed.
        """
        between = start, self.version if end is None else end
        if between not in self._frames:
            self._frames[between] = self._read(*between)
        return self._frames[between]

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
        if rows is None or read.method not in (
            ReadMethod.NOTHING,
            ReadMethod.LOG_FILES,
            ReadMethod.WHOLE,
        ):
            why = read.note or f"commits of it do more than append ({read.method.value})"
            remedy = (
                "restore its log, or rebuild the table of each such type: `lakechime schema replay "
                "TYPE --rebuild --reason …`"
            )
            raise TableUnreadableError(
                f"{self.table} after version {start}: {read.verdict.value}, {why}; {remedy}"
            )
        return rows.select(*COLUMNS)


@dataclass(frozen=True, kw_only=True)
class Events:
    """The events of a part, each type's behind its own checkpoint, None where there are none; and
    why types cannot be read.
    """

    rows: DataFrame | None
    unread: dict[str, Exception]


def events_of(slices: Slices, part: Part) -> Events:
    """What a part reads. Types are nearly always at one checkpoint; those at another one read by
    themselves.
    """
    frames, unread = list[DataFrame](), dict[str, Exception]()
    for start in sorted({*part.behind.values()}):
        names = [name for name, begin in part.behind.items() if begin == start]
        try:
            frames.append(of_types(slices.rows(start, part.end), names))
        except TableUnreadableError as error:
            unread |= dict.fromkeys(names, error)
    return Events(rows=reduce(DataFrame.union, frames) if frames else None, unread=unread)


def of_types(rows: DataFrame, names: Collection[str]) -> DataFrame:
    """The events of these types; refused rows are of none."""
    return rows.where(F.col("reason").isNull() & F.col("type").isin(*names))


FEW_ROWS = 200_000  # which one file holds
# commits of others that are recorded, the last ones: a store that was lost does not know of all
MAX_AHEAD = 20
PROPERTIES = {"delta.dataSkippingNumIndexedCols": "32"}
FILES = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """What a table holds beyond what is known of it: its own checkpoint, and the commits that led
    there, of which the last makes it.
    """

    checkpoint: TypeCheckpoint
    commits: tuple[Committed, ...]

    @property
    def schema_version(self) -> int:
        """The number of the schema that the newest of them was written with."""
        return max(int(one.commit_metadata.facts.get("schema_version", 0)) for one in self.commits)


def ahead_of(
    checkpoint: TypeCheckpoint, log: "FormatLog", consumer: ConsumerId, source: str
) -> Ahead | None:
    """What the table of a type holds beyond a checkpoint; None where that is its last one.

    Raises:
        LakeChimeError: it holds something, and its log no longer has up to where.
    """
    last = log.last_committed(consumer) if log.exists() else None
    if last is None or last.commit_metadata.number <= checkpoint.commits:
        return None
    end = last.commit_metadata.end.sources.get(source)
    if last.is_commit_metadata_lost or end is None or end.snapshot_id is None:
        problem = (
            f"its log at {log.shown_location} no longer has up to where its commit "
            f"{last.commit_metadata.number} read {source}"
        )
        raise LakeChimeError(f"{problem}; restore the log")
    numbers = range(
        max(checkpoint.commits, last.commit_metadata.number - MAX_AHEAD) + 1,
        last.commit_metadata.number,
    )
    before = [
        one
        for number in numbers
        if (one := log.committed(consumer, number)) is not None and not one.is_commit_metadata_lost
    ]
    reached = TypeCheckpoint(
        uid=end.table_uid, version=int(end.snapshot_id), commits=last.commit_metadata.number
    )
    return Ahead(checkpoint=reached, commits=(*before, last))


def append(
    target: RowTarget, rows: DataFrame, count: int, commit_metadata: CommitMetadata
) -> Committed:
    """Write what lies behind a checkpoint, and return the commit that holds it then: this
    attempt's, or an earlier one of another.

    Rows that bring no column to a Delta table are files by Spark and a commit by the table's log,
    which costs less than Delta's; others are Delta's. Several tables may be written at a time.

    Args:
        target: The table, which the first write makes.
        rows: With all columns of their schema.
        count: Of the rows, about; few are written as one file.
        commit_metadata: Of this attempt.

    Raises:
        CommitLostError: the write returned, and no commit of its number is there.
    """
    one = in_few_files(rows, count)
    if isinstance(target, IcebergTarget):
        target.prepare(rows.sparkSession, rows.schema)
        held = commit(
            rows.sparkSession, target, commit_metadata, lambda: lambda: target.append(one)
        )
        assert held is not None  # since something was to be written
        return held
    for tried in retrying(ConsumerConflictError):
        with tried:
            columns = target.log.plain_columns()
            if target.log.committed(commit_metadata.consumer, commit_metadata.number) is None:
                if columns is not None and holds(
                    StructType.fromJson(json.loads(columns)), one.schema
                ):
                    _add(target, one, commit_metadata)
                else:
                    _write(target, one, commit_metadata)
    found = target.log.committed(commit_metadata.consumer, commit_metadata.number)
    if found is None:
        raise CommitLostError(
            f"{target.name}: commit {commit_metadata.number} of {commit_metadata.consumer} was "
            f"written, and is not in its log"
        )
    return found


def in_few_files(rows: DataFrame, count: int) -> DataFrame:
    """So many rows, in one part where they are few."""
    return rows.coalesce(1) if count <= FEW_ROWS else rows


def _write(target: Target, rows: DataFrame, commit_metadata: CommitMetadata) -> None:
    """A commit by Delta, which makes the table, or its columns, where they are not there."""
    options = {
        "mergeSchema": "true",
        "txnAppId": commit_metadata.txn_app_id,
        "txnVersion": str(commit_metadata.number),
        "userMetadata": commit_metadata.to_text(),
    }
    is_new = not target.log.exists()
    made = target.made(rows.schema) if is_new else {}
    keep_listed(rows.sparkSession, target, rows.schema)
    rows.write.format("delta").mode("append").options(**options, **made).save(target.location)
    if not is_new:
        keep_listed(rows.sparkSession, target, rows.schema)  # what follows adds files without Spark


def _add(target: Target, rows: DataFrame, commit_metadata: CommitMetadata) -> None:
    """Files in a folder of their own, and a commit that names them.

    They are removed where no commit was tried. Where one was, be it refused, some store may have
    kept it: what no commit names then goes like all such files, by a vacuum.
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
    """The tables as one attempt at an execution sees them."""

    job: GroupJob

    def target(self, known: KnownType) -> RowTarget:
        """The table of a type, be it there or not."""
        group, log = self.job.group, self.job.log_of(known.table)
        hidden = (*personal_columns(known.schema, group.personal), RESCUED)
        declared = {"name": known.table, "log": log, "personal": hidden if group.personal else ()}
        assert log.table_format is not TableFormat.HIVE  # since the declaration
        if log.table_format is TableFormat.ICEBERG:
            mode = group.storage.write_mode
            return IcebergTarget(write_mode=mode, keeps_newest=True, **declared)
        return Target(location=log.location, properties=PROPERTIES, **declared)

    def ahead(self, known: KnownType) -> Ahead | None:
        """What a type's table holds beyond what is known of it.

        Raises:
            LakeChimeError: it cannot be asked, or does not say up to where it holds something.
        """
        return ahead_of(
            known.checkpoint,
            self.target(known).log,
            self._consumer(known),
            self.job.group.stream.table.name,
        )

    def last_committed(self, known: KnownType) -> Committed | None:
        """The last commit of the group in a type's table."""
        return self.target(known).log.last_committed(self._consumer(known))

    def commit_metadata(
        self,
        known: KnownType,
        end: int,
        rows: int,
        done: RequestDone | None = None,
        *,
        written: int | None = None,
    ) -> CommitMetadata:
        """The metadata of this attempt's commit of what lies behind a type's checkpoint.

        Args:
            known: The type at that checkpoint.
            end: The last version of the stream's table that is read.
            rows: The events behind the checkpoint.
            done: The result of a request, which this commit is of.
            written: Of a rebuild: how many of these events have a row. All of the stream's table is
                in the commit.
        """
        facts: dict[str, Any] = {
            "type": known.type,
            "schema_version": known.schema_version,
            "rows": rows,
        }
        tags = {"schema_version": str(known.schema_version)}
        if done is not None:
            facts |= done.to_facts()
            tags["cause"] = "replay"
        if written is not None:
            facts |= {REBUILT: True, "written": written}
            tags |= {"cause": "rebuild", "breaking": "true"}
        reached = SnapshotCheckpoint(
            table_uid=self.job.end.table_uid, snapshot_id=SnapshotId(str(end))
        )
        return CommitMetadata(
            consumer=self._consumer(known),
            number=known.checkpoint.commits + 1,
            attempt=self.job.attempt,
            execution_id=self.job.execution_id,
            end=Checkpoint(sources={self.job.group.stream.table.name: reached}),
            facts=facts,
            tags=tags,
        )

    def is_own(self, held: Committed) -> bool:
        """Whether a commit is this attempt's."""
        return (held.commit_metadata.attempt, held.commit_metadata.execution_id) == (
            self.job.attempt,
            self.job.execution_id,
        )

    def _consumer(self, known: KnownType) -> ConsumerId:
        """Whose commits its table has, which stays the same whichever group has the type."""
        return ConsumerId(self.job.deployment, known.home, known.type)


Prototypes = dict[str, list[Prototype]]
# variations of a type, the commonest first: of events of others nothing is known but their type
MAX_COUNTED = 1_000
# of these that were not known: an event of each is kept; of others the paths and kinds alone
MAX_LOOKED = 200
MAX_JOINED = (
    20_000  # paths and kinds of others that an execution adds to a type, the commonest first
)


@dataclass(frozen=True, kw_only=True)
class TypeCount:
    """The events of a type in a slice.

    Attributes:
        variations: Those without a flag, by the hash of their variation; of the commonest
            variations, also of events with a flag.
        is_cut: There are further variations.
    """

    rows: int
    variations: Mapping[str, int]
    is_cut: bool = False


NOTHING = TypeCount(rows=0, variations={})


@dataclass(frozen=True, kw_only=True)
class Arrived:
    """What arrived: the types by name, and the rows of no type, by reason."""

    types: tuple[str, ...]
    refused: Mapping[str, int]


def arrived(rows: DataFrame) -> Arrived:
    """What is there of all groups; one job over two columns."""
    kinds = (
        rows.groupBy("reason", F.when(F.col("reason").isNull(), F.col("type")).alias("type"))
        .count()
        .collect()
    )
    return Arrived(
        types=tuple(sorted(row["type"] for row in kinds if row["reason"] is None)),
        refused={row["reason"]: row["count"] for row in kinds if row["reason"] is not None},
    )


def counted(events: DataFrame) -> dict[str, TypeCount]:
    """The events of each type, none of them refused, counted; one job over three columns."""
    plain = F.count_if(F.col("flags").isNull()).alias("plain")
    each = events.groupBy("type", "hash").agg(F.count(F.lit(1)).alias("rows"), plain)
    order = Window.partitionBy("type").orderBy(F.col("rows").desc(), "hash")
    total = F.sum("rows").over(Window.partitionBy("type"))
    ranked = each.withColumn("total", total).withColumn("rank", F.row_number().over(order))
    found: dict[str, list[Row]] = {}
    for row in ranked.where(F.col("rank") <= MAX_COUNTED + 1).collect():
        found.setdefault(row["type"], []).append(row)
    return {
        name: TypeCount(
            rows=rows[0]["total"],
            variations={row["hash"]: row["plain"] for row in rows[:MAX_COUNTED]},
            is_cut=len(rows) > MAX_COUNTED,
        )
        for name, rows in found.items()
    }


def prototypes(
    events: DataFrame, counts: Mapping[str, TypeCount], known: Mapping[str, Collection[str]]
) -> Prototypes:
    """The variations of these types that are not known, by type, in the order of their hashes.

    Of more than MAX_LOOKED, and where more variations arrived than are counted, the others are
    joined.
    """
    unknown = {
        name: sorted({*counts[name].variations} - {*hashes})
        for name, hashes in known.items()
        if name in counts
    }
    wanted = {(name, one) for name, several in unknown.items() for one in several[:MAX_LOOKED]}
    many = sorted(
        name
        for name, several in unknown.items()
        if counts[name].is_cut or len(several) > MAX_LOOKED
    )
    found: Prototypes = {}
    if wanted:
        types, hashes = sorted({name for name, _ in wanted}), sorted({one for _, one in wanted})
        chosen = events.where(F.col("type").isin(types) & F.col("hash").isin(hashes))
        for row in sorted(
            _one_of_each(chosen).collect(), key=lambda row: (row["type"], row["hash"])
        ):
            if (row["type"], row["hash"]) in wanted:
                event = event_of(row["payload"])
                assert isinstance(event, JsonEvent)  # as its row has no reason
                variation = within_columns(variation_of(event))
                found.setdefault(row["type"], []).append(
                    Prototype(typed_hash=row["hash"], variation=variation)
                )
    if many:
        for row in _joined(events.where(F.col("type").isin(many))).collect():
            variation = Variation(
                frozenset((one["path"], Kind(one["kind"])) for one in row["pairs"])
            )
            found.setdefault(row["type"], []).append(
                Prototype(typed_hash="", variation=variation, is_joined=True)
            )
    return found


def _one_of_each(events: DataFrame) -> DataFrame:
    """An event of each variation."""
    return events.groupBy("type", "hash").agg(F.first("payload").alias("payload"))


def _joined(events: DataFrame) -> DataFrame:
    """The paths and kinds of all variations of types, a row of each type."""
    pairs = _one_of_each(events).select("type", "payload").mapInArrow(_pairs, _PAIRS)  # type: ignore[arg-type]
    by_pair = pairs.groupBy("type", "path", "kind").agg(F.count(F.lit(1)).alias("n"))
    commonest = F.row_number().over(
        Window.partitionBy("type").orderBy(F.col("n").desc(), "path", "kind")
    )
    kept = by_pair.withColumn("rank", commonest).where(F.col("rank") <= MAX_JOINED)
    one = F.collect_list(F.struct("path", "kind")).alias("pairs")
    return kept.groupBy("type").agg(one).orderBy("type")


_PAIRS = "type string, path string, kind string"


def _pairs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Of each event a row for each of its paths and kinds."""
    for batch in batches:
        pairs = [
            (at, path, kind)
            for at, payload in enumerate(batch.column("payload").to_pylist())
            if isinstance(event := event_of(payload), JsonEvent)
            for path, kind in within_columns(variation_of(event)).kinds
        ]
        rows = batch.select(["type"]).take(pa.array([at for at, _, _ in pairs], pa.int64()))
        more = [
            pa.array([path for _, path, _ in pairs], pa.string()),
            pa.array([kind.value for *_, kind in pairs], pa.string()),
        ]
        yield pa.RecordBatch.from_arrays(
            [*rows.columns, *more], names=[*rows.schema.names, "path", "kind"]
        )
