"""Messages as rows of the bronze table: what was read stands beside what came, and nothing in a
message hinders its row.
"""

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest

from lakechime_dagster.cdc.job import MessageFormat
from lakechime_dagster.cdc.record import COLUMNS, Message, Record, bronze_row, key_text
from lakechime_dagster.tables.databases import Debezium, Maxwell
from tests.cdc.captures import captures

TYPES = {"id": "bigint", "name": "string"}


def row_of(value: bytes | None, key: bytes | None = None, **fields: Any) -> dict[str, Any]:
    """The row of a message of Maxwell."""
    message = Message(record=Record(topic="shop.orders", value=value, key=key, offset=40), **fields)
    return dict(
        zip(
            COLUMNS,
            bronze_row(
                message, MessageFormat(envelope=Maxwell(), keys=("id",), types=TYPES).reader()
            ),
            strict=True,
        )
    )


def reported(**fields: Any) -> bytes:
    """A message of Maxwell."""
    message = {
        "database": "shop",
        "table": "orders",
        "type": "insert",
        "ts": 1700000000,
        "data": {"id": 7, "name": "a"},
        **fields,
    }
    return json.dumps(message).encode()


def test_what_a_change_says_stands_in_columns_beside_the_message() -> None:
    value = reported(position="mysql-bin.000003:120")
    row = row_of(value, b'{"id":7}', headers=[("trace", b"\xff")], timestamp_ms=1_700_000_000_123)
    assert row == {
        "topic": "shop.orders",
        "topic_id": "shop.orders",
        "partition": 0,
        "offset": 40,
        "key": '{"id":7}',
        "value": value.decode(),
        "timestamp": 1_700_000_000_123_000,
        "key_bytes": None,
        "value_bytes": None,
        "headers": [{"key": "trace", "value": b"\xff"}],
        "kind": "change",
        "source": "shop.orders",
        "op": "c",
        "row_key": "[7]",
        "position": [3, 120],
        "ts_ms": 1_700_000_000_000,
        "snapshot": None,
        "transaction": None,
        "transaction_order": None,
        "transaction_counts": None,
        "problem": None,
    }


def test_keys_and_values_that_are_no_text_are_kept_as_bytes() -> None:
    row = row_of(b"\xff\xfe", b"\x80")
    assert (row["key"], row["key_bytes"], row["value"], row["value_bytes"]) == (
        None,
        b"\x80",
        None,
        b"\xff\xfe",
    )
    assert (row["kind"], row["problem"].startswith("value: b'\\xff\\xfe' is no JSON")) == (
        "unreadable",
        True,
    )


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"position": f"mysql-bin.000003:{2**64}"},
            "source: the position [3, 18446744073709551616] has a number of more than 64 bits",
        ),
        ({"data": {"name": "a"}}, "data.id"),
    ],
)
def test_what_cannot_be_read_is_kept_with_its_problem(fields: dict[str, Any], problem: str) -> None:
    row = row_of(reported(**fields))
    assert (row["kind"], row["op"], row["value"]) == (
        "unreadable",
        None,
        reported(**fields).decode(),
    )
    assert problem in row["problem"]


def test_the_values_of_a_key_are_json_and_what_json_has_no_type_for_is_text() -> None:
    key = (
        1,
        "a\ud800",
        None,
        True,
        Decimal("1.50"),
        dt.date(2024, 5, 1),
        dt.datetime(2024, 5, 1, 12),
        b"\x01\xff",
        [1, Decimal(2)],
    )
    assert json.loads(key_text(key)) == [
        1,
        "a?",
        None,
        True,
        "1.50",
        "2024-05-01",
        "2024-05-01T12:00:00",
        "01ff",
        [1, "2"],
    ]


def test_every_message_that_was_recorded_has_a_row() -> None:
    kinds: dict[str, int] = {}
    for capture in captures():
        for topic, keys in capture.keys.items():
            reader = MessageFormat(envelope=Debezium(), keys=keys).reader()
            for record in capture.of(topic):
                row = dict(zip(COLUMNS, bronze_row(Message(record=record), reader), strict=True))
                kinds[row["kind"]] = kinds.get(row["kind"], 0) + 1
                assert (
                    row["kind"] == "tombstone"
                    or row["problem"]
                    or row["op"] in ("t", None)
                    or not keys
                    or row["row_key"]
                )
    assert kinds["change"] > kinds["tombstone"] > 0
