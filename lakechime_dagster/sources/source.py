"""Message sources: what a run does with one as plain values, and how a declared one is opened."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lakechime_dagster.errors import FeedUnreadableError
from lakechime_dagster.sources.files import FilesFeed, OpenFeed
from lakechime_dagster.sources.kafka import KafkaFeed
from lakechime_dagster.tables.sources import AnySource, JsonLines, KafkaTopic
from lakechime_dagster.triggers.consumers import AnyFeed, Checkpoint


@dataclass(frozen=True, kw_only=True)
class FeedJob:
    """One execution of a table of messages, of those of a source since the consumer's checkpoint.

    `folder` is where a feed of files, or the table that is one, lies, `environment` what a feed's settings written `$NAME`
    stand for. `start`, `may_complete_empty` and `has_committed` are as of `job.TableJob`.
    """

    name: str
    location: str
    feed: AnySource
    folder: str = ""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    comment: str = ""
    start: Checkpoint | None = None
    may_complete_empty: bool = True
    has_committed: bool = False


def open_feed(
    feed: AnyFeed, located: Callable[[str], Path], environment: Mapping[str, str], *, is_ordered_by_position: bool = False
) -> OpenFeed:
    """The feed, to be asked.

    Args:
        feed: As it is declared.
        located: Where a declared folder lies, which may be relative.
        environment: What settings of a feed that are written `$NAME` stand for.
        is_ordered_by_position: Its messages hold their order, in whatever partition they are.

    Raises:
        FeedUnreadableError: nothing here can ask such a feed.
    """
    match feed:
        case JsonLines():
            return FilesFeed(located(feed.folder), feed.pattern, feed.max_bytes)
        case KafkaTopic():
            return KafkaFeed(feed, environment, is_ordered_by_position=is_ordered_by_position)
    raise FeedUnreadableError(f"{feed} is neither JsonLines(…) nor KafkaTopic(…)")
