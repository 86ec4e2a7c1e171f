"""Topics of the tests' Kafka: made, filled, cut and deleted."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from lakechime_dagster.tables.sources import KafkaTopic
from tests.support.kafka import PASSWORD, USER, Kafka
from tests.support.processes import await_found

ENVIRONMENT = {"KAFKA_PASSWORD": PASSWORD}
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": USER,
    "sasl.password": "$KAFKA_PASSWORD",
}

# also messages of years ago, which the broker else deletes when it next looks
KEPT = {"retention.ms": "-1"}


class Topics:
    """The topics of one test, whose names begin with a prefix of its own."""

    def __init__(self, kafka: Kafka, admin: AdminClient) -> None:
        self.kafka = kafka
        self._admin = admin
        self.prefix = f"test-{uuid.uuid4().hex[:8]}"
        self._settings = {"bootstrap.servers": kafka.address, "log_level": 0}

    def source(self, glob: str = "*", **declared: Any) -> KafkaTopic:
        """Topics of this test, asked with a login."""
        return KafkaTopic(self.named(glob), bootstrap=self.kafka.secured, options=LOGIN, **declared)

    def named(self, name: str) -> str:
        return f"{self.prefix}.{name}"

    def create(self, name: str, partitions: int = 1) -> None:
        """A topic; one of that name that is being deleted is waited for."""

        def is_created() -> bool:
            with suppress(KafkaException):
                self._admin.create_topics([NewTopic(self.named(name), partitions, 1, config=KEPT)])[
                    self.named(name)
                ].result()
                return True
            return False

        await_found(is_created, f"topic {name}", 30, pause=0.1)

    def grow(self, name: str, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(self.named(name), partitions)])[
            self.named(name)
        ].result()
        await_found(
            lambda: (
                len(self._admin.list_topics(timeout=10).topics[self.named(name)].partitions)
                == partitions
            ),
            "partitions",
            30,
        )

    def delete(self, name: str) -> None:
        self._admin.delete_topics([self.named(name)])[self.named(name)].result()

    def cut(self, name: str, before: int, partition: int = 0) -> None:
        """Deletes what lies below an offset, as retention does."""
        (deleted,) = self._admin.delete_records(
            [TopicPartition(self.named(name), partition, before)]
        ).values()
        deleted.result()

    def send(
        self,
        name: str,
        *values: str | bytes | None,
        partition: int = 0,
        key: str | None = None,
        at_ms: int = 0,
    ) -> None:
        # one that lived longer would not know of new partitions
        with Producer(self._settings | {"linger.ms": 0}) as producer:
            _send(producer, self.named(name), values, partition, key, at_ms)
            assert producer.flush(30) == 0

    @contextmanager
    def transaction(self, name: str, *values: str, partition: int = 0) -> Iterator[Producer]:
        """A transaction that holds these messages, all at the broker; its end is the caller's."""
        with Producer(
            self._settings | {"transactional.id": uuid.uuid4().hex, "linger.ms": 0}
        ) as producer:
            await_found(lambda: _is_initialised(producer), "the coordinator of transactions", 60)
            producer.begin_transaction()
            _send(producer, self.named(name), values, partition, None)
            assert producer.flush(30) == 0
            yield producer

    def aborted(self, name: str, *values: str) -> None:
        with self.transaction(name, *values) as producer:
            producer.abort_transaction(30)

    def committed(self, name: str, *values: str) -> None:
        with self.transaction(name, *values) as producer:
            producer.commit_transaction(30)


@pytest.fixture
def topics(kafka: Kafka) -> Iterator[Topics]:
    """Topics that no other test sees."""
    with AdminClient({"bootstrap.servers": kafka.address, "log_level": 0}) as admin:
        yield Topics(kafka, admin)


def _send(
    producer: Producer,
    topic: str,
    values: Sequence[str | bytes | None],
    partition: int,
    key: str | None,
    at_ms: int = 0,
) -> None:
    """Messages of a time; 0 is now."""
    for value in values:
        producer.produce(
            topic,
            value,
            key=key,
            partition=partition,
            timestamp=at_ms,
            headers=[("origin", b"test")],
            on_delivery=_expect_delivered,
        )


def _expect_delivered(error: KafkaError | None, message: object) -> None:
    assert error is None, error


def _is_initialised(producer: Producer) -> bool:
    """The first use of a broker waits until it has loaded its coordinator."""
    try:
        producer.init_transactions(10)
    except KafkaException as error:
        if error.args[0].retriable():
            return False
        raise
    return True
