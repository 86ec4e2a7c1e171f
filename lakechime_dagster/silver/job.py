"""What a run does with events: plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.silver.results import MAX_CATCHUP, Replay
from lakechime_dagster.sources.job import FeedJob
from lakechime_dagster.tables.events import EventGroup


@dataclass(frozen=True, kw_only=True)
class EventJob(FeedJob):
    """One execution of a table that holds events as they came, with the fields that lead to their type and producer.

    `classes` is the folder in which the tokenizer's jar is kept; without one Python tells what payloads are. `reprocess` is the number
    of the one that somebody asked for; None where what is refused is left as it is.
    """

    type_field: tuple[str, ...]
    producer_field: tuple[str, ...] = ()
    classes: str = ""
    reprocess: int | None = None


@dataclass(frozen=True, kw_only=True)
class GroupJob:
    """One execution of a group: what its stream's table has up to a snapshot, for each type from its own checkpoint on.

    Attributes:
        groups: All of the stream's, of which each type is one's.
        bronze: Where the stream's table lies.
        end: Up to where it is read.
        warehouse: The folder of folders, one of each group, in which tables lie by their names.
        replays: What somebody wants to be read again, by type.
        max_catchup: As of `reading.planned`.
    """

    group: EventGroup
    groups: tuple[EventGroup, ...]
    bronze: str
    end: SnapshotCheckpoint
    warehouse: str
    deployment: str
    execution_id: str = ""
    attempt: int = 1
    replays: Mapping[str, Replay] = field(default_factory=dict, hash=False)
    max_catchup: int = MAX_CATCHUP
