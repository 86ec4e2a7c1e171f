"""Topics of a CDC table: a sample of their newest messages, and for how long unread messages are kept."""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from lakechime_dagster.cdc.monitor import Left
from lakechime_dagster.cdc.record import Record
from lakechime_dagster.errors import FeedUnreadableError
from lakechime_dagster.sources.kafka import TopicState
from lakechime_dagster.sources.kafka_client import ask_topics
from lakechime_dagster.tables.sources import KafkaTopic, librdkafka_settings, without_secrets
from lakechime_dagster.triggers.consumers import KafkaPlace

UNSEEN = 100  # offsets before the newest that may be of aborted transactions, or of the ends of others


def newest_messages(feed: KafkaTopic, environment: Mapping[str, str], limit: int, seconds: float = 5) -> list[Record]:
    """At most so many of the newest messages that are committed, of all partitions alike; the cluster has so long for each answer.

    Raises:
        FeedUnreadableError: The cluster cannot be asked, or has no such topic.
        InvalidValueError: An option is not in the environment.
    """
    topics = ask_topics(feed, environment, seconds)
    parts = [(topic, number, *span) for topic in topics for number, span in topic.spans.items() if span[0] < span[1]]
    if not parts:
        return []
    each = max(1, limit // len(parts))
    starts = [TopicPartition(topic.name, number, max(first, stop - each - UNSEEN)) for topic, number, first, stop in parts[:limit]]
    own = {"group.id": "lakechime-plan", "enable.auto.commit": False, "enable.partition.eof": True, "isolation.level": "read_committed"}
    consumer = Consumer({**librdkafka_settings(feed, environment), **own, "log_level": 0})
    try:
        consumer.assign(starts)
        newest: dict[tuple[str, int], deque[Record]] = defaultdict(lambda: deque(maxlen=each))
        for record in _read(consumer, topics, len(starts), seconds):
            newest[record.topic, record.partition].append(record)
        return [record for _, records in sorted(newest.items()) for record in records]
    except KafkaException as error:
        reason = without_secrets(error.args[0].str(), feed, environment)
        raise FeedUnreadableError(f"{feed} cannot be read: {reason}; check its bootstrap and options") from error
    finally:
        consumer.close()


def _read(consumer: Consumer, topics: Sequence[TopicState], partitions: int, seconds: float) -> Iterator[Record]:
    """Messages until all partitions have ended, or the cluster gives none for so long."""
    ids, ended = {topic.name: topic.topic_id for topic in topics}, 0
    while ended < partitions and (message := consumer.poll(seconds)) is not None:
        error = message.error()
        if error is None:
            yield _record(message, ids)
        elif error.code() == KafkaError._PARTITION_EOF:
            ended += 1
        else:
            raise KafkaException(error)


def _record(message: Message, ids: Mapping[str, str]) -> Record:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    key, value = (None if part is None else part if isinstance(part, bytes) else part.encode() for part in (message.key(), message.value()))
    headers = {name: content.encode() if isinstance(content, str) else content or b"" for name, content in message.headers() or []}
    return Record(topic=topic, topic_id=ids.get(topic, topic), partition=partition, offset=offset, key=key, value=value, headers=headers)


Messages = Sequence[tuple[str, int, int]]  # topic, partition, offset


def times_left(feed: KafkaTopic, environment: Mapping[str, str], place: KafkaPlace, seconds: float = 5) -> list[Left]:
    """Of each partition with messages after the place, for how long they stay: as much as they are newer than the oldest one there.

    A topic drops messages by their age, so that the oldest one says what age that is now; of one that has dropped none yet nobody knows.

    Raises:
        FeedUnreadableError: The cluster cannot be asked, or has no such topic.
        InvalidValueError: An option is not in the environment.
    """
    found: list[Left] = []
    asked: list[tuple[str, int, int, int]] = []  # topic, partition, the oldest offset, the first that was not read
    for topic in ask_topics(feed, environment, seconds):
        known = place.topics.get(topic.topic_id)
        for number, (oldest, stop) in topic.spans.items():
            start = known.offsets.get(number, oldest) if known is not None else oldest
            if start < oldest:
                found.append(Left(f"{topic.name}[{number}]", 0, f"it begins at offset {oldest:,}, and was read up to {start:,}"))
            elif start < stop and known is not None:
                asked.append((topic.name, number, oldest, start))
    times = _times(feed, environment, [(name, number, at) for name, number, *offsets in asked for at in offsets], seconds)
    for name, number, oldest, start in asked:
        first, next_ = times.get((name, number, oldest)), times.get((name, number, start))
        left = None if first is None or next_ is None or oldest in (0, start) else max(1.0, (next_ - first) / 1000)
        found.append(Left(f"{name}[{number}]", left, f"it holds {start - oldest:,} older messages, which go before"))
    return found


def _times(feed: KafkaTopic, environment: Mapping[str, str], messages: Messages, seconds: float) -> dict[tuple[str, int, int], int]:
    """The times of these messages, or of the first after each; those that nobody tells are left out."""
    if not messages:
        return {}
    own = {"group.id": "lakechime-monitor", "enable.auto.commit": False, "isolation.level": "read_committed", "log_level": 0}
    consumer = Consumer({**librdkafka_settings(feed, environment), **own})
    found: dict[tuple[str, int, int], int] = {}
    try:
        for name, number, offset in dict.fromkeys(messages):
            consumer.assign([TopicPartition(name, number, offset)])
            message = consumer.poll(seconds)
            if message is None or message.error() is not None:
                continue
            kind, time = message.timestamp()
            if kind != TIMESTAMP_NOT_AVAILABLE:
                found[name, number, offset] = time
        return found
    except KafkaException as error:
        reason = without_secrets(error.args[0].str(), feed, environment)
        raise FeedUnreadableError(f"{feed} cannot be read: {reason}; check its bootstrap and options") from error
    finally:
        consumer.close()
