"""What Kafka holds: its topics, and their messages as captures have them."""

from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.cdc.recording.text import decoded


class Broker:
    """Reads the topics of the stack's Kafka."""

    def __init__(self, address: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
        reading = {
            "group.id": "record",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        self._consumer = Consumer({"bootstrap.servers": address, "log_level": 2, **reading})

    def topics(self) -> list[str]:
        return sorted(self._consumer.list_topics(timeout=30).topics)

    def messages(self, topic: str) -> list[dict[str, Any]]:
        """All messages of a topic, partition by partition."""
        described = self._admin.describe_topics(TopicCollection([topic]))[topic].result(30)
        return [
            {"topic": topic, "topic_id": str(described.topic_id)} | message
            for partition in sorted(each.id for each in described.partitions)
            for message in self._partition(topic, partition)
        ]

    def has(self, topic: str, wanted: Callable[[dict[str, Any]], bool]) -> bool:
        """Whether the topic is there and holds such a message; one that is being made holds
        none.
        """
        try:
            return topic in self.topics() and any(
                wanted(message) for message in self.messages(topic)
            )
        except KafkaException as error:
            if error.args[0].code() not in (
                KafkaError.NOT_LEADER_FOR_PARTITION,
                KafkaError.LEADER_NOT_AVAILABLE,
            ):
                raise
            return False

    def size(self, topic: str) -> int:
        """The sum of the offsets at which its partitions end."""
        partitions = self._consumer.list_topics(topic, timeout=30).topics[topic].partitions
        return sum(
            self._consumer.get_watermark_offsets(
                TopicPartition(topic, one), timeout=30, cached=False
            )[1]
            for one in partitions
        )

    def close(self) -> None:
        self._consumer.close()

    def _partition(self, topic: str, partition: int) -> Iterator[dict[str, Any]]:
        low, high = self._consumer.get_watermark_offsets(
            TopicPartition(topic, partition), timeout=30, cached=False
        )
        self._consumer.assign([TopicPartition(topic, partition, low)])
        following = low
        while following < high:
            message = self._consumer.poll(30)
            if message is None or message.error() or (offset := message.offset()) is None:
                raise RuntimeError(
                    f"{topic} cannot be read from {following} to {high}: "
                    f"{message and message.error()}"
                )
            following = offset + 1
            yield {
                "partition": partition,
                "offset": offset,
                "timestamp_ms": message.timestamp()[1],
                "headers": [[name, decoded(value)] for name, value in message.headers() or []],
                "key": decoded(message.key()),
                "value": decoded(message.value()),
            }
