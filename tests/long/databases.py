"""The two databases of the long test: each has a table `shop.orders`, a connector of its name, and
can be restarted.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import sqlalchemy as sa

from tests.support.logical_postgres import LogicalPostgres
from tests.support.mariadb import CAPTURE_USER, MariaDB
from tests.support.stack import debezium_settings

SCHEMA = "shop"
# columns that no schema change adds, renames or drops, of which a history is kept
TRACKED = ("customer", "amount")
COLUMNS = ("id", *TRACKED, "note", "changed_at")  # all that none does
ALL = {"skipped.operations": "none"}  # truncations are skipped unless one says so
PARTED = (
    1_000_000  # ids from here on lie in a partition of their own, where a database's table has any
)


class Session(Protocol):
    def run(self, *statements: str) -> list[str]: ...

    def close(self) -> None: ...


class Database(ABC):
    """A database with the table."""

    name: str
    url: str  # of a user who reads
    table: str  # how it is made

    @abstractmethod
    def session(self) -> Session:
        """A connection that finds the table without its schema's name."""

    @abstractmethod
    def connector(self, kafka: str) -> Mapping[str, str]:
        """The settings of its connector."""

    @abstractmethod
    def restart(self) -> None:
        """Ended and started again; sessions end."""

    def rows(self, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
        """All rows by these columns, sorted."""
        engine = sa.create_engine(self.url, poolclass=sa.NullPool)
        with engine.connect() as connection:
            found = connection.execute(sa.text(f"SELECT {', '.join(columns)} FROM {SCHEMA}.orders"))
            return sorted(tuple(row) for row in found)


class MariaDBShop(Database):
    """The table in MariaDB, whose ids from `PARTED` on have a partition of their own."""

    name = "mariadb"
    table = f"""
        CREATE TABLE orders (
          id INT PRIMARY KEY, customer VARCHAR(40) NOT NULL, amount DECIMAL(12,2) NOT NULL, note TEXT, changed_at DATETIME(6) NOT NULL)
        PARTITION BY RANGE (id) (PARTITION most VALUES LESS THAN ({PARTED}), PARTITION parted VALUES LESS THAN MAXVALUE)
    """

    def __init__(self, server: MariaDB) -> None:
        self._server = server
        self.url = f"mysql+pymysql://{CAPTURE_USER}:{CAPTURE_USER}@127.0.0.1:{server.port}/{SCHEMA}"
        session = server.session()
        session.run(f"CREATE DATABASE {SCHEMA}", f"USE {SCHEMA}", self.table)
        session.close()

    def session(self) -> Session:
        return self._server.session(SCHEMA)

    def connector(self, kafka: str) -> Mapping[str, str]:
        return {
            **debezium_settings(self.name, self._server, kafka),
            "database.include.list": SCHEMA,
            **ALL,
        }

    def restart(self) -> None:
        self._server.restart(server_id=1)


class PostgresShop(Database):
    """The table in PostgreSQL, whose long notes are kept apart, so that changes do not carry
    them.
    """

    name = "postgres"
    table = """
        CREATE TABLE orders (
          id INT PRIMARY KEY, customer VARCHAR(40) NOT NULL, amount NUMERIC(12,2) NOT NULL, note TEXT, changed_at TIMESTAMP(6) NOT NULL)
    """

    def __init__(self, server: LogicalPostgres) -> None:
        self._server = server
        self.url = f"postgresql+psycopg://postgres:postgres@127.0.0.1:{server.port}/postgres"
        session = server.session()
        session.run(
            f"CREATE SCHEMA {SCHEMA}", f"ALTER DATABASE postgres SET search_path = {SCHEMA}, public"
        )
        session.close()
        session = self.session()
        session.run(self.table)
        session.close()

    def session(self) -> Session:
        return self._server.session()

    def connector(self, kafka: str) -> Mapping[str, str]:
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "database.hostname": "127.0.0.1",
            "database.port": str(self._server.port),
            "database.user": "postgres",
            "database.password": "postgres",
            "database.dbname": "postgres",
            "schema.include.list": SCHEMA,
            "topic.prefix": self.name,
            "slot.name": self.name,
            **ALL,
        }

    def restart(self) -> None:
        self._server.server.restart()
