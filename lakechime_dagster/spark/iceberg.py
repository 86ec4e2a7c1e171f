"""Reads what changed in an Iceberg table between two snapshots, and writes one.

To read, Spark is given the table's metadata file, which pyiceberg finds in the catalog. To write,
its session gets the catalog, stages a snapshot, and pyiceberg makes that the current one where no
other writer was first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakechime_dagster.dce.events import SnapshotId
from lakechime_dagster.dce.snapshots import NO_SNAPSHOT, SnapshotRange, TableSize, Verdict
from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.spark.commit import (
    MERGED,
    Written,
    column_of,
    is_within,
    leaves_of,
    partition_predicate,
    same_key,
)
from lakechime_dagster.spark.ranges import (
    CHANGE,
    VERSION,
    RangeRead,
    ReadMethod,
    as_changes,
    difference,
)
from lakechime_dagster.spark.rows import OPERATION
from lakechime_dagster.spark.session import (
    MAX_LITERALS,
    column,
    is_comparable,
    quoted,
    session_confs,
    text_literal,
)
from lakechime_dagster.tables.options import column_of as column_name
from lakechime_dagster.triggers.consumers import COMMIT_METADATA_KEY, CommitMetadata, Committed

if TYPE_CHECKING:
    import pyarrow as pa

    from lakechime_dagster.formats.iceberg import IcebergLog, IcebergRange


@dataclass(frozen=True)
class IcebergSource:
    """An Iceberg table by the snapshots of its main branch.

    Appends are read from the files that they added. Where files were replaced, Iceberg's changes
    are the rows of these files, of which the ones that were only copied are left out. Where rows
    are deleted by files of deletes, Iceberg has no changes, and both snapshots are compared.
    """

    spark: SparkSession
    log: "IcebergLog"

    def read_snapshot(self, at: SnapshotId | None) -> tuple[DataFrame, SnapshotId]:
        metadata, snapshot = self.log.pinned(at)
        return self._at(metadata, snapshot), snapshot

    def read_range(self, range_: SnapshotRange) -> RangeRead:
        judged = self.log.judge(range_)
        read = RangeRead(
            snapshot=judged.snapshot,
            method=ReadMethod.WHOLE,
            verdict=judged.verdict,
            note=judged.note,
            end=self._at(judged.metadata, judged.snapshot),
            commits=judged.commits,
            data_commits=judged.data_commits,
        )
        if not judged.verdict.is_incremental:
            return read
        if judged.start is None:
            return replace(read, is_first=True)
        if not judged.data_commits:
            nothing = as_changes(read.end.limit(0), 1)
            return replace(read, method=ReadMethod.NOTHING, changes=nothing, only_appends=True)
        method, changes = self._changes(judged, judged.start, read.end)
        if changes is None:
            note = "rows with columns of maps were deleted"
            return replace(read, verdict=Verdict.EXPIRED, note=note)
        return replace(read, method=method, changes=changes, only_appends=judged.only_appends)

    def _changes(
        self, judged: "IcebergRange", start: SnapshotId, end: DataFrame
    ) -> tuple[ReadMethod, DataFrame | None]:
        """The changed rows with the columns of the end snapshot; None where they cannot be compared."""
        if judged.has_delete_files and not judged.only_appends:
            if not is_comparable(end.schema):
                return ReadMethod.WHOLE, None
            return ReadMethod.VERSION_DIFF, difference(self._at(judged.metadata, start), end)
        between = {"start-snapshot-id": start, "end-snapshot-id": judged.snapshot}
        reader = self.spark.read.format("iceberg").options(**between)
        rows = reader.load(judged.metadata + ("" if judged.only_appends else "#changes"))
        columns = [column(name) for name in end.columns]
        if judged.only_appends:
            return ReadMethod.LOG_FILES, as_changes(rows.select(*columns), 1)
        # Iceberg fails where it is handed a condition on `_change_type`, as it would be of an equality
        changes = rows.select(
            *columns,
            F.when(F.ascii("_change_type") == ord("I"), 1).otherwise(-1).alias(CHANGE),
            F.col("_change_ordinal").cast("long").alias(VERSION),
        )
        if is_comparable(end.schema):
            changes = _without_copied(changes)
        return ReadMethod.CHANGE_FEED, changes

    def _at(self, metadata: str, snapshot: SnapshotId) -> DataFrame:
        return _rows_at(self.spark, self.log, metadata, snapshot)


def _rows_at(
    spark: SparkSession, log: "IcebergLog", metadata: str, snapshot: SnapshotId
) -> DataFrame:
    """The rows of a snapshot, by a metadata file of the table."""
    rows = spark.read.format("iceberg").option("versionAsOf", snapshot).load(metadata)
    names = log.names(snapshot)
    if names is None:
        return rows
    return rows.select(*[column(name).alias(shown) for name, shown in names.items()])


def _without_copied(changes: DataFrame) -> DataFrame:
    """The changes without those of rows that a snapshot took out of one file and put into another
    as they were.
    """
    whole = [column(name) for name in changes.columns if name != CHANGE]
    net = changes.groupBy(*whole).agg(F.sum(CHANGE).alias("__net")).where("__net != 0")
    each = F.explode(F.array_repeat(F.signum("__net").cast("int"), F.abs("__net").cast("int")))
    return net.withColumn(CHANGE, each).select(*[column(name) for name in changes.columns])


# by which a SQL catalog knows its tables, as `formats.iceberg` has it
CATALOG = "lakechime"
STAGES = {"write.wap.enabled": "true"}  # of a table: without it a write is not staged
SHARED = "gc.enabled"  # of a table: whether its files are its own, so that expiry removes them
STAGED = "spark.wap.id"
STAGING = Lock()  # of the session's settings, which are those of one write
WRITE_MODES = tuple(f"write.{each}.mode" for each in ("delete", "update", "merge"))
PROPERTY = "spark.sql.iceberg.snapshot-property."
DRIVERS = ("sqlite", "postgresql")  # databases of SQL catalogs that Spark reaches


def catalog_confs(properties: Mapping[str, str]) -> dict[str, str]:
    """The settings of a session by which Spark finds the catalog of these properties of pyiceberg.

    Raises:
        InvalidValueError: Spark has no catalog for them.
    """
    scheme = urlsplit(properties.get("uri", "")).scheme
    # as pyiceberg infers it
    inferred = {"http": "rest", "https": "rest", "thrift": "hive"}.get(scheme, "sql")
    kind = properties.get("type", inferred)
    own = {name: value for name, value in properties.items() if name != "type"}
    if kind == "sql":
        url = urlsplit(own.pop("uri"))
        driver = url.scheme.partition("+")[0]
        if driver not in DRIVERS:
            remedy = f"is a database that Spark cannot reach; use one of {', '.join(DRIVERS)}"
            raise InvalidValueError("LAKECHIME_ICEBERG_CATALOG", driver, remedy)
        place = url.netloc.rpartition("@")[2] + (url.path if url.netloc else url.path[1:])
        query = f"?{url.query}" if url.query else ""
        own |= {"uri": f"jdbc:{driver}:{'//' if url.netloc else ''}{place}{query}"}
        own |= {"jdbc.schema-version": "V1"}
        own |= {"jdbc.user": unquote(url.username)} if url.username else {}
        own |= {"jdbc.password": unquote(url.password)} if url.password else {}
        kind = "jdbc"
    given = {"type": kind, "cache-enabled": "false", **own}
    prefix = f"spark.sql.catalog.{CATALOG}"
    return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | {
        f"{prefix}.{name}": value for name, value in given.items()
    }


@dataclass(kw_only=True)
class IcebergTarget:
    """An Iceberg table to write.

    A write is compared with the snapshot that is current when an attempt at its commit begins, and
    becomes current only while that still is: of two attempts at an execution, and of any two
    writers, one is first, and the other compares again. A snapshot that was staged in vain stays
    until snapshots are expired.

    Attributes:
        keeps_newest: The newest commits of consumers with keys outlive their snapshots too, as it has
            few of them.
    """

    name: str
    log: "IcebergLog"
    keys: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    comment: str = ""
    personal: tuple[str, ...] = ()
    location: str | None = None
    write_mode: str | None = None
    keeps_newest: bool = False
    since: SnapshotId = NO_SNAPSHOT
    columns: Mapping[str, str] | None = None

    @property
    def table(self) -> str:
        """Its name in SQL."""
        return ".".join(map(quoted, (CATALOG, *self.log.table.split("."))))

    def read(self, spark: SparkSession) -> DataFrame:
        """The table at the snapshot that a commit compares with."""
        if self.since == NO_SNAPSHOT:
            return spark.read.format("iceberg").load(self.log.metadata)
        return _rows_at(spark, self.log, self.log.metadata, self.since)

    def size(self) -> TableSize:
        """What its files hold; rows that files of deletes leave out count too."""
        return self.log.size()

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        """Make the table where it is missing; its files get no bounds of personal columns."""
        mode = {} if self.write_mode is None else dict.fromkeys(WRITE_MODES, self.write_mode)
        properties = {**STAGES, **mode, **self._unbounded(schema)}
        if self.log.exists():
            self.log.require(properties)
            return
        made = {**properties, "format-version": "2"}
        self.log.create(
            _arrow(spark, schema), self.partitioned_by, self.comment, made, self.location
        )

    def is_just_made(self) -> bool:
        """Whether it holds nothing yet."""
        return self.since == NO_SNAPSHOT

    def begin(self) -> None:
        """Pin the snapshot that is compared with: before it is asked who has committed."""
        self.since, self.columns = self.log.newest, None

    def write_as(
        self, spark: SparkSession, commit_metadata: CommitMetadata, write: Callable[[], None]
    ) -> None:
        """Stage a write as a snapshot, and make it current where nobody was first since `begin`."""
        staged = f"{commit_metadata.execution_id}/{commit_metadata.attempt}/{uuid4().hex}"
        confs = {
            STAGED: staged,
            PROPERTY + COMMIT_METADATA_KEY: commit_metadata.to_text(),
            **catalog_confs(self.log.catalog),
        }
        self.log.require(STAGES)
        with STAGING, session_confs(spark, confs):
            write()
        is_kept = self.keeps_newest or not commit_metadata.consumer.key
        self.log.publish(staged, self.since, commit_metadata, self.columns, is_kept=is_kept)

    def append(self, rows: DataFrame) -> None:
        """Add rows, with new columns if there are any."""
        self._widened(rows).writeTo(self.table).append()

    def added(self, spark: SparkSession, committed: Committed) -> DataFrame:
        """The rows that a commit appended."""
        before = self.log.before(committed.version)
        if before == NO_SNAPSHOT:
            return _rows_at(spark, self.log, self.log.metadata, committed.version)
        between = {"start-snapshot-id": before, "end-snapshot-id": committed.version}
        return spark.read.format("iceberg").options(**between).load(self.log.metadata)

    def known_in(self, committed: Committed, name: str) -> int | None:
        """As `Target.known_in`."""
        return self.log.known_in(committed, name)

    def take_files(self, spark: SparkSession, written_as: str, folder: str) -> None:
        """Make the files of a Hive table, in its folder and of its format, those of the table, which
        has none yet. They stay where they are, and no expiry removes them while the table is migrated.
        """
        self.log.require({SHARED: "false"})
        source = text_literal(f"`{written_as}`.{quoted(folder)}")
        table = text_literal(self.log.table)
        with session_confs(spark, catalog_confs(self.log.catalog)):
            spark.sql(
                f"CALL {CATALOG}.system.add_files(table => {table}, source_table => {source})"
            ).collect()

    def append_nothing(self, spark: SparkSession) -> None:
        """An empty snapshot: later attempts at the execution find it and write nothing."""
        self.read(spark).limit(0).writeTo(self.table).append()

    def replace_all(self, rows: DataFrame) -> None:
        """Replace the whole table, its columns included."""
        self.columns = self.log.widen(_arrow(rows.sparkSession, rows.schema), replaces=True)
        self.log.require(self._unbounded(rows.schema, self.columns))
        named = rows.select(*[column(name).alias(place) for name, place in self.columns.items()])
        self._ordered(named).writeTo(self.table).overwrite(F.lit(True))

    def replace_partitions(self, rows: DataFrame, partitions: Sequence[Sequence[Any]]) -> None:
        """Replace these partitions with those of the rows that are in them."""
        predicate = partition_predicate(self.partitioned_by, rows.schema, partitions)
        within = self._widened(rows.where(predicate))
        within.writeTo(self.table).overwrite(F.expr(predicate))

    def insert(self, since: SnapshotId, rows: DataFrame) -> None:
        """Add rows of keys that it did not hold at the snapshot that the commit compares with."""
        self._ordered(rows).writeTo(self.table).append()

    def merge(
        self, changes: DataFrame, *, is_bounded: bool = False, listed: int = MAX_LITERALS
    ) -> None:
        """Apply keyed changes (`rows.OPERATION`), one row a key; the arguments are those of
        `Target.merge`.
        """
        columns = [name for name in changes.columns if name != OPERATION]
        source = changes.where(F.col(OPERATION).isin("I", "U", "D"))
        self._widened(source.select(*map(column, columns)))
        own = {name: F.col(f"{self.table}.{quoted(name)}") for name in self.keys}
        condition = same_key(self, source, own, is_bounded=is_bounded, listed=listed)
        assignments = {quoted(name): column_of("s", name) for name in columns}
        is_deleted = column_of("s", OPERATION) == "D"
        (
            source.alias("s")
            .mergeInto(self.table, condition)
            .whenMatched(is_deleted)
            .delete()
            .whenMatched(~is_deleted)
            .update(assignments)
            .whenNotMatched(~is_deleted)
            .insert(assignments)
            .merge()
        )

    def written(self, committed: Committed) -> Written:
        summary = self.log.written(committed)
        counted = [f"spark.merge-into.num-target-rows-{name.lower()}" for name in MERGED]
        events = self.log.events_of(committed)
        return Written(
            partitions=tuple(event.partition for event in events),
            rows=int(summary.get("added-records", 0)) if summary else None,
            files=int(summary.get("added-data-files", 0)),
            bytes=int(summary.get("added-files-size", 0)),
            merged=tuple(int(summary[name]) for name in counted if name in summary),
        )

    def _unbounded(
        self, schema: StructType, columns: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """The properties by which files get no bounds of personal columns, which `columns` name
        otherwise in the table.
        """
        hidden = {tuple(column_name(name).lower().split(".")) for name in self.personal}
        named = columns or {}
        leaves = [
            (named.get(leaf[0], leaf[0]), *leaf[1:])
            for leaf in leaves_of(schema)
            if is_within(leaf, hidden)
        ]
        return {f"write.metadata.metrics.column.{'.'.join(leaf)}": "counts" for leaf in leaves}

    def _widened(self, rows: DataFrame) -> DataFrame:
        """The rows in the table's columns, after it got those that it lacked."""
        self.log.widen(_arrow(rows.sparkSession, rows.schema))
        return self._ordered(rows)

    def _ordered(self, rows: DataFrame) -> DataFrame:
        """The rows with all columns of the table, which Iceberg's writer asks for."""
        stored = rows.sparkSession.read.format("iceberg").load(self.log.metadata).schema
        there = {name.lower() for name in rows.columns}
        return rows.select(
            *[
                column(one.name)
                if one.name.lower() in there
                else F.lit(None).cast(one.dataType).alias(one.name)
                for one in stored
            ]
        )


def _arrow(spark: SparkSession, schema: StructType) -> "pa.Schema":
    """The columns as Arrow has them, each of which may be null."""
    return spark.createDataFrame([], schema.toNullable()).toArrow().schema
