"""Tables that hold what a feed brings, as it came."""

from dataclasses import dataclass

from lakechime_dagster.lake.feeds import Feed
from lakechime_dagster.lake.tables import WrittenTable
from lakechime_dagster.triggers.grid import Schedule
from lakechime_dagster.triggers.model import SnapshotTrigger


@dataclass(frozen=True, kw_only=True)
class FeedTable(WrittenTable):
    """A table to which is appended what a feed holds, which is asked `every` so often."""

    feed: Feed
    every: Schedule | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """It reads no table."""
        return ()

    @property
    def trigger(self) -> SnapshotTrigger:
        """Without tables: its feed is asked, `every` so often."""
        return SnapshotTrigger((), self.every)
