"""For how long the messages of topics that were not read stay there, by the times of the oldest ones.

Imported when a cluster is asked, not before: Kafka's client is an extra.
"""

from collections.abc import Mapping, Sequence

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaException, TopicPartition

from lakechime_dagster.cdc.monitor import Left
from lakechime_dagster.errors import FeedUnreadableError
from lakechime_dagster.feeds.kafka_client import ask_topics
from lakechime_dagster.lake.feeds import KafkaTopic
from lakechime_dagster.lake.kafka import librdkafka_settings, without_secrets
from lakechime_dagster.triggers.feeds import KafkaPlace

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
