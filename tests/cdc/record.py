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
EXACT = {"key.converter.replace.null.with.default": "false", "value.converter.replace.null.with.default": "false"}
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
        self.stack.connect.create(name, {**self._config(name), **self.options, **self.scenario.options})
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
    " swaps in one statement, where the delete of a key comes after the create of the same key.",
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
