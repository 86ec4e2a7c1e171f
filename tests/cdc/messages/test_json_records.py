"""The view of messages as JSON records, in real engines, of what real databases, Debezium and Kafka said."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.cdc.messages.bronze import COLUMNS, ViewDialect
from lakechime_dagster.cdc.messages.bronze_rows import Message, bronze_row
from lakechime_dagster.cdc.messages.debezium import is_envelope
from lakechime_dagster.cdc.messages.json_records import json_records_view
from lakechime_dagster.cdc.messages.readers import MessageFormat
from lakechime_dagster.demo.verify import load_delta
from lakechime_dagster.lake.envelopes import Debezium
from tests.cdc.test_captures import CAPTURES, TABLES, label
from tests.support.follows import BRONZE
from tests.support.tables import write

pytestmark = pytest.mark.spark
Row = tuple[str, str, int, Any, str, str, int, int]
RANK = {"r": 0, "d": 1}
TOLD = [(name, topic) for name, topic in TABLES if "schemaless" not in name]  # whose messages say how they are read
OTHERWISE = {  # tables of which one row a key is not what the database held
    "mariadb-control.remade", "mariadb-truncate.staging", "mariadb-truncate.staging_two",  # truncations
    "postgres-truncate.staging", "postgres-truncate.staging_two", "mariadb-transactions.visits", "postgres-transactions.visits",
    "mariadb-resnapshot_gap.orders", "postgres-resnapshot_gap.orders",  # rows that a snapshot lacked
    "mariadb-failover.orders",  # positions that began anew
    "postgres-key_change.ranks",  # keys that took each other's place in one transaction
    "postgres-types.moments", "postgres-types_text.moments",  # a message that cannot be read
    *(f"{database}-flattened_defaults.{table}" for database in ("mariadb", "postgres") for table in ("orders", "order_lines", "stock")),
}  # fmt: skip


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """The rows of all captures' messages, the source of each named after its capture too."""
    found = []
    for name, topic in TOLD:
        reader = MessageFormat(envelope=Debezium(), keys=CAPTURES[name].keys[topic]).reader()
        for record in CAPTURES[name].of(topic):
            row = dict(zip(COLUMNS, bronze_row(Message(record, list(record.headers.items())), reader), strict=True))
            found.append(row | {"source": f"{label(name, topic)} {row['source']}"})
    return found


@pytest.fixture(scope="module")
def location(rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("it's here") / "orders__changes"
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in BRONZE]
    write(folder, pa.Table.from_arrays(arrays, schema=BRONZE))
    return str(folder)


@pytest.fixture(scope="module")
def expected(rows: list[dict[str, Any]]) -> list[Row]:
    """By plain Python: of each key the newest message, and the image in it."""
    newest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in rows:
        if row["kind"] == "change" and row["row_key"] is not None:
            key = row["source"], row["row_key"]
            newest[key] = max(newest.get(key, row), row, key=_order)
    return sorted(map(_record, newest.values()), key=str)


def _order(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["position"] or [], RANK.get(row["op"], 2), row["offset"]


def _record(row: Mapping[str, Any]) -> Row:
    message = json.loads(row["value"])
    payload = message["payload"] if message.keys() == {"schema", "payload"} else message
    image = payload["before" if row["op"] == "d" else "after"] if is_envelope(payload) else payload
    return _row({**row, "json_record": None if image is None else json.dumps(image)})


def _row(row: Mapping[str, Any]) -> Row:
    image = None if row["json_record"] is None else json.dumps(json.loads(row["json_record"]), sort_keys=True)
    parts = (row[name] for name in ("row_key", "op", "ts_ms"))
    return (*parts, image, *(row[name] for name in ("source", "topic", "partition", "offset")))  # type: ignore[return-value]


@pytest.fixture(scope="module")
def in_duckdb(location: str) -> list[Row]:
    with duckdb.connect() as connection:
        load_delta(connection)
        connection.execute("CREATE SCHEMA shop")
        connection.execute(json_records_view("shop.orders__records", location, ViewDialect.DUCKDB))
        found = connection.execute("SELECT * FROM shop.orders__records").to_arrow_table()
    return sorted(map(_row, found.to_pylist()), key=str)


@pytest.fixture
def shop(spark: SparkSession) -> Iterator[str]:
    """A database of Spark's catalog."""
    spark.sql("CREATE DATABASE shop")
    yield "shop"
    spark.sql("DROP DATABASE shop CASCADE")


def test_the_view_in_duckdb_has_the_newest_image_of_each_key(in_duckdb: list[Row], expected: list[Row]) -> None:
    assert in_duckdb == expected
    assert {row[1] for row in expected} == {"r", "c", "u", "d"}


def test_so_has_the_view_in_spark(spark: SparkSession, location: str, shop: str, expected: list[Row]) -> None:
    spark.sql(json_records_view(f"{shop}.orders__records", location, ViewDialect.SPARK))
    found = spark.table(f"{shop}.orders__records").collect()
    assert sorted((_row(row.asDict()) for row in found), key=str) == expected


def test_the_rows_that_no_deletion_took_are_those_of_the_database(in_duckdb: list[Row]) -> None:
    live: dict[str, int] = {label(*one): 0 for one in TOLD}
    for _, op, _, _, source, *_ in in_duckdb:
        live[source.partition(" ")[0]] += op != "d"
    held = {label(name, topic): len(CAPTURES[name].rows[topic]) for name, topic in TOLD}
    assert {name for name in held if held[name] != live[name]} == OTHERWISE
