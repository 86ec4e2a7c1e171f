"""Kafka topics as a message source: offsets, retention, limits of one read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeVar

from lakechime_dagster.errors import MessagesUnreadableError, needs
from lakechime_dagster.sources.files import Poll
from lakechime_dagster.tables.sources import KafkaTopic
from lakechime_dagster.triggers.consumers import (
    KafkaOffsets,
    MessageSpan,
    SourceOffsets,
    TopicOffsets,
)

T = TypeVar("T")
Unread = Mapping[tuple[str, int], MessageSpan]  # by topic id and partition


def limited_end(
    source: KafkaTopic, checkpoint: KafkaOffsets, end: KafkaOffsets, unread: Unread
) -> KafkaOffsets | None:
    """Up to where one execution reads from a checkpoint; None where that is the end.

    A heartbeat shows how far its server's log was read, which must not be known before the changes
    up to there: its topic waits until all others are read up to their ends. One that waits and was
    never read is not in the offsets.
    """
    if source.max_offsets is None or _count(unread) <= source.max_offsets:
        return None
    beats = _of_topics(unread, end, source.heartbeats)
    others = {one: span for one, span in unread.items() if one not in beats}
    taken = _taken(others, source.max_offsets)
    if source.max_offsets > _count(others):
        taken |= _taken(beats, source.max_offsets - _count(others))
    waiting, topics = unread.keys() - taken.keys(), dict[str, TopicOffsets]()
    for topic_id, topic in end.topics.items():
        known, waits = (
            checkpoint.topics.get(topic_id),
            {number for one, number in waiting if one == topic_id},
        )
        if known is not None or not waits:
            offsets = {
                number: taken.get((topic_id, number), offset)
                for number, offset in topic.offsets.items()
                if number not in waits
            }
            topics[topic_id] = TopicOffsets(
                topic.name, {**(known.offsets if known else {}), **offsets}
            )
    return KafkaOffsets(topics)


def what_is_left(source: KafkaTopic, short: KafkaOffsets, unread: Unread) -> str:
    """What an execution leaves to the next ones, in words."""
    read = {
        (topic_id, number): offset
        for topic_id, topic in short.topics.items()
        for number, offset in topic.offsets.items()
    }
    left = sum(stop - read.get(one, start) for one, (start, stop) in unread.items())
    return (
        f"an execution reads at most {source.max_offsets:,} offsets, so that {left:,} are left to "
        f"the next ones"
    )


def shares(held: Mapping[T, int], limit: int) -> dict[T, int]:
    """The share of each in a limit, in proportion to what it holds: at least one, also where these
    are more than the limit.
    """
    total = sum(held.values())
    if total <= limit:
        return dict(held)
    room, others = max(0, limit - len(held)), max(1, total - len(held))
    return {one: 1 + (count - 1) * room // others for one, count in held.items()}


def _of_topics(unread: Unread, end: KafkaOffsets, glob: str) -> Unread:
    return {one: span for one, span in unread.items() if fnmatchcase(end.topics[one[0]].name, glob)}


def _taken(unread: Unread, limit: int) -> dict[tuple[str, int], int]:
    """Up to which offset each partition is read."""
    counts = shares({one: stop - start for one, (start, stop) in unread.items()}, limit)
    return {one: unread[one][0] + count for one, count in counts.items()}


def _count(unread: Unread) -> int:
    return sum(stop - start for start, stop in unread.values())


@dataclass(frozen=True, kw_only=True)
class TopicState:
    """A topic as it is.

    Attributes:
        topic_id: Its id, which a later topic of its name does not have; its name where the cluster
            has no ids.
        spans: By partition, the first offset that is there, and the last stable one, before which
            every transaction has ended.
        ends: By partition, the offset that the next message will get.
    """

    topic_id: str
    name: str
    spans: Mapping[int, MessageSpan]
    ends: Mapping[int, int] = field(default_factory=dict)


CHOICES = (
    "`trigger resume` continues with what exists and gives up what is gone, `trigger seek --to "
    "now` before it leaves out both; "
    "afterwards a new snapshot by the connector brings the rows again"
)


@dataclass(frozen=True)
class KafkaSource:
    """The topics of a cluster whose names match.

    A partition is read up to its last stable offset: what lies above may belong to a transaction
    that is still open. A topic, or a partition, that was not there before is read from its first
    offset. One that is gone stays in the offsets, so that a later one of its name is known to be
    another.

    Attributes:
        topic: As it is declared.
        environment: What its options `$NAME` stand for, asked when the cluster is.
        is_ordered_by_position: The messages hold their order; otherwise that of a partition is the
            only one, which does not hold where messages of a key are in two.
        seconds: That the cluster has for each answer.
    """

    topic: KafkaTopic
    environment: Mapping[str, str] = field(repr=False)
    is_ordered_by_position: bool = field(kw_only=True)
    seconds: float = field(default=5, kw_only=True)

    def poll(self, checkpoint: SourceOffsets | None) -> Poll:
        """What the topics hold after a checkpoint.

        Raises:
            MessagesUnreadableError: the cluster cannot be asked, or has no such topic.
            InvalidValueError: an option is not in the environment.
        """
        with needs(str(self.topic), raised=MessagesUnreadableError):
            from lakechime_dagster.sources.kafka_client import ask_topics
        read = checkpoint if isinstance(checkpoint, KafkaOffsets) else KafkaOffsets()
        topics = ask_topics(self.topic, self.environment, self.seconds)
        return polled(self.topic, read, topics, is_ordered_by_position=self.is_ordered_by_position)


def polled(
    source: KafkaTopic,
    checkpoint: KafkaOffsets,
    topics: Sequence[TopicState],
    *,
    is_ordered_by_position: bool,
) -> Poll:
    """What topics as they are mean for a checkpoint up to which they were read."""
    problems = list(_problems(checkpoint, topics, is_ordered_by_position))
    end, unread = dict(checkpoint.topics), dict[tuple[str, int], MessageSpan]()
    for topic in topics:
        before = checkpoint.topics.get(topic.topic_id, TopicOffsets(topic.name)).offsets
        offsets = dict(before)
        for partition, (earliest, stop) in sorted(topic.spans.items()):
            start = before.get(partition, earliest)
            offsets[partition] = max(start, stop)
            unread |= {(topic.topic_id, partition): (start, stop)} if start < stop else {}
        end[topic.topic_id] = TopicOffsets(topic.name, offsets)
    short = None if problems else limited_end(source, checkpoint, KafkaOffsets(end), unread)
    return Poll(
        end=KafkaOffsets(end),
        news=_news(source, KafkaOffsets(end), unread),
        rest="; ".join(_open_transactions(topics)),
        problems=tuple(problems),
        kept=_kept(checkpoint, topics) if problems else None,
        limited_end=short,
        left="" if short is None else what_is_left(source, short, unread),
    )


def _news(source: KafkaTopic, end: KafkaOffsets, unread: Unread) -> str:
    if len(unread) != 1:
        return f"{len(unread)} partitions grew of {source}" if unread else ""
    (((topic_id, partition), (start, stop)),) = unread.items()
    return f"{end.topics[topic_id].name}[{partition}]: new offsets {start:,} to {stop:,}"


def _open_transactions(topics: Sequence[TopicState]) -> Iterator[str]:
    for topic in topics:
        for partition, (_, stop) in sorted(topic.spans.items()):
            if (end := topic.ends.get(partition, stop)) > stop:
                yield (
                    f"{topic.name}[{partition}] ends at offset {end:,}, and is read up to "
                    f"{stop:,}, where a transaction is open"
                )


def _kept(checkpoint: KafkaOffsets, topics: Sequence[TopicState]) -> KafkaOffsets:
    """The checkpoint without what is gone: the nearest offsets that exist, all partitions known; a
    topic that was created again is new.
    """
    recreated = {topic.name for topic in topics if topic.topic_id not in checkpoint.topics}
    kept = {
        topic_id: known
        for topic_id, known in checkpoint.topics.items()
        if known.name not in recreated
    }
    for topic in topics:
        if topic.topic_id in kept:
            before = kept[topic.topic_id].offsets
            offsets = {
                number: min(max(before.get(number, 0), earliest), stop)
                for number, (earliest, stop) in topic.spans.items()
            }
            kept[topic.topic_id] = TopicOffsets(topic.name, {**before, **offsets})
    return KafkaOffsets(kept)


def _problems(
    checkpoint: KafkaOffsets, topics: Sequence[TopicState], is_ordered_by_position: bool
) -> Iterator[str]:
    ids = {topic.topic_id for topic in topics}
    gone = {
        known.name: (topic_id, known)
        for topic_id, known in sorted(checkpoint.topics.items())
        if topic_id not in ids
    }
    for topic in sorted(topics, key=lambda each: each.name):
        known = checkpoint.topics.get(topic.topic_id)
        if known is not None:
            yield from _partition_problems(topic, known)
            if not is_ordered_by_position and len(topic.spans) > len(known.offsets):
                yield (
                    f"{topic.name} was read with {len(known.offsets)} partitions, and has "
                    f"{len(topic.spans)} now: its messages hold no "
                    "position, and those of one key may be in two partitions, so that their order "
                    "is unknown; write them to "
                    "a topic of another name with as many partitions as it shall keep; `trigger "
                    "resume` reads all partitions all the same"
                )
        elif topic.name in gone:
            old_id, old = gone[topic.name]
            yield (
                f"{topic.name} was created again: it was read with id {old_id} up to "
                f"{_offsets(old.offsets)}, and has id {topic.topic_id} "
                f"now, up to "
                f"{_offsets({partition: stop for partition, (_, stop) in topic.spans.items()})}; "
                f"{CHOICES}"
            )


def _partition_problems(topic: TopicState, known: TopicOffsets) -> Iterator[str]:
    for partition, (earliest, stop) in sorted(topic.spans.items()):
        start = known.offsets.get(partition, 0)
        if start < earliest:
            yield (
                f"{topic.name}[{partition}] was truncated: it was read up to offset {start:,}, and "
                f"begins at {earliest:,} now, so that "
                f"what lay between was never read; {CHOICES}"
            )
        elif stop < start:
            yield (
                f"{topic.name}[{partition}] ends at offset {stop:,}, and was read up to {start:,}: "
                f"the cluster lost what it had shown that "
                f"it holds; {CHOICES}"
            )


def _offsets(offsets: Mapping[int, int]) -> str:
    return (
        ", ".join(f"[{partition}]@{offset}" for partition, offset in sorted(offsets.items()))
        or "nothing"
    )
