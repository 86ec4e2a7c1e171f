"""Reads the rows that others appended to a table: each as a message with an identity that it keeps for ever.

A row is named by its stable id where the table tracks rows, else by the file in which it was appended and its number there. No
compaction changes either, as of a range only the files are read that its commits appended.
"""

import json
from collections.abc import Iterable
from functools import cached_property

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from lakechime_dagster.dce.commits import FileAction, TableLog
from lakechime_dagster.dce.event import SnapshotId
from lakechime_dagster.dce.snapshots import SnapshotRange, Verdict, own_uid
from lakechime_dagster.errors import DeclarationError, LaneHeldError, TableUnreadableError
from lakechime_dagster.lake.names import folded
from lakechime_dagster.lake.table_rows import TableRows
from lakechime_dagster.spark.delta_files import files_frame, live_files, names_in_files, plain_files, root_of
from lakechime_dagster.spark.events.job import EventJob
from lakechime_dagster.spark.job import SourceResult
from lakechime_dagster.spark.names import column
from lakechime_dagster.spark.ranges import RangeRead, ReadMethod, pinned, read_range
from lakechime_dagster.triggers.lanes import CommitStamp

TRACKED = "delta.enableRowTracking"
MADE_ANEW = "it was made anew, and is read from its beginning; what it had before, and was not read, is not there any more"
_PAYLOAD = "payload"


def rows_of_table(
    spark: SparkSession, job: EventJob, feed: TableRows, log: TableLog, range_: SnapshotRange, stamp: CommitStamp
) -> tuple[DataFrame | None, SourceResult]:
    """The rows of a range as `_src`, `sent_at` and `payload`, None where there is none, and how they were read.

    `sent_at` is when the row's file was written.

    Raises:
        LaneHeldError: what was appended cannot be told from what is there already, as commits do more than append, or are gone.
        DeclarationError: the table has no such column of text or bytes.
    """
    read = read_range(spark, log, range_)
    is_anew = _is_made_anew(range_, read)
    if not (read.is_first or is_anew) and (read.images is None or read.method not in (ReadMethod.NOTHING, ReadMethod.LOG_FILES)):
        raise _refusal(job, feed, range_, read, stamp)
    told = SourceResult(
        alias=_PAYLOAD, table=feed.name, method=read.method.value, verdict=read.verdict, start=range_.start,
        end=SnapshotId(str(read.version)), commits=read.commits, data_commits=read.data_commits, note=MADE_ANEW if is_anew else read.note,
    )  # fmt: skip
    if read.method is ReadMethod.NOTHING:
        return None, told
    rows = _Rows(spark, job.name, feed, log, read.version)
    found = rows.of_snapshot() if read.is_first or is_anew else rows.of_files(read.files)
    return (None if found is None or found.isEmpty() else found), told


def _is_made_anew(range_: SnapshotRange, read: RangeRead) -> bool:
    """Whether the table is another one than it was at the range's start, of which the claimed snapshot is read."""
    if read.verdict is not Verdict.RECREATED or read.version != int(range_.end):
        return False
    before, now = range_.start_uid, range_.table_uid
    return range_.is_recreated and before is not None and now is not None and own_uid(before) != own_uid(now)


def _refusal(job: EventJob, feed: TableRows, range_: SnapshotRange, read: RangeRead, stamp: CommitStamp) -> Exception:
    """Why a range is not read: a newer attempt may read up to another end, or a person must decide."""
    where = f"{feed.name} after version {range_.start} up to {range_.end}"
    if read.verdict is Verdict.RECREATED and read.version != int(range_.end):
        return TableUnreadableError(f"{where}: {read.note}; the next attempt reads the new one")
    why = read.note or f"commits of it do more than append ({read.method.value})"
    return LaneHeldError(
        f"{where}: {why}; {job.name} takes only what is appended, and takes nothing of these versions. Put the table's log back as it "
        f"was, or go on behind version {range_.end} by `lakechime execution skip {stamp.execution_id} --reason …` and append anew to "
        f"{feed.name} what must not be missing"
    )


class _Rows:
    """Rows of a table at a version, with their identities."""

    def __init__(self, spark: SparkSession, reader: str, feed: TableRows, log: TableLog, version: int) -> None:
        self.spark, self.reader, self.feed, self.log, self.version = spark, reader, feed, log, version
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
            problem = "has files with deleted rows and does not track rows, so that the others cannot be named"
            remedy = f"`REORG TABLE {self.feed.name} APPLY (PURGE)` writes them anew, `SET TBLPROPERTIES ('{TRACKED}' = 'true')` names them"
            raise TableUnreadableError(f"{self.feed.name} at {self.log.shown_location} {problem}; {remedy}")
        return self._plain(sorted(files))

    def of_files(self, files: Iterable[FileAction]) -> DataFrame | None:
        """The rows of files that commits appended; those that are older than the table's tracking are named by their files."""
        several = list(files)
        tracked = {file.path for file in several if self.is_tracked and "baseRowId" in json.loads(file.entry)["add"]}
        plain = self._plain([file.path for file in several if file.path not in tracked])
        if not tracked:
            return plain
        named = [file for file in several if file.path in tracked]
        found = self._tracked(files_frame(self.spark, self.log.location, self.version, named))
        return found if plain is None else found.unionByName(plain)

    def _tracked(self, rows: DataFrame) -> DataFrame:
        name, _ = self._column
        return self._told(rows, column(name), F.col("_metadata.row_id").cast("string"))

    def _plain(self, paths: list[str]) -> DataFrame | None:
        if not paths:
            return None
        name, kind = self._column
        there = names_in_files(self.spark, self.log.location, self.version)[name]
        rows = plain_files(self.spark, self.log.location, paths, StructType([StructField(there, kind)]))
        path = F.parse_url(F.col("_metadata.file_path"), F.lit("PATH"))
        own = F.substr(path, F.lit(len(self.root) + 1))  # of a clone some files are another table's
        relative = F.when(path.startswith(self.root), own).otherwise(F.col("_metadata.file_path"))
        return self._told(rows, column(there), F.concat_ws("@", relative, F.col("_metadata.row_index").cast("string")))

    def _told(self, rows: DataFrame, payload: Column, identity: Column) -> DataFrame:
        source = F.concat_ws("/", F.lit(str(self.uid)), identity)
        told = F.coalesce(payload.cast("binary"), F.lit(b""))  # a row without a payload is no event, as a topic's tombstone
        return rows.select(source.alias("_src"), F.col("_metadata.file_modification_time").alias("sent_at"), told.alias(_PAYLOAD))

    @cached_property
    def _column(self) -> tuple[str, DataType]:
        """The column of the payload, as the table spells it, and its type.

        Raises:
            DeclarationError: there is none, or it is of another type, or a partition's.
        """
        schema, wanted = pinned(self.spark, self.log.location, self.version).schema, self.feed.payload
        found = [field for field in schema if folded(field.name) == folded(wanted)]
        if not found:
            problem = f"{self.feed.name} has no column {wanted!r}; it has {', '.join(schema.names)}"
        elif not isinstance(found[0].dataType, StringType | BinaryType):
            problem = f"{wanted} of {self.feed.name} is {found[0].dataType.simpleString()}; name a column of text or bytes"
        elif found[0].name in self.log.levels().names:
            problem = f"{wanted} is a partition of {self.feed.name}; name another column"
        else:
            return found[0].name, found[0].dataType
        raise DeclarationError(self.reader, "source", problem)
