"""The Kafka broker of the tests, which also has a listener with a login, and Kafka Connect beside it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lakechime_dagster.demo import servers
from lakechime_dagster.demo.servers import Connect, Server
from lakechime_dagster.spark.jvm import find_java
from tests.support.processes import free_port

USER, PASSWORD = "lake", "s3cret-of-kafka"  # who may come in at the secured listener
_LOGIN = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.secured.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    ),
}


@dataclass(frozen=True)
class Kafka:
    """A running broker, which is its own controller.

    Attributes:
        address: For clients of any kind.
        secured: For clients that log in by SASL PLAIN as `USER`.
        server: Its process.
    """

    address: str
    secured: str
    server: Server


@contextmanager
def kafka_broker(folder: Path, jars: Path) -> Iterator[Kafka]:
    """A broker of its own folder and ports."""
    port, secured = free_port(), free_port()
    listeners = {"SECURED": (secured, "SASL_PLAINTEXT")}
    with servers.kafka_broker(folder, jars, find_java(), port, listeners=listeners, settings=_LOGIN) as server:
        yield Kafka(f"127.0.0.1:{port}", f"127.0.0.1:{secured}", server)


@contextmanager
def connect_worker(folder: Path, jars: Path, broker: Kafka) -> Iterator[Connect]:
    """A standalone worker with Debezium's connectors."""
    with servers.connect_worker(folder, jars, find_java(), broker.address) as worker:
        yield worker
