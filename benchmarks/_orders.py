"""A table of orders in MariaDB, and its changes as Debezium's connector reports them, with the
schema before each.
"""

import hashlib
import json
import random
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.cdc.change import READ, Order
from lakechime_dagster.cdc.job import MessageFormat
from lakechime_dagster.cdc.merge import RowState
from lakechime_dagster.cdc.record import COLUMNS, Message, Record, bronze_row
from lakechime_dagster.cdc.state import row_state_text
from lakechime_dagster.tables.databases import Debezium

KEYS = ("id",)
TOPIC = "shop.shop.orders"
SOURCE = "shop.shop.orders"  # the connector's name, the database and the table
_ARROW = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
    "array<bigint>": pa.list_(pa.int64()),
    "array<struct<key:string,value:binary>>": pa.list_(
        pa.struct([("key", pa.string()), ("value", pa.binary())])
    ),
}
_BRONZE = pa.schema([(name, _ARROW[ddl]) for name, ddl in COLUMNS.items()])
_START_MS = 1_790_000_000_000
_CHECKPOINT = 123_456_789  # stands for a row's own number


def rows(spark: SparkSession, count: int) -> DataFrame:
    """The orders 0 to `count`, as `row` has them, in files by id."""
    found = spark.range(0, count, 1, max(8, count // 400_000))
    return found.select(
        "id",
        F.expr("cast(id % 50000 as int) customer"),
        F.expr("get(array('new', 'paid', 'sent'), cast(id % 3 as int)) status"),
        F.expr("concat('note ', md5(cast(id as string))) note"),
        F.expr("cast((id % 1000000) / 100 as decimal(12,2)) amount"),
        F.expr("cast(timestamp_micros(1780000000000000 + id * 1000) as timestamp_ntz) changed"),
    )


def row(number: int, version: int = 0) -> dict[str, Any]:
    """The order of a number as Debezium writes it, in one of its versions."""
    cents = number % 1_000_000 + version
    return {
        "id": number,
        "customer": number % 50_000,
        "status": ("new", "paid", "sent")[(number + version) % 3],
        "note": f"note {hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()}",
        "amount": b64encode(
            cents.to_bytes((cents.bit_length() + 8) // 8, "big", signed=True)
        ).decode(),
        "changed": 1_780_000_000_000_000 + number * 1000 + version,
    }


def hidden() -> Any:
    """The hidden column of rows that a snapshot read."""
    order = Order(position=(1, 4, 0), rank=READ, topic=TOPIC, partition=0, offset=_CHECKPOINT)
    before, after = row_state_text(RowState(upserted=order), SOURCE).split(str(_CHECKPOINT))
    return F.concat(F.lit(before), F.col("id").cast("string"), F.lit(after))


@dataclass(frozen=True)
class Changes:
    """What a table of some rows is reported: of each changed key one event, of each tenth two; of
    20 keys one is new, one is deleted.
    """

    name: str
    rows: int
    ids: tuple[int, ...]

    @property
    def events(self) -> list[tuple[str, int, int]]:
        """Operation, key and version, in their order."""
        new = range(self.rows, self.rows + len(self.ids) // 20)
        reported = [("d" if i % 20 == 7 else "u", number, 1) for i, number in enumerate(self.ids)]
        reported += [("u", number, 2) for i, number in enumerate(self.ids) if i % 10 == 3]
        return [("c", number, 0) for number in new] + reported

    @property
    def keys(self) -> int:
        return len(self.ids) + len(self.ids) // 20

    def messages(self) -> Iterator[Record]:
        """A message of each event, and after a deletion the tombstone."""
        offset = 10
        for count, (op, number, version) in enumerate(self.events):
            yield message(offset, op, number, version, _START_MS + count)
            offset += 1
            if op == "d":
                yield Record(topic=TOPIC, key=_key(number), value=None, offset=offset)
                offset += 1


def random_changes(count: int, share: float) -> Changes:
    """Changes of keys anywhere in the table."""
    return Changes(
        f"{share * 100:g} % random",
        count,
        tuple(random.Random(7).sample(range(count), int(count * share))),
    )


def recent_changes(count: int, share: float) -> Changes:
    """Changes of the newest keys."""
    return Changes(
        f"{share * 100:g} % recent", count, tuple(range(count - int(count * share), count))
    )


def message(offset: int, op: str, number: int, version: int, at_ms: int) -> Record:
    source = {
        "version": "3.5.0.Final",
        "connector": "mariadb",
        "name": "shop",
        "ts_ms": at_ms,
        "snapshot": "false",
        "db": "shop",
        "sequence": None,
        "ts_us": at_ms * 1000,
        "ts_ns": at_ms * 1_000_000,
        "table": "orders",
        "server_id": 1,
        "gtid": f"0-1-{offset}",
        "file": "mysql-bin.000007",
        "pos": offset * 120,
        "row": 0,
        "thread": 31,
        "query": None,
    }
    payload = {
        "before": None if op == "c" else row(number, max(version - 1, 0)),
        "after": None if op == "d" else row(number, version),
        "source": source,
        "transaction": None,
        "op": op,
        "ts_ms": at_ms + 40,
        "ts_us": at_ms * 1000 + 40_000,
        "ts_ns": at_ms * 1_000_000 + 40_000_000,
    }
    value = f'{{"schema":{_VALUE},"payload":{json.dumps(payload, separators=(",", ":"))}}}'.encode()
    return Record(topic=TOPIC, key=_key(number), value=value, offset=offset)


def write_bronze(location: str, executions: Sequence[Iterator[Record]]) -> None:
    """A bronze table, a commit for each execution; the first is of a tombstone that nobody reads."""
    reader = MessageFormat(envelope=Debezium(), keys=KEYS).reader()
    for records in ([Record(topic=TOPIC, key=_key(0), value=None)], *executions):
        columns = zip(*[bronze_row(Message(one), reader) for one in records], strict=True)
        table = pa.Table.from_arrays(
            [pa.array(values, one.type) for values, one in zip(columns, _BRONZE, strict=True)],
            schema=_BRONZE,
        )
        write_deltalake(location, table, mode="append")


def _key(number: int) -> bytes:
    return f'{{"schema":{_KEY},"payload":{{"id":{number}}}}}'.encode()


def _field(field: str, kind: str, **others: Any) -> dict[str, Any]:
    return {"type": kind, "optional": field != "id", **others, "field": field}


def _struct(fields: Sequence[dict[str, Any]], **others: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields), "optional": True, **others}


_DECIMAL = {
    "name": "org.apache.kafka.connect.data.Decimal",
    "version": 1,
    "parameters": {"scale": "2", "connect.decimal.precision": "12"},
}
_SNAPSHOT = {
    "name": "io.debezium.data.Enum",
    "version": 1,
    "default": "false",
    "parameters": {
        "allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
    },
}
_ROW = (
    _field("id", "int64"),
    _field("customer", "int32"),
    _field("status", "string"),
    _field("note", "string"),
    _field("amount", "bytes", **_DECIMAL),
    _field("changed", "int64", name="io.debezium.time.MicroTimestamp", version=1),
)
_SOURCE = (
    *[_field(name, "string") for name in ("version", "connector", "name")],
    _field("ts_ms", "int64"),
    _field("snapshot", "string", **_SNAPSHOT),
    _field("db", "string"),
    _field("sequence", "string"),
    _field("ts_us", "int64"),
    _field("ts_ns", "int64"),
    _field("table", "string"),
    _field("server_id", "int64"),
    _field("gtid", "string"),
    _field("file", "string"),
    _field("pos", "int64"),
    _field("row", "int32"),
    _field("thread", "int64"),
    _field("query", "string"),
)
_BLOCK = (
    _field("id", "string"),
    _field("total_order", "int64"),
    _field("data_collection_order", "int64"),
)
_ENVELOPE = (
    _struct(_ROW, name="shop.shop.orders.Value", field="before"),
    _struct(_ROW, name="shop.shop.orders.Value", field="after"),
    _struct(_SOURCE, name="io.debezium.connector.mariadb.Source", version=1, field="source"),
    _struct(_BLOCK, name="event.block", version=1, field="transaction"),
    _field("op", "string"),
    *[_field(name, "int64") for name in ("ts_ms", "ts_us", "ts_ns")],
)
_VALUE = json.dumps(
    _struct(_ENVELOPE, name="shop.shop.orders.Envelope", version=2), separators=(",", ":")
)
_KEY = json.dumps(_struct(_ROW[:1], name="shop.shop.orders.Key"), separators=(",", ":"))
