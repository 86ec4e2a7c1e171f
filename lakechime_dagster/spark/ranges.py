"""Reads what changed in a Delta table between two snapshots.

Every method gives images: rows as they became (`+1`) and as they were (`-1`), with the version that changed them. From
these follow the net state of changed keys, the net deletes, and the groups or partitions that were touched.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.commits import FileAction, TableCommit, TableLog, since_first_change
from lakechime_dagster.dce.snapshots import SnapshotRange, Verdict
from lakechime_dagster.errors import TableUnreadableError
from lakechime_dagster.spark.comparable import is_comparable
from lakechime_dagster.spark.delta_files import files_frame, missing_files
from lakechime_dagster.spark.names import column
from lakechime_dagster.spark.verdicts import Judgement, first_version, judge, later_commits

CHANGE = "__lakechime_change"  # +1: the row as it became, -1: as it was
VERSION = "__lakechime_version"
CHANGE_FEED = "delta.enableChangeDataFeed"


class ReadMethod(StrEnum):
    """How a range was read.

    NOTHING: no commit of the range changed data. LOG_FILES: only appends, so their files are the change. CHANGE_FEED:
    Delta's record of changes. VERSION_DIFF: no such record, so the files that were replaced are compared. WHOLE:
    everything at the end snapshot. ORDERED: nothing came, but a backfill ordered rows to be taken again.
    """

    NOTHING = "nothing"
    LOG_FILES = "log_files"
    CHANGE_FEED = "change_feed"
    VERSION_DIFF = "version_diff"
    WHOLE = "whole"
    ORDERED = "ordered"


@dataclass(frozen=True, kw_only=True)
class RangeRead:
    """A range of one source, ready to be computed on.

    `end` is the whole source pinned at snapshot `version`. `images` is None when the source is read whole: from
    nothing (`is_first`), or because the verdict forbids to read increments (`must_replace`). `files` hold the images of LOG_FILES.
    """

    location: str
    version: int
    method: ReadMethod
    verdict: Verdict
    end: DataFrame
    images: DataFrame | None = None
    commits: int = 0
    data_commits: int = 0
    note: str = ""
    files: tuple[FileAction, ...] = ()
    only_appends: bool = False
    is_first: bool = False

    @property
    def must_replace(self) -> bool:
        return self.images is None and not self.is_first


def pinned(spark: SparkSession, location: str, version: int) -> DataFrame:
    """A whole Delta table at one snapshot."""
    return spark.read.format("delta").option("versionAsOf", version).load(location)


def read_snapshot(spark: SparkSession, log: TableLog, version: int) -> DataFrame:
    """A whole Delta table at one snapshot, whose files are all there.

    Raises:
        TableUnreadableError: some are gone.
    """
    require_files(spark, log, version, later_commits(log, version, log.version))
    return pinned(spark, log.location, version)


def read_range(spark: SparkSession, log: TableLog, range_: SnapshotRange) -> RangeRead:
    """The changes of a range, by the cheapest method that is exact.

    Raises:
        TableUnreadableError: the files of the end snapshot are gone, or single commits are wanted that cannot be told apart.
    """
    read = _read(spark, log, range_, judge(range_, log))
    if range_.only is not None and read.images is None:
        why = f"the rows of matching commits alone cannot be told ({read.verdict.value}: {read.note})"
        remedy = "seek the trigger past them, or declare it without only_matching"
        raise TableUnreadableError(f"{range_.table} up to snapshot {range_.end}: {why}; {remedy}")
    return read


def _read(spark: SparkSession, log: TableLog, range_: SnapshotRange, judgement: Judgement) -> RangeRead:
    require_files(spark, log, judgement.version, judgement.later)
    read = RangeRead(
        location=log.location, version=judgement.version, method=ReadMethod.WHOLE, verdict=judgement.verdict, note=judgement.note,
        end=pinned(spark, log.location, judgement.version), commits=len(judgement.commits), data_commits=len(judgement.data_commits),
    )  # fmt: skip
    if not judgement.verdict.is_incremental:
        return read
    if range_.is_whole:
        return replace(read, is_first=True)
    data = judgement.data_commits
    read = replace(read, only_appends=all(commit.only_appends for commit in data))
    if not data:
        return replace(read, method=ReadMethod.NOTHING, images=_nothing(read.end))
    gone = missing_files(spark, log.location, _files_at_risk(judgement))
    if gone:
        return replace(read, verdict=Verdict.EXPIRED, note=f"{len(gone)} data files of the range were removed by a clean-up")
    if read.only_appends:
        files = tuple(file for commit in data for file in commit.added)
        images = _imaged(files_frame(spark, log.location, judgement.version, files), 1)
        return replace(read, method=ReadMethod.LOG_FILES, images=images, files=files)
    has_change_feed = _has_change_feed(log, judgement, range_)
    if judgement.only is not None and not has_change_feed:
        return replace(read, note="without a change feed only commits that append can be read alone")
    if not has_change_feed and not _can_rebuild(log, before := first_version(range_) - 1):
        return replace(read, verdict=Verdict.EXPIRED, note=f"the log was cleaned up: snapshot {before} can no longer be rebuilt")
    if not _keeps_columns(spark, log.location, judgement, range_):
        return replace(read, verdict=Verdict.EXPIRED, note="columns were renamed, dropped or given another type within the range")
    if has_change_feed:
        images = _change_feed(spark, log.location, range_).select(*[column(name) for name in read.end.columns], CHANGE, VERSION)
        if judgement.only is not None:
            images = images.where(F.col(VERSION).isin([commit.version for commit in data]))
        return replace(read, method=ReadMethod.CHANGE_FEED, images=images)
    left, came = _replaced_files(since_first_change(judgement.commits))
    gone = missing_files(spark, log.location, [file.path for file in left])  # also what maintenance moved within the range
    if gone:
        return replace(read, verdict=Verdict.EXPIRED, note=f"{len(gone)} data files of the range were removed by a clean-up")
    images = _version_diff(spark, log.location, judgement, left, came)
    if images is None:
        note = "the replaced files cannot be compared: removals without partition values, or columns of maps"
        return replace(read, verdict=Verdict.EXPIRED, note=note)
    return replace(read, method=ReadMethod.VERSION_DIFF, images=images)


def require_files(spark: SparkSession, log: TableLog, version: int, later: Iterable[TableCommit]) -> None:
    """See to it that a snapshot can be read: its files that later commits removed may have been cleaned up."""
    left, _ = _replaced_files(later)
    if missing_files(spark, log.location, [file.path for file in left]):
        what = f"files of snapshot {version} were removed by a clean-up; the next attempt must read up to a newer one"
        raise TableUnreadableError(f"{log.shown_location}: {what}")


def net_changes(images: DataFrame, keys: Sequence[str]) -> tuple[DataFrame, DataFrame]:
    """The net state of changed keys, and the keys that are net deleted, by each key's last version in the range."""
    by_key = Window.partitionBy(*[column(key) for key in keys])
    last = (
        images.withColumn("__last", F.max(VERSION).over(by_key)).where(F.col("__last") == F.col(VERSION))
        .withColumn("__became", F.max(CHANGE).over(by_key))
    )  # fmt: skip
    upserts = last.where(F.col(CHANGE) == 1).drop("__last", "__became", CHANGE, VERSION)
    deletes = last.where(F.col("__became") == -1).select(*[column(key) for key in keys]).distinct()
    return upserts, deletes


def touched(images: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """The distinct values that rows of the range have or had."""
    return images.select(*columns).distinct()


def _nothing(end: DataFrame) -> DataFrame:
    return _imaged(end.limit(0), 1)


def _imaged(rows: DataFrame, change: int) -> DataFrame:
    return rows.withColumn(CHANGE, F.lit(change)).withColumn(VERSION, F.lit(0).cast("long"))


def _change_feed(spark: SparkSession, location: str, range_: SnapshotRange) -> DataFrame:
    feed = (
        spark.read.format("delta").option("readChangeFeed", "true")
        .option("startingVersion", first_version(range_)).option("endingVersion", int(range_.end))
        .load(location)
    )  # fmt: skip
    became = F.col("_change_type").isin("insert", "update_postimage")
    return (
        feed.withColumn(CHANGE, F.when(became, F.lit(1)).otherwise(F.lit(-1)))
        .withColumn(VERSION, F.col("_commit_version"))
        .drop("_change_type", "_commit_version", "_commit_timestamp")
    )


def _version_diff(
    spark: SparkSession, location: str, judgement: Judgement, left: Sequence[FileAction], came: Sequence[FileAction]
) -> DataFrame | None:
    """Rows of the files that left and of those that came, less the rows that are in both."""
    if not all(file.entry for file in (*left, *came)):
        return None
    if not is_comparable(pinned(spark, location, judgement.version).schema):
        return None
    old = files_frame(spark, location, judgement.data_commits[0].version - 1, left)
    new = files_frame(spark, location, judgement.version, came)
    if old.columns != new.columns:
        old = old.select(*[column(name) if name in old.columns else F.lit(None).alias(name) for name in new.columns])
    return _imaged(new.exceptAll(old), 1).unionByName(_imaged(old.exceptAll(new), -1))


def _replaced_files(commits: Iterable[TableCommit]) -> tuple[list[FileAction], list[FileAction]]:
    """The files of the snapshot before the commits that the one after lacks, and those of the one after that the one before lacks.

    A file without a change of data (OPTIMIZE) is not in the log's data changes: what it moved counts where it came from.
    """
    left: dict[tuple[str, str | None], FileAction] = {}
    came: dict[tuple[str, str | None], FileAction] = {}
    for commit in commits:
        for file in (*commit.removed, *commit.moved_out):
            if came.pop(file.identity, None) is None:
                left[file.identity] = file
        for file in (*commit.added, *commit.moved_in):
            if left.pop(file.identity, None) is None:
                came[file.identity] = file
    return list(left.values()), list(came.values())


def _files_at_risk(judgement: Judgement) -> list[str]:
    """What the range needs and a clean-up may have taken: files that are live no more, and change files."""
    commits = (*judgement.commits, *judgement.later)
    removed = {file.path for commit in commits for file in (*commit.removed, *commit.moved_out)}
    needed = [file.path for commit in judgement.data_commits for file in (*commit.added, *commit.removed)]
    return [path for path in needed if path in removed] + [path for commit in judgement.data_commits for path in commit.change_files]


def _can_rebuild(log: TableLog, version: int) -> bool:
    """Whether the log still tells a snapshot: its own commits may be cleaned up while those after it are there."""
    try:
        log.properties(version)
    except TableUnreadableError:
        return False
    return True


def _keeps_columns(spark: SparkSession, location: str, judgement: Judgement, range_: SnapshotRange) -> bool:
    """Whether the columns of the start are there throughout the range, in their types: only then do its rows share one schema."""
    written = [commit.columns for commit in judgement.commits if commit.columns is not None]
    before = first_version(range_) - 1
    if not written or before < 0:
        return True
    start = pinned(spark, location, before).schema
    return all(set(start.names) <= set(columns) for columns in written) and _holds(pinned(spark, location, judgement.version).schema, start)


def _holds(kind: DataType, other: DataType) -> bool:
    """Whether a type has all that another has; structs may have more."""
    if isinstance(kind, StructType) and isinstance(other, StructType):
        return all(field.name in kind.names and _holds(kind[field.name].dataType, field.dataType) for field in other)
    if isinstance(kind, ArrayType) and isinstance(other, ArrayType):
        return _holds(kind.elementType, other.elementType)
    if isinstance(kind, MapType) and isinstance(other, MapType):
        return _holds(kind.keyType, other.keyType) and _holds(kind.valueType, other.valueType)
    return kind == other


def _has_change_feed(log: TableLog, judgement: Judgement, range_: SnapshotRange) -> bool:
    """Whether Delta recorded changes throughout the range."""
    spoken = [commit.properties for commit in judgement.commits if commit.properties is not None]
    before = first_version(range_) - 1
    try:
        states = [*([log.properties(before)] if before >= 0 else []), *spoken] if spoken else [log.properties(judgement.version)]
    except TableUnreadableError:
        return False
    return all(state.get(CHANGE_FEED, "").lower() == "true" for state in states)
