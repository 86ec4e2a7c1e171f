"""Messages as Debezium's connectors send them, naming only what a test is about."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakechime_dagster.cdc.record import Record
from lakechime_dagster.cdc.values import Columns, connect_schema
from lakechime_dagster.tables.databases import PLACEHOLDER

TOPIC = "shop.public.orders"
COLUMNS = ("id", "int32", False), ("name", "string", True), ("amount", "int64", True)
OF_ORDERS = {"table": "orders", "ts_ms": 1_700_000_000_000}
BINLOG = {
    "connector": "mariadb",
    "name": "m",
    "db": "shop",
    "file": "mysql-bin.000003",
    "pos": 120,
    "row": 0,
} | OF_ORDERS
WAL = {
    "connector": "postgresql",
    "name": "p",
    "db": "store",
    "schema": "shop",
    "sequence": '["90","100"]',
    "lsn": 100,
    "txId": 7,
} | OF_ORDERS


def struct(*columns: tuple[str, str, bool] | Mapping[str, Any], **others: object) -> dict[str, Any]:
    """The schema of a row: columns as (name, type, whether it may be null), or as they stand in a
    schema.
    """
    fields = [
        {"field": one[0], "type": one[1], "optional": one[2]}
        if isinstance(one, tuple)
        else dict(one)
        for one in columns
    ]
    return {"type": "struct", "fields": fields, "optional": True} | others


@dataclass(frozen=True)
class ReportedOnce:
    """The same columns at every place of the log, for messages that bring no schema."""

    known: Columns

    def columns(self, source: Mapping[str, Any], row: Mapping[str, Any], topic: str) -> Columns:
        return self.known


def reported_once(
    *columns: tuple[str, str, bool] | Mapping[str, Any], unavailable: str = PLACEHOLDER
) -> ReportedOnce:
    return ReportedOnce(Columns(connect_schema(struct(*(columns or COLUMNS))), unavailable))


def envelope_schema(*columns: tuple[str, str, bool] | Mapping[str, Any]) -> dict[str, Any]:
    row = struct(*(columns or COLUMNS))
    return struct(
        {**row, "field": "before"},
        {**row, "field": "after"},
        {"type": "struct", "field": "source", "fields": []},
        ("op", "string", False),
    )


def make_payload(op: str = "c", **others: Any) -> dict[str, Any]:
    after = {"id": 1, "name": "Ann", "amount": 5}
    sides = {"before": after if op == "d" else None, "after": None if op in "dt" else after}
    return {**sides, "source": BINLOG, "op": op, "ts_ms": 1_700_000_000_123, **others}


def make_record(
    payload: object = ...,
    *,
    schema: Mapping[str, Any] | None = None,
    key: object = ...,
    headers: Sequence[tuple[str, Any]] = (),
    offset: int = 7,
) -> Record:
    """A message; without a payload it is a tombstone, without a schema its JSON is the payload
    alone.
    """
    key = {"id": 1} if key is ... else key
    value = make_payload() if payload is ... else payload
    return Record(
        topic=TOPIC,
        value=None if value is None else encoded(value, schema),
        key=None
        if key is None
        else encoded(key, None if schema is None else struct(("id", "int32", False))),
        headers={name: encoded(one, None) for name, one in headers},
        offset=offset,
    )


def encoded(payload: object, schema: Mapping[str, Any] | None = None) -> bytes:
    return json.dumps(
        payload if schema is None else {"schema": schema, "payload": payload}
    ).encode()
