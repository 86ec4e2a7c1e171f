"""A real capture stack on loopback: Kafka, Kafka Connect with Debezium, MariaDB and PostgreSQL,
ended with the recording.

Needed beside the repository's own packages: Java, Debian's mariadb-server-core and
mariadb-client-core.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.kafka import Worker, connect_worker, kafka_broker
from tests.support.logical_postgres import LogicalPostgres, logical_postgres
from tests.support.mariadb import MariaDB, mariadb_server
from tests.support.stack_jars import ensure_stack_jars


@dataclass(frozen=True, kw_only=True)
class Stack:
    """The running servers, and the folder that further ones may use."""

    folder: Path
    kafka: str
    connect: Worker
    mariadb: MariaDB
    postgres: LogicalPostgres


@contextmanager
def started() -> Iterator[Stack]:
    """All servers; they end with the context, however it is left."""
    jars = ensure_stack_jars()
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="lakechime-cdc-", ignore_cleanup_errors=True)
            )
        )
        folder.chmod(0o755)
        postgres = stack.enter_context(logical_postgres(durable=False))
        mariadb = stack.enter_context(mariadb_server(folder / "mariadb"))
        kafka = stack.enter_context(kafka_broker(folder / "kafka", jars))
        connect = stack.enter_context(connect_worker(folder / "connect", jars, kafka))
        yield Stack(
            folder=folder, kafka=kafka.address, connect=connect, mariadb=mariadb, postgres=postgres
        )
