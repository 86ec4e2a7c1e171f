"""Records what Debezium really says: plays scenarios against real databases and keeps the messages of their topics.

`pip install confluent-kafka`, then `python -m tests.cdc.record` for all scenarios, or with names: `basics`, `postgres-toast`. One file per
scenario comes into captures/: a header, the messages in the order of (topic, partition, offset), and for each table its rows as the
database has them at the end, which is what folding the messages must give. Where no message tells something of the truth, `untold` of the
table says what. Topics of Connect's own and of the sentinel table, by whose rows the recorder knows that all has arrived, are left out.

Rows are in canonical text: NULL is null; numbers as exact decimal text, float and double as Python's `repr` of the shortest number that is
the same in their width; binary as hex; bits as 0 and 1; dates and times as Python's `isoformat(" ")` has them (six digits of a second or
none), with +00:00 where the type knows a zone; booleans true and false; everything else as the database's own text.
"""

import gzip
import json
import logging
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, time
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Protocol

from tests.cdc.stack import CAPTURE_USER, MariaDB, PostgresSession, Stack, mariadb_server, started
from tests.support.processes import await_found

CAPTURES = Path(__file__).with_name("captures")
CONNECTOR = "3.5.0.Final"
SCHEMA = "shop"  # MariaDB's database, PostgreSQL's schema
SENTINEL = "sentinel"
# A connector's converter settings count only beside the converter's class: without it the worker's own converter is used, unchanged.
CONVERTERS = {f"{which}.converter": "org.apache.kafka.connect.json.JsonConverter" for which in ("key", "value")}
EXACT = {"key.converter.replace.null.with.default": "false", "value.converter.replace.null.with.default": "false"}
# With fields added, the transformation builds rows anew and by its own default puts a column's default in the place of NULL.
REWRITTEN = {"transforms.flatten.delete.tombstone.handling.mode": "rewrite", "transforms.flatten.replace.null.with.default": "false"}
FLAT = {"transforms": "flatten", "transforms.flatten.type": "io.debezium.transforms.ExtractNewRecordState"}

Row = dict[str, str | None]
logger = logging.getLogger(__name__)


class Database(StrEnum):
    """Where a scenario is played."""

    MARIADB = "mariadb"
    POSTGRES = "postgres"


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is done to a database while a connector watches, and what makes that worth keeping."""

    name: str
    database: Database
    note: str
    play: "Callable[[Stage], None]"
    options: Mapping[str, str] = field(default_factory=dict)
    untold: Mapping[str, str] = field(default_factory=dict)
    needs_own_server: bool = False

    @property
    def file(self) -> str:
        return f"{self.database}-{self.name}.jsonl.gz"


def record(stack: Stack, broker: "Broker", scenario: Scenario) -> Path:
    """Plays one scenario and writes its file."""
    with ExitStack() as ends:
        mariadb = stack.mariadb
        if scenario.needs_own_server:
            mariadb = ends.enter_context(mariadb_server(stack.folder / scenario.name))
        stage: Stage
        if scenario.database is Database.MARIADB:
            stage, version = MariaDBStage(stack, broker, scenario, ends, mariadb), mariadb.version
        else:
            stage, version = PostgresStage(stack, broker, scenario, ends), stack.postgres.version
        scenario.play(stage)
        stage.settle()
        tables = {table: (stage.topic(table), stage.key(table), stage.rows(table)) for table in stage.tables()}
        stage.end()
        topics = [name for name in broker.topics() if stage.is_recorded(name)]
        header = {
            "scenario": scenario.name,
            "database": f"{scenario.database} {version}",
            "connector": f"debezium {CONNECTOR}",
            "keys": {topic: key for topic, key, _ in tables.values()},
            "note": scenario.note,
            "options": {**stage.options, **scenario.options},
        }
        truth = []
        for table, (topic, _, rows) in tables.items():
            told = {"untold": scenario.untold[table]} if table in scenario.untold else {}
            truth.append({"table": f"{SCHEMA}.{table}", "topic": topic, **told, "rows": rows})
        messages = [message for topic in topics for message in broker.messages(topic)]
    return _write(CAPTURES / scenario.file, [header, *messages, *truth])


class Session(Protocol):
    def run(self, *statements: str) -> list[str]: ...

    def close(self) -> None: ...


class Broker:
    """Reads the topics of the stack's Kafka."""

    def __init__(self, address: str) -> None:
        from confluent_kafka import Consumer  # pyright: ignore[reportMissingImports]
        from confluent_kafka.admin import AdminClient  # pyright: ignore[reportMissingImports]

        self._admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
        reading = {"group.id": "record", "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._consumer = Consumer({"bootstrap.servers": address, "log_level": 2, **reading})

    def topics(self) -> list[str]:
        return sorted(self._consumer.list_topics(timeout=30).topics)

    def messages(self, topic: str) -> list[dict[str, Any]]:
        """All messages of a topic, partition by partition."""
        from confluent_kafka import TopicCollection  # pyright: ignore[reportMissingImports]

        described = self._admin.describe_topics(TopicCollection([topic]))[topic].result(30)
        return [
            {"topic": topic, "topic_id": str(described.topic_id)} | message
            for partition in sorted(each.id for each in described.partitions)
            for message in self._partition(topic, partition)
        ]

    def has(self, topic: str, wanted: Callable[[dict[str, Any]], bool]) -> bool:
        """Whether the topic is there and holds such a message."""
        return topic in self.topics() and any(wanted(message) for message in self.messages(topic))

    def close(self) -> None:
        self._consumer.close()

    def _partition(self, topic: str, partition: int) -> Iterator[dict[str, Any]]:
        from confluent_kafka import TopicPartition  # pyright: ignore[reportMissingImports]

        low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30, cached=False)
        self._consumer.assign([TopicPartition(topic, partition, low)])
        offset = low - 1
        while offset < high - 1:
            message = self._consumer.poll(30)
            if message is None or message.error():
                raise RuntimeError(f"{topic} cannot be read beyond {offset} of {high}: {message and message.error()}")
            offset = message.offset()
            yield {
                "partition": partition,
                "offset": offset,
                "timestamp_ms": message.timestamp()[1],
                "headers": [[name, _text(value)] for name, value in message.headers() or []],
                "key": _text(message.key()),
                "value": _text(message.value()),
            }


class Stage:
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
        self.stack.connect.create(name, {**self._config(name), **CONVERTERS, **self.options, **self.scenario.options})
        self.settle()
        self.settle()  # the first mark may have come with the snapshot, the second one cannot

    def settle(self) -> None:
        """Waits until the connector has delivered all that was committed before."""
        self._marks += 1
        mark = f"mark-{self._marks}"
        self.run(f"INSERT INTO {SENTINEL} VALUES ({self._marks}, '{mark}')")
        self.await_message(SENTINEL, lambda message: f'"mark":"{mark}"' in (message["value"] or ""))

    def await_message(self, table: str, wanted: Callable[[dict[str, Any]], bool]) -> None:
        topic = self.topic(table)
        await_found(lambda: self.broker.has(topic, wanted), f"the message in {topic}", 60, self.expect_health)

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
        is_own = topic == self.prefix or topic.startswith(f"{self.prefix}.") or topic == f"__debezium-heartbeat.{self.prefix}"
        return is_own and topic != self.topic(SENTINEL)

    def tables(self) -> list[str]:
        names = self.run(f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{SCHEMA}' AND table_type = 'BASE TABLE'")
        return sorted(name for name in names if name != SENTINEL)

    def key(self, table: str) -> list[str]:
        """The columns of the primary key in its order, or of the one unique constraint there is instead."""
        return self._constraint(table, "PRIMARY KEY") or self._constraint(table, "UNIQUE")

    def _constraint(self, table: str, kind: str) -> list[str]:
        return self.run(
            "SELECT k.column_name FROM information_schema.table_constraints c JOIN information_schema.key_column_usage k"
            " ON k.table_schema = c.table_schema AND k.table_name = c.table_name AND k.constraint_name = c.constraint_name"
            f" WHERE c.constraint_type = '{kind}' AND c.table_schema = '{SCHEMA}' AND c.table_name = '{table}'"
            " ORDER BY k.ordinal_position"
        )

    def rows(self, table: str) -> list[Row]:
        """What the table holds, by its key or, without one, by all columns."""
        raise NotImplementedError

    def _create_database(self) -> None:
        raise NotImplementedError

    def _connected(self) -> Session:
        raise NotImplementedError

    def _config(self, name: str) -> dict[str, str]:
        raise NotImplementedError


class MariaDBStage(Stage):
    """A scenario's database on MariaDB."""

    options: ClassVar[Mapping[str, str]] = {"include.schema.changes": "false"}

    def __init__(self, stack: Stack, broker: Broker, scenario: Scenario, ends: ExitStack, server: MariaDB) -> None:
        self.server = server
        super().__init__(stack, broker, scenario, ends)

    def rows(self, table: str) -> list[Row]:
        types = dict(
            json.loads(line)
            for line in self.run(
                "SELECT JSON_ARRAY(column_name, column_type) FROM information_schema.columns"
                f" WHERE table_schema = '{SCHEMA}' AND table_name = '{table}' ORDER BY ordinal_position"
            )
        )
        texts = ", ".join(_mariadb_text(name, kind) for name, kind in types.items())
        keys = ", ".join(self.key(table) or types)
        lines = self.run(f"SELECT JSON_ARRAY({texts}) FROM {table} ORDER BY {keys}")
        return [
            {
                name: _canonical(text, kind, kind.startswith("timestamp"))
                for (name, kind), text in zip(types.items(), json.loads(line), strict=True)
            }
            for line in lines
        ]

    def restart(self, server_id: int) -> None:
        """Ends the server and starts it as another one, whose binary log begins anew."""
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


class PostgresStage(Stage):
    """A scenario's database on PostgreSQL."""

    options: ClassVar[Mapping[str, str]] = {"plugin.name": "pgoutput"}

    def rows(self, table: str) -> list[Row]:
        assert isinstance(self.sql, PostgresSession)
        self.run("SET TimeZone = 'UTC'", "SET DateStyle = 'ISO'", "SET bytea_output = 'hex'", "SET IntervalStyle = 'postgres'")
        keys = self.key(table) or self.run(
            f"SELECT column_name FROM information_schema.columns WHERE table_schema = '{SCHEMA}' AND table_name = '{table}'"
            " ORDER BY ordinal_position"
        )
        cursor = self.sql.connection.execute(f"SELECT * FROM {table} ORDER BY {', '.join(keys)}".encode())
        result = cursor.pgresult
        assert result is not None
        assert cursor.description is not None
        columns = [(column.name, column.type_display) for column in cursor.description]
        return [
            {
                name: _canonical(_text(result.get_value(row, index)), kind, kind.startswith("timestamptz"))
                for index, (name, kind) in enumerate(columns)
            }
            for row in range(result.ntuples)
        ]

    def _create_database(self) -> None:
        admin = self.stack.postgres.session()
        admin.run(f"CREATE DATABASE {self.scenario.name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'")
        admin.close()
        owner = self.stack.postgres.session(self.scenario.name)
        owner.run(f"CREATE SCHEMA {SCHEMA}", f"ALTER DATABASE {self.scenario.name} SET search_path = {SCHEMA}, public")
        owner.close()

    def _connected(self) -> Session:
        return self.stack.postgres.session(self.scenario.name)

    def _config(self, name: str) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.stack.postgres.port),
            "database.user": "postgres",
            "database.password": "postgres",
            "database.dbname": self.scenario.name,
            "schema.include.list": SCHEMA,
            "topic.prefix": self.prefix,
            "slot.name": name.replace("-", "_"),
            "slot.drop.on.stop": "true",
            "poll.interval.ms": "50",
        }


SCENARIOS: list[Scenario] = []


def scenario(
    name: str,
    note: str,
    *databases: Database,
    options: Mapping[str, str] | None = None,
    untold: Mapping[str, str] | None = None,
    needs_own_server: bool = False,
) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    """Registers what a function plays, for both databases or for those named."""

    def register(play: Callable[[Stage], None]) -> Callable[[Stage], None]:
        shared = Scenario(
            name=name,
            database=Database.MARIADB,
            note=note,
            play=play,
            options=EXACT | dict(options or {}),
            untold=untold or {},
            needs_own_server=needs_own_server,
        )
        SCENARIOS.extend(replace(shared, database=database) for database in databases or Database)
        return play

    return register


@scenario("schemaless", "The converter writes no schema: types must come from elsewhere.", options={
    "key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false",
})  # fmt: skip
@scenario("basics", "Snapshot rows, then inserts, updates, deletes and re-inserts, also several of one key in one transaction.")
def basics(stage: Stage) -> None:
    stage.run(
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer VARCHAR(40), amount DECIMAL(10,2), note TEXT)",
        "CREATE TABLE order_lines (order_id BIGINT, sku VARCHAR(20), quantity INT NOT NULL, PRIMARY KEY (order_id, sku))",
        "INSERT INTO orders VALUES (1, 'Ada', 10.00, NULL), (2, 'Grace', 20.50, 'ünï 💡 \"quoted\"'), (3, 'Edsger', -0.01, '')",
        "INSERT INTO order_lines VALUES (1, 'apple', 3), (1, 'pear', 1), (2, 'apple', 2)",
    )
    stage.connect()
    stage.run(
        "INSERT INTO orders VALUES (4, 'Barbara', 40.00, 'streamed')",
        "UPDATE orders SET amount = 11.00, note = 'updated' WHERE id = 1",
        "DELETE FROM orders WHERE id = 2",
    )
    stage.run_as_one(
        "DELETE FROM orders WHERE id = 3",
        "INSERT INTO orders VALUES (3, 'Edsger again', 30.00, 're-inserted')",
        "UPDATE orders SET amount = 31.00 WHERE id = 3",
    )
    stage.run_as_one(
        "INSERT INTO orders VALUES (5, 'Nobody', 50.00, 'born and gone')",
        "UPDATE orders SET amount = 51.00 WHERE id = 5",
        "DELETE FROM orders WHERE id = 5",
    )
    stage.run(
        "UPDATE orders SET amount = amount + 1",
        "INSERT INTO orders VALUES (6, 'Six', 6, NULL), (7, 'Seven', 7, NULL), (8, 'Eight', 8, NULL)",
        "DELETE FROM orders WHERE id IN (6, 7)",
        "INSERT INTO orders VALUES (6, 'Six again', 6.60, NULL)",
        "UPDATE order_lines SET quantity = quantity * 10 WHERE order_id = 1",
        "DELETE FROM order_lines WHERE order_id = 2",
    )


@scenario(
    "key_change",
    "Primary keys change: one, a swap over a third value in one transaction, there and back, a part of a compound key; PostgreSQL also"
    " swaps in one statement, where the delete of a key comes after the create of the same key"
    " (ranks: who applies message by message loses rows).",
)
def key_change(stage: Stage) -> None:
    stage.run(
        "CREATE TABLE accounts (id INT PRIMARY KEY, name VARCHAR(20), balance DECIMAL(10,2))",
        "CREATE TABLE seats (venue INT, seat INT, guest VARCHAR(20), PRIMARY KEY (venue, seat))",
        "INSERT INTO accounts VALUES (1, 'one', 1), (2, 'two', 2), (3, 'three', 3), (4, 'four', 4)",
        "INSERT INTO seats VALUES (1, 1, 'Ada'), (1, 2, 'Grace')",
    )
    if stage.is_postgres:
        stage.run(
            "CREATE TABLE ranks (id INT, name VARCHAR(20), PRIMARY KEY (id) DEFERRABLE INITIALLY DEFERRED)",
            "ALTER TABLE ranks REPLICA IDENTITY FULL",
            "INSERT INTO ranks VALUES (1, 'one'), (2, 'two'), (11, 'eleven'), (12, 'twelve'), (13, 'thirteen')",
        )
    stage.connect()
    stage.run("UPDATE accounts SET id = 30, balance = 30 WHERE id = 3")
    stage.run_as_one(
        "UPDATE accounts SET id = 100 WHERE id = 1", "UPDATE accounts SET id = 1 WHERE id = 2", "UPDATE accounts SET id = 2 WHERE id = 100"
    )
    stage.run_as_one("UPDATE accounts SET id = 31 WHERE id = 30", "UPDATE accounts SET id = 30 WHERE id = 31")
    stage.run_as_one("UPDATE accounts SET id = 5 WHERE id = 4", "INSERT INTO accounts VALUES (4, 'new four', 44)")
    stage.run(
        "UPDATE accounts SET id = id + 1000 WHERE id IN (4, 5)",
        "UPDATE seats SET venue = 2, guest = 'Ada moved' WHERE venue = 1 AND seat = 1",
        "INSERT INTO seats VALUES (1, 1, 'Barbara')",
    )
    if stage.is_postgres:
        stage.run(
            "UPDATE ranks SET id = 3 - id WHERE id IN (1, 2)", "UPDATE ranks SET id = CASE id WHEN 13 THEN 11 ELSE id + 1 END WHERE id > 10"
        )
    else:
        stage.run("UPDATE accounts SET id = id + 1 WHERE id > 1000 ORDER BY id DESC")


@scenario(
    "truncate",
    "Tables are truncated mid-stream (skipped.operations=none): op t with a null key between rows before and after.",
    options={"skipped.operations": "none"},
)
def truncate(stage: Stage) -> None:
    stage.run(
        "CREATE TABLE staging (id INT PRIMARY KEY, value VARCHAR(20))",
        "CREATE TABLE staging_two (id INT PRIMARY KEY, value VARCHAR(20))",
        "INSERT INTO staging VALUES (1, 'snapshot'), (2, 'snapshot')",
        "INSERT INTO staging_two VALUES (1, 'snapshot')",
    )
    stage.connect()
    stage.run("INSERT INTO staging VALUES (3, 'before')", "UPDATE staging SET value = 'changed before' WHERE id = 1")
    stage.run(*["TRUNCATE TABLE staging, staging_two"] if stage.is_postgres else ["TRUNCATE TABLE staging", "TRUNCATE TABLE staging_two"])
    stage.run("INSERT INTO staging VALUES (1, 'after'), (4, 'after')", "INSERT INTO staging_two VALUES (9, 'after')")
    if stage.is_postgres:
        stage.run_as_one(
            "INSERT INTO staging_two VALUES (10, 'cut off')", "TRUNCATE TABLE staging_two", "INSERT INTO staging_two VALUES (11, 'kept')"
        )
    stage.run("UPDATE staging SET value = 'changed after' WHERE id = 4")


@scenario(
    "keyless",
    "Tables without a primary key: equal rows twice, of which one is deleted; the key is null, or that of a unique"
    " index where there is one.",
)
def keyless(stage: Stage) -> None:
    stage.run(
        "CREATE TABLE visits (visitor INT, page VARCHAR(20))",
        "CREATE TABLE appended (visitor INT, page VARCHAR(20))",
        "CREATE TABLE coded (code VARCHAR(10) NOT NULL, value INT, CONSTRAINT coded_code UNIQUE (code))",
    )
    if stage.is_postgres:
        stage.run("ALTER TABLE visits REPLICA IDENTITY FULL", "ALTER TABLE coded REPLICA IDENTITY USING INDEX coded_code")
    stage.run("INSERT INTO visits VALUES (1, 'home'), (1, 'home'), (2, NULL)", "INSERT INTO coded VALUES ('a', 1), ('b', 2)")
    stage.connect()
    stage.run(
        "INSERT INTO visits VALUES (3, 'cart'), (3, 'cart'), (3, 'cart')",
        "INSERT INTO appended VALUES (1, 'home'), (1, 'home')",
        "UPDATE visits SET page = 'end' WHERE visitor = 2",
        "DELETE FROM visits WHERE ctid = (SELECT min(ctid) FROM visits WHERE visitor = 3)"
        if stage.is_postgres
        else "DELETE FROM visits WHERE visitor = 3 LIMIT 1",
        "DELETE FROM visits WHERE visitor = 1",
        "INSERT INTO visits VALUES (1, 'home')",
        "UPDATE coded SET value = 10 WHERE code = 'a'",
        "UPDATE coded SET code = 'c' WHERE code = 'b'",
        "DELETE FROM coded WHERE code = 'a'",
    )


AS_TEXT = {
    "decimal.handling.mode": "string",
    "time.precision.mode": "isostring",
    "binary.handling.mode": "hex",
    "interval.handling.mode": "string",
}
MARIADB_UNTOLD = {
    "numbers": "A snapshot reads FLOAT from text of six digits: f of row 4.",
    "texts": "The log escapes the comma of an enum's value: e of row 103.",
    "zero_dates": "A zero date reads as null, or as the epoch where the column is NOT NULL.",
}
POSTGRES_UNTOLD = {
    "endless": "Endless dates and timestamps come as numbers, those of dates differ between snapshot and stream: d, ts.",
    "moments": "A snapshot reads the year 1 two days early: ts, ts3, tsz of row 2. An interval comes as microseconds: iv.",
    "numbers": "A bit string comes without its leading zeros and its length: bv.",
}
POSTGRES_TEXT_UNTOLD = {
    "endless": "Endless dates and timestamps come as days of a far year: d, ts.",
    "moments": "A snapshot reads the year 1 two days early: ts, ts3, tsz of row 2. An interval comes in ISO's form: iv.",
}
TYPES = "For each column type its extremes, an ordinary value and NULL, each row once in the snapshot and once (id + 100) in the stream"


@scenario(
    "types_text",
    f"{TYPES}; what can be text is text: decimals, times (isostring), binary as hex. Unsigned bigint as long overflows.",
    Database.MARIADB,
    options=AS_TEXT,
    untold={
        **MARIADB_UNTOLD,
        "moments": "A time below 0 or above 24 hours reads as null: t, t3, t6.",
        "numbers": f"{MARIADB_UNTOLD['numbers']} Unsigned numbers above 2^63 - 1 read as negative ones: bu.",
        "wide_keys": "Unsigned numbers above 2^63 - 1 read as negative ones: id.",
    },
)
@scenario(
    "types_text",
    f"{TYPES}; what can be text is text: decimals, times (isostring), intervals, binary as hex.",
    Database.POSTGRES,
    options=AS_TEXT,
    untold={**POSTGRES_UNTOLD, **POSTGRES_TEXT_UNTOLD},
)
@scenario(
    "types",
    f"{TYPES}; unsigned bigint as decimals.",
    Database.MARIADB,
    options={"bigint.unsigned.handling.mode": "precise"},
    untold=MARIADB_UNTOLD,
)
@scenario(
    "types",
    f"{TYPES}.",
    Database.POSTGRES,
    untold={**POSTGRES_UNTOLD, "not_numbers": "In precise mode a numeric that is no number reads as null: d, n."},
)
def types(stage: Stage) -> None:
    tables = _postgres_types(stage) if stage.is_postgres else _mariadb_types(stage)
    stage.connect()
    stage.run(*[f"INSERT INTO {table} SELECT id + 100, {columns} FROM {table}" for table, columns in tables.items()])
    if stage.is_postgres:
        stage.run("INSERT INTO text_keys VALUES ('ключ \" 2', '11111111-2222-3333-4444-555555555555', 2.50, 'streamed')")
        stage.run("UPDATE text_keys SET value = 'updated'", "DELETE FROM text_keys WHERE name = 'key 1'")
    else:
        stage.run("INSERT INTO wide_keys VALUES (18446744073709551614, 'streamed'), (2, 'streamed')")
        stage.run("UPDATE wide_keys SET value = 'updated' WHERE id > 1", "DELETE FROM wide_keys WHERE id = 18446744073709551615")
        stage.run("INSERT INTO moment_keys VALUES (X'00FF10', '2024-02-29', '2024-02-29 01:02:03.456789', 'streamed')")
        stage.run("UPDATE moment_keys SET value = 'updated'")


def _mariadb_types(stage: Stage) -> dict[str, str]:
    stage.run(
        "CREATE TABLE numbers (id INT PRIMARY KEY, t TINYINT, t1 TINYINT(1), s SMALLINT, m MEDIUMINT, i INT, b BIGINT, tu TINYINT UNSIGNED,"
        " su SMALLINT UNSIGNED, mu MEDIUMINT UNSIGNED, iu INT UNSIGNED, bu BIGINT UNSIGNED, d DECIMAL(10,2), d0 DECIMAL(20,0),"
        " d38 DECIMAL(38,10), d65 DECIMAL(65,30), f FLOAT, g DOUBLE, b1 BIT(1), b10 BIT(10), b64 BIT(64))",
        "INSERT INTO numbers VALUES"
        " (1, 127, 1, 32767, 8388607, 2147483647, 9223372036854775807, 255, 65535, 16777215, 4294967295, 18446744073709551615, 99999999.99,"
        " 99999999999999999999, 9999999999999999999999999999.9999999999,"
        " 99999999999999999999999999999999999.999999999999999999999999999999,"
        " 3.4028e38, 1.7976931348623157e308, b'1', b'1111111111', b'1000000000000000000000000000000000000000000000000000000000000001'),"
        " (2, -128, 0, -32768, -8388608, -2147483648, -9223372036854775808, 0, 0, 0, 0, 0, -99999999.99, -99999999999999999999,"
        " -9999999999999999999999999999.9999999999, -0.000000000000000000000000000001, -3.4028e38, -1.7976931348623157e308, b'0', b'0',"
        " b'0'),"
        " (3, 1, 5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0.01, 1, 0.0000000001, 1.5, 0.1, 0.1, b'1', b'0100000011', b'1010'),"
        " (4, -1, -1, -1, -1, -1, -1, 128, 32768, 8388608, 2147483648, 9223372036854775808, -1.28, 128, -0.5, 0, 16777217, 1e-300, b'0',"
        " b'1', b'1111111100000000')",
        "INSERT INTO numbers (id) VALUES (5)",
        "CREATE TABLE moments (id INT PRIMARY KEY, d DATE, t TIME, t3 TIME(3), t6 TIME(6), dt DATETIME, dt3 DATETIME(3), dt6 DATETIME(6),"
        " ts TIMESTAMP NULL, ts3 TIMESTAMP(3) NULL, ts6 TIMESTAMP(6) NULL, y YEAR)",
        "INSERT INTO moments VALUES"
        " (1, '2024-02-29', '01:02:03', '01:02:03.456', '01:02:03.456789', '2024-02-29 01:02:03', '2024-02-29 01:02:03.456',"
        " '2024-02-29 01:02:03.456789', '2024-02-29 01:02:03', '2024-02-29 01:02:03.456', '2024-02-29 01:02:03.456789', 2024),"
        " (2, '1000-01-01', '-838:59:59', '-838:59:59', '-838:59:59', '1000-01-01 00:00:00', '1000-01-01 00:00:00', '1000-01-01 00:00:00',"
        " '1970-01-01 00:00:01', '1970-01-01 00:00:01', '1970-01-01 00:00:01', 1901),"
        " (3, '9999-12-31', '838:59:59', '838:59:59.999', '838:59:59.999999', '9999-12-31 23:59:59', '9999-12-31 23:59:59.999',"
        " '9999-12-31 23:59:59.999999', '2038-01-19 03:14:07', '2038-01-19 03:14:07.999', '2038-01-19 03:14:07.999999', 2155),"
        " (4, '1969-12-31', '00:00:00', '-00:00:00.001', '-00:00:00.000001', '1969-12-31 23:59:59', '1969-12-31 23:59:59.999',"
        " '1969-12-31 23:59:59.999999', '2024-10-27 01:30:00', '2024-03-31 02:30:00.5', '2024-03-31 02:30:00.000001', 1970)",
        "INSERT INTO moments (id) VALUES (5)",
        "CREATE TABLE texts (id INT PRIMARY KEY, c CHAR(5), v VARCHAR(50), l VARCHAR(20) CHARACTER SET latin1, tt TINYTEXT, tx TEXT,"
        " j JSON, e ENUM('small', 'with, comma', 'größe'), s SET('a', 'b', 'c'), bi BINARY(4), vb VARBINARY(10), bl BLOB)",
        "INSERT INTO texts VALUES"
        " (1, 'abc  ', 'ünï 💡 日本 \\\\ \"q\"', 'café', 'line\\none', REPEAT('long ', 50), '{\"a\": [1, 2.50, null], \"ü\": \"💡\"}',"
        " 'größe', 'a,c', X'00FF', X'DEADBEEF', X'000102FF'),"
        " (2, '', '', '', '', '', '[]', 'small', '', X'', X'', X''),"
        " (3, '💡', 'NULL', 'null', '\\\\N', '\\t\\r\\n', 'null', 'with, comma', 'a,b,c', X'01020304', X'30', 'text in a blob')",
        "INSERT INTO texts (id) VALUES (4)",
        "CREATE TABLE zero_dates (id INT PRIMARY KEY, d DATE, dt DATETIME, d_required DATE NOT NULL, dt_required DATETIME NOT NULL)",
        "INSERT INTO zero_dates VALUES (1, '0000-00-00', '0000-00-00 00:00:00', '0000-00-00', '0000-00-00 00:00:00')",
        "CREATE TABLE wide_keys (id BIGINT UNSIGNED PRIMARY KEY, value VARCHAR(20))",
        "INSERT INTO wide_keys VALUES (18446744073709551615, 'snapshot'), (1, 'snapshot')",
        "CREATE TABLE moment_keys (b BINARY(4), d DATE, dt DATETIME(6), value VARCHAR(20), PRIMARY KEY (b, d, dt))",
        "INSERT INTO moment_keys VALUES (X'00FF', '1969-12-31', '1969-12-31 23:59:59.999999', 'snapshot')",
    )
    return {
        "numbers": "t, t1, s, m, i, b, tu, su, mu, iu, bu, d, d0, d38, d65, f, g, b1, b10, b64",
        "moments": "d, t, t3, t6, dt, dt3, dt6, ts, ts3, ts6, y",
        "texts": "c, v, l, tt, tx, j, e, s, bi, vb, bl",
        "zero_dates": "d, dt, d_required, dt_required",
    }


def _postgres_types(stage: Stage) -> dict[str, str]:
    stage.run(
        "CREATE TYPE size AS ENUM ('small', 'with, comma', 'größe')",
        "CREATE TABLE numbers (id INT PRIMARY KEY, s SMALLINT, i INT, b BIGINT, d NUMERIC(10,2), d38 NUMERIC(38,10), n NUMERIC, r REAL,"
        " f DOUBLE PRECISION, flag BOOLEAN, b1 BIT(1), b10 BIT(10), b64 BIT(64), bv BIT VARYING(12))",
        "INSERT INTO numbers VALUES"
        " (1, 32767, 2147483647, 9223372036854775807, 99999999.99, 9999999999999999999999999999.9999999999,"
        " 123456789012345678901234567890123456789012345678901234567890.123456789, 3.4028e38, 1.7976931348623157e308, true, B'1',"
        " B'1111111111', B'1000000000000000000000000000000000000000000000000000000000000001', B'111100001111'),"
        " (2, -32768, -2147483648, -9223372036854775808, -99999999.99, -9999999999999999999999999999.9999999999, -0.000000000000000000001,"
        " -3.4028e38, -1.7976931348623157e308, false, B'0', B'0000000000', repeat('0', 64)::bit(64), B''),"
        " (3, 1, 1, 1, 0.01, 0.0000000001, 1.50, 0.1, 0.1, true, B'1', B'0100000011', repeat('10', 32)::bit(64), B'1'),"
        " (4, -1, -1, -1, -1.28, -0.5, 0, 16777217, 1e-300, false, B'0', B'0000000001', repeat('1', 64)::bit(64), B'0001'),"
        " (5, 0, 0, 0, 0, 0, 1e20, 0, 0, true, B'1', B'1000000000', repeat('01', 32)::bit(64), B'100000000000')",
        "INSERT INTO numbers (id) VALUES (6)",
        "CREATE TABLE not_numbers (id INT PRIMARY KEY, d NUMERIC(10,2), n NUMERIC, r REAL, f DOUBLE PRECISION)",
        "INSERT INTO not_numbers VALUES (1, 'NaN', 'NaN', 'NaN', 'NaN'), (2, 0, 0, 'Infinity', 'Infinity'),"
        " (3, 0, 0, '-Infinity', '-Infinity')",
        "CREATE TABLE moments (id INT PRIMARY KEY, d DATE, t TIME, t3 TIME(3), tz TIMETZ, ts TIMESTAMP, ts3 TIMESTAMP(3), tsz TIMESTAMPTZ,"
        " iv INTERVAL)",
        "INSERT INTO moments VALUES"
        " (1, '2024-02-29', '01:02:03.456789', '01:02:03.456', '01:02:03.456789+02:00', '2024-02-29 01:02:03.456789',"
        " '2024-02-29 01:02:03.456', '2024-02-29 01:02:03.456789+02:00', '1 year 2 months 3 days 04:05:06.789'),"
        " (2, '0001-01-01', '00:00:00', '00:00:00', '00:00:00+00', '0001-01-01 00:00:00', '0001-01-01 00:00:00', '0001-01-01 00:00:00+00',"
        " '-1 day'),"
        " (3, '9999-12-31', '23:59:59.999999', '23:59:59.999', '23:59:59.999999-12', '9999-12-31 23:59:59.999999',"
        " '9999-12-31 23:59:59.999', '9999-12-31 23:59:59.999999+00', '178000000 years'),"
        " (4, '1969-12-31', '12:00:00', '12:00:00', '12:00:00+14', '1969-12-31 23:59:59.999999', '1969-12-31 23:59:59.999',"
        " '1969-12-31 23:59:59.999999+00', '-00:00:00.000001')",
        "INSERT INTO moments (id) VALUES (5)",
        "CREATE TABLE endless (id INT PRIMARY KEY, d DATE, ts TIMESTAMP, tsz TIMESTAMPTZ)",
        "INSERT INTO endless VALUES (1, 'infinity', 'infinity', 'infinity'), (2, '-infinity', '-infinity', '-infinity')",
        "CREATE TABLE texts (id INT PRIMARY KEY, c CHAR(5), v VARCHAR(50), tx TEXT, j JSON, jb JSONB, u UUID, e size, by BYTEA, ip INET,"
        " net CIDR, mac MACADDR, span INT4RANGE, ta TEXT[], ia INT[], ba BIGINT[], ua UUID[], na NUMERIC(10,2)[], fa BOOLEAN[])",
        "INSERT INTO texts VALUES"
        " (1, 'abc', 'ünï 💡 日本 \\ \"q\"', repeat('long ', 50), '{\"a\": [1, 2.50, null],  \"a\": \"💡\"}',"
        ' \'{"b": [1, 2.50], "a": "💡"}\','
        " 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'größe', '\\xdeadbeef00', '10.1.2.3', '10.1.0.0/16', '08:00:2b:01:02:03', '[1,5)',"
        " ARRAY['a', 'b,c', NULL, '\"q\"', '', '💡'], ARRAY[1, NULL, -2147483648], ARRAY[9223372036854775807],"
        " ARRAY['a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11']::uuid[], ARRAY[1.50, -0.01, NULL], ARRAY[true, false, NULL]),"
        " (2, '', '', '', '[]', '[]', '00000000-0000-0000-0000-000000000000', 'small', '', '::1', '::/0', '00:00:00:00:00:00', 'empty',"
        " '{}',"
        " '{}', '{}', '{}', '{}', '{}'),"
        " (3, '💡', 'NULL', E'\\t\\r\\n', 'null', 'null', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'with, comma', '\\x00', '10.1.2.3/8',"
        " '2001:db8::/32', 'ff:ff:ff:ff:ff:ff', '(,)', ARRAY['NULL'], ARRAY[0], ARRAY[0], ARRAY[NULL]::uuid[], ARRAY[0], ARRAY[true])",
        "INSERT INTO texts (id) VALUES (4)",
        "CREATE TABLE text_keys (name TEXT, u UUID, n NUMERIC(10,2), value TEXT, PRIMARY KEY (name, u, n))",
        "INSERT INTO text_keys VALUES ('key 1', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', -1.5, 'snapshot')",
    )
    return {
        "numbers": "s, i, b, d, d38, n, r, f, flag, b1, b10, b64, bv",
        "not_numbers": "d, n, r, f",
        "moments": "d, t, t3, tz, ts, ts3, tsz, iv",
        "endless": "d, ts, tsz",
        "texts": "c, v, tx, j, jb, u, e, by, ip, net, mac, span, ta, ia, ba, ua, na, fa",
    }


@scenario(
    "toast",
    "Updates that leave big values unchanged, which the log then lacks: placeholders under REPLICA IDENTITY DEFAULT, none under FULL.",
    Database.POSTGRES,
)
def toast(stage: Stage) -> None:
    big = (
        "repeat('{0}', 2100)", "convert_to(repeat('{0}', 2100), 'UTF8')", "array_fill('{0}'::text, ARRAY[500])",
        "(SELECT array_agg(n) FROM generate_series(1, 550) n)", "array_fill(md5('{0}')::uuid, ARRAY[140])",
    )  # fmt: skip
    tables = ("documents", "documents_full")
    for table in tables:
        stage.run(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, state TEXT, body TEXT, data BYTEA, tags TEXT[], numbers INT[], ids UUID[])",
            *[f"ALTER TABLE {table} ALTER {column} SET STORAGE EXTERNAL" for column in ("body", "data", "tags", "numbers", "ids")],
            *[f"INSERT INTO {table} SELECT {key}, 'snapshot', {', '.join(big).format('s')}" for key in (1, 2)],
        )
    stage.run("ALTER TABLE documents_full REPLICA IDENTITY FULL")
    stage.connect()
    for table in tables:
        stage.run(
            f"INSERT INTO {table} SELECT 3, 'streamed', {', '.join(big).format('t')}",
            f"INSERT INTO {table} VALUES (4, 'small', 'b', 'd', '{{t}}', '{{1}}', '{{}}')",
            f"UPDATE {table} SET state = 'seen'",
            f"UPDATE {table} SET body = 'short now' WHERE id = 1",
        )
        stage.run_as_one(f"UPDATE {table} SET numbers = NULL WHERE id = 3", f"UPDATE {table} SET state = 'seen twice' WHERE id = 3")
        stage.run(
            f"UPDATE {table} SET id = 20 WHERE id = 2",
            f"UPDATE {table} SET state = 'moved' WHERE id = 20",
            f"UPDATE {table} SET data = NULL, tags = NULL, numbers = NULL, ids = NULL WHERE id = 1",
            f"DELETE FROM {table} WHERE id = 4",
        )


@scenario(
    "defaults_replaced",
    "As defaults, with the converter's own replace.null.with.default=true: a NULL cannot be told from the default.",
    options={"key.converter.replace.null.with.default": "true", "value.converter.replace.null.with.default": "true"},
    untold={"stock": "NULL of a column with a default; row 2 got column n by ALTER TABLE, which writes no event."},
)
@scenario(
    "defaults",
    "NULL in columns that have a default, and a column added with a default that old rows get without an event.",
    untold={"stock": "Row 2 got n = 5 by ALTER TABLE, which writes no event."},
)
def defaults(stage: Stage) -> None:
    stage.run(
        "CREATE TABLE stock (id INT PRIMARY KEY, level INT DEFAULT 7, name VARCHAR(20) DEFAULT 'none', flag INT NOT NULL DEFAULT 1,"
        " price DECIMAL(10,2) DEFAULT 9.90)",
        "INSERT INTO stock VALUES (1, NULL, NULL, 2, NULL)",
        "INSERT INTO stock (id) VALUES (2)",
    )
    stage.connect()
    stage.run(
        "INSERT INTO stock VALUES (3, NULL, NULL, 0, NULL)",
        "INSERT INTO stock (id) VALUES (4)",
        "UPDATE stock SET level = NULL, price = NULL WHERE id = 2",
        "ALTER TABLE stock ADD COLUMN n INT NOT NULL DEFAULT 5",
        "INSERT INTO stock (id) VALUES (5)",
        "INSERT INTO stock VALUES (6, NULL, NULL, 6, NULL, 6)",
        "UPDATE stock SET level = 1 WHERE id IN (1, 3)",
        "DELETE FROM stock WHERE id = 4",
    )


@scenario(
    "scale_change",
    "A decimal's scale and an integer's width change mid-stream, columns are added, renamed and dropped.",
    options={"include.schema.changes": "true"},
    untold={"untouched": "Its one row was changed by ALTER TABLE alone, which writes no event: amount has scale 4, label was title."},
)
def scale_change(stage: Stage) -> None:
    tables = ("prices", "untouched")
    for table in tables:
        stage.run(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, amount DECIMAL(10,2), title VARCHAR(10), count INT, gone VARCHAR(10))",
            f"INSERT INTO {table} VALUES (1, 1.50, 'one', 1, 'x')",
        )
    stage.connect()
    stage.run("INSERT INTO prices VALUES (2, 2.25, 'two', 2, 'y')", "UPDATE prices SET amount = 1.75 WHERE id = 1")
    change = "ALTER COLUMN {} TYPE {}" if stage.is_postgres else "MODIFY {} {}"
    for table in tables:
        stage.run(f"ALTER TABLE {table} {change.format('amount', 'DECIMAL(12,4)')}")
    stage.run("INSERT INTO prices VALUES (3, 3.1234, 'three', 3, 'z')", "UPDATE prices SET amount = 1.75 WHERE id = 1")
    for table in tables:
        stage.run(
            f"ALTER TABLE {table} {change.format('count', 'BIGINT')}",
            f"ALTER TABLE {table} ADD COLUMN note VARCHAR(10)",
            f"ALTER TABLE {table} RENAME COLUMN title TO label",
            f"ALTER TABLE {table} DROP COLUMN gone",
        )
    stage.run(
        "INSERT INTO prices VALUES (4, 4.4444, 'four', 9223372036854775807, 'new')",
        "UPDATE prices SET note = 'touched' WHERE id < 4",
        "DELETE FROM prices WHERE id = 3",
    )


@scenario(
    "interleaved",
    "A long transaction and one that commits meanwhile touch the same and neighbouring rows; the long one comes later with older changes.",
    options={"provide.transaction.metadata": "true"},
)
def interleaved(stage: Stage) -> None:
    stage.run(
        "CREATE TABLE accounts (id INT PRIMARY KEY, owner VARCHAR(20), balance DECIMAL(10,2))",
        "INSERT INTO accounts VALUES (1, 'one', 1), (2, 'two', 2), (3, 'three', 3), (4, 'four', 4)",
    )
    stage.connect()
    long, short = stage.session(), stage.session()
    long.run("BEGIN", "UPDATE accounts SET balance = 100, owner = 'long' WHERE id = 1", "INSERT INTO accounts VALUES (6, 'long', 6)")
    short.run("BEGIN", "UPDATE accounts SET balance = 200, owner = 'short' WHERE id = 2", "DELETE FROM accounts WHERE id = 4")
    long.run("UPDATE accounts SET balance = 300, owner = 'long' WHERE id = 3")
    _await_another_second(stage)
    short.run("INSERT INTO accounts VALUES (5, 'short', 5)", "COMMIT")
    stage.run("UPDATE accounts SET balance = 201, owner = 'alone' WHERE id = 2")
    _await_another_second(stage)
    long.run(
        "UPDATE accounts SET balance = balance + 1000, owner = 'long' WHERE id = 2",
        "INSERT INTO accounts VALUES (4, 'long again', 44)",
        "UPDATE accounts SET balance = 500, owner = 'long' WHERE id = 5",
        "COMMIT",
    )
    undone = stage.session()
    undone.run("BEGIN", "UPDATE accounts SET owner = 'never'", "ROLLBACK")
    stage.run("UPDATE accounts SET balance = 101, owner = 'alone' WHERE id = 1")


def _await_another_second(stage: Stage) -> None:
    """Until the database's clock shows another second, the unit of MariaDB's log."""
    clock = "SELECT EXTRACT(SECOND FROM CURRENT_TIMESTAMP(0))"
    before = stage.run(clock)
    await_found(lambda: stage.run(clock) != before, "another second", 10)


@scenario(
    "incremental",
    "An incremental snapshot asked for by the signal table reads in chunks of 4 while rows of its first chunk change in its window.",
    options={"signal.data.collection": "shop.debezium_signal", "incremental.snapshot.chunk.size": "4"},
)
def incremental(stage: Stage) -> None:
    stage.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, state VARCHAR(20))",
        "CREATE TABLE debezium_signal (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))",
        "INSERT INTO orders VALUES " + ", ".join(f"({key}, 'first')" for key in range(1, 11)),
    )
    stage.connect()
    stage.run("UPDATE orders SET state = 'before' WHERE id IN (1, 9)", "DELETE FROM orders WHERE id = 4")
    writer = stage.session()
    writer.run(*["BEGIN", "LOCK TABLE orders IN ACCESS EXCLUSIVE MODE"] if stage.is_postgres else ["LOCK TABLES orders WRITE"])
    signal = '{"type": "incremental", "data-collections": ["shop.orders"]}'
    stage.run(f"INSERT INTO debezium_signal VALUES ('ask', 'execute-snapshot', '{signal}')")
    # The window is open once its signal is there; reading the chunk waits for the lock, so what the writer does falls into the window.
    opened = "SELECT id FROM debezium_signal WHERE type = 'snapshot-window-open'"
    await_found(lambda: stage.run(opened), "the window", 60, stage.expect_health)
    writer.run(
        "UPDATE orders SET state = 'in the window' WHERE id = 2",
        "DELETE FROM orders WHERE id = 3",
        "INSERT INTO orders VALUES (4, 'in the window')",
        "COMMIT" if stage.is_postgres else "UNLOCK TABLES",
    )

    def is_last(message: dict[str, Any]) -> bool:
        return '"snapshot":"incremental"' in (message["value"] or "") and '"payload":{"id":10}' in (message["key"] or "")

    stage.await_message("orders", is_last)
    stage.run("UPDATE orders SET state = 'after' WHERE id IN (1, 10)", "DELETE FROM orders WHERE id = 8")


@scenario(
    "resnapshot",
    "A connector of another name takes a snapshot into the same topics; meanwhile rows changed and came, none went.",
)
def resnapshot(stage: Stage) -> None:
    _before_snapshot(stage)
    stage.end()
    stage.run("UPDATE orders SET state = 'unwatched' WHERE id IN (2, 4)", "INSERT INTO orders VALUES (6, 'unwatched')")
    stage.connect()
    stage.run("UPDATE orders SET state = 'second stream' WHERE id = 2", "DELETE FROM orders WHERE id = 6")


@scenario(
    "resnapshot_gap",
    "As resnapshot, but a row is deleted while nobody watches: only its absence from the second snapshot tells.",
    untold={"orders": "Row 4 was deleted unwatched; the second snapshot (from its first to its last message) does not hold it."},
)
def resnapshot_gap(stage: Stage) -> None:
    _before_snapshot(stage)
    stage.end()
    stage.run("DELETE FROM orders WHERE id = 4", "UPDATE orders SET state = 'unwatched' WHERE id = 2")
    stage.connect()
    stage.run("UPDATE orders SET state = 'second stream' WHERE id = 2", "INSERT INTO orders VALUES (3, 'second stream')")


@scenario(
    "failover",
    "The server comes back with another id and a log that begins anew, the connector without offsets: new snapshot, smaller positions.",
    Database.MARIADB,
    needs_own_server=True,
)
def failover(stage: Stage) -> None:
    assert isinstance(stage, MariaDBStage)
    stage.run("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    _before_snapshot(stage)
    stage.stack.connect.forget(stage.connectors[-1])
    stage.restart(server_id=2)
    stage.run("UPDATE orders SET state = 'unwatched' WHERE id = 2")
    stage.stack.connect.resume(stage.connectors[-1])
    stage.settle()
    stage.settle()
    stage.run(
        "UPDATE orders SET state = 'second stream' WHERE id = 2",
        "DELETE FROM orders WHERE id = 1",
        "INSERT INTO orders VALUES (7, 'second stream')",
    )


def _before_snapshot(stage: Stage) -> None:
    stage.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, state VARCHAR(20))",
        "INSERT INTO orders VALUES (1, 'first snapshot'), (2, 'first snapshot'), (3, 'first snapshot')",
    )
    stage.connect()
    stage.run(
        "INSERT INTO orders VALUES (4, 'first stream'), (5, 'first stream')",
        "UPDATE orders SET state = 'first stream' WHERE id IN (1, 2)",
        "DELETE FROM orders WHERE id = 3",
        "UPDATE orders SET state = 'first stream 2' WHERE id = 2",
        "DELETE FROM orders WHERE id = 5",
    )
    stage.settle()


@scenario(
    "partitions",
    "A topic of three partitions: key changes leave their delete in one partition and their create in another.",
    options={"topic.creation.default.partitions": "3", "topic.creation.default.replication.factor": "1"},
)
def partitions(stage: Stage) -> None:
    stage.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, state VARCHAR(20))",
        "INSERT INTO orders VALUES (1, 'one'), (2, 'two'), (3, 'three'), (4, 'four'), (5, 'five'), (6, 'six')",
    )
    stage.connect()
    stage.run(
        "UPDATE orders SET state = 'updated' WHERE id > 3", "DELETE FROM orders WHERE id = 6", "INSERT INTO orders VALUES (6, 'again')"
    )
    stage.run_as_one(
        "UPDATE orders SET id = 100 WHERE id = 1", "UPDATE orders SET id = 1 WHERE id = 2", "UPDATE orders SET id = 2 WHERE id = 100"
    )
    stage.run("UPDATE orders SET id = id + 10 WHERE id IN (3, 4, 5)", "UPDATE orders SET id = 3 WHERE id = 13")
    stage.run("INSERT INTO orders VALUES (4, 'new four'), (7, 'seven')", "DELETE FROM orders WHERE id = 14")


@scenario(
    "flattened",
    "ExtractNewRecordState with op, table and position added and deletes rewritten to rows with __deleted.",
    Database.MARIADB,
    options={**FLAT, **REWRITTEN, "transforms.flatten.add.fields": "op,table,source.ts_ms,file,pos,row"},
)
@scenario(
    "flattened",
    "ExtractNewRecordState with op, table and position added and deletes rewritten to rows with __deleted.",
    Database.POSTGRES,
    options={**FLAT, **REWRITTEN, "transforms.flatten.add.fields": "op,table,source.ts_ms,lsn,sequence"},
)
@scenario(
    "flattened_defaults",
    "ExtractNewRecordState as it comes: the row alone, a delete is a bare tombstone; no operation, no position.",
    options=FLAT,
)
def flattened(stage: Stage) -> None:
    stage.run("CREATE TABLE stock (id INT PRIMARY KEY, level INT DEFAULT 7)", "INSERT INTO stock VALUES (1, NULL), (2, 2)")
    basics(stage)
    stage.run("INSERT INTO stock VALUES (3, NULL)", "UPDATE stock SET level = NULL WHERE id = 2", "DELETE FROM stock WHERE id = 1")
    stage.run("UPDATE orders SET id = 40 WHERE id = 4")


@scenario(
    "control",
    "All that is no row: heartbeats, transaction boundaries, schema changes and, on PostgreSQL, logical messages in and out of a"
    " transaction; the transactions that write to shop.sentinel are the recorder's.",
    options={"heartbeat.interval.ms": "1000", "provide.transaction.metadata": "true", "include.schema.changes": "true"},
    untold={"remade": "The table was dropped and created anew, which only the schema change topic tells: row 1 is gone."},
)
def control(stage: Stage) -> None:
    stage.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, state VARCHAR(20))",
        "CREATE TABLE order_lines (order_id INT, line INT, PRIMARY KEY (order_id, line))",
        "INSERT INTO orders VALUES (1, 'snapshot')",
    )
    stage.connect()
    stage.run_as_one(
        "INSERT INTO orders VALUES (2, 'new')",
        "INSERT INTO order_lines VALUES (2, 1), (2, 2)",
        "UPDATE orders SET state = 'paid' WHERE id = 2",
    )
    stage.run_as_one("UPDATE orders SET id = 3 WHERE id = 2")
    stage.run("CREATE TABLE later (id INT PRIMARY KEY)", "INSERT INTO later VALUES (1)", "ALTER TABLE later ADD COLUMN v INT")
    stage.run("INSERT INTO later VALUES (2, 2)")
    if stage.is_postgres:
        stage.run("SELECT pg_logical_emit_message(false, 'audit', 'outside')")
        stage.run_as_one("SELECT pg_logical_emit_message(true, 'audit', 'inside')", "INSERT INTO orders VALUES (4, 'with message')")
    else:
        stage.run("CREATE TABLE remade (id INT PRIMARY KEY, v INT)", "INSERT INTO remade VALUES (1, 1)", "DROP TABLE remade")
        stage.run("CREATE TABLE remade (id INT PRIMARY KEY, w VARCHAR(5))", "INSERT INTO remade VALUES (2, 'w')")
    topic = f"__debezium-heartbeat.{stage.prefix}"
    await_found(lambda: stage.broker.has(topic, lambda _: True), "a heartbeat", 30, stage.expect_health)


def main(names: Sequence[str]) -> None:
    """Records the scenarios of these names, or all."""
    wanted = [each for each in SCENARIOS if not names or {each.name, f"{each.database}-{each.name}"} & set(names)]
    if not wanted:
        raise SystemExit(f"no such scenario; there are {', '.join(sorted({each.name for each in SCENARIOS}))}")
    CAPTURES.mkdir(exist_ok=True)
    failed = []
    with started() as stack:
        broker = Broker(stack.kafka)
        try:
            for each in wanted:
                try:
                    file = record(stack, broker, each)
                except (RuntimeError, AssertionError):
                    logger.exception("%s-%s could not be recorded", each.database, each.name)
                    failed.append(f"{each.database}-{each.name}")
                else:
                    logger.info("%s: %d bytes", file.name, file.stat().st_size)
        finally:
            broker.close()
    if failed:
        raise SystemExit(f"not recorded: {', '.join(failed)}")


def _write(file: Path, lines: Sequence[object]) -> Path:
    """A compressed file that differs only if its content does."""
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    with file.open("wb") as stream, gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0) as archive:
        archive.write(text.encode())
    return file


def _mariadb_text(column: str, kind: str) -> str:
    """The expression of a column's value as text."""
    if kind.startswith("bit("):
        return f"LPAD(BIN({column} + 0), {kind[4:-1]}, '0')"
    if "binary" in kind or "blob" in kind:
        return f"LOWER(HEX({column}))"
    if kind == "float":
        return f"CONCAT('', CAST({column} AS DOUBLE))"
    return f"CONCAT('', {column})"


def _canonical(text: str | None, kind: str, is_zoned: bool) -> str | None:
    """The database's text of a value of this type in the form that captures have it."""
    if text is None or "infinity" in text:
        return text
    match kind.split("(")[0]:
        case "float" | "float4":
            return _shortest_float(float(text))
        case "double" | "float8":
            return repr(float(text)).replace("nan", "NaN").replace("inf", "Infinity")
        case "bool":
            return {"t": "true", "f": "false"}[text]
        case "bytea":
            return text.removeprefix("\\x")
        case "timetz":
            return datetime.combine(datetime(2000, 1, 1), time.fromisoformat(text)).astimezone(UTC).timetz().isoformat()
        case "time" | "datetime" | "timestamp" | "timestamptz":
            return _with_full_fraction(text.replace("+00", "")) + ("+00:00" if is_zoned else "")
        case _:
            return text


def _with_full_fraction(text: str) -> str:
    """Six digits of a second, or none if it is a whole one."""
    whole, _, fraction = text.partition(".")
    era = " BC" if text.endswith(" BC") else ""
    digits = fraction.removesuffix(" BC").rstrip("0")
    return f"{whole.removesuffix(' BC')}.{digits:0<6}{era}" if digits else whole


def _shortest_float(value: float) -> str:
    """The shortest number that is the same as this one in 32 bits."""
    if value != value or value in (float("inf"), float("-inf")):
        return repr(value).replace("nan", "NaN").replace("inf", "Infinity")
    wanted = struct.pack("f", value)
    texts = (f"{value:.{digits}g}" for digits in range(1, 10))
    return repr(float(next((text for text in texts if struct.pack("f", float(text)) == wanted), repr(value))))


def _text(value: bytes | str | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main(sys.argv[1:])
