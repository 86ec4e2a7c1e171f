"""Message sources: what a run does with one as plain values, and how a declared one is opened."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lakechime_dagster.errors import MessagesUnreadableError
from lakechime_dagster.sources.files import FileSource, OpenSource
from lakechime_dagster.sources.kafka import KafkaSource
from lakechime_dagster.tables.sources import AnySource, JsonLines, KafkaTopic
from lakechime_dagster.triggers.consumers import Checkpoint, DeclaredSource


@dataclass(frozen=True, kw_only=True)
class SourceJob:
    """One execution of a table of messages, of those of a source since the consumer's checkpoint.

    `folder` is where a source of files, or the table that is one, lies, `environment` what a
    source's settings written `$NAME` stand for. `start`, `may_complete_empty` and `has_committed`
    are as of `job.TableJob`.
    """

    name: str
    location: str
    source: AnySource
    folder: str = ""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    comment: str = ""
    start: Checkpoint | None = None
    may_complete_empty: bool = True
    has_committed: bool = False


def open_source(
    source: DeclaredSource,
    located: Callable[[str], Path],
    environment: Mapping[str, str],
    *,
    is_ordered_by_position: bool = False,
) -> OpenSource:
    """The source, to be asked.

    Args:
        source: As it is declared.
        located: Where a declared folder lies, which may be relative.
        environment: What settings of a source that are written `$NAME` stand for.
        is_ordered_by_position: Its messages hold their order, in whatever partition they are.

    Raises:
        MessagesUnreadableError: nothing here can ask such a source.
    """
    match source:
        case JsonLines():
            return FileSource(located(source.folder), source.pattern, source.max_bytes)
        case KafkaTopic():
            return KafkaSource(source, environment, is_ordered_by_position=is_ordered_by_position)
    raise MessagesUnreadableError(f"{source} is neither JsonLines(…) nor KafkaTopic(…)")
