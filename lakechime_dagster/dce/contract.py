"""The contract of a DCE store: what registering and fetching events guarantee."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lakechime_dagster.dce.events import DataChangeEvent, Position, RegisteredEvent, SnapshotId, TableUid, Tags
from lakechime_dagster.dce.partitions import PartitionLevels, PartitionValue, checked_partition
from lakechime_dagster.errors import InvalidValueError, LakeChimeError


class NamedTable(Protocol):
    """Anything that has a table name: a declaration, or `TableName` for a bare one."""

    @property
    def name(self) -> str: ...


class OvertakenError(LakeChimeError):
    """Another look at a table's log was registered since this one began, so that this one says what was; look again."""


@dataclass(frozen=True)
class Seen:
    """Capture has registered every commit of a table up to `snapshot_id`; `table_uid` becomes the current one.

    `began_at` is the table uid and the snapshot that the store knew when the look began, which must still hold when it
    is registered; None says the same whatever the store knows by then.
    """

    table: str
    table_uid: TableUid
    snapshot_id: SnapshotId
    cluster: str = ""
    began_at: tuple[TableUid | None, SnapshotId | None] | None = field(default=None, compare=False)

    def check_current(self, table_uid: TableUid | None, seen: SnapshotId | None) -> None:
        """Refuse what was overtaken: by another look, it would put the table back; by a first push, it would not know that commit.

        Raises:
            OvertakenError: the store knows another table uid or snapshot by now.
        """
        if self.began_at is not None and self.began_at != (table_uid, seen):
            came = "an event of it was registered" if seen is None else f"it was captured up to snapshot {seen}"
            raise OvertakenError(f"{self.table}: {came} since this look at its log began; look again")


@dataclass(frozen=True, kw_only=True)
class Registration:
    """What one call of `register` did, in the order of its events.

    `registered` holds new events and amendments; `duplicates` the events that were there already, as they are.
    """

    registered: tuple[RegisteredEvent, ...] = ()
    duplicates: tuple[RegisteredEvent, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EventQuery:
    """Which events to fetch; every given condition must hold.

    `partition` is compared by the table's declared levels. `tags` must all be on one event. Positions: `after`
    exclusive, `through` inclusive. Times (`event_ts`, milliseconds): `since` inclusive, `until` exclusive. `only_new`
    leaves out amendments of an event that carried the tags before, and without tags whatever changes no data.
    """

    table: str | None = None
    cluster: str | None = None
    partition: tuple[PartitionValue, ...] | None = None
    tags: Mapping[str, str] = field(default_factory=Tags)
    after: Position | None = None
    through: Position | None = None
    since: int | None = None
    until: int | None = None
    limit: int | None = None
    only_new: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "partition", checked_partition(self.partition))
        object.__setattr__(self, "tags", self.tags if isinstance(self.tags, Tags) else Tags(self.tags))
        if self.partition is not None and self.table is None:
            raise InvalidValueError("partition", list(self.partition), "needs its table; name the table too")
        if self.limit is not None and self.limit < 1:
            raise InvalidValueError("limit", self.limit, "is not a positive number; give at least 1")


@dataclass(frozen=True, kw_only=True)
class FeedPage:
    """A page of the feed: events in commit order, and the position that reading may go on from."""

    events: tuple[RegisteredEvent, ...]
    through: Position


TagSet = tuple[tuple[str, str], ...]  # tags of one event by key: keys and values


@dataclass(frozen=True, kw_only=True)
class Availability:
    """What retention kept of the events of one partition when it folded them.

    `newest` and `newest_data` are the positions of the newest event and of the newest one that changed data;
    `tag_positions` holds, per set of kept tags that an event had together, the newest position of such an event.
    """

    table: str
    cluster: str
    canonical: str
    table_uid: TableUid | None
    newest: Position
    newest_data: Position | None
    tag_positions: Mapping[TagSet, Position]
    first_ts: int
    last_ts: int
    events: int


@dataclass(frozen=True, kw_only=True)
class TableRecord:
    """What the store knows of a table; `dropped_ts` is when it was dropped last, be it there again or not."""

    name: str
    cluster: str
    levels: PartitionLevels
    table_uid: TableUid | None
    seen: SnapshotId | None
    last_event_ts: int | None
    events: int
    dropped_ts: int | None


class DCEStore(Protocol):
    """A store of data change events.

    Registration is atomic per call and idempotent (see `DataChangeEvent.identity`): a repeat is a duplicate; a
    repeat with other tags an amendment, registered at a new position with the tags merged. Fetching returns
    events in commit order, oldest first.
    """

    def register(self, events: Sequence[DataChangeEvent], seen: Sequence[Seen] = ()) -> Registration:
        """Register all events and the marks of capture in one transaction.

        Raises:
            OvertakenError: a mark is of a look that another, or a first push, has overtaken; nothing was registered.
        """
        ...

    def fetch(self, query: EventQuery) -> list[RegisteredEvent]:
        """The events that meet every condition of the query, in commit order, oldest first."""
        ...

    def feed(self, after: Position, limit: int = 1000) -> FeedPage:
        """The next events of all tables in commit order."""
        ...

    def head(self) -> Position:
        """The newest position below which nothing can become visible any more."""
        ...

    def now(self) -> int:
        """The store's clock in milliseconds since the epoch."""
        ...

    def declare(self, table: str, levels: PartitionLevels, cluster: str = "") -> None:
        """Set the typed levels of a table; events that are there are compared by them from now on."""
        ...

    def table(self, name: str, cluster: str = "") -> TableRecord | None:
        """What the store knows of a table, or None for one it never heard of."""
        ...

    def tables(self) -> list[TableRecord]:
        """All tables by cluster and name."""
        ...

    def availability(self, table: str, cluster: str = "", partition: tuple[PartitionValue, ...] | None = None) -> list[Availability]:
        """What retention folded of this table, of one partition or of all."""
        ...
