"""A scenario's stage on MariaDB."""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from typing import ClassVar

from tests.cdc.recording.broker import Broker
from tests.cdc.recording.scenario import Scenario
from tests.cdc.recording.stack import Stack
from tests.cdc.recording.stage import SCHEMA, Row, Session, Stage
from tests.cdc.recording.text import canonical
from tests.support.mariadb import CAPTURE_USER, MariaDB


class MariaDBStage(Stage):
    """A scenario's database on MariaDB."""

    options: ClassVar[Mapping[str, str]] = {"include.schema.changes": "false"}

    def __init__(
        self, stack: Stack, broker: Broker, scenario: Scenario, ends: ExitStack, server: MariaDB
    ) -> None:
        self.server = server
        super().__init__(stack, broker, scenario, ends)

    @property
    def url(self) -> str:
        return f"mysql://{CAPTURE_USER}:{CAPTURE_USER}@127.0.0.1:{self.server.port}/{SCHEMA}"

    def rows(self, table: str) -> list[Row]:
        types = dict(
            json.loads(line)
            for line in self.run(
                "SELECT JSON_ARRAY(column_name, column_type) FROM information_schema.columns"
                f" WHERE table_schema = '{SCHEMA}' AND table_name = '{table}' ORDER BY "
                f"ordinal_position"
            )
        )
        texts = ", ".join(_mariadb_text(name, kind) for name, kind in types.items())
        keys = ", ".join(self.key(table) or types)
        lines = self.run(f"SELECT JSON_ARRAY({texts}) FROM {table} ORDER BY {keys}")
        return [
            {
                name: canonical(text, kind, kind.startswith("timestamp"))
                for (name, kind), text in zip(types.items(), json.loads(line), strict=True)
            }
            for line in lines
        ]

    def restart(self, server_id: int) -> None:
        """Ends the server and starts it as another one, whose binary log restart."""
        self.sql.close()
        self.server.restart(server_id)
        self.sql = self.session()
        self.run("RESET MASTER")

    def _create_database(self) -> None:
        admin = self.server.session()
        admin.run(f"DROP DATABASE IF EXISTS {SCHEMA}", f"CREATE DATABASE {SCHEMA}")
        admin.close()

    def _connected(self) -> Session:
        return self.server.session(SCHEMA)

    def _config(self, name: str) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": CAPTURE_USER,
            "database.password": CAPTURE_USER,
            "database.server.id": str(5000 + len(self.connectors)),
            "database.include.list": SCHEMA,
            "topic.prefix": self.prefix,
            "schema.history.internal.kafka.bootstrap.servers": self.stack.kafka,
            "schema.history.internal.kafka.topic": f"history-{name}",
            "poll.interval.ms": "50",
        }


def _mariadb_text(column: str, kind: str) -> str:
    """The expression of a column's value as text."""
    if kind.startswith("bit("):
        return f"LPAD(BIN({column} + 0), {kind[4:-1]}, '0')"
    if "binary" in kind or "blob" in kind:
        return f"LOWER(HEX({column}))"
    if kind == "float":
        return f"CONCAT('', CAST({column} AS DOUBLE))"
    return f"CONCAT('', {column})"
