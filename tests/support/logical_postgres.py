"""A PostgreSQL whose log connectors follow, and sessions of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.support.postgres import Server, find_binaries, server


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
class LogicalPostgres:
    """A server with a logical write-ahead log."""

    port: int
    server: Server

    def session(self, database: str = "postgres") -> PostgresSession:
        return PostgresSession(
            psycopg.connect(
                host="127.0.0.1", port=self.port, user="postgres", dbname=database, autocommit=True
            )
        )

    @property
    def version(self) -> str:
        session = self.session()
        try:
            return session.run("SHOW server_version")[0].split()[0]
        finally:
            session.close()


@contextmanager
def logical_postgres(*, durable: bool) -> Iterator[LogicalPostgres]:
    """A server of its own; only a durable one keeps what was committed when it is struck down."""
    with server(find_binaries(), durable=durable) as running:
        port = conninfo_to_dict(running.url)["port"]
        assert port is not None
        postgres = LogicalPostgres(int(port), running)
        session = postgres.session()
        session.run(
            "ALTER SYSTEM SET wal_level = 'logical'", "ALTER SYSTEM SET max_replication_slots = 40"
        )
        session.close()
        running.restart()
        yield postgres
