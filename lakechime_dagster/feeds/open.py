"""From a declared feed to one that can be asked."""

from collections.abc import Callable
from pathlib import Path

from lakechime_dagster.errors import FeedUnreadableError
from lakechime_dagster.feeds.files import FilesFeed
from lakechime_dagster.feeds.look import OpenFeed
from lakechime_dagster.lake.feeds import JsonLines, KafkaTopic
from lakechime_dagster.triggers.feeds import AnyFeed


def open_feed(feed: AnyFeed, located: Callable[[str], Path]) -> OpenFeed:
    """The feed, to be asked; `located` says where a declared folder lies, which may be relative.

    Raises:
        FeedUnreadableError: nothing here can ask such a feed.
    """
    match feed:
        case JsonLines():
            return FilesFeed(located(feed.folder), feed.pattern)
        case KafkaTopic():
            raise FeedUnreadableError(f"{feed}: topics of Kafka cannot be asked yet")
    raise FeedUnreadableError(f"{feed} is neither JsonLines(…) nor KafkaTopic(…)")
