"""Tables that follow a table of a business database, and the bronze tables of its changes beside them."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.lake.cdc_merge import CDCMerge
from lakechime_dagster.lake.databases import Database
from lakechime_dagster.lake.deletes import Deletes
from lakechime_dagster.lake.drift import Drift
from lakechime_dagster.lake.envelopes import Envelope
from lakechime_dagster.lake.feed_tables import FeedTable
from lakechime_dagster.lake.feeds import Feed, KafkaTopic
from lakechime_dagster.lake.monitors import Monitor
from lakechime_dagster.lake.snapshots import Snapshot
from lakechime_dagster.lake.tables import SourceTable, WrittenTable
from lakechime_dagster.triggers.lanes import HOURS
from lakechime_dagster.triggers.model import SnapshotTrigger

CHANGES, STATE = "__changes", "__state"  # beside a table: the messages as they came; what the table must remember of them
HOUR_LEVELS = {"source_date": "date", "source_hour": "int"}


@dataclass(frozen=True, kw_only=True)
class BronzeTable(FeedTable):
    """The messages of a database's changes as they came: what a feed holds, appended.

    `keys` and `types` say how its envelope is read where a message does not say it itself; `schema_from` is the database that is asked
    for the columns of messages that bring no schema.
    """

    feed: Feed
    envelope: Envelope
    keys: tuple[str, ...]
    types: Mapping[str, str] = field(default_factory=dict, hash=False)
    schema_from: Database | None = None

    @property
    def heartbeats(self) -> str:
        """A glob of the topics among the feed's that hold the changes of a heartbeat table; empty without."""
        return self.feed.heartbeats if isinstance(self.feed, KafkaTopic) else ""

    @property
    def is_typed_elsewhere(self) -> bool:
        """Whether the columns of messages that bring no schema are told by schema changes, or read in the database."""
        return bool(self.feed.ddl) or self.schema_from is not None


@dataclass(frozen=True, kw_only=True)
class ChangeTable(WrittenTable):
    """A table of the lake that is what a business database's table is, by the changes in its bronze table.

    `columns` gives the names here of columns that have others in the database. `cluster_by` names columns by which its rows
    lie together; `readers` the programs that read it beside Spark, by which its features are chosen. Where `deletes` are soft,
    a row that the database deleted stays, with the time of that in `__DELETED_AT`. A transaction of the database lasts
    `max_transaction` at most, where that is known. At most `max_continuous_empty_commits` steps in a row leave it without a
    commit; None is any number. `history` is a dump with whose rows it begins, once a person loads it.
    """

    bronze: BronzeTable
    merge: CDCMerge
    on_drift: Drift = Drift.LENIENT
    allowed_lateness: dt.timedelta = dt.timedelta(days=1)
    columns: Mapping[str, str] = field(default_factory=dict, hash=False)
    cluster_by: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    deletes: Deletes = Deletes.HARD
    max_delete_ratio: float = 0.1
    max_transaction: dt.timedelta | None = None
    max_continuous_empty_commits: int | None = None
    monitor: Monitor | None = None
    history: Snapshot | None = None

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
        if self.max_transaction is None:
            raise DeclarationError(self.name, "max_transaction", "is not declared; without it nobody knows when an hour is complete")
        about = f"The hours of its database's time that are complete in {self.name}"
        return SourceTable(self.name + HOURS, partitioned_by=HOUR_LEVELS, owner=self.owner, group=self.group, description=about)

    @property
    def beside(self) -> tuple[BronzeTable | SourceTable, ...]:
        """What a lake has with it."""
        return (self.bronze,) if self.max_transaction is None else (self.bronze, self.hours)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The bronze table."""
        return (self.bronze.name,)

    @property
    def trigger(self) -> SnapshotTrigger:
        """As changes come to the bronze table."""
        return SnapshotTrigger(self.inputs)
