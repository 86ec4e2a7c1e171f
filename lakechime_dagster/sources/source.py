"""Opens a declared message source."""

from collections.abc import Callable, Mapping
from pathlib import Path

from lakechime_dagster.errors import FeedUnreadableError
from lakechime_dagster.sources.files import FilesFeed, OpenFeed
from lakechime_dagster.sources.kafka import KafkaFeed
from lakechime_dagster.tables.sources import JsonLines, KafkaTopic
from lakechime_dagster.triggers.consumers import AnyFeed


def open_feed(
    feed: AnyFeed, located: Callable[[str], Path], environment: Mapping[str, str], *, is_ordered_by_position: bool = False
) -> OpenFeed:
    """The feed, to be asked.

    Args:
        feed: As it is declared.
        located: Where a declared folder lies, which may be relative.
        environment: What settings of a feed that are written `$NAME` stand for.
        is_ordered_by_position: Its messages tell their order, wherever they lie in it.

    Raises:
        FeedUnreadableError: nothing here can ask such a feed.
    """
    match feed:
        case JsonLines():
            return FilesFeed(located(feed.folder), feed.pattern, feed.max_bytes)
        case KafkaTopic():
            return KafkaFeed(feed, environment, is_ordered_by_position=is_ordered_by_position)
    raise FeedUnreadableError(f"{feed} is neither JsonLines(…) nor KafkaTopic(…)")
