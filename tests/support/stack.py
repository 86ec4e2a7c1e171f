"""The capture stack of the tests: Kafka, Kafka Connect with Debezium, MariaDB; each starts once per
process of the tests, when asked for.

Each server has a folder of its own below a temporary one and free ports on loopback, is waited for
by asking it, and is ended by its process id, however the tests end.
"""

import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakechime_dagster.demo.servers import check_programs
from lakechime_dagster.errors import LakeChimeError
from tests.support.kafka import Kafka, Worker, connect_worker, kafka_broker
from tests.support.mariadb import CAPTURE_USER, MariaDB, mariadb_server
from tests.support.missing import missing
from tests.support.stack_jars import ensure_stack_jars


def debezium_settings(name: str, mariadb: MariaDB, kafka: str) -> dict[str, str]:
    """A connector that brings the tables of a database to topics `<name>.<database>.<table>`; both
    have the connector's name.

    `kafka` is the address of the broker.
    """
    return {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "tasks.max": "1",
        "topic.prefix": name,
        "database.hostname": "127.0.0.1",
        "database.port": str(mariadb.port),
        "database.user": CAPTURE_USER,
        "database.password": CAPTURE_USER,
        "database.server.id": str(1000 + zlib.crc32(name.encode()) % 1_000_000),
        "database.include.list": name,
        "schema.history.internal.kafka.bootstrap.servers": kafka,
        "schema.history.internal.kafka.topic": f"{name}-history",
    }


@pytest.fixture(scope="session")
def kafka(stack_folder: Path, stack_jars: Path) -> Iterator[Kafka]:
    """A broker for all tests of the process: a test makes topics of its own."""
    with kafka_broker(stack_folder / "kafka", stack_jars) as running:
        yield running


@pytest.fixture(scope="session")
def connect(stack_folder: Path, stack_jars: Path, kafka: Kafka) -> Iterator[Worker]:
    """A Kafka Connect worker: a test makes connectors of its own."""
    with connect_worker(stack_folder / "connect", stack_jars, kafka) as running:
        yield running


@pytest.fixture(scope="session")
def mariadb(stack_folder: Path) -> Iterator[MariaDB]:
    """A MariaDB server: a test makes databases of its own."""
    try:
        check_programs()
    except LakeChimeError as error:
        missing("MariaDB is missing", str(error))
    with mariadb_server(stack_folder / "mariadb") as running:
        yield running


@pytest.fixture(scope="session")
def stack_jars() -> Path:
    """The jars of Kafka, Connect and Debezium."""
    try:
        return ensure_stack_jars()
    except LakeChimeError as error:
        missing(str(error), "run `make ready` with a network")


@pytest.fixture(scope="session")
def stack_folder() -> Iterator[Path]:
    """For the servers of all tests of the process."""
    with servers_folder() as folder:
        yield folder


@contextmanager
def servers_folder() -> Iterator[Path]:
    """Not below pytest's folder: that is closed to the user that MariaDB runs as when we are
    root.
    """
    with tempfile.TemporaryDirectory(
        prefix="lakechime-stack-", ignore_cleanup_errors=True
    ) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
