"""How the messages of one table's topics are read, as declared."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from typing_extensions import assert_never

from lakechime_dagster.cdc.debezium import BeatReader, DebeziumReader
from lakechime_dagster.cdc.record import EnvelopeReader, ShardReader, SnapshotRowReader, TableFilter, TransactionReader
from lakechime_dagster.cdc.row_messages import CanalReader, DmsReader, MaxwellReader
from lakechime_dagster.cdc.schema import AsWritten, History, Schemas
from lakechime_dagster.cdc.state import TableSchema
from lakechime_dagster.tables.cdc import BronzeTable
from lakechime_dagster.tables.databases import Canal, Debezium, Dms, Envelope, Maxwell
from lakechime_dagster.tables.sources import shard_columns


@dataclass(frozen=True, kw_only=True)
class MessageFormat:
    """What must be known to read them; plain values, of which each process makes a reader of its own.

    Attributes:
        envelope: Who wrote them.
        keys: The columns of the table's key, as the database names them, in their order.
        types: The type of each column, for envelopes whose messages never bring a schema.
        heartbeats: A glob of topics that hold the changes of a heartbeat table.
        transactions: A glob of topics in which the connector tells its transactions.
        only: The tables of the database whose messages are read.
        shards: A regular expression of topics' names, by whose named groups they tell columns.
        is_typed_elsewhere: Messages that bring no schema are kept as they are written until `tables` tell their columns.
        tables: The columns of the database's tables at places of its log.
    """

    envelope: Envelope
    keys: tuple[str, ...]
    types: Mapping[str, str] = field(default_factory=dict)
    heartbeats: str = ""
    transactions: str = ""
    only: TableFilter = field(default_factory=TableFilter)
    shards: str = ""
    is_typed_elsewhere: bool = False
    tables: tuple[TableSchema, ...] | None = None

    def reader(self) -> EnvelopeReader:
        """What reads them.

        Raises:
            ValueError: A column of the key has no type, or one has a type of which such tools write no values.
        """
        reader = self._reader(self.message_keys)
        if self.shards:
            reader = ShardReader(reader, self.shards, self.keys)
        if self.transactions:
            reader = TransactionReader(reader, self.transactions)
        return SnapshotRowReader(BeatReader(reader, self.heartbeats) if self.heartbeats else reader, self.keys)

    @property
    def message_keys(self) -> tuple[str, ...]:
        """The columns of the key that the messages tell themselves."""
        told = shard_columns(self.shards)
        return tuple(key for key in self.keys if key not in told)

    def _schemas(self, envelope: Debezium) -> Schemas | None:
        """What tells the columns of messages that bring no schema."""
        if self.tables is not None:
            return History(self.tables, envelope)
        return AsWritten() if self.is_typed_elsewhere else None

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
        transactions=table.feed.transactions,
        only=TableFilter(table.feed.database, table.feed.table),
        shards=table.feed.shards,
        is_typed_elsewhere=table.is_typed_elsewhere,
    )
