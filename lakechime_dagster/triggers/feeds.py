"""Places in feeds: up to where a lane has read messages that come from outside of the lake."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Span = tuple[int, int]  # start inclusive, end exclusive


class AnyFeed(Protocol):
    """A feed as a flow names it; its kinds are declared in `lake.feeds`, and asked in `feeds`."""

    def __str__(self) -> str:
        """What it is, for people; without a secret."""
        ...


@dataclass(frozen=True)
class FilesPlace:
    """Up to where the files of a folder are read.

    Attributes:
        files: By the file's name below the folder, with `/` between its parts: the bytes that were read, all of whole lines.
    """

    files: Mapping[str, int] = field(default_factory=dict)

    def spans_after(self, place: "FilesPlace") -> dict[str, Span]:
        """What lies between a place and this one, by file, in the order of their names."""
        spans = {name: (place.files.get(name, 0), end) for name, end in sorted(self.files.items())}
        return {name: (start, end) for name, (start, end) in spans.items() if start < end}

    def to_json(self) -> dict[str, Any]:
        return {"files": dict(sorted(self.files.items()))}

    def __str__(self) -> str:
        return f"{sum(self.files.values()):,} bytes of {len(self.files)} file{'' if len(self.files) == 1 else 's'}"


@dataclass(frozen=True)
class TopicPlace:
    """Up to where a topic is read: its name, and by partition the next offset to read."""

    name: str
    offsets: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class KafkaPlace:
    """Up to where topics are read, by their ids: a topic that was made anew under its name is another one."""

    topics: Mapping[str, TopicPlace] = field(default_factory=dict)

    def spans_after(self, place: "KafkaPlace") -> dict[tuple[str, int], Span]:
        """What lies between a place and this one, by topic id and partition, in the order of the topics' names."""
        read = {topic_id: topic.offsets for topic_id, topic in place.topics.items()}
        spans = {
            (topic_id, partition): (read.get(topic_id, {}).get(partition, 0), end)
            for topic_id, topic in sorted(self.topics.items(), key=lambda one: (one[1].name, one[0]))
            for partition, end in sorted(topic.offsets.items())
        }
        return {where: (start, end) for where, (start, end) in spans.items() if start < end}

    def to_json(self) -> dict[str, Any]:
        topics = {
            topic_id: [topic.name, {str(partition): offset for partition, offset in sorted(topic.offsets.items())}]
            for topic_id, topic in sorted(self.topics.items())
        }
        return {"topics": topics}

    def __str__(self) -> str:
        places = ((topic.name, *place) for _, topic in sorted(self.topics.items()) for place in sorted(topic.offsets.items()))
        return ", ".join(f"{name}[{partition}]@{offset}" for name, partition, offset in places)


FeedPlace = FilesPlace | KafkaPlace


def spans_between(start: FeedPlace | None, end: FeedPlace) -> list[tuple[str, Span]]:
    """What lies between two places, by file, or by topic and partition."""
    if isinstance(end, FilesPlace):
        return list(end.spans_after(start if isinstance(start, FilesPlace) else FilesPlace()).items())
    spans = end.spans_after(start if isinstance(start, KafkaPlace) else KafkaPlace())
    return [(f"{end.topics[topic_id].name}[{partition}]", span) for (topic_id, partition), span in spans.items()]


@dataclass(frozen=True, kw_only=True)
class FeedLag:
    """What a feed held beyond the checkpoint of its consumer when it was looked at last.

    Attributes:
        unread: Offsets of topics, or bytes of files.
        unit: `events` of topics, `bytes` of files.
        since_ms: When something unread was seen first, in milliseconds of the store's clock; None where there is nothing.
        step: How many executions of the consumer were complete then.
    """

    unread: int
    unit: str
    since_ms: int | None
    step: int

    @classmethod
    def seen(
        cls, start: FeedPlace | None, end: FeedPlace, *, step: int, now_ms: int, before: "FeedLag | None", has_more: bool
    ) -> "FeedLag":
        """What a look at the feed tells, given what the last one did.

        Args:
            start: The checkpoint.
            end: Up to where the feed can be read.
            step: How many executions are complete.
            now_ms: The time of the look.
            before: What the last look told; None where there was none.
            has_more: The last execution left something of what was there, which has waited since then.
        """
        unread = sum(stop - first for _, (first, stop) in spans_between(start, end))
        unit = "bytes" if isinstance(end, FilesPlace) else "events"
        since_ms = now_ms if unread else None
        if unread and before is not None and before.since_ms is not None and (before.step == step or has_more):
            since_ms = before.since_ms
        return cls(unread=unread, unit=unit, since_ms=since_ms, step=step)

    def to_json(self) -> dict[str, Any]:
        return {"unread": self.unread, "unit": self.unit, "since_ms": self.since_ms, "step": self.step}

    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> "FeedLag":
        return cls(unread=wire["unread"], unit=wire["unit"], since_ms=wire["since_ms"], step=wire["step"])


def feed_place(wire: Mapping[str, Any]) -> FeedPlace:
    """The place that `to_json` wrote.

    Raises:
        ValueError: It is of a kind that a newer program wrote.
    """
    match wire:
        case {"files": files}:
            return FilesPlace(dict(files))
        case {"topics": topics}:
            return KafkaPlace({
                topic_id: TopicPlace(name, {int(partition): offset for partition, offset in offsets.items()})
                for topic_id, (name, offsets) in topics.items()
            })  # fmt: skip
    raise ValueError(f"a place in a feed is of files or of topics, not of {', '.join(wire)}; a newer program wrote it")
