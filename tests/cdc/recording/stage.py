"""Where a scenario is played: its database and the connector that watches it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, ClassVar, Protocol

from lakechime_dagster.cdc.database import read_schema
from lakechime_dagster.cdc.state import TableSchema
from tests.cdc.recording.broker import Broker
from tests.cdc.recording.scenario import Database, Scenario
from tests.cdc.recording.stack import Stack
from tests.support.processes import await_found

SCHEMA = "shop"  # MariaDB's database, PostgreSQL's schema
SENTINEL = "sentinel"
# A connector's converter settings count only beside the converter's class: without it the worker's
# own converter is used, unchanged.
CONVERTERS = {
    f"{which}.converter": "org.apache.kafka.connect.json.JsonConverter"
    for which in ("key", "value")
}

Row = dict[str, str | None]


class Session(Protocol):
    def run(self, *statements: str) -> list[str]: ...

    def close(self) -> None: ...


class Stage(ABC):
    """An empty database and, once `connect` is called, a connector that watches it."""

    options: ClassVar[Mapping[str, str]]

    def __init__(self, stack: Stack, broker: Broker, scenario: Scenario, ends: ExitStack) -> None:
        self.stack = stack
        self.broker = broker
        self.scenario = scenario
        self.prefix = f"{scenario.database}-{scenario.name.replace('_', '-')}"
        self.connectors: list[str] = []
        self._ends = ends
        self._marks = 0
        self.readings: list[TableSchema] = []
        self._create_database()
        self.sql = self.session()
        self.run(f"CREATE TABLE {SENTINEL} (id INT PRIMARY KEY, mark VARCHAR(20))")
        ends.callback(self.end)

    @property
    def is_postgres(self) -> bool:
        return self.scenario.database is Database.POSTGRES

    def session(self) -> Session:
        """A further connection to the database, closed after the scenario."""
        session = self._connected()
        self._ends.callback(session.close)
        return session

    def run(self, *statements: str) -> list[str]:
        return self.sql.run(*statements)

    def run_as_one(self, *statements: str) -> None:
        """The statements as one transaction."""
        self.run("BEGIN", *statements, "COMMIT")

    def connect(self) -> None:
        """Starts a connector by a new name and waits until its snapshot is over and it streams."""
        name = f"{self.prefix}-{len(self.connectors) + 1}"
        self.connectors.append(name)
        self._begin(name)
        self.complete()
        self.complete()  # the first mark may have come with the snapshot, the second one cannot

    def restart_connect(self) -> None:
        """Kills the worker, as a power failure does, and starts it and the connector, which goes on
        from what it last kept.
        """
        self.stack.connect.server.kill()
        self.stack.connect.server.start(self.stack.connect.answers)
        self._begin(self.connectors[-1])

    def _begin(self, name: str) -> None:
        config = {**CONVERTERS, **self.options, **self.scenario.options}
        self.stack.connect.create(name, {**self._config(name), **config})

    def complete(self) -> None:
        """Waits until the connector has delivered all that was committed before."""
        self._marks += 1
        mark = f"mark-{self._marks}"
        self.run(f"INSERT INTO {SENTINEL} VALUES ({self._marks}, '{mark}')")
        self.await_message(SENTINEL, lambda message: f'"mark":"{mark}"' in (message["value"] or ""))

    def read_columns(self) -> None:
        """Reads the columns of all tables as they are now, with the place of the log, where no
        message reports them.
        """
        if self.scenario.options.get("value.converter.schemas.enable") == "false":
            self.readings += [read_schema(self.url, SCHEMA, table) for table in self.tables()]

    def await_message(self, table: str, wanted: Callable[[dict[str, Any]], bool]) -> None:
        topic = self.topic(table)
        await_found(
            lambda: self.broker.has(topic, wanted),
            f"the message in {topic}",
            60,
            self.expect_health,
        )

    def expect_health(self) -> None:
        self.stack.connect.expect_health(self.connectors[-1])

    def end(self) -> None:
        """Ends the running connector; what it has read is in Kafka afterwards."""
        if self.connectors and (name := self.connectors[-1]):
            self.stack.connect.delete(name)
            self.connectors[-1] = ""

    def topic(self, table: str) -> str:
        return f"{self.prefix}.{SCHEMA}.{table}"

    def is_recorded(self, topic: str) -> bool:
        is_own = (
            topic == self.prefix
            or topic.startswith(f"{self.prefix}.")
            or topic == f"__debezium-heartbeat.{self.prefix}"
        )
        return is_own and topic != self.topic(SENTINEL)

    def tables(self) -> list[str]:
        names = self.run(
            f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{SCHEMA}' AND "
            f"table_type = 'BASE TABLE'"
        )
        return sorted(name for name in names if name != SENTINEL)

    def key(self, table: str) -> list[str]:
        """The columns of the primary key in its order, or of the one unique constraint there is
        instead.
        """
        return self._constraint(table, "PRIMARY KEY") or self._constraint(table, "UNIQUE")

    def _constraint(self, table: str, kind: str) -> list[str]:
        return self.run(
            "SELECT k.column_name FROM information_schema.table_constraints c JOIN "
            "information_schema.key_column_usage k"
            " ON k.table_schema = c.table_schema AND k.table_name = c.table_name AND "
            "k.constraint_name = c.constraint_name"
            f" WHERE c.constraint_type = '{kind}' AND c.table_schema = '{SCHEMA}' AND c.table_name "
            f"= '{table}'"
            " ORDER BY k.ordinal_position"
        )

    @property
    @abstractmethod
    def url(self) -> str:
        """The database, for the product's own readings of it."""

    @abstractmethod
    def rows(self, table: str) -> list[Row]:
        """What the table holds, by its key or, without one, by all columns."""

    @abstractmethod
    def _create_database(self) -> None: ...

    @abstractmethod
    def _connected(self) -> Session: ...

    @abstractmethod
    def _config(self, name: str) -> dict[str, str]: ...
