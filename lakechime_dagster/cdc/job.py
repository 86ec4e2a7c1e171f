"""What a run does with a CDC table: plain values."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from lakechime_dagster.cdc.change import Order
from lakechime_dagster.cdc.history import Tracked, TrackHistory
from lakechime_dagster.cdc.merge import Soft
from lakechime_dagster.cdc.readers import MessageFormat
from lakechime_dagster.cdc.state import StateRow, TableSchema
from lakechime_dagster.cdc.wire import order_of
from lakechime_dagster.dce.snapshots import TableSize
from lakechime_dagster.sources.job import FeedJob
from lakechime_dagster.spark.job import InputJob
from lakechime_dagster.tables.cdc import CDCMerge, Drift
from lakechime_dagster.tables.sources import Feed
from lakechime_dagster.triggers.consumers import Checkpoint

FEW = TableSize(rows=20_000, bytes=16_000_000)  # of which Python reads and merges the changes within two seconds, on one core


@dataclass(frozen=True, kw_only=True)
class ChangeJob:
    """One execution of a CDC table, by the new rows of its bronze table.

    `names` gives the table's names of columns that have others in the database; of `personal` ones the log records nothing.
    What is older than the merge's `allowed_lateness` is forgotten when it is most of what is remembered, and more than
    `collects_above` changes. Messages that are `few` start no workers. `reading` is what the columns of the database's table were
    after all of its messages had been written. `start`, `may_complete_empty` and `has_committed` are as of `job.TableJob`.
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
    reading: TableSchema | None = None
    start: Checkpoint | None = None
    may_complete_empty: bool = True
    has_committed: bool = False

    @property
    def has_history(self) -> bool:
        """Whether the table holds a row for each time that a tracked column changed."""
        return self.merge.stored_as_scd_type == 2

    def after(self, empty_steps: int) -> "ChangeJob":
        """The same after so many steps in a row that left the table without a commit: beyond the most that may, this one commits."""
        most = self.merge.max_continuous_empty_commits
        return replace(self, may_complete_empty=False) if most is not None and empty_steps >= most else self

    def tracked(self, truncations: Iterable[StateRow]) -> Tracked | None:
        """How histories are held, given the truncations; None where the table holds none."""
        if not self.has_history:
            return None
        listed, excepted = self.merge.track_history_column_list, self.merge.track_history_except_column_list
        track = TrackHistory(column_list=None if listed is None else frozenset(listed), except_column_list=frozenset(excepted))
        return Tracked(track=track, truncated_at=_times(truncations))

    @property
    def keeps_deleted(self) -> bool:
        """Whether a row stays in the table that the database deleted."""
        return self.merge.keeps_deleted

    def soft(self, truncations: Iterable[StateRow]) -> Soft | None:
        """How deleted rows stay, given the truncations; None where they do not."""
        return Soft(_times(truncations)) if self.keeps_deleted else None


def _times(truncations: Iterable[StateRow]) -> dict[tuple[str, Order], int | None]:
    return {(row.source, order_of(row.order)): row.ts_ms for row in truncations}


@dataclass(frozen=True, kw_only=True)
class BronzeJob(FeedJob):
    """One execution of a table that holds the messages of a feed, which are read by their format."""

    feed: Feed
    format: MessageFormat
