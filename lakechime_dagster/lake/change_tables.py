"""Tables that replicate a table of a business database, and the bronze tables of its changes beside them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.lake.cdc_merge import CDCMerge
from lakechime_dagster.lake.databases import Database
from lakechime_dagster.lake.drift import Drift
from lakechime_dagster.lake.envelopes import Envelope
from lakechime_dagster.lake.feed_tables import FeedTable
from lakechime_dagster.lake.feeds import Feed, KafkaTopic
from lakechime_dagster.lake.monitors import Monitor
from lakechime_dagster.lake.options import Asset, Storage
from lakechime_dagster.lake.tables import SourceTable, WrittenTable
from lakechime_dagster.triggers.lanes import HOURS
from lakechime_dagster.triggers.model import SnapshotTrigger

CHANGES, STATE = "__changes", "__state"  # beside a table: the messages as they came; what the table must remember of them
HOUR_LEVELS = {"source_date": "date", "source_hour": "int"}


@dataclass(frozen=True, kw_only=True)
class SourceSchema:
    """The columns of a database's table: where their types are found, how the CDC table names them, and what happens when they change.

    Attributes:
        types: The type of each column, such as `{"id": "bigint"}`, of envelopes whose messages bring no schema (not Debezium's); with
            `read_from` only of the columns whose types the database does not tell.
        read_from: The database in which the types are read, where messages bring no schema. Debezium's schema changes tell them too:
            name their topics by the source's `ddl`.
        names: Names in the CDC table of columns that have others in the database, such as `{"amt": "amount"}`.
        on_drift: What happens when columns of the database's table change: `lenient` (the default), `evolve`, `exception` or
            `ignore`; see `Drift`.
    """

    types: Mapping[str, str] | None = field(default=None, hash=False)
    read_from: Database | None = None
    names: Mapping[str, str] | None = field(default=None, hash=False)
    on_drift: str | Drift = Drift.LENIENT


@dataclass(frozen=True, kw_only=True)
class BronzeTable(FeedTable):
    """The messages of a database's changes as they came: what a feed holds, appended.

    `keys` and `schema` say how its envelope is read where a message does not say it itself.
    """

    feed: Feed
    envelope: Envelope
    keys: tuple[str, ...]
    schema: SourceSchema = SourceSchema()

    @property
    def heartbeats(self) -> str:
        """A glob of the topics among the feed's that hold the changes of a heartbeat table; empty without."""
        return self.feed.heartbeats if isinstance(self.feed, KafkaTopic) else ""

    @property
    def is_typed_elsewhere(self) -> bool:
        """Whether the columns of messages that bring no schema are told by schema changes, or read in the database."""
        return bool(self.feed.ddl) or self.schema.read_from is not None


@dataclass(frozen=True, kw_only=True)
class ChangeTable(WrittenTable):
    """A table of the lake that is what a business database's table is, by the changes in its bronze table.

    `monitor` says with which table of which database it is compared.
    """

    bronze: BronzeTable
    merge: CDCMerge
    schema: SourceSchema = SourceSchema()
    monitor: Monitor | None = None
    kind: ClassVar[str] = "a change_table"
    unused: ClassVar[tuple[str, ...]] = ("partitioned_by", "format", "expect", "watermark", "fresh_within")

    @property
    def names(self) -> Mapping[str, str]:
        """Its names of columns that have others in the database, by those."""
        return self.schema.names or {}

    @property
    def cluster_by(self) -> tuple[str, ...]:
        """The columns by whose values its rows are clustered."""
        return tuple(self.storage.cluster_by)

    @property
    def keys(self) -> tuple[str, ...]:
        return self.merge.keys

    @property
    def hours(self) -> SourceTable:
        """The hours of the database's time that are complete in this table: `orders.hours.partitions(source_date=…, source_hour=…)`.

        An hour is when each of the table's sources has told of a change that is newer than its end by `max_transaction`.

        Raises:
            DeclarationError: `max_transaction` is not declared.
        """
        if self.merge.max_transaction is None:
            raise DeclarationError(
                self.name, "max_transaction", "is not declared in CDCMerge(…); without it no hour is known to be complete"
            )
        about = f"The hours of its database's time that are complete in {self.name}"
        return SourceTable(
            self.name + HOURS,
            storage=Storage(partitioned_by=HOUR_LEVELS),
            asset=Asset(owner=self.owner, group=self.group, description=about),
        )

    @property
    def beside(self) -> tuple[BronzeTable | SourceTable, ...]:
        """What a lake has with it."""
        return (self.bronze,) if self.merge.max_transaction is None else (self.bronze, self.hours)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The bronze table."""
        return (self.bronze.name,)

    @property
    def trigger(self) -> SnapshotTrigger:
        """As changes come to the bronze table."""
        return SnapshotTrigger(self.inputs)
