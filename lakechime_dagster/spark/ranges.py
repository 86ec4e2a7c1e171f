"""Reads what changed in a Delta table between two snapshots."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Protocol
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.events import PartitionEvents, SnapshotId
from lakechime_dagster.dce.partitions import UNPARTITIONED
from lakechime_dagster.dce.snapshots import (
    CommitsMissingError,
    FileAction,
    SnapshotRange,
    TableCommit,
    TableLog,
    Verdict,
    own_uid,
    since_first_change,
)
from lakechime_dagster.errors import TableUnreadableError
from lakechime_dagster.spark.driver import activate
from lakechime_dagster.spark.session import (
    MAX_LITERALS,
    column,
    few_rows,
    has_literals,
    is_comparable,
    literal,
    plain,
    typed_rows,
)

_PHYSICAL = "delta.columnMapping.physicalName"


def files_frame(
    spark: SparkSession, location: str, version: int, files: Sequence[FileAction]
) -> DataFrame:
    """The rows of these files under the schema of the table at a version."""
    jvm: Any = spark._jvm
    log, snapshot = snapshot_at(spark, location, version)
    entries = jvm.java.util.ArrayList()
    for file in files:
        entries.add(jvm.org.apache.spark.sql.delta.actions.Action.fromJson(file.entry))
    sequence = jvm.scala.jdk.javaapi.CollectionConverters.asScala(entries).toSeq()
    activate(spark)
    return DataFrame(
        log.createDataFrame(snapshot, sequence, False, jvm.scala.Option.empty()), spark
    )


def snapshot_at(spark: SparkSession, location: str, version: int) -> tuple[Any, Any]:
    """Delta's log of a table, and its snapshot of a version."""
    jvm: Any = spark._jvm  # the classic session's gateway; Spark Connect has none
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, location)
    none = jvm.scala.Option.empty()
    return log, log.getSnapshotAt(version, none, none, False)


def live_files(spark: SparkSession, location: str, version: int) -> dict[str, bool]:
    """The files of the table at a version, by their paths in the log: whether some of their rows
    are deleted.
    """
    _, snapshot = snapshot_at(spark, location, version)
    files = DataFrame(snapshot.allFiles().toDF(), spark).selectExpr(
        "path", "deletionVector IS NOT NULL AS is_cut"
    )
    return {row["path"]: row["is_cut"] for row in files.collect()}


def names_in_files(spark: SparkSession, location: str, version: int) -> Mapping[str, str]:
    """What the columns of the table at a version are called in its files."""
    _, snapshot = snapshot_at(spark, location, version)
    schema = StructType.fromJson(json.loads(snapshot.schema().json()))
    return {field.name: field.metadata.get(_PHYSICAL, field.name) for field in schema}


def plain_files(
    spark: SparkSession, location: str, paths: Iterable[str], schema: StructType
) -> DataFrame:
    """These columns of files by the log's paths, as they are called there, with all rows that are
    or were in them.
    """
    jvm: Any = spark._jvm
    _, root = _file_system(spark, location)
    named = [jvm.org.apache.hadoop.fs.Path(root, unquote(path)).toString() for path in paths]
    # else brackets in a name are a pattern
    return spark.read.schema(schema).option("__globPaths__", "false").parquet(*named)


def root_of(spark: SparkSession, location: str) -> str:
    """How the paths of a checkpoint begin within its file system, as URLs spell them: Spark spells
    what is before them in several ways.
    """
    files, root = _file_system(spark, location)
    return f"{files.makeQualified(root).toUri().getRawPath()}/"


def missing_files(spark: SparkSession, location: str, paths: Iterable[str]) -> list[str]:
    """Those of the log's paths whose files are gone."""
    jvm: Any = spark._jvm
    files, root = _file_system(spark, location)
    return [
        path
        for path in dict.fromkeys(paths)
        if not files.exists(jvm.org.apache.hadoop.fs.Path(root, unquote(path)))
    ]


def remove_folder(spark: SparkSession, location: str) -> None:
    """Remove a folder with all that is in it, if it is there."""
    files, root = _file_system(spark, location)
    files.delete(root, True)


def _file_system(spark: SparkSession, location: str) -> tuple[Any, Any]:
    """The file system of a checkpoint, and the checkpoint in its words."""
    jvm: Any = spark._jvm
    context: Any = spark.sparkContext._jsc
    root = jvm.org.apache.hadoop.fs.Path(location)
    return root.getFileSystem(context.hadoopConfiguration()), root


MAX_ALTERNATIVES = 20
# values of a column that a condition lists where they are data of a plan: more take longer than the
# rows they spare
MAX_LISTED = 5_000
# of what is listed at once
ENCODERS = {
    ByteType: "BYTE",
    ShortType: "SHORT",
    IntegerType: "INT",
    LongType: "LONG",
    StringType: "STRING",
}


def same(left: Column, right: Column) -> Column:
    """Equality under which null equals null."""
    return left.eqNullSafe(right)


def narrowed(
    frame: DataFrame, values: DataFrame, targets: Mapping[str, Column], most: int = MAX_LITERALS
) -> DataFrame:
    """The rows of a frame whose target columns hold one of the value rows; null matches null.

    `values` has the columns that `targets` names. Up to `most` values become a condition without a
    join.
    """
    values = values.select(*[column(name) for name in targets])
    kinds = {field.name: field.dataType for field in values.schema}
    rows = few_rows(values, most) if all(map(has_literals, kinds.values())) else None
    if rows is not None and (len(rows) <= MAX_LITERALS or are_listed(kinds.values())):
        listed = _listed(values, rows, targets, kinds)
        exact = _exact(rows, targets, kinds)
        if exact is not None:
            return frame.where(listed & exact)
        return _joined(frame.where(listed), values, targets)
    literals = _bounded(values, targets, kinds)
    return _joined(frame if literals is None else frame.where(literals), values, targets)


def literal_filter(
    values: DataFrame, targets: Mapping[str, Column], most: int = MAX_LITERALS
) -> Column | None:
    """A condition with literals that every wanted row meets, by which files are skipped; None when
    there is none.

    Values that are no more than `most` are listed, many are bounded by the smallest and the
    largest. A column of `values` is compared to its target column. Whether they are few is found
    out first, so that no checkpoint ever holds many.
    """
    kinds = {
        field.name: field.dataType
        for field in values.schema
        if field.name in targets and has_literals(field.dataType)
    }
    if not kinds:
        return None
    wanted = values.select(*[column(name) for name in kinds])
    rows = few_rows(wanted, most)
    if rows is None or (len(rows) > MAX_LITERALS and not are_listed(kinds.values())):
        return _bounded(wanted, targets, kinds)
    return _listed(wanted, rows, {name: targets[name] for name in kinds}, kinds)


def are_listed(kinds: Iterable[DataType]) -> bool:
    """Whether a condition can list more than `MAX_LITERALS` values of these types."""
    return all(type(kind) in ENCODERS for kind in kinds)


def _listed(
    values: DataFrame,
    rows: Sequence[tuple[Any, ...]],
    targets: Mapping[str, Column],
    kinds: Mapping[str, DataType],
) -> Column:
    """Each target column holds one of its values."""
    conditions = []
    for i, (name, target) in enumerate(targets.items()):
        found = {row[i] for row in rows}
        if len(found) <= MAX_LITERALS:
            conditions.append(_is_one_of(target, found, kinds[name]))
            continue
        within = _is_one_of_many(
            target, values.select(column(name)).where(column(name).isNotNull()), kinds[name]
        )
        conditions.append(within | target.isNull() if None in found else within)
    return reduce(lambda one, other: one & other, conditions)


def _is_one_of_many(target: Column, values: DataFrame, kind: DataType) -> Column:
    """The same of values that the JVM lists itself: a call for each literal takes longer."""
    spark: Any = values.sparkSession
    frame: Any = values
    encoder = getattr(spark._jvm.org.apache.spark.sql.Encoders, ENCODERS[type(kind)])()
    of_jvm: Any = target
    return type(target)(
        of_jvm._jc.isInCollection(getattr(frame._jdf, "as")(encoder).collectAsList())
    )


def _is_one_of(target: Column, values: set[Any], kind: DataType) -> Column:
    listed = [literal(value, kind) for value in values if value is not None]
    within = target.isin(*listed) if listed else F.lit(False)
    return within | target.isNull() if None in values else within


def _exact(
    rows: Sequence[tuple[Any, ...]], targets: Mapping[str, Column], kinds: Mapping[str, DataType]
) -> Column | None:
    """Which of the listed values of each column are in one row; None where only a join decides."""
    if any(isinstance(kind, FloatType | DoubleType) for kind in kinds.values()):
        return None  # of zeros and of what is no number there are several
    if len(targets) == 1:
        return F.lit(True)
    distinct = list(dict.fromkeys(rows))
    if len(distinct) > MAX_ALTERNATIVES:
        return None
    return reduce(
        lambda a, b: a | b, [_is_row(row, targets, kinds) for row in distinct], F.lit(False)
    )


def _is_row(
    row: tuple[Any, ...], targets: Mapping[str, Column], kinds: Mapping[str, DataType]
) -> Column:
    values = zip(targets.items(), row, strict=True)
    return reduce(
        lambda a, b: a & b,
        [same(target, literal(value, kinds[name])) for (name, target), value in values],
    )


def _bounded(
    values: DataFrame, targets: Mapping[str, Column], kinds: Mapping[str, DataType]
) -> Column | None:
    """Each target column holds one of its values where they are few, else one between their
    smallest and their largest.
    """
    names = [name for name in targets if name in kinds and has_literals(kinds[name])]
    if not names:
        return None
    measures = [F.count(F.lit(1)).alias("rows")]
    for i, name in enumerate(names):
        value, kind = column(name), kinds[name]
        measures += [
            F.approx_count_distinct(value).alias(f"count_{i}"),
            F.max(value.isNull()).alias(f"null_{i}"),
            plain(F.min(value), kind).alias(f"min_{i}"),
            plain(F.max(value), kind).alias(f"max_{i}"),
        ]
    found = values.agg(*measures).collect()[0]
    if not found["rows"]:
        return F.lit(False)
    listed = _sets(
        values, [name for i, name in enumerate(names) if found[f"count_{i}"] <= MAX_LITERALS], kinds
    )
    conditions = []
    for i, name in enumerate(names):
        target, kind = targets[name], kinds[name]
        if name in listed:
            conditions.append(
                _is_one_of(target, {*listed[name], *([None] if found[f"null_{i}"] else [])}, kind)
            )
            continue
        within = target.between(literal(found[f"min_{i}"], kind), literal(found[f"max_{i}"], kind))
        conditions.append(within | target.isNull() if found[f"null_{i}"] else within)
    return reduce(lambda one, other: one & other, conditions)


def _sets(
    values: DataFrame, names: Sequence[str], kinds: Mapping[str, DataType]
) -> dict[str, list[Any]]:
    """All values of these columns, plain and without null."""
    if not names:
        return {}
    sets = [F.collect_set(plain(column(name), kinds[name])) for name in names]
    return dict(zip(names, values.agg(*sets).collect()[0], strict=True))


def _joined(rows: DataFrame, values: DataFrame, targets: Mapping[str, Column]) -> DataFrame:
    keyed = rows.withColumns({f"__narrow_{i}": target for i, target in enumerate(targets.values())})
    wanted = values.select(
        *[column(name).alias(f"__value_{i}") for i, name in enumerate(targets)]
    ).distinct()
    condition = reduce(
        lambda a, b: a & b,
        [same(F.col(f"__narrow_{i}"), F.col(f"__value_{i}")) for i in range(len(targets))],
    )
    return keyed.join(wanted, condition, "left_semi").drop(
        *[f"__narrow_{i}" for i in range(len(targets))]
    )


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """How a range can be read, by the log.

    `version` is the snapshot to read as the end of the range. `commits` are those of the range,
    oldest first; `later` those after it, whose clean-up may have taken files of the range. `note`
    is for people.
    """

    verdict: Verdict
    version: int
    commits: tuple[TableCommit, ...] = ()
    later: tuple[TableCommit, ...] = ()
    note: str = ""

    @property
    def data_commits(self) -> tuple[TableCommit, ...]:
        """The commits to read: those that changed data."""
        return tuple(commit for commit in self.commits if commit.changes_data)


def first_version(range_: SnapshotRange) -> int:
    """The first version of a range, inclusive as Delta's `startingVersion` wants it: the range's
    own start is exclusive.
    """
    return 0 if range_.start is None else int(range_.start) + 1


def judge(range_: SnapshotRange, log: TableLog) -> Judgement:
    """The verdict on a range of a Delta table, by its log alone."""
    head, end = log.version, int(range_.end)
    own = None if range_.table_uid is None else own_uid(range_.table_uid)
    if own is not None and log.uid != own:
        note = (
            "the table was replaced after this execution was claimed; its newest snapshot is read"
        )
        return Judgement(verdict=Verdict.RECREATED, version=head, note=note)
    if range_.is_recreated and end <= head:
        put_back = range_.start_uid is not None and own_uid(range_.start_uid) == own
        note = "the log was put back" if put_back else "the table was dropped and created again"
        verdict = Verdict.ROLLBACK if put_back else Verdict.RECREATED
        return Judgement(
            verdict=verdict,
            version=end,
            later=later_commits(log, end, head),
            note=f"{note} since it was last read",
        )
    if end > head:
        note = f"snapshot {end} is no longer in the log, whose newest is {head}; that one is read"
        return Judgement(verdict=Verdict.ROLLBACK, version=head, note=note)
    if range_.is_whole:
        return Judgement(
            verdict=Verdict.CONTIGUOUS, version=end, later=later_commits(log, end, head)
        )
    start = first_version(range_) - 1
    if start > end:
        return Judgement(
            verdict=Verdict.ROLLBACK,
            version=end,
            note=f"the log was put back from snapshot {start} to {end}",
        )
    try:
        all_commits = log.commits(start, head)
    except CommitsMissingError as missing:
        note = f"the log was cleaned up past commit {missing.version}"
        return Judgement(
            verdict=Verdict.EXPIRED, version=end, later=later_commits(log, end, head), note=note
        )
    commits = tuple(commit for commit in all_commits if commit.version <= end)
    later = tuple(commit for commit in all_commits if commit.version > end)
    if any(commit.table_uid not in (None, own or commit.table_uid) for commit in commits):
        return Judgement(
            verdict=Verdict.RECREATED, version=end, note="the table was replaced in its own log"
        )
    if any(commit.has_foreign_files for commit in commits):
        return Judgement(
            verdict=Verdict.RECREATED, version=end, note="the partitioning of the table was changed"
        )
    gap = any(not commit.changes_data for commit in commits)
    return Judgement(
        verdict=Verdict.GAP_FILLED if gap else Verdict.CONTIGUOUS,
        version=end,
        commits=commits,
        later=later,
    )


def later_commits(log: TableLog, end: int, head: int) -> tuple[TableCommit, ...]:
    """The commits after a snapshot; none where the log lacks one of them."""
    try:
        return tuple(log.commits(end, head))
    except CommitsMissingError:
        return ()


CHANGE = "__lakechime_change"  # +1: the row as it became, -1: as it was
VERSION = "__lakechime_version"
CHANGE_FEED = "delta.enableChangeDataFeed"


class ReadMethod(StrEnum):
    """How a range was read.

    NOTHING: no commit of the range changed data. LOG_FILES: only appends, so their files are the
    change. CHANGE_FEED: Delta's record of changes, or the rows of the files that the snapshots of an
    Iceberg table replaced. VERSION_DIFF: no such record, so the files of Delta that were replaced
    are compared, or both snapshots of Iceberg. PARTITIONS: all rows of the partitions of a Hive table
    that its events name. WHOLE: everything at the end snapshot. ORDERED: nothing new, but a backfill
    requests rows again.
    """

    NOTHING = "nothing"
    LOG_FILES = "log_files"
    CHANGE_FEED = "change_feed"
    VERSION_DIFF = "version_diff"
    PARTITIONS = "partitions"
    WHOLE = "whole"
    ORDERED = "ordered"


@dataclass(frozen=True, kw_only=True)
class RangeRead:
    """A range of one source, ready to be computed on.

    `end` is the whole source pinned at a snapshot. `changes` is None when the source is read whole:
    from nothing (`is_first`), or because the verdict forbids to read increments (`must_replace`).
    `files` hold the changes of LOG_FILES. `only_appends`: no row was changed or removed; the changes
    hold older rows too where they `repeat`. `partitions`, where it is given, are the values of the
    partition columns in which rows changed; the changes then lack the rows as they were.
    """

    snapshot: SnapshotId
    method: ReadMethod
    verdict: Verdict
    end: DataFrame
    changes: DataFrame | None = None
    commits: int = 0
    data_commits: int = 0
    note: str = ""
    files: tuple[FileAction, ...] = ()
    only_appends: bool = False
    repeat: bool = False
    partitions: DataFrame | None = None
    is_first: bool = False

    @property
    def must_replace(self) -> bool:
        return self.changes is None and not self.is_first


def pinned(spark: SparkSession, location: str, version: int) -> DataFrame:
    """A whole Delta table at one snapshot."""
    return spark.read.format("delta").option("versionAsOf", version).load(location)


class Source(Protocol):
    """How Spark reads one table, whatever its format."""

    def read_range(self, range_: SnapshotRange) -> RangeRead:
        """The changes of a range, by the cheapest method that is exact.

        Raises:
            TableUnreadableError: the end snapshot cannot be read.
        """
        ...

    def read_snapshot(self, at: SnapshotId | None) -> tuple[DataFrame, SnapshotId]:
        """The whole table at a snapshot, by default the newest, and which it is.

        Raises:
            TableUnreadableError: the snapshot cannot be read.
        """
        ...


@dataclass(frozen=True)
class DeltaSource:
    """A Delta table by its log."""

    spark: SparkSession
    log: TableLog

    def read_range(self, range_: SnapshotRange) -> RangeRead:
        return read_range(self.spark, self.log, range_)

    def read_snapshot(self, at: SnapshotId | None) -> tuple[DataFrame, SnapshotId]:
        head = self.log.version
        version = head if at is None else min(int(at), head)
        require_files(self.spark, self.log, version, later_commits(self.log, version, head))
        return pinned(self.spark, self.log.location, version), SnapshotId(str(version))


def partitions_of(
    spark: SparkSession, schema: StructType, levels: Sequence[str], keys: Iterable[str]
) -> DataFrame:
    """The values of partition columns that canonical texts name, in the types of a schema."""
    columns = {one.name.lower(): one for one in schema}
    fields = [columns[name.lower()] for name in levels]
    return typed_rows(spark, fields, [json.loads(key) for key in keys])


@dataclass(frozen=True)
class SwitchedSource:
    """A table that became one of another format within a range, by its `source` in that format.

    Snapshots of both formats say nothing of each other. The partitions that events of the range name
    are read whole; `levels` are their columns.
    """

    spark: SparkSession
    source: Source
    levels: tuple[str, ...]
    events: PartitionEvents

    def read_range(self, range_: SnapshotRange) -> RangeRead:
        end, snapshot = self.source.read_snapshot(range_.end)
        whole = RangeRead(
            snapshot=snapshot, method=ReadMethod.WHOLE, verdict=Verdict.CONTIGUOUS, end=end
        )
        changed = self.events.changed
        if not changed:
            return replace(
                whole, method=ReadMethod.NOTHING, changes=_nothing(end), only_appends=True
            )
        there = {name.lower() for name in end.columns}
        if UNPARTITIONED in changed or not there.issuperset(map(str.lower, self.levels)):
            note = "the table became one of another format, and an event names no partition of it"
            return replace(whole, verdict=Verdict.EXPIRED, note=note)
        partitions = partitions_of(self.spark, end.schema, self.levels, changed)
        changes = narrowed(end, partitions, {name: column(name) for name in partitions.columns})
        return replace(
            whole,
            method=ReadMethod.PARTITIONS,
            changes=as_changes(changes, 1),
            partitions=partitions,
            repeat=True,
            commits=len(changed),
            data_commits=len(changed),
        )

    def read_snapshot(self, at: SnapshotId | None) -> tuple[DataFrame, SnapshotId]:
        return self.source.read_snapshot(at)


def read_range(spark: SparkSession, log: TableLog, range_: SnapshotRange) -> RangeRead:
    """The changes of a range, by the cheapest method that is exact.

    Raises:
        TableUnreadableError: the files of the end snapshot are gone.
    """
    judgement = judge(range_, log)
    require_files(spark, log, judgement.version, judgement.later)
    read = RangeRead(
        snapshot=SnapshotId(str(judgement.version)),
        method=ReadMethod.WHOLE,
        verdict=judgement.verdict,
        note=judgement.note,
        end=pinned(spark, log.location, judgement.version),
        commits=len(judgement.commits),
        data_commits=len(judgement.data_commits),
    )
    if not judgement.verdict.is_incremental:
        return read
    if range_.is_whole:
        return replace(read, is_first=True)
    data = judgement.data_commits
    read = replace(read, only_appends=all(commit.only_appends for commit in data))
    if not data:
        return replace(read, method=ReadMethod.NOTHING, changes=_nothing(read.end))
    gone = missing_files(spark, log.location, _files_at_risk(judgement))
    if gone:
        return replace(
            read,
            verdict=Verdict.EXPIRED,
            note=f"{len(gone)} data files of the range were removed by a clean-up",
        )
    if read.only_appends:
        files = tuple(file for commit in data for file in commit.added)
        changes = as_changes(files_frame(spark, log.location, judgement.version, files), 1)
        return replace(read, method=ReadMethod.LOG_FILES, changes=changes, files=files)
    has_change_feed = _has_change_feed(log, judgement, range_)
    if not has_change_feed and not _can_rebuild(log, before := first_version(range_) - 1):
        return replace(
            read,
            verdict=Verdict.EXPIRED,
            note=f"the log was cleaned up: snapshot {before} can no longer be rebuilt",
        )
    if not _keeps_columns(spark, log.location, judgement, range_):
        return replace(
            read,
            verdict=Verdict.EXPIRED,
            note="columns were renamed, dropped or given another type within the range",
        )
    if has_change_feed:
        changes = _change_feed(spark, log.location, range_).select(
            *[column(name) for name in read.end.columns], CHANGE, VERSION
        )
        return replace(read, method=ReadMethod.CHANGE_FEED, changes=changes)
    removed, added = _replaced_files(since_first_change(judgement.commits))
    # also what maintenance moved within the range
    gone = missing_files(spark, log.location, [file.path for file in removed])
    if gone:
        return replace(
            read,
            verdict=Verdict.EXPIRED,
            note=f"{len(gone)} data files of the range were removed by a clean-up",
        )
    changes = _version_diff(spark, log.location, judgement, removed, added)
    if changes is None:
        note = (
            "the replaced files cannot be compared: removals without partition values, or columns "
            "of maps"
        )
        return replace(read, verdict=Verdict.EXPIRED, note=note)
    return replace(read, method=ReadMethod.VERSION_DIFF, changes=changes)


def require_files(
    spark: SparkSession, log: TableLog, version: int, later: Iterable[TableCommit]
) -> None:
    """Ensure that a snapshot can be read: its files that later commits removed may have been
    cleaned up.
    """
    removed, _ = _replaced_files(later)
    if missing_files(spark, log.location, [file.path for file in removed]):
        what = (
            f"files of snapshot {version} were removed by a clean-up; the next attempt must read "
            f"up to a newer one"
        )
        raise TableUnreadableError(f"{log.shown_location}: {what}")


def net_changes(changes: DataFrame, keys: Sequence[str]) -> tuple[DataFrame, DataFrame]:
    """The net state of changed keys, and the keys that are net deleted, by each key's last version
    in the range.
    """
    by_key = Window.partitionBy(*[column(key) for key in keys])
    last = (
        changes.withColumn("__last", F.max(VERSION).over(by_key))
        .where(F.col("__last") == F.col(VERSION))
        .withColumn("__became", F.max(CHANGE).over(by_key))
    )
    upserts = last.where(F.col(CHANGE) == 1).drop("__last", "__became", CHANGE, VERSION)
    deletes = last.where(F.col("__became") == -1).select(*[column(key) for key in keys]).distinct()
    return upserts, deletes


def touched(changes: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """The distinct values that rows of the range have or had."""
    return changes.select(*columns).distinct()


def _nothing(end: DataFrame) -> DataFrame:
    return as_changes(end.limit(0), 1)


def as_changes(rows: DataFrame, change: int) -> DataFrame:
    """Rows as the changes of a range, all of one kind and of one version."""
    return rows.withColumn(CHANGE, F.lit(change)).withColumn(VERSION, F.lit(0).cast("long"))


def _change_feed(spark: SparkSession, location: str, range_: SnapshotRange) -> DataFrame:
    feed = (
        spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", first_version(range_))
        .option("endingVersion", int(range_.end))
        .load(location)
    )
    became = F.col("_change_type").isin("insert", "update_postimage")
    return (
        feed.withColumn(CHANGE, F.when(became, F.lit(1)).otherwise(F.lit(-1)))
        .withColumn(VERSION, F.col("_commit_version"))
        .drop("_change_type", "_commit_version", "_commit_timestamp")
    )


def _version_diff(
    spark: SparkSession,
    location: str,
    judgement: Judgement,
    removed: Sequence[FileAction],
    added: Sequence[FileAction],
) -> DataFrame | None:
    """Rows of the removed and of the added files, less the rows that are in both."""
    if not all(file.entry for file in (*removed, *added)):
        return None
    if not is_comparable(pinned(spark, location, judgement.version).schema):
        return None
    old = files_frame(spark, location, judgement.data_commits[0].version - 1, removed)
    new = files_frame(spark, location, judgement.version, added)
    return difference(old, new)


def difference(old: DataFrame, new: DataFrame) -> DataFrame:
    """The rows of one that the other lacks, each way; a column that only the new one has was null."""
    if old.columns != new.columns:
        old = old.select(
            *[
                column(name) if name in old.columns else F.lit(None).alias(name)
                for name in new.columns
            ]
        )
    return as_changes(new.exceptAll(old), 1).unionByName(as_changes(old.exceptAll(new), -1))


def _replaced_files(commits: Iterable[TableCommit]) -> tuple[list[FileAction], list[FileAction]]:
    """The files of the snapshot before the commits that the one after lacks, and those of the one
    after that the one before lacks.

    A file without a change of data (OPTIMIZE) is not in the log's data changes: what it moved
    counts as its origin.
    """
    removed: dict[tuple[str, str | None], FileAction] = {}
    added: dict[tuple[str, str | None], FileAction] = {}
    for commit in commits:
        for file in (*commit.removed, *commit.moved_out):
            if added.pop(file.identity, None) is None:
                removed[file.identity] = file
        for file in (*commit.added, *commit.moved_in):
            if removed.pop(file.identity, None) is None:
                added[file.identity] = file
    return list(removed.values()), list(added.values())


def _files_at_risk(judgement: Judgement) -> list[str]:
    """What the range needs and a clean-up may have taken: files that are live no more, and change
    files.
    """
    commits = (*judgement.commits, *judgement.later)
    removed = {file.path for commit in commits for file in (*commit.removed, *commit.moved_out)}
    needed = [
        file.path for commit in judgement.data_commits for file in (*commit.added, *commit.removed)
    ]
    return [path for path in needed if path in removed] + [
        path for commit in judgement.data_commits for path in commit.change_files
    ]


def _can_rebuild(log: TableLog, version: int) -> bool:
    """Whether the log can still rebuild a snapshot: its own commits may be cleaned up while those
    after it are there.
    """
    try:
        log.properties(version)
    except TableUnreadableError:
        return False
    return True


def _keeps_columns(
    spark: SparkSession, location: str, judgement: Judgement, range_: SnapshotRange
) -> bool:
    """Whether the columns of the start are there throughout the range, in their types: only then do
    its rows share one schema.
    """
    written = [commit.columns for commit in judgement.commits if commit.columns is not None]
    before = first_version(range_) - 1
    if not written or before < 0:
        return True
    start = pinned(spark, location, before).schema
    return all(set(start.names) <= set(columns) for columns in written) and _holds(
        pinned(spark, location, judgement.version).schema, start
    )


def _holds(kind: DataType, other: DataType) -> bool:
    """Whether a type has all that another has; structs may have more."""
    if isinstance(kind, StructType) and isinstance(other, StructType):
        return all(
            field.name in kind.names and _holds(kind[field.name].dataType, field.dataType)
            for field in other
        )
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
        states = (
            [*([log.properties(before)] if before >= 0 else []), *spoken]
            if spoken
            else [log.properties(judgement.version)]
        )
    except TableUnreadableError:
        return False
    return all(state.get(CHANGE_FEED, "").lower() == "true" for state in states)
