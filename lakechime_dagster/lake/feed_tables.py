"""Tables that hold what a feed brings, as it came."""

from dataclasses import dataclass
from typing import ClassVar

from lakechime_dagster.lake.table_rows import AnySource, TableRows
from lakechime_dagster.lake.tables import WrittenTable
from lakechime_dagster.triggers.model import SnapshotTrigger


@dataclass(frozen=True, kw_only=True)
class FeedTable(WrittenTable):
    """A table to which is appended what a feed holds, which is polled as often as the feed says.

    A feed that is a table of the lake is its input, whose events wake it.
    """

    feed: AnySource
    kind: ClassVar[str] = "a table of messages"
    unused: ClassVar[tuple[str, ...]] = (
        "partitioned_by",
        "format",
        "cluster_by",
        "readers",
        "expect",
        "watermark",
        "fresh_within",
        "columns",
    )

    @property
    def inputs(self) -> tuple[str, ...]:
        """The table that is its feed; none where the feed is outside of the lake."""
        return (self.feed.name,) if isinstance(self.feed, TableRows) else ()

    @property
    def trigger(self) -> SnapshotTrigger:
        """Without tables, where its feed is outside of the lake; else as rows come to the table that is its feed."""
        return SnapshotTrigger(self.inputs, self.feed.every)
