"""How much of topics one step reads: of each partition by what it holds beside the others, schema changes first, heartbeats last."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TypeVar

from lakechime_dagster.lake.feeds import KafkaTopic
from lakechime_dagster.triggers.feeds import KafkaPlace, Span, TopicPlace

T = TypeVar("T")
Unread = Mapping[tuple[str, int], Span]  # by topic id and partition


def step_end(feed: KafkaTopic, place: KafkaPlace, end: KafkaPlace, unread: Unread) -> KafkaPlace | None:
    """Up to where one step reads from a place; None where that is the end.

    A schema change says how the rows after it are read, which must be known with them: its topic is read up to the end. A
    heartbeat says up to when its server's log had come, which must not be known before the changes that came till then: its
    topic waits until all others are read up to their ends. One that waits and was never read is not in the place.
    """
    if feed.max_offsets is None or _count(unread) <= feed.max_offsets:
        return None
    schemas, beats = (_of_topics(unread, end, glob) for glob in (feed.ddl, feed.heartbeats))
    others = {one: span for one, span in unread.items() if one not in schemas and one not in beats}
    room = feed.max_offsets - _count(schemas)
    taken = {**_taken(schemas, _count(schemas)), **_taken(others, room)}
    if room > _count(others):
        taken |= _taken(beats, room - _count(others))
    waiting, topics = unread.keys() - taken.keys(), dict[str, TopicPlace]()
    for topic_id, topic in end.topics.items():
        known, waits = place.topics.get(topic_id), {number for one, number in waiting if one == topic_id}
        if known is not None or not waits:
            offsets = {number: taken.get((topic_id, number), offset) for number, offset in topic.offsets.items() if number not in waits}
            topics[topic_id] = TopicPlace(topic.name, {**(known.offsets if known else {}), **offsets})
    return KafkaPlace(topics)


def what_is_left(feed: KafkaTopic, short: KafkaPlace, unread: Unread) -> str:
    """What a step leaves to the next ones, in words."""
    read = {(topic_id, number): offset for topic_id, topic in short.topics.items() for number, offset in topic.offsets.items()}
    left = sum(stop - read.get(one, start) for one, (start, stop) in unread.items())
    return f"a step takes at most {feed.max_offsets:,} offsets, so that {left:,} are left to the next ones"


def shares(held: Mapping[T, int], limit: int) -> dict[T, int]:
    """What each takes of a limit: as much as it holds beside the others, and one at least, also where these are more than the limit."""
    total = sum(held.values())
    if total <= limit:
        return dict(held)
    room, others = max(0, limit - len(held)), max(1, total - len(held))
    return {one: 1 + (count - 1) * room // others for one, count in held.items()}


def _of_topics(unread: Unread, end: KafkaPlace, glob: str) -> Unread:
    return {one: span for one, span in unread.items() if fnmatchcase(end.topics[one[0]].name, glob)}


def _taken(unread: Unread, limit: int) -> dict[tuple[str, int], int]:
    """Up to which offset each partition is read."""
    counts = shares({one: stop - start for one, (start, stop) in unread.items()}, limit)
    return {one: unread[one][0] + count for one, count in counts.items()}


def _count(unread: Unread) -> int:
    return sum(stop - start for start, stop in unread.values())
