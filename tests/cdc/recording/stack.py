"""A real capture stack on loopback: Kafka, Kafka Connect with Debezium, MariaDB and PostgreSQL, ended with the recording.

Needed beside the repository's own packages: Java, Debian's mariadb-server-core and mariadb-client-core.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from lakechime_dagster.demo.servers.connect import Connect
from tests.support.kafka import connect_worker, kafka_broker
from tests.support.mariadb import MariaDB, mariadb_server
from tests.support.postgres import find_binaries, server
from tests.support.stack_jars import ensure_stack_jars


@dataclass(frozen=True, kw_only=True)
class Stack:
    """The running servers, and the folder that further ones may use."""

    folder: Path
    kafka: str
    connect: Connect
    mariadb: MariaDB
    postgres: "Postgres"


@contextmanager
def started() -> Iterator[Stack]:
    """All servers; they end with the context, however it is left."""
    jars = ensure_stack_jars()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lakechime-cdc-", ignore_cleanup_errors=True)))
        folder.chmod(0o755)
        postgres = stack.enter_context(_postgres())
        mariadb = stack.enter_context(mariadb_server(folder / "mariadb"))
        kafka = stack.enter_context(kafka_broker(folder / "kafka", jars))
        connect = stack.enter_context(connect_worker(folder / "connect", jars, kafka))
        yield Stack(folder=folder, kafka=kafka.address, connect=connect, mariadb=mariadb, postgres=postgres)


class PostgresSession:
    """One connection; a transaction is what stands between BEGIN and COMMIT."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def run(self, *statements: str) -> list[str]:
        """The first column of what the statements answer."""
        answers = []
        for statement in statements:
            cursor = self.connection.execute(statement.encode())
            if cursor.description is not None:
                answers += [str(row[0]) for row in cursor]
        return answers

    def close(self) -> None:
        self.connection.close()


@dataclass(frozen=True)
class Postgres:
    """A PostgreSQL server with a logical write-ahead log."""

    port: int

    def session(self, database: str = "postgres") -> PostgresSession:
        return PostgresSession(psycopg.connect(host="127.0.0.1", port=self.port, user="postgres", dbname=database, autocommit=True))

    @property
    def version(self) -> str:
        session = self.session()
        try:
            return session.run("SHOW server_version")[0].split()[0]
        finally:
            session.close()


@contextmanager
def _postgres() -> Iterator[Postgres]:
    with server(find_binaries(), durable=False) as running:
        port = conninfo_to_dict(running.url)["port"]
        assert port is not None
        postgres = Postgres(int(port))
        session = postgres.session()
        session.run("ALTER SYSTEM SET wal_level = 'logical'", "ALTER SYSTEM SET max_replication_slots = 40")
        session.close()
        running.restart()
        yield postgres
