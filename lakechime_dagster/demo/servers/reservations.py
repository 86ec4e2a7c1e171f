"""The reservation system while it runs: its database, Debezium, which follows the database's log, and Kafka in between.

What they hold lies in one folder and is there again after a restart. Passwords are made anew at each start.
"""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from lakechime_dagster.demo.followed import ABOUT, CDC_SWITCH, DATABASE, PREFIX
from lakechime_dagster.demo.servers import mariadb
from lakechime_dagster.demo.servers.connect import Connect, connect_worker
from lakechime_dagster.demo.servers.kafka import kafka_broker
from lakechime_dagster.demo.servers.server import Server, free_port, listens
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.spark.drivers.java import Java

SCHEMA = Path(__file__).parents[1] / "reservations.sql"
APPLICATION, CAPTURE, READER = "application", "debezium", "lakechime"  # users of the database
PACKAGES = {"confluent_kafka": "kafka", "pymysql": "mysql"}  # by module the extra that brings it


@dataclass(frozen=True)
class Reservations:
    """The running system; `url` is its database for the application, `reader_url` for who only reads it, each with a password."""

    url: str
    reader_url: str
    mariadb: Server
    kafka: Server
    connect: Connect

    @property
    def servers(self) -> tuple[Server, ...]:
        return self.mariadb, self.kafka, self.connect.server


def check_parts(kafka: str) -> None:
    """See that all is there that is not fetched, before anything is started.

    Raises:
        LakeChimeError: naming what is not there and what to install, or the port that is taken.
    """
    mariadb.check_programs()
    if extras := [extra for module, extra in PACKAGES.items() if find_spec(module) is None]:
        raise LakeChimeError(f"{CDC_SWITCH} needs more packages: install lakechime-dagster[{','.join(extras)}]")
    host, _, port = kafka.rpartition(":")
    if listens(int(port)):
        remedy = f"end what uses it, or choose another one with {CDC_SWITCH}={host}:{int(port) + 1}"
        raise LakeChimeError(f"port {port} of {host}, at which Kafka is to be, is in use; {remedy}")


@contextmanager
def reservations(folder: Path, kafka: str, jars: Path, java: Java) -> Iterator[Reservations]:
    """Start the system, and end it with the context.

    Args:
        folder: where all of it is kept.
        kafka: the address of the broker, the same at each start, as the lake's declaration names it.
        jars: those of `ensure_server_jars`.
        java: that runs Kafka and Connect.

    Raises:
        LakeChimeError: a server does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # run by root, MariaDB is another user
    with ExitStack() as stack:
        passwords = {user: secrets.token_urlsafe(16) for user in (APPLICATION, CAPTURE, READER)}
        port = free_port()
        database = stack.enter_context(_mariadb(folder / "mariadb", port, passwords))
        broker = stack.enter_context(
            kafka_broker(folder / "kafka", jars, java, int(kafka.rpartition(":")[2]), settings={"log.retention.ms": "-1"})
        )
        connectors = {PREFIX: _connector(kafka, port, passwords[CAPTURE])}
        connect = stack.enter_context(connect_worker(folder / "connect", jars, java, kafka, connectors=connectors))
        url, reader_url = (f"mysql://{user}:{passwords[user]}@127.0.0.1:{port}/{DATABASE}" for user in (APPLICATION, READER))
        yield Reservations(url, reader_url, database, broker, connect)


@contextmanager
def _mariadb(folder: Path, port: int, passwords: dict[str, str]) -> Iterator[Server]:
    mariadb.install(folder)
    rights = {APPLICATION: f"ALL ON {DATABASE}.*", CAPTURE: f"{mariadb.CAPTURE_RIGHTS} ON *.*", READER: "SELECT, BINLOG MONITOR ON *.*"}
    users = [
        statement
        for user, password in passwords.items()
        for statement in (
            f"CREATE OR REPLACE USER {user}@'127.0.0.1' IDENTIFIED BY '{password}';",
            f"GRANT {rights[user]} TO {user}@'127.0.0.1';",
        )
    ]
    first = folder / "first.sql"
    mariadb.write_for_server(first, "\n".join([*users, SCHEMA.read_text(encoding="utf-8")]))
    server = mariadb.mariadb_server(folder, port, f"--init-file={first}")
    try:
        server.start(lambda: listens(port))
        yield server
    finally:
        server.end()


def _connector(kafka: str, port: int, password: str) -> dict[str, str]:
    """Debezium's settings: the tables of the lake as topics `airline.reservations.<table>`."""
    return {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector", "tasks.max": "1", "topic.prefix": PREFIX,
        "database.hostname": "127.0.0.1", "database.port": str(port), "database.server.id": "4242",
        "database.user": CAPTURE, "database.password": password, "database.include.list": DATABASE,
        "table.include.list": ",".join(f"{DATABASE}.{table}" for table in ABOUT),
        "schema.history.internal.kafka.bootstrap.servers": kafka, "schema.history.internal.kafka.topic": f"{PREFIX}-history",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.replace.null.with.default": "false",
    }  # fmt: skip
