"""What a run does with a CDC table, and how the messages of its topics are read: plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from typing_extensions import assert_never

from lakechime_dagster.cdc.debezium import DebeziumReader, beat_in
from lakechime_dagster.cdc.history import TrackHistory
from lakechime_dagster.cdc.record import (
    EnvelopeReader,
    ShardReader,
    SnapshotRowReader,
    TableFilter,
    TopicReader,
    transaction_in,
)
from lakechime_dagster.cdc.row_messages import CanalReader, DmsReader, MaxwellReader
from lakechime_dagster.cdc.schema import AsWritten, SchemaHistory, Schemas
from lakechime_dagster.cdc.state import TableSchema
from lakechime_dagster.dce.events import TableFormat
from lakechime_dagster.dce.snapshots import TableSize
from lakechime_dagster.sources.source import SourceJob
from lakechime_dagster.spark.job import InputJob
from lakechime_dagster.tables.cdc import BronzeTable, CDCMerge, Drift
from lakechime_dagster.tables.databases import Canal, Debezium, Dms, Envelope, Maxwell
from lakechime_dagster.tables.sources import MessageSource, shard_columns
from lakechime_dagster.triggers.consumers import Checkpoint

if TYPE_CHECKING:
    from lakechime_dagster.formats.iceberg import IcebergLog


@dataclass(frozen=True, kw_only=True)
class MessageFormat:
    """What must be known to read them; plain values, of which each process makes a reader of its
    own.

    Attributes:
        envelope: Who wrote them.
        keys: The columns of the table's key, as the database names them, in their order.
        types: The type of each column, for envelopes whose messages never bring a schema.
        heartbeats: A glob of topics that hold the changes of a heartbeat table.
        transactions: A glob of topics in which the connector reports its transactions.
        only: The tables of the database whose messages are read.
        shards: A regular expression of topics' names, whose named groups are columns.
        is_typed_externally: Messages without a schema are kept as they are written until `tables`
            have their columns.
        tables: The columns of the database's tables at positions of its log.
    """

    envelope: Envelope
    keys: tuple[str, ...]
    types: Mapping[str, str] = field(default_factory=dict)
    heartbeats: str = ""
    transactions: str = ""
    only: TableFilter = field(default_factory=TableFilter)
    shards: str = ""
    is_typed_externally: bool = False
    tables: tuple[TableSchema, ...] | None = None

    def reader(self) -> EnvelopeReader:
        """What reads them.

        Raises:
            ValueError: A column of the key has no type, or one has a type of which such tools write
                no values.
        """
        reader = self._reader(self.message_keys)
        if self.shards:
            reader = ShardReader(reader, self.shards, self.keys)
        if self.transactions:
            reader = TopicReader(reader, self.transactions, transaction_in)
        if self.heartbeats:
            reader = TopicReader(reader, self.heartbeats, beat_in)
        return SnapshotRowReader(reader, self.keys)

    @property
    def message_keys(self) -> tuple[str, ...]:
        """The columns of the key in the messages themselves."""
        of_topics = shard_columns(self.shards)
        return tuple(key for key in self.keys if key not in of_topics)

    def _schemas(self, envelope: Debezium) -> Schemas | None:
        """Where the columns of messages without a schema are found."""
        if self.tables is not None:
            return SchemaHistory(self.tables, envelope)
        return AsWritten() if self.is_typed_externally else None

    def _reader(self, keys: tuple[str, ...]) -> EnvelopeReader:
        match self.envelope:
            case Debezium():
                return DebeziumReader(self.envelope, keys, self._schemas(self.envelope), self.only)
            case Canal():
                return CanalReader(self.envelope, keys, self.types, self.only)
            case Maxwell():
                return MaxwellReader(self.envelope, keys, self.types, self.only)
            case Dms():
                return DmsReader(self.envelope, keys, self.types, self.only)
            case _:
                assert_never(self.envelope)


def format_of(table: BronzeTable) -> MessageFormat:
    """How the messages of a declared table are read."""
    return MessageFormat(
        envelope=table.envelope,
        keys=table.keys,
        types=dict(table.schema.types or {}),
        heartbeats=table.heartbeats,
        transactions=table.source.transactions,
        only=TableFilter(table.source.database, table.source.table),
        shards=table.source.shards,
        is_typed_externally=table.is_typed_externally,
    )


# of which Python reads and merges the changes within two seconds, on one core
FEW = TableSize(rows=20_000, bytes=16_000_000)


@dataclass(frozen=True, kw_only=True)
class CDCJob:
    """One execution of a CDC table, by the new rows of its bronze table.

    `names` gives the table's names of columns that have others in the database; of `personal` ones
    the log records nothing. What is older than the merge's `allowed_lateness` is forgotten when it
    is most of what is remembered, and more than `collects_above` changes. Messages that are `few`
    start no workers. `reading` is what the columns of the database's table were after all of its
    messages had been written. What is remembered lies beside the `location` in every format. `log`,
    `write_mode`, `start`, `may_complete_empty` and `has_committed` are as of `job.TableJob`.
    """

    name: str
    location: str
    bronze: InputJob
    format: MessageFormat
    merge: CDCMerge
    names: Mapping[str, str] = field(default_factory=dict)
    cluster_by: tuple[str, ...] = ()
    personal: tuple[str, ...] = ()
    has_deletion_vectors: bool = True
    on_drift: Drift = Drift.LENIENT
    collects_above: int = 10_000
    few: TableSize = FEW
    comment: str = ""
    log: "IcebergLog | None" = field(default=None, repr=False)
    write_mode: str | None = None
    reading: TableSchema | None = None
    start: Checkpoint | None = None
    may_complete_empty: bool = True
    has_committed: bool = False

    @property
    def table_format(self) -> TableFormat:
        """The format of the table."""
        return TableFormat.DELTA if self.log is None else TableFormat.ICEBERG

    @property
    def has_history(self) -> bool:
        """Whether the table holds a row for each time that a tracked column changed."""
        return self.merge.stored_as_scd_type == 2

    def after(self, empty_executions: int) -> "CDCJob":
        """The same after so many executions in a row that left the table without a commit: beyond
        the most that may, this one commits.
        """
        most = self.merge.max_continuous_empty_commits
        return (
            replace(self, may_complete_empty=False)
            if most is not None and empty_executions >= most
            else self
        )

    @property
    def track(self) -> TrackHistory | None:
        """The columns whose changes begin another row; None where the table holds no histories."""
        if not self.has_history:
            return None
        listed = self.merge.track_history_column_list
        return TrackHistory(
            column_list=None if listed is None else frozenset(listed),
            except_column_list=frozenset(self.merge.track_history_except_column_list),
        )

    @property
    def keeps_deleted(self) -> bool:
        """Whether a row stays in the table that the database deleted."""
        return self.merge.keeps_deleted


@dataclass(frozen=True, kw_only=True)
class BronzeJob(SourceJob):
    """One execution of a table that holds the messages of a source, which are read by their
    format.
    """

    source: MessageSource
    format: MessageFormat
