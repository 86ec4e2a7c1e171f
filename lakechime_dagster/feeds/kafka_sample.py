"""The newest messages of topics, for a look at them; nothing remembers that they were read.

Imported when a cluster is asked, not before: Kafka's client is an extra.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from lakechime_dagster.cdc.messages.record import Record
from lakechime_dagster.errors import FeedUnreadableError
from lakechime_dagster.feeds.kafka_client import ask_topics
from lakechime_dagster.feeds.kafka_topics import TopicState
from lakechime_dagster.lake.feeds import KafkaTopic
from lakechime_dagster.lake.kafka import librdkafka_settings, without_secrets

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
