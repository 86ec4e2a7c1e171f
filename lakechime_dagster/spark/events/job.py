"""What a run is asked to do with events, and what it did: plain values, without Spark."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakechime_dagster.dce.snapshots import SnapshotPlace
from lakechime_dagster.lake.events import EventGroup
from lakechime_dagster.spark.feeds.job import FeedJob
from lakechime_dagster.triggers.lanes import Committed


@dataclass(frozen=True, kw_only=True)
class EventJob(FeedJob):
    """One execution of a table that holds events as they came, with the fields that lead to their type and producer."""

    type_field: tuple[str, ...]
    producer_field: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GroupJob:
    """One execution of a group: what its stream's table has up to a snapshot, for each type from its own place on.

    Attributes:
        groups: All of the stream's, of which each type is one's.
        bronze: Where the stream's table lies.
        end: Up to where it is read.
        folder: In which the tables of the group's types lie, each by its name.
    """

    group: EventGroup
    groups: tuple[EventGroup, ...]
    bronze: str
    end: SnapshotPlace
    folder: str
    deployment: str
    execution_id: str = ""
    attempt: int = 1


@dataclass(frozen=True, kw_only=True)
class TypeResult:
    """What a step did for one type: its rows in the interval, and where they are.

    Attributes:
        start: Up to which version of the stream's table it had been read; -1 is none of it.
        end: Up to which it is now; `start` where it failed or waits.
        rows: Of the interval.
        written: Rows of its table; the others are discarded, or wait.
        rescued: Rows that have something in `_rescued`.
        pending: Rows that wait, with `waits` as the reason.
        committed: The commit that holds them; None where there was nothing to write.
        error: Why nothing of it was written.
    """

    type: str
    table: str
    start: int
    end: int
    rows: int = 0
    written: int = 0
    rescued: int = 0
    discarded: int = 0
    pending: int = 0
    waits: str = ""
    layout: int = 0
    columns_added: int = 0
    committed: Committed | None = None
    error: str = ""

    @property
    def is_balanced(self) -> bool:
        """Whether each row of the interval is in the table, discarded, or waits."""
        return self.rows == self.written + self.discarded + self.pending


@dataclass(frozen=True, kw_only=True)
class GroupResult:
    """What a step did for all types of its group.

    Attributes:
        refused: Rows between the group's place and the end that no type could be told of, by reason.
    """

    types: tuple[TypeResult, ...]
    refused: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
