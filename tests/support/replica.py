"""A table that follows a database, for tests: its bronze table written by delta-rs, its executions
run by Spark, its consumer kept by hand.
"""

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyspark.sql import SparkSession

from lakechime_dagster.cdc.job import FEW, CDCJob, MessageFormat
from lakechime_dagster.cdc.record import COLUMNS, Message, Record, bronze_row
from lakechime_dagster.cdc.service import ReplicaTables
from lakechime_dagster.cdc.spark_refresh import refresh_cdc
from lakechime_dagster.cdc.state import opened_row
from lakechime_dagster.dce.events import Position, SnapshotId
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint, SnapshotRange, TableSize
from lakechime_dagster.formats.delta import DeltaLog
from lakechime_dagster.formats.delta_rows import DeltaRows
from lakechime_dagster.formats.iceberg import IcebergLog, IcebergRows
from lakechime_dagster.spark.job import InputJob, TableResult
from lakechime_dagster.tables.cdc import STATE, CDCMerge
from lakechime_dagster.tables.databases import Debezium, Envelope
from lakechime_dagster.tables.names import HIDDEN
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, ConsumerId, FileOffsets
from tests.support.iceberg import IcebergWorld
from tests.support.refreshes import open_log
from tests.support.tables import write

ARROW = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
    "array<bigint>": pa.list_(pa.int64()),
    "array<struct<key:string,value:binary>>": pa.list_(
        pa.struct([("key", pa.string()), ("value", pa.binary())])
    ),
}
NONE = TableSize(rows=-1, bytes=-1)
BRONZE = pa.schema([(name, ARROW[ddl]) for name, ddl in COLUMNS.items()])


@dataclass
class Replica:
    """A change table whose consumer each `run` moves by one execution over all that is new in its
    bronze table.

    Every other execution, and every other attempt at one, is computed by workers, as if its
    messages were many. With a `write_mode` the table is an Iceberg table of a catalog of its own,
    in a session of its own, since one keeps the first catalog that it gets under a name.
    """

    spark: SparkSession
    folder: Path
    keys: tuple[str, ...]
    envelope: Envelope = field(default_factory=Debezium)
    merge: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    topics: Mapping[str, Any] = field(default_factory=dict)
    few: TableSize = FEW
    write_mode: str | None = None
    consumer: ConsumerId = field(default_factory=lambda: ConsumerId("test", "orders"))
    number: int = 0
    checkpoint: SnapshotCheckpoint = field(default_factory=SnapshotCheckpoint)

    def __post_init__(self) -> None:
        if self.write_mode is not None:
            self.spark = self.spark.newSession()

    @property
    def iceberg(self) -> IcebergLog | None:
        """The log of an Iceberg table."""
        if self.write_mode is None:
            return None
        return IcebergLog(IcebergWorld.within(self.folder).properties, "shop.orders")

    @property
    def format(self) -> MessageFormat:
        there = {here: there for there, here in self.options.get("names", {}).items()}
        return MessageFormat(
            envelope=self.envelope,
            keys=tuple(there.get(key, key) for key in self.keys),
            **self.topics,
        )

    @property
    def location(self) -> str:
        return str(self.folder / "orders")

    @property
    def bronze(self) -> str:
        return f"{self.location}__changes"

    def send(self, records: Iterable[Record], *, has_more: bool = False) -> None:
        """Messages come to the bronze table, in one commit; their source held more if it
        `has_more`.
        """
        commit_metadata = CommitMetadata(
            consumer=ConsumerId("test", "orders__changes"),
            number=1,
            attempt=1,
            end=Checkpoint(offsets=FileOffsets(), has_more=has_more),
        )
        append_messages(self.bronze, records, self.format, commit_metadata)

    def run(self) -> TableResult:
        """The next execution."""
        self.number += 1
        result = self.attempt(self.number)
        end = result.committed.commit_metadata.end if result.committed else self.end()
        self.checkpoint = end.sources["orders__changes"]
        return result

    def confirm_epoch(self, source: str, epoch: int) -> None:
        """As the command says that what follows in a source is newer."""
        row = {"number": self.number, **opened_row(source, epoch)._asdict()}
        schema = DeltaTable(self.location + STATE).schema().to_arrow()
        write_deltalake(
            self.location + STATE,
            pa.Table.from_pylist([row], schema=pa.schema(schema)),
            mode="append",
        )

    def end(self, version: int | None = None) -> Checkpoint:
        log = self.log("orders__changes")
        end = SnapshotCheckpoint(
            table_uid=log.uid,
            snapshot_id=SnapshotId(str(log.version if version is None else version)),
        )
        return Checkpoint(position=Position(0, self.number), sources={"orders__changes": end})

    def attempt(
        self, number: int, attempt: int = 1, *, end: Checkpoint | None = None
    ) -> TableResult:
        """One attempt at an execution; the consumer stays where it is."""
        end = end or self.end()
        commit_metadata = CommitMetadata(
            consumer=self.consumer,
            number=number,
            attempt=attempt,
            execution_id=f"e{number}",
            end=end,
        )
        return refresh_cdc(self.spark, self.job(end, attempt), commit_metadata, open_log)

    def job(self, end: Checkpoint, attempt: int = 1) -> CDCJob:
        now = end.sources["orders__changes"]
        assert now.snapshot_id is not None
        range_ = SnapshotRange(
            table="orders__changes",
            table_uid=now.table_uid,
            start=self.checkpoint.snapshot_id,
            end=now.snapshot_id,
            start_uid=self.checkpoint.table_uid,
        )
        bronze = InputJob(
            alias="changes",
            table="orders__changes",
            location=self.bronze,
            range=None if self.checkpoint == now else range_,
        )
        options = dict(self.options)
        merge = {one.name: options.pop(one.name) for one in fields(CDCMerge) if one.name in options}
        return CDCJob(
            name="orders",
            location=self.location,
            bronze=bronze,
            format=self.format,
            merge=CDCMerge(keys=self.keys, **self.merge, **merge),
            start=Checkpoint(sources={"orders__changes": self.checkpoint}),
            may_complete_empty=attempt == 1,
            few=NONE if (self.number + attempt) % 2 else self.few,
            log=self.iceberg,
            write_mode=self.write_mode,
            **options,
        )

    def log(self, table: str) -> DeltaLog:
        return open_log(str(self.folder / table), table)

    @property
    def stored(self) -> list[dict[str, Any]]:
        """All that the table holds, as an engine reads it that did not write it."""
        if self.iceberg is None:
            return read(self.location)
        table = IcebergWorld.within(self.folder).catalog.load_table(self.iceberg.table)
        return plain_rows(table.scan().to_arrow())

    def damage(self) -> None:
        """Another writer deletes all rows."""
        if self.iceberg is None:
            DeltaTable(self.location).delete()
        else:
            IcebergWorld.within(self.folder).catalog.load_table(self.iceberg.table).delete()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table, sorted by key."""
        return sorted(
            ({name: value for name, value in row.items() if name != HIDDEN} for row in self.stored),
            key=lambda row: [row[key] for key in self.keys],
        )

    @property
    def remembered(self) -> list[dict[str, Any]]:
        return read(self.location + STATE)


def replica_tables(
    rows: DeltaLog | IcebergLog,
    bronze: DeltaLog,
    state: DeltaLog,
    messages: MessageFormat,
    names: Mapping[str, str] | None = None,
) -> ReplicaTables:
    """The tables of `orders`, as monitors, repairs and loads look at them."""
    return ReplicaTables(
        name="orders",
        format=messages,
        names=names or {},
        rows=IcebergRows(rows) if isinstance(rows, IcebergLog) else DeltaRows(rows),
        bronze=bronze,
        state=state,
        consumer=ConsumerId("test", "orders"),
    )


def append_messages(
    location: str,
    records: Iterable[Record],
    written: MessageFormat,
    commit_metadata: CommitMetadata | None = None,
) -> None:
    """Messages come to a bronze table, in one commit."""
    reader = written.reader()
    rows = [bronze_row(Message(one, list(one.headers.items())), reader) for one in records]
    columns = [
        pa.array(values, field.type)
        for values, field in zip(zip(*rows, strict=True), BRONZE, strict=True)
    ]
    write(
        location,
        pa.Table.from_arrays(columns, schema=BRONZE),
        user_metadata=None if commit_metadata is None else commit_metadata.to_text(),
    )


def read(location: str) -> list[dict[str, Any]]:
    """The rows of a table, read by delta-rs: an engine that did not write them; times without their
    zone's object.
    """
    found = QueryBuilder().register("t", DeltaTable(location)).execute("select * from t")
    return plain_rows(pa.table(found))


def plain_rows(rows: pa.Table) -> list[dict[str, Any]]:
    return [{name: plain(value) for name, value in row.items()} for row in rows.to_pylist()]


def plain(value: Any) -> Any:
    return (
        value.astimezone(dt.timezone.utc)
        if isinstance(value, dt.datetime) and value.tzinfo
        else value
    )
