"""What the DCE store is asked and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from lakechime_dagster.dce.events import (
    OperationType,
    Position,
    RegisteredEvent,
    SnapshotId,
    TableFormat,
    TableUid,
    TagConditions,
    WantedTags,
)
from lakechime_dagster.dce.partitions import PartitionLevels, PartitionValue, checked_partition
from lakechime_dagster.errors import InvalidValueError, LakeChimeError


class NamedTable(Protocol):
    """Anything that has a table name: a declaration, or `TableName` for a bare one."""

    @property
    def name(self) -> str: ...


class TableSwitchedError(LakeChimeError):
    """The name of a table came to stand for another side since its log was opened; open it again."""


class OvertakenError(LakeChimeError):
    """Another capture of a table's log was registered since this one began; capture again."""


@dataclass(frozen=True)
class Seen:
    """Capture has registered every commit of a table up to `snapshot_id`; `table_uid` becomes the
    current one.

    `began_at` is the table uid and the snapshot that the store knew when the capture began, which
    must still hold when it is registered; None says the same whatever the store knows by then.
    `listing` is for a format that is captured by listing files: of each partition whose files
    changed what they are remembered by, None of one that is gone. `table_format` is that of the log,
    which the table's name must stand for, where it was migrated.
    """

    table: str
    table_uid: TableUid
    snapshot_id: SnapshotId
    cluster: str = ""
    began_at: tuple[TableUid | None, SnapshotId | None] | None = field(default=None, compare=False)
    listing: Mapping[str, str | None] = field(default_factory=dict, compare=False, repr=False)
    table_format: TableFormat | None = field(default=None, compare=False)

    def check_current(
        self,
        table_uid: TableUid | None,
        seen: SnapshotId | None,
        table_format: TableFormat | None = None,
    ) -> None:
        """Refuse what was overtaken: by another capture, it would put the table back; by a first
        push, it would not know that commit; by a switch, it is of the other side.

        Raises:
            OvertakenError: the store knows another table uid or snapshot by now.
            TableSwitchedError: the table's name stands for another format by now.
        """
        if self.table_format and table_format and self.table_format is not table_format:
            raise TableSwitchedError(
                f"{self.table}: its name stands for {table_format.lower()} since this capture of its "
                f"log began; capture again"
            )
        if self.began_at is not None and self.began_at != (table_uid, seen):
            overtaken = (
                "an event of it was registered"
                if seen is None
                else f"it was captured up to snapshot {seen}"
            )
            raise OvertakenError(
                f"{self.table}: {overtaken} since this capture of its log began; capture again"
            )


@dataclass(frozen=True, kw_only=True)
class Registration:
    """What one call of `register` did, in the order of its events.

    `registered` holds new events and amendments; `duplicates` the events that were there already,
    as they are.
    """

    registered: tuple[RegisteredEvent, ...] = ()
    duplicates: tuple[RegisteredEvent, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EventQuery:
    """Which events to fetch; every given condition must hold.

    `partition` is compared by the table's declared levels. `tags` are conditions that one event must
    meet all: by key its value, or a map of operators to values, as triggers have them.
    Positions: `after` exclusive, `through` inclusive. Times (`event_ts`, milliseconds): `since`
    inclusive, `until` exclusive. `only_new` leaves out amendments of an event that met the conditions
    before, and where those demand no tag whatever changes no data.
    """

    table: str | None = None
    cluster: str | None = None
    partition: tuple[PartitionValue, ...] | None = None
    tags: WantedTags = field(default_factory=TagConditions)
    after: Position | None = None
    through: Position | None = None
    since: int | None = None
    until: int | None = None
    limit: int | None = None
    only_new: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "partition", checked_partition(self.partition))
        object.__setattr__(self, "tags", TagConditions(self.tags))
        if self.partition is not None and self.table is None:
            raise InvalidValueError(
                "partition", list(self.partition), "needs its table; name the table too"
            )
        if self.limit is not None and self.limit < 1:
            raise InvalidValueError(
                "limit", self.limit, "is not a positive number; give at least 1"
            )


@dataclass(frozen=True, kw_only=True)
class PartitionEvents:
    """The partitions of a table that events of a range of positions name, by their canonical texts.

    `before` has those that an event up to the start of the range names; `changed` those that an
    event within it names, with what the events say was done.
    """

    before: frozenset[str] = frozenset()
    changed: Mapping[str, frozenset[OperationType]] = field(default_factory=dict)

    @property
    def known(self) -> frozenset[str]:
        """All that an event up to the end of the range names."""
        return self.before | self.changed.keys()


@dataclass(frozen=True, kw_only=True)
class FeedPage:
    """A page of the feed: events in commit order, and the position that reading may go on from."""

    events: tuple[RegisteredEvent, ...]
    through: Position


@dataclass(frozen=True, kw_only=True)
class TableRecord:
    """What the store knows of a table; `dropped_ts` is when it was dropped last, be it there again
    or not, `format` the one that it was migrated to.
    """

    name: str
    cluster: str
    levels: PartitionLevels
    table_uid: TableUid | None
    seen: SnapshotId | None
    last_event_ts: int | None
    events: int
    dropped_ts: int | None
    format: TableFormat | None = None
