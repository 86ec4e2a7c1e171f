"""Changes as Debezium's connector for PostgreSQL reports them, for histories that tests make up."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from lakechime_dagster.cdc.change import Change, Key, Operation
from lakechime_dagster.cdc.debezium import OLD_KEY
from lakechime_dagster.cdc.record import Record
from lakechime_dagster.tables.databases import PLACEHOLDER
from tests.cdc.factories import encoded, envelope_schema

KEYS = ("shard", "id")
VALUES = ("a", "b")
SCHEMA = envelope_schema(
    ("shard", "string", False), ("id", "int32", False), ("a", "string", True), ("b", "string", True)
)


def messages(changes: Sequence[Change], topic: str) -> Iterator[Record]:
    """A message for each change, in one partition of a topic of their own."""
    for offset, change in enumerate(changes):
        yield Record(
            topic=topic,
            offset=offset,
            key=None
            if change.operation is Operation.TRUNCATE
            else json.dumps(key_row(change.key)).encode(),
            value=encoded(payload_of(change), SCHEMA),
            headers={}
            if change.continues is None
            else {OLD_KEY: json.dumps(key_row(change.continues)).encode()},
        )


def payload_of(change: Change) -> dict[str, Any]:
    key = None if change.operation is Operation.TRUNCATE else key_row(change.key)
    carried = {name: change.columns.get(name, PLACEHOLDER) for name in VALUES}
    row = {
        name: value if isinstance(value, str | None) else str(value)
        for name, value in carried.items()
    }
    committed, position = (*change.order.position, 0)[:2]
    source = {
        "connector": "postgresql",
        "name": "p",
        "db": "d",
        "schema": change.source,
        "table": "t",
        "lsn": position,
    }
    return {
        "before": {**key, **dict.fromkeys(VALUES)}
        if key and change.operation is Operation.DELETE
        else None,
        "after": {**key, **row} if key and change.operation.is_upsert else None,
        "source": {
            **source,
            "sequence": json.dumps([str(committed), str(position)]),
            "txId": change.transaction,
            "ts_ms": committed,
        },
        "op": change.operation.value,
        "ts_ms": committed,
    }


def key_row(key: Key) -> dict[str, Any]:
    return dict(zip(KEYS, key, strict=True))
