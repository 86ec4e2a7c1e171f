"""A table of a real MariaDB and the one of the lake that follows it, between which a test may lose
what it wants.

Messages are as Debezium's connector for MariaDB writes them, at the checkpoints where the server's
binary log has the changes.
"""

import json
import uuid
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lakechime_dagster.cdc.record import Record
from lakechime_dagster.cdc.service import ReplicaTables
from lakechime_dagster.spark.job import TableResult
from lakechime_dagster.tables.databases import Database, Monitor
from tests.cdc.factories import envelope_schema
from tests.support.mariadb import CAPTURE_USER, MariaDB, MariaDBSession
from tests.support.replica import Replica, replica_tables

REPORTED_MS = 1_700_000_000_000  # the database's time in messages
DECIMAL = {
    "field": "amount",
    "type": "bytes",
    "optional": True,
    "name": "org.apache.kafka.connect.data.Decimal",
    "version": 1,
    "parameters": {"scale": "2", "connect.decimal.precision": "10"},
}
PLACED = {
    "field": "placed",
    "type": "int64",
    "optional": True,
    "name": "io.debezium.time.MicroTimestamp",
    "version": 1,
}
SCHEMA = envelope_schema(("id", "int32", False), ("note", "string", True), DECIMAL, PLACED)
DDL = (
    "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(40), amount DECIMAL(10,2), placed "
    "DATETIME(6))"
)
ROW = (
    "SELECT CONCAT_WS('|', id, note, CAST(amount * 100 AS SIGNED), TIMESTAMPDIFF(MICROSECOND, "
    "'1970-01-01', placed)) FROM orders"
    " WHERE id = {}"
)


@dataclass
class Shop:
    """The table `orders` of a database of its own, and the lake's table `orders`."""

    database: MariaDBSession
    schema: str
    url: str
    lake: Replica
    name: str = "shop"  # of the connector
    messages: list[Record] = field(default_factory=list)
    reported: int = 0

    def insert(
        self, identity: int, note: str = "new", amount: str = "1.50", *, lose: bool = False
    ) -> None:
        self.database.run(
            f"INSERT INTO orders (id, note, amount, placed) VALUES ({identity}, '{note}', "
            f"{amount}, '2024-02-29 12:30:00.000123')"
        )
        self._report("c", identity, lose)

    def update(self, identity: int, note: str, *, lose: bool = False) -> None:
        self.database.run(f"UPDATE orders SET note = '{note}' WHERE id = {identity}")
        self._report("u", identity, lose)

    def delete(self, identity: int, *, lose: bool = False) -> None:
        self.database.run(f"DELETE FROM orders WHERE id = {identity}")
        self._report("d", identity, lose)

    def truncate(self, *, lose: bool = False) -> None:
        self.database.run("TRUNCATE TABLE orders")
        self._report("t", None, lose)

    def snapshot(self, *identities: int) -> None:
        """The connector reads these rows again, as if they were all."""
        for number, identity in enumerate(identities, start=1):
            self._report(
                "r",
                identity,
                lose=False,
                snapshot={1: "first", len(identities): "last"}.get(number, "true"),
            )

    def refresh(self) -> TableResult:
        """The lake takes the messages that were not lost."""
        if new := self.messages[self.reported :]:
            self.lake.send(new)
            self.reported = len(self.messages)
        return self.lake.run()

    def checkpoint(self) -> tuple[str, int]:
        """Where the binary log ends."""
        ((file, byte, *_),) = [line.split("\t") for line in self.database.run("SHOW MASTER STATUS")]
        return file, int(byte)

    @property
    def tables(self) -> ReplicaTables:
        """The table as monitors and repairs look at it."""
        lake = self.lake
        rows, bronze, state = (
            lake.log(f"orders{suffix}") for suffix in ("", "__changes", "__state")
        )
        rows = lake.iceberg or rows
        return replica_tables(rows, bronze, state, lake.format, lake.options.get("names"))

    def monitor(self, **declared: Any) -> Monitor:
        return Monitor(**{"database": Database(self.url, f"{self.schema}.orders"), **declared})

    @property
    def rows(self) -> list[tuple[int, str]]:
        """The lake's, by key and note."""
        return [(row["id"], row["note"]) for row in self.lake.rows]

    def _report(self, op: str, identity: int | None, lose: bool, **source: str) -> None:
        if lose:
            return
        file, byte = self.checkpoint()
        row = None if identity is None else self._row(identity)
        reported = {
            "connector": "mariadb",
            "name": self.name,
            "db": self.schema,
            "table": "orders",
            "file": file,
            "pos": byte - 1,
            "row": 0,
        }
        payload = {
            "before": None,
            "after": row,
            "source": {**reported, "ts_ms": REPORTED_MS, **source},
            "op": op,
        }
        if op == "d":
            payload["before"] = {"id": identity, "note": None, "amount": None, "placed": None}
        value = json.dumps({"schema": SCHEMA, "payload": payload}).encode()
        key = None if identity is None else json.dumps({"id": identity}).encode()
        self.messages.append(
            Record(
                topic=f"{self.name}.orders",
                topic_id=f"id of {self.name}",
                offset=len(self.messages),
                key=key,
                value=value,
            )
        )

    def _row(self, identity: int) -> dict[str, Any] | None:
        for line in self.database.run(ROW.format(identity)):
            number, note, cents, placed = line.split("|")
            unscaled = int(cents).to_bytes(8, "big", signed=True)
            return {
                "id": int(number),
                "note": note,
                "amount": b64encode(unscaled).decode(),
                "placed": int(placed),
            }
        return None


@contextmanager
def a_shop(server: MariaDB, spark: SparkSession, folder: Path) -> Iterator[Shop]:
    """A shop whose lake replicates the first ten orders."""
    with shop_in(server, Replica(spark, folder, keys=("id",))) as shop:
        yield shop


@contextmanager
def shop_in(server: MariaDB, lake: Replica, name: str = "shop") -> Iterator[Shop]:
    """A shop whose first ten orders a lake replicates, and may replicate others too."""
    schema = f"shop_{uuid.uuid4().hex[:8]}"
    admin = server.session()
    admin.run(f"CREATE DATABASE {schema}", f"USE {schema}", DDL)
    try:
        url = f"mysql+pymysql://{CAPTURE_USER}:{CAPTURE_USER}@127.0.0.1:{server.port}/{schema}"
        shop = Shop(admin, schema, url, lake, name)
        for identity in range(1, 11):
            shop.insert(identity)
        shop.refresh()
        yield shop
    finally:
        admin.run(f"DROP DATABASE {schema}")
        admin.close()
