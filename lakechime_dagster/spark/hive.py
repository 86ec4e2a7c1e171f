"""Reads what changed in a Hive table between two positions of its events, and replaces partitions.

The session needs no Hive catalog: Spark is given the folders that the metastore names, and writes
into new ones, which the metastore is given.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from lakechime_dagster.dce.events import OperationType, PartitionEvents, Position, SnapshotId
from lakechime_dagster.dce.partitions import NULL_PARTITION, UNPARTITIONED
from lakechime_dagster.dce.snapshots import SnapshotRange, Verdict, own_uid
from lakechime_dagster.errors import DeclarationError, TableUnreadableError
from lakechime_dagster.spark.commit import Written, partition_predicate
from lakechime_dagster.spark.driver import activate
from lakechime_dagster.spark.ranges import RangeRead, ReadMethod, as_changes, narrowed
from lakechime_dagster.spark.rows import shaped
from lakechime_dagster.spark.session import (
    column,
    columns_of,
    spelled,
    sql_literal,
    text_literal,
    typed_rows,
)
from lakechime_dagster.triggers.consumers import COMMIT_METADATA_KEY, CommitMetadata, Committed

if TYPE_CHECKING:
    from lakechime_dagster.formats.hive import HiveFolder, HiveLog, HiveStorage

# of a text in Hive's names of types, where Spark's readers know only text
_BOUNDED = re.compile(r"\b(var)?char\s*\(\s*\d+\s*\)", re.IGNORECASE)
_FORMATS = {"parquet": "parquet.ParquetFileFormat", "orc": "orc.OrcFileFormat"}


@dataclass(frozen=True)
class HiveSource:
    """A Hive table by the positions of its events, which stand for snapshots.

    The metastore knows no past. A position says which partitions exist: those that an event up to it
    names; their rows are those of their files now. Whatever changed after the position has a later
    event, or will have it with the next poll. Files in folders within that of a partition are not
    read.

    `events` are those of the range, or up to the position (None: all partitions exist).
    """

    spark: SparkSession
    log: "HiveLog"
    events: PartitionEvents | None

    def read_snapshot(self, at: SnapshotId | None) -> tuple[DataFrame, SnapshotId]:
        frame = _Folders(self.spark, self.log.table, self.log.stored()).frame(self.events)
        return frame, at or SnapshotId(str(Position.ORIGIN))

    def read_range(self, range_: SnapshotRange) -> RangeRead:
        stored = self.log.stored()
        folders = _Folders(self.spark, self.log.table, stored)
        is_other = range_.table_uid is not None and own_uid(range_.table_uid) != stored.uid
        read = RangeRead(
            snapshot=range_.end,
            method=ReadMethod.WHOLE,
            verdict=Verdict.CONTIGUOUS,
            end=folders.frame(None if is_other else self.events),
        )
        if is_other or range_.is_recreated:
            note = "the table was dropped and created again since it was last read"
            return replace(read, verdict=Verdict.RECREATED, note=note)
        if range_.start is None:
            return replace(read, is_first=True)
        if Position.parse(range_.start) > Position.parse(range_.end):
            note = f"the consumer was put back from {range_.start} to {range_.end}"
            return replace(read, verdict=Verdict.ROLLBACK, note=note)
        events = self.events or PartitionEvents()
        if not events.changed:
            nothing = as_changes(read.end.limit(0), 1)
            return replace(read, method=ReadMethod.NOTHING, changes=nothing, only_appends=True)
        only_appends = all(
            key not in events.before or operations == {OperationType.APPEND}
            for key, operations in events.changed.items()
        )
        if UNPARTITIONED in events.changed and not (only_appends and not stored.partitioned_by):
            note = "an event names no partition, so that all rows may have changed"
            return replace(read, verdict=Verdict.EXPIRED, note=note)
        if not stored.partitioned_by:
            changes, partitions = read.end, None
        else:
            partitions = folders.values(events.changed)
            targets = {name: column(name) for name in partitions.columns}
            changes = narrowed(read.end, partitions, targets)
        return replace(
            read,
            method=ReadMethod.PARTITIONS,
            changes=as_changes(changes, 1),
            only_appends=only_appends,
            repeat=not events.before.isdisjoint(events.changed),
            partitions=None if only_appends else partitions,
            commits=len(events.changed),
            data_commits=len(events.changed),
        )


@dataclass(kw_only=True)
class HiveTarget:
    """A Hive table whose partitions are replaced whole.

    Rows are written into a new folder, in files of the table's format. Then the metastore is given
    the folders of the partitions in it: a reader finds the old or the new rows of a partition, and a
    writer that ends before has changed nothing. The folders that the partitions had stay, for
    readers that began before.

    The commit of an execution is known by parameters: of the partitions that it replaced, and of
    the table where its consumer has no key or it left no rows. Nothing keeps one of two attempts out that write at the
    same time: the later swap stays.
    """

    name: str
    log: "HiveLog"
    keys: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    location: str = ""
    since: int = 0
    metadata: CommitMetadata | None = None
    files: int = 0
    bytes: int = 0

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        """Make the table where it is missing."""
        if self.log.exists():
            return
        types = columns_of(schema)
        levels = {name: types.pop(name) for name in self.partitioned_by}
        self.log.create(types, levels, self.location)

    def is_just_made(self) -> bool:
        """Whether it holds nothing, which is not known."""
        return False

    def begin(self) -> None:
        """Nothing can be pinned."""

    def write_as(
        self, spark: SparkSession, commit_metadata: CommitMetadata, write: Callable[[], None]
    ) -> None:
        """Make a write the commit of an execution."""
        self.metadata = commit_metadata
        write()
        # where no partition is left that could know it the table does
        if not commit_metadata.consumer.key or not self.files:
            self.log.note(self._parameters)

    def append_nothing(self, spark: SparkSession) -> None:
        """Only a commit: later attempts at the execution find it and write nothing."""
        self.log.note(self._parameters)

    def written(self, committed: Committed) -> Written:
        partitions = tuple(one.partition for one in self.log.events_of(committed))
        return Written(partitions=partitions, files=self.files, bytes=self.bytes)

    @property
    def _parameters(self) -> dict[str, str]:
        return {COMMIT_METADATA_KEY: self.metadata.to_text()} if self.metadata else {}

    def read(self, spark: SparkSession) -> DataFrame:
        return _Folders(spark, self.log.table, self.log.stored()).frame(None)

    def replace_all(self, rows: DataFrame) -> None:
        """Replace the whole table, whose columns stay."""
        self._replace(rows, None)

    def replace_partitions(self, rows: DataFrame, partitions: Sequence[Sequence[Any]]) -> None:
        """Replace these partitions, of plain values by level, with those of the rows that are in
        them.
        """
        self._replace(rows, partitions)

    def _replace(self, rows: DataFrame, partitions: Sequence[Sequence[Any]] | None) -> None:
        stored = self.log.new_folder()
        ((written_as, (folder,)),) = stored.folders.items()
        folders = _Folders(rows.sparkSession, self.name, stored)
        levels, within = folders.keys.names, folders.stored_as(rows)
        replaced = None
        if partitions is not None:
            places = [stored.levels.index(name.lower()) for name in levels]
            ordered = [[one[place] for place in places] for one in partitions]
            within = within.where(partition_predicate(levels, within.schema, ordered))
            replaced = folders.texts(ordered)
        # rows of a partition into few files
        writer = (within.hint("rebalance", *levels) if levels else within).write
        (writer.partitionBy(*levels) if levels else writer).format(written_as).save(folder.location)
        jvm: Any = rows.sparkSession._jvm
        session: Any = rows.sparkSession._jsparkSession
        root = jvm.org.apache.hadoop.fs.Path(folder.location)
        files = root.getFileSystem(session.sessionState().newHadoopConf())
        written, self.files, self.bytes = _written(files, root, levels)
        if self.metadata and replaced:  # an emptied partition stays, since it knows the commit
            for number, values in enumerate(one for one in replaced if one not in written):
                empty = root.suffix(f"/empty-{number}")
                files.mkdirs(empty)
                written[values] = empty.toString()
        self.log.swap(written, replaced, self._parameters)


@dataclass(frozen=True)
class _Folders:
    """The folders of a table as frames."""

    spark: SparkSession
    table: str
    stored: "HiveStorage"

    def frame(self, events: PartitionEvents | None) -> DataFrame:
        """The rows of the partitions that events name, and of those that no event can name; of all
        where there are none.

        The columns of files have the metastore's names and types, and are null where a file lacks
        them; a folder that is gone has no rows.
        """
        frames = [
            self._read(name, [one for one in folders if _is_named(one, events)])
            for name, folders in (self.stored.folders or {"parquet": ()}).items()
        ]
        return reduce(DataFrame.unionByName, frames)

    def values(self, keys: Iterable[str]) -> DataFrame:
        """The values of the partition columns of these partitions, also of dropped ones."""
        names = [name.lower() for name in self.keys.names]
        there = {one.key: one.values for found in self.stored.folders.values() for one in found}
        rows = []
        for key in keys:
            given = dict(zip(self.stored.levels, json.loads(key), strict=True))
            rows.append(there.get(key) or [given[name] for name in names])
        return self._typed(rows)

    @property
    def keys(self) -> StructType:
        """The partition columns."""
        return self._schema()[1]

    def stored_as(self, rows: DataFrame) -> DataFrame:
        """Rows in the columns and types of the table, null in those that they lack.

        Raises:
            DeclarationError: they have further columns, or values that a column cannot hold.
        """
        within, keys = self._schema()
        every = StructType([*within, *keys])
        found = shaped(self.table, spelled(rows, every.names), every)
        if more := found.columns[len(every.names) :]:
            raise DeclarationError(
                self.table,
                "columns",
                f"{', '.join(more)}: the Hive table has no such column; add it there (ALTER TABLE "
                f"... ADD COLUMNS), or leave it out",
            )
        return found

    def texts(self, partitions: Sequence[Sequence[Any]]) -> list[tuple[str, ...]]:
        """Partitions of plain values as Hive spells them."""
        kinds, nothing = [one.dataType for one in self.keys], text_literal(NULL_PARTITION)
        rows = [
            ", ".join(
                nothing if value in (None, "") else f"CAST({sql_literal(value, kind)} AS STRING)"
                for value, kind in zip(values, kinds, strict=True)
            )
            for values in partitions
        ]
        if not rows:
            return []
        each = f"inline(array({', '.join(f'struct({row})' for row in rows)}))"
        found = self.spark.range(1).selectExpr(each)
        return [tuple(row) for row in found.collect()]

    def _schema(self) -> tuple[StructType, StructType]:
        """The columns of the files, and the partition columns."""
        names = {name.lower() for name, _ in self.stored.partitioned_by}
        if self.stored.schema:
            every = StructType.fromJson(json.loads(self.stored.schema)).fields
        else:
            every = [
                StructField(name, self._type(name, kind))
                for name, kind in (*self.stored.columns, *self.stored.partitioned_by)
            ]
        within = [one for one in every if one.name.lower() not in names]
        return StructType(within), StructType([one for one in every if one.name.lower() in names])

    def _type(self, name: str, kind: str) -> DataType:
        try:
            return DataType.fromDDL(_BOUNDED.sub("string", kind))
        except ParseException as error:
            raise TableUnreadableError(
                f"{self.table}: Spark has no type for its column {name}, which is {kind} in the "
                f"metastore; name a copy without it"
            ) from error

    def _typed(self, rows: Sequence[Sequence[str | None]]) -> DataFrame:
        """Texts of partitions as values of the partition columns, null where they are none."""
        return typed_rows(self.spark, self.keys.fields, rows)

    def _read(self, name: str, folders: Sequence["HiveFolder"]) -> DataFrame:
        """The rows of folders, each with its values in the partition columns, whatever its path is:
        as Spark reads the partitions of its own catalog.
        """
        within, keys = self._schema()
        if not folders:
            return self.spark.createDataFrame([], StructType([*within, *keys]))
        activate(self.spark)
        jvm: Any = self.spark._jvm
        session: Any = self.spark._jsparkSession
        sources, scala = jvm.org.apache.spark.sql.execution.datasources, jvm.scala
        files = jvm.org.apache.hadoop.fs
        default = files.FileSystem.get(session.sessionState().newHadoopConf())
        # by URLs, as Spark lists files, where the metastore has a path alone
        paths = [
            default.makeQualified(files.Path(one.location))
            if one.location.startswith("/")
            else files.Path(one.location)
            for one in folders
        ]
        parts = []
        if keys.fields:
            typed: Any = self._typed([one.values for one in folders])
            rows = typed._jdf.queryExecution().executedPlan().executeCollect()
            parts = [
                sources.PartitionPath(row, path) for row, path in zip(rows, paths, strict=True)
            ]
        spec = sources.PartitionSpec(_jvm_type(jvm, keys), _sequence(jvm, parts))
        nothing, no_options = scala.Option.empty(), getattr(scala.collection.immutable, "Map$")
        options = getattr(no_options, "MODULE$").empty()
        index = sources.InMemoryFileIndex(
            session,
            _sequence(jvm, paths),
            options,
            nothing,
            getattr(getattr(sources, "NoopCache$"), "MODULE$"),
            scala.Option.apply(spec),
            nothing,
        )
        kind = reduce(getattr, _FORMATS[name].split("."), sources)()
        relation = sources.HadoopFsRelation(
            index, _jvm_type(jvm, keys), _jvm_type(jvm, within), nothing, kind, options, session
        )
        return DataFrame(session.baseRelationToDataFrame(relation), self.spark)


def _written(
    files: Any, root: Any, levels: Sequence[str]
) -> tuple[dict[tuple[str, ...], str], int, int]:
    """The folders of partitions that Spark has written, by their values, how many files it wrote,
    and their bytes.
    """
    found: dict[tuple[str, ...], Any] = {(): root}
    for _ in levels:
        found = {
            (*values, unquote(value)): one.getPath()
            for values, path in found.items()
            for one in files.listStatus(path)
            for _, is_level, value in [one.getPath().getName().partition("=")]
            if is_level
        }
    summary = files.getContentSummary(root)
    written = {values: path.toString() for values, path in found.items()}
    return written, summary.getFileCount() - 1, summary.getLength()  # one says that all are there


def _is_named(folder: "HiveFolder", events: PartitionEvents | None) -> bool:
    return events is None or folder.key is None or folder.key in events.known


def _jvm_type(jvm: Any, schema: StructType) -> Any:
    return jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())


def _sequence(jvm: Any, values: Sequence[Any]) -> Any:
    listed = jvm.java.util.ArrayList()
    for value in values:
        listed.add(value)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(listed).toSeq()
