"""What a run does with a table of messages: plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakechime_dagster.tables.sources import AnySource
from lakechime_dagster.triggers.consumers import Checkpoint


@dataclass(frozen=True, kw_only=True)
class FeedJob:
    """One execution of a table that holds what a feed brings, by what came to it since the consumer's checkpoint.

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
