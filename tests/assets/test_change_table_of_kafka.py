"""A table of a real database in the lake: MariaDB, Debezium without schemas, Kafka, the table of messages, and the table of rows."""

from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import dagster as dg
import pytest

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.demo.servers import Connect
from lakechime_dagster.errors import FeedUnreadableError
from lakechime_dagster.runtime.platform import open_platform
from lakechime_dagster.sources.kafka import KafkaFeed
from lakechime_dagster.spark.driver import Driver
from lakechime_dagster.tables.cdc import CDCMerge, SourceSchema, change_table
from lakechime_dagster.tables.databases import Database, Debezium
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.sources import KafkaTopic
from lakechime_dagster.triggers.consumers import KafkaOffsets
from tests.assets.test_table import Location, checks, shown
from tests.support.follows import read
from tests.support.kafka import Kafka
from tests.support.mariadb import CAPTURE_USER, MariaDB, MariaDBSession
from tests.support.processes import await_found
from tests.support.stack import debezium_settings
from tests.support.topics import ENVIRONMENT, LOGIN

pytestmark = [pytest.mark.spark, pytest.mark.services]
NAME = "lakeshop"
ROWS = f"{NAME}.{NAME}.orders"
SCHEMALESS = {
    "include.schema.changes": "true",
    **{f"{part}.converter": "org.apache.kafka.connect.json.JsonConverter" for part in ("key", "value")},
    **{f"{part}.converter.schemas.enable": "false" for part in ("key", "value")},
}


@pytest.fixture
def session(mariadb: MariaDB, connect: Connect, kafka: Kafka) -> Iterator[MariaDBSession]:
    """A session in the database that a connector follows, whose messages bring no schema."""
    admin = mariadb.session()
    admin.run(f"CREATE DATABASE {NAME}", f"USE {NAME}", "CREATE TABLE orders (id INT PRIMARY KEY, amount DECIMAL(12,2) NOT NULL)")
    admin.run("INSERT INTO orders VALUES (1, 10.25), (2, 20.50)")
    connect.create(NAME, {**debezium_settings(NAME, mariadb, kafka.address), **SCHEMALESS})
    yield admin
    connect.delete(NAME)
    admin.close()


@pytest.fixture
def feed(kafka: Kafka) -> KafkaTopic:
    return KafkaTopic(f"{NAME}.{NAME}.*", bootstrap=kafka.secured, options=LOGIN)


@pytest.fixture
def location(
    tmp_path: Path, feed: KafkaTopic, mariadb: MariaDB, monkeypatch: pytest.MonkeyPatch, upgraded_sqlite: Path, spark_driver: Driver
) -> Iterator[Location]:
    for name, value in {"LAKECHIME_HOME": str(tmp_path), "LAKECHIME_SPARK_DRIVER": "local", "LAKECHIME_SPARK_MEMORY": "1g"}.items():
        monkeypatch.setenv(name, value)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LAKECHIME_STORE_URL", raising=False)
    (tmp_path / "dce.sqlite").write_bytes(upgraded_sqlite.read_bytes())
    url = f"mysql://{CAPTURE_USER}:{CAPTURE_USER}@127.0.0.1:{mariadb.port}/"
    schema = SourceSchema(read_from=Database(url, f"{NAME}.orders"))
    table = change_table("shop.orders", source=feed, envelope=Debezium(), merge=CDCMerge(keys=("id",)), schema=schema)
    definitions = build_definitions(Lake("shop", [table]))
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        yield Location(instance, definitions, open_platform())


def test_what_is_committed_in_the_database_is_a_row_of_the_lake(
    location: Location, session: MariaDBSession, feed: KafkaTopic, connect: Connect
) -> None:
    take(location, 2, feed, connect)
    assert rows(location) == [(1, Decimal("10.25")), (2, Decimal("20.50"))]
    session.run("BEGIN", "UPDATE orders SET amount = 11 WHERE id = 1", "DELETE FROM orders WHERE id = 2", "COMMIT")
    session.run("INSERT INTO orders VALUES (3, 30)", "UPDATE orders SET id = 4 WHERE id = 3")
    take(location, 9, feed, connect)  # of an update of a key three: the old one's deletion, its tombstone, and the new one
    assert rows(location) == [(1, Decimal("11.00")), (4, Decimal("30.00"))]
    session.run("ALTER TABLE orders ADD COLUMN note VARCHAR(9)", "INSERT INTO orders VALUES (5, 0.12, 'new')")
    take(location, 10, feed, connect)
    assert rows(location) == [(1, Decimal("11.00")), (4, Decimal("30.00")), (5, Decimal("0.12"))]


def take(location: Location, count: int, feed: KafkaTopic, connect: Connect) -> None:
    """Waits until the topic holds so many messages, and runs both tables as their sensors ask."""
    await_found(lambda: held_by(feed) == count, f"{count} messages", 60, lambda: connect.expect_health(NAME))
    run = location.run_of("shop_orders__changes")
    assert checks(run) == {"nothing_unreadable": True}, shown(run)
    messages = [row for row in read(location.platform.location("shop.orders__changes")) if row["topic"] == ROWS]
    assert sorted(row["offset"] for row in messages) == list(range(count))
    assert location.run_of("shop_orders").success


def held_by(feed: KafkaTopic) -> int:
    """The last stable offset of the topic of rows; 0 while it is not there."""
    with suppress(FeedUnreadableError):
        end = KafkaFeed(feed, ENVIRONMENT, is_ordered_by_position=True).look(None).end
        assert isinstance(end, KafkaOffsets)
        return sum(sum(topic.offsets.values()) for topic in end.topics.values() if topic.name == ROWS)
    return 0


def rows(location: Location) -> list[tuple[int, Decimal]]:
    return sorted((row["id"], row["amount"]) for row in read(location.platform.location("shop.orders")))
