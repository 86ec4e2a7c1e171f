"""Commits an execution to its target at most once."""

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

import tenacity
from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
)
from delta.tables import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DateType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lakechime_dagster.dce.partitions import PartitionValue
from lakechime_dagster.dce.snapshots import TableCommit, TableLog, TableSize
from lakechime_dagster.errors import ConcurrentWriteError, ConsumerConflictError, LakeChimeError
from lakechime_dagster.spark.driver import activate
from lakechime_dagster.spark.ranges import files_frame, literal_filter, snapshot_at
from lakechime_dagster.spark.rows import OPERATION, holds
from lakechime_dagster.spark.session import (
    MAX_LITERALS,
    column,
    quoted,
    session_confs,
    spelled,
    sql_literal,
    text_literal,
)
from lakechime_dagster.tables.options import column_of as column_name
from lakechime_dagster.triggers.consumers import CommitMetadata, Committed

if TYPE_CHECKING:
    from lakechime_dagster.formats.delta import DeltaLog
    from lakechime_dagster.spark.hive import HiveTarget
    from lakechime_dagster.spark.iceberg import IcebergTarget

TXN_APP_ID = "spark.databricks.delta.write.txnAppId"
TXN_VERSION = "spark.databricks.delta.write.txnVersion"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


@contextmanager
def transaction(
    spark: SparkSession, app_id: str, version: int, user_metadata: str
) -> Iterator[None]:
    """Every Delta write inside commits under this transaction, at most once ever: a repeat is
    silently skipped by Delta.

    The confs hold for the whole session, so they are put back whatever happens. A write of nothing
    commits too while they are set: decide that there is nothing to write before.
    """
    wanted = {TXN_APP_ID: app_id, TXN_VERSION: str(version), USER_METADATA: user_metadata}
    with session_confs(spark, wanted):
        yield


@contextmanager
def as_commit_of(spark: SparkSession, commit_metadata: CommitMetadata) -> Iterator[None]:
    """Every Delta write inside is the commit of this execution of the consumer."""
    with transaction(
        spark, commit_metadata.txn_app_id, commit_metadata.number, commit_metadata.to_text()
    ):
        yield


MAX_TRIES = 6
CHANGE_FEED = {"delta.enableChangeDataFeed": "true"}
# another writer was first; Delta's Python classes of them have no common base
CONFLICTS = (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
    ConcurrentWriteError,
)


class CommitLostError(LakeChimeError):
    """A write returned, but the target's log holds no commit of its execution."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A table to write: where it lies, its key, its partition columns, its log, and those of its
    columns that are personal.
    """

    name: str
    location: str
    log: "DeltaLog"
    keys: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    comment: str = ""
    personal: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)

    def read(self, spark: SparkSession) -> DataFrame:
        return spark.read.format("delta").load(self.location)

    def size(self) -> TableSize:
        """What its files hold."""
        return self.log.size()

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        """Make the table where it is missing, and keep its log free of bounds of personal columns,
        before rows of a schema are written.
        """
        create_if_missing(spark, self, schema, self.made(schema))
        keep_listed(spark, self, schema)

    def made(self, schema: StructType) -> dict[str, str]:
        """The properties with which the table is made."""
        return {**CHANGE_FEED, **self.properties, **properties_of(schema, self)}

    @property
    def since(self) -> int:
        """The version that a comparison with the target sees, or an older one."""
        return self.log.version

    def is_just_made(self) -> bool:
        """Whether it holds nothing yet."""
        return self.log.version == 0 and not commit_at(self.log, 0).added

    def begin(self) -> None:
        """Nothing is to be pinned: Delta itself checks what a write has read."""

    def write_as(
        self, spark: SparkSession, commit_metadata: CommitMetadata, write: Callable[[], None]
    ) -> None:
        """Make a write the commit of an execution, where no other attempt was first."""
        with suppress(ConcurrentTransactionException), as_commit_of(spark, commit_metadata):
            write()

    def append(self, rows: DataFrame) -> None:
        """Add rows, with new columns if there are any; rows of nothing make a commit too, which is the
        fence of law 13.
        """
        rows.write.format("delta").mode("append").option("mergeSchema", "true").save(self.location)

    def added(self, spark: SparkSession, committed: Committed) -> DataFrame:
        """The rows that a commit appended."""
        version = int(committed.version)
        return files_frame(spark, self.location, version, commit_at(self.log, version).added)

    def known_in(self, committed: Committed, name: str) -> int | None:
        """How many rows that a commit appended have a value in a column; None where the statistics of
        its files do not say that.
        """
        added = commit_at(self.log, int(committed.version)).added
        if any(one.rows is None or name not in one.nulls for one in added):
            return None
        return sum((one.rows or 0) - one.nulls[name] for one in added)

    def append_nothing(self, spark: SparkSession) -> None:
        """An empty commit: later attempts at this execution find it and write nothing."""
        nulls = [
            F.lit(None).cast(field.dataType).alias(field.name) for field in self.read(spark).schema
        ]
        rows = spark.range(0).select(*nulls)
        rows.write.format("delta").mode("append").save(self.location)

    def replace_all(self, rows: DataFrame) -> None:
        """Replace the whole table, its schema included."""
        writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        (writer.partitionBy(*self.partitioned_by) if self.partitioned_by else writer).save(
            self.location
        )

    def replace_partitions(self, rows: DataFrame, partitions: Sequence[Sequence[Any]]) -> None:
        """Replace these partitions with those of the rows that are in them; one for which there is no
        row is emptied.
        """
        predicate = partition_predicate(self.partitioned_by, rows.schema, partitions)
        writer = (
            rows.where(predicate)
            .write.format("delta")
            .mode("overwrite")
            .option("replaceWhere", predicate)
            .option("mergeSchema", "true")
        )
        writer.save(self.location)

    def merge(
        self, changes: DataFrame, *, is_bounded: bool = False, listed: int = MAX_LITERALS
    ) -> None:
        """Apply keyed changes (`rows.OPERATION`): one row per key, so that no two of them meet one
        target row.

        Delta opens the files alone that may hold the partitions of these keys, or where it `is_bounded`
        the keys themselves: by their list where no more are to be `listed`, or by the least and the
        greatest of them. The log holds the condition, so that it has no keys that are personal.
        """
        columns = [name for name in changes.columns if name != OPERATION]
        source = changes.where(F.col(OPERATION).isin("I", "U", "D"))
        assignments = {quoted(name): column_of("s", name) for name in columns}
        own = {key: column_of("t", key) for key in self.keys}
        condition = same_key(self, source, own, is_bounded=is_bounded, listed=listed)
        deletes, writes = column_of("s", OPERATION) == "D", column_of("s", OPERATION) != "D"
        table = DeltaTable.forPath(changes.sparkSession, self.location)
        merger = table.alias("t").merge(source.alias("s"), condition)
        if not holds(
            spelled(table.toDF(), columns).schema,
            StructType([changes.schema[name] for name in columns]),
        ):
            merger = merger.withSchemaEvolution()
        (
            merger.whenMatchedDelete(deletes)
            .whenMatchedUpdate(writes, assignments)  # type: ignore[arg-type]
            .whenNotMatchedInsert(writes, assignments)  # type: ignore[arg-type]
            .execute()
        )

    def insert(self, since: int, rows: DataFrame) -> None:
        """Commit rows (`can_insert`) of keys that the target did not hold at a version, with the commit
        metadata that is set (`as_commit_of`).

        A MERGE would look for each key again, to find none, and be guarded against others only from
        then on. This is from that version on: for Delta it is a transaction that began there and has
        read all of the table.

        Raises:
            ConcurrentAppendException: another writer has added or changed rows since that version, or
                Delta's like ones.
            ConcurrentTransactionException: another attempt at the same execution was first.
        """
        spark = rows.sparkSession
        jvm: Any = spark._jvm
        log, snapshot = snapshot_at(spark, self.location, since)
        activate(spark)
        none = jvm.scala.Option.empty()
        transaction = log.startTransaction(none, jvm.scala.Option.apply(snapshot))
        transaction.readWholeTable()
        app_id, number = spark.conf.get(TXN_APP_ID), int(spark.conf.get(TXN_VERSION) or 0)
        if transaction.txnVersion(app_id) >= number:
            return  # as Delta's own writes are skipped: the log shows whose commit the execution holds
        levels = [column(name) for name in self.partitioned_by]
        # a file for each partition, as a MERGE writes them
        frame: Any = rows.repartition(*levels) if levels else rows
        named = {
            "txn": {"appId": app_id, "version": number, "lastUpdated": time.time_ns() // 1_000_000}
        }
        of_execution = jvm.org.apache.spark.sql.delta.actions.Action.fromJson(json.dumps(named))
        write = getattr(jvm, "org.apache.spark.sql.delta.DeltaOperations$Write")(
            jvm.org.apache.spark.sql.SaveMode.Append, *[none] * OF_WRITE
        )
        transaction.commit(transaction.writeFiles(frame._jdf).appended(of_execution), write)

    def written(self, committed: Committed) -> "Written":
        record = commit_at(self.log, int(committed.version))
        merged = record.metrics if record.operation == "MERGE" else {}
        rows = record.metrics.get("numOutputRows", TableSize.of(record.added).rows)
        return Written(
            partitions=tuple(record.partitions),
            rows=None if rows is None else int(rows),
            files=len(record.added),
            bytes=sum(file.size for file in record.added),
            merged=tuple(int(merged[f"numTargetRows{name}"]) for name in MERGED) if merged else (),
        )


def same_key(
    target: "Target | IcebergTarget",
    source: DataFrame,
    own: Mapping[str, Column],
    *,
    is_bounded: bool,
    listed: int,
) -> Column:
    """Whether a row of a target, by its `own` columns of the key, has the key of one of the source
    `s`; with the bounds of `Target.merge`.
    """
    condition = reduce(
        lambda a, b: a & b, [value == column_of("s", name) for name, value in own.items()]
    )
    hidden = {column_name(name).lower() for name in target.personal}
    by_key = {
        name: value
        for name, value in own.items()
        if name.lower() not in hidden and (is_bounded or name in target.partitioned_by)
    }
    within = literal_filter(source, by_key, listed) if by_key else None
    return condition if within is None else condition & within


MERGED = ("Inserted", "Updated", "Deleted")  # rows that a MERGE counts


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a commit of a target holds: the partitions that it touched, its new files, their rows,
    where these are known, and bytes, and the rows that a MERGE inserted, updated and deleted.
    """

    partitions: tuple[tuple[PartitionValue, ...] | None, ...]
    files: int
    bytes: int
    rows: int | None = None
    merged: tuple[int, ...] = ()


def newest_commit(
    target: "Target | IcebergTarget | HiveTarget", commit_metadata: CommitMetadata
) -> Committed | None:
    """The commit of this execution, if some attempt made it already, else the newest that the
    consumer made before.

    Raises:
        ConsumerConflictError: the consumer has moved on, so this attempt is too late to write
            anything.
    """
    if not target.log.exists():
        return None
    found = target.log.committed(
        commit_metadata.consumer, commit_metadata.number
    ) or target.log.last_committed(commit_metadata.consumer)
    if found and found.commit_metadata.number > commit_metadata.number:
        raise ConsumerConflictError(
            f"{target.name}: attempt {commit_metadata.attempt} at execution {commit_metadata.number} is "
            f"too late, its consumer has "
            f"committed execution {found.commit_metadata.number}"
        )
    return found


def create_if_missing(
    spark: SparkSession,
    target: Target,
    schema: StructType,
    properties: Mapping[str, str] | None = None,
) -> None:
    """Make an empty target, with its change feed on unless the properties say otherwise.

    A table that is there, or that another run makes meanwhile, is left as it is.
    """
    # which is what Delta calls a folder that another run has only begun to fill
    for tried in retrying(AnalysisException):
        with tried:
            if not target.log.exists():
                _create(spark, target, schema, CHANGE_FEED if properties is None else properties)


def _create(
    spark: SparkSession, target: Target, schema: StructType, properties: Mapping[str, str]
) -> None:
    builder = DeltaTable.createIfNotExists(spark).location(target.location)
    for name, value in properties.items():
        builder = builder.property(name, value)
    builder = builder.addColumns(
        StructType([StructField(f.name, f.dataType, True, f.metadata) for f in schema])
    )
    if target.partitioned_by:
        builder = builder.partitionedBy(*target.partitioned_by)
    if target.cluster_by:
        builder = builder.clusterBy(*target.cluster_by)
    if target.comment:
        builder = builder.comment(target.comment)
    builder.execute()


def commit(
    spark: SparkSession,
    target: "Target | IcebergTarget | HiveTarget",
    commit_metadata: CommitMetadata,
    prepare: Callable[[], Callable[[], None] | None],
) -> Committed | None:
    """Write with the commit metadata, and ask the log whose commit the execution holds then: this
    attempt's or another's.

    `prepare` reads the target and gives the write, or None when there is nothing to do: that is
    decided before the transaction is set, with which even a write of nothing commits. Both are
    repeated when a concurrent writer was first.

    Raises:
        CommitLostError: the write was skipped or changed nothing, and no commit of the execution is
            there.
    """
    for tried in retrying():
        with tried:
            target.begin()
            found = newest_commit(target, commit_metadata)
            if found and found.commit_metadata.number == commit_metadata.number:
                return found
            write = prepare()
            if write is None:
                return None
            target.write_as(spark, commit_metadata, write)
    found = target.log.committed(commit_metadata.consumer, commit_metadata.number)
    if found is None:
        raise CommitLostError(
            f"{target.name}: execution {commit_metadata.number} of consumer {commit_metadata.consumer} "
            f"was written, but is not in the log at"
            f" {target.log.shown_location}; run it again"
        )
    return found


def is_own(found: Committed, commit_metadata: CommitMetadata) -> bool:
    """Whether a commit is this attempt's."""
    return (found.commit_metadata.attempt, found.commit_metadata.execution_id) == (
        commit_metadata.attempt,
        commit_metadata.execution_id,
    ) and not found.is_commit_metadata_lost


def partition_predicate(
    partitioned_by: Sequence[str], schema: StructType, partitions: Sequence[Sequence[Any]]
) -> str:
    """SQL that is true of just these partitions, whose values are plain (`session.plain`)."""
    kinds = [schema[name].dataType for name in partitioned_by]
    names = [quoted(name) for name in partitioned_by]

    def one(values: Sequence[Any]) -> str:
        parts = [
            f"{name} IS NULL" if value is None else f"{name} = {sql_literal(value, kind)}"
            for name, kind, value in zip(names, kinds, values, strict=True)
        ]
        return "(" + " AND ".join(parts) + ")"

    return " OR ".join(one(values) for values in partitions) or "false"


def column_of(alias: str, name: str) -> Column:
    return F.col(f"{alias}.{quoted(name)}")


def commit_at(log: TableLog, version: int) -> TableCommit:
    """The log's record of one commit."""
    return log.commits(version - 1, version)[0]


def retrying(*others: type[Exception]) -> tenacity.Retrying:
    """Try again while concurrent writers of the table are first, and after these other errors."""
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type((*CONFLICTS, *others)),
        stop=tenacity.stop_after_attempt(MAX_TRIES),
        wait=tenacity.wait_random_exponential(multiplier=0.2, max=5),
        reraise=True,
    )


# further fields of Delta's operation of a write: of overwriting, and what the session has already
OF_WRITE = 8


def can_insert(rows: DataFrame, held: DataFrame) -> bool:
    """Whether rows bring just the columns that a table has, in its types."""
    return len(rows.columns) == len(held.columns) and holds(held.schema, rows.schema)


LISTED = "delta.dataSkippingStatsColumns"
MAX_LISTED = 32  # leaves, the number for which Delta keeps statistics by default
# which Delta lets be listed
_BOUNDED = (NumericType, DateType, TimestampType, TimestampNTZType, StringType)


def listed(
    schema: StructType, personal: Collection[str], partitioned_by: Collection[str] = ()
) -> str:
    """The property of a table with these columns, of which some are personal; with none left it is
    empty, which is no bounds at all.

    Args:
        schema: Of the table.
        personal: Columns, or fields of structs by dotted names; what lies within one is personal
            too. Of `column:$.path` it is the column.
        partitioned_by: Which need no bounds.
    """
    hidden = {tuple(name.partition(":")[0].lower().split(".")) for name in personal}
    levels = {(name.lower(),) for name in partitioned_by}
    leaves = [
        leaf
        for leaf in _leaves(schema)
        if not is_within(leaf, hidden) and not is_within(leaf, levels)
    ]
    return ",".join(".".join(map(quoted, leaf)) for leaf in leaves[:MAX_LISTED])


def properties_of(schema: StructType, target: Target) -> dict[str, str]:
    """The property as a target is made; none where nothing of it is personal."""
    return (
        {LISTED: listed(schema, target.personal, target.partitioned_by)} if target.personal else {}
    )


def keep_listed(spark: SparkSession, target: Target, schema: StructType) -> None:
    """Ensure that the log of an existing table has no bounds of personal columns, before rows of a
    schema are written.

    Columns are listed that both have: Delta refuses to write a schema that lacks a listed one.
    """
    if not target.personal or not target.log.exists():
        return
    both = _common(target.read(spark).schema, schema)
    wanted = listed(both, target.personal, target.partitioned_by)
    if target.log.properties().get(LISTED) != wanted:
        spark.sql(
            f"ALTER TABLE delta.{quoted(target.location)} SET TBLPROPERTIES ('{LISTED}' = "
            f"{text_literal(wanted)})"
        )


def _leaves(kind: StructType) -> Iterator[tuple[str, ...]]:
    """The leaves of which Delta lets statistics be listed."""
    for path, one in leaves_with_types(kind):
        if isinstance(one, _BOUNDED):
            yield path


def leaves_of(kind: StructType) -> Iterator[tuple[str, ...]]:
    """The columns, and the fields within structs, that hold no fields themselves."""
    return (path for path, _ in leaves_with_types(kind))


def leaves_with_types(
    kind: StructType, within: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], DataType]]:
    for leaf in kind:
        path = (*within, leaf.name)
        if isinstance(leaf.dataType, StructType):
            yield from leaves_with_types(leaf.dataType, path)
        else:
            yield path, leaf.dataType


def is_within(leaf: tuple[str, ...], hidden: Collection[tuple[str, ...]]) -> bool:
    """Whether a leaf, or what it lies in, is hidden, by names in any case; a name with dots in it
    may be the column's own.
    """
    lowered = tuple(part.lower() for part in leaf)
    parts = tuple(one for part in lowered for one in part.split("."))
    return any(parts[: len(one)] == one for one in hidden)


def _common(one: StructType, other: StructType) -> StructType:
    """The columns of one that the other has too, of a type that is listed in both."""
    had = {each.name.lower(): each.dataType for each in other}
    fields = []
    for each in one:
        kind = had.get(each.name.lower())
        if isinstance(each.dataType, StructType) and isinstance(kind, StructType):
            fields.append((each.name, _common(each.dataType, kind)))
        elif kind is not None and _is_bounded(kind):
            fields.append((each.name, each.dataType))
    made = StructType()
    for name, kind in fields:
        made.add(name, kind)
    return made


def _is_bounded(kind: DataType) -> bool:
    return isinstance(kind, _BOUNDED)
