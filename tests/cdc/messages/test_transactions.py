"""What Debezium's messages report of transactions, and which changes of them are lacking."""

import json
from dataclasses import replace
from typing import Any

import pytest

from lakechime_dagster.cdc.job import MessageFormat
from lakechime_dagster.cdc.record import (
    COLUMNS,
    Changes,
    Control,
    Message,
    Placed,
    Record,
    TransactionEnd,
    Unreadable,
    bronze_row,
)
from lakechime_dagster.tables.databases import Debezium
from tests.cdc.factories import envelope_schema, make_payload, make_record

TOPIC = "m.transaction"
READER = MessageFormat(envelope=Debezium(), keys=("id",), transactions="*.transaction").reader()
END = {
    "status": "END",
    "id": "0-1-38",
    "event_count": 3,
    "data_collections": [{"data_collection": "shop.orders", "event_count": 3}],
}
BEGIN = {
    "status": "BEGIN",
    "id": "0-1-38",
    "event_count": None,
    "data_collections": None,
    "ts_ms": 1,
}


def of_transactions(value: Any, topic: str = TOPIC) -> Record:
    return replace(make_record(value, key=None), topic=topic)


def row_of(record: Record) -> dict[str, Any]:
    return dict(zip(COLUMNS, bronze_row(Message(record), READER), strict=True))


@pytest.mark.parametrize("topic", [TOPIC, "all"])
def test_an_end_reports_its_transaction_and_the_changes_of_each_table(topic: str) -> None:
    assert READER.read(of_transactions(END, topic)) == TransactionEnd("0-1-38", {"shop.orders": 3})
    assert READER.read(
        of_transactions(END | {"event_count": 0, "data_collections": None}, topic)
    ) == TransactionEnd("0-1-38", {})
    assert READER.read(of_transactions(BEGIN, topic)) is Control.TRANSACTION


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (END | {"id": None}, "id: the end of a transaction names it, this one has None"),
        (
            END | {"data_collections": 3},
            "data_collections: the end of a transaction counts its changes by table, not 3",
        ),
        (
            END | {"data_collections": [{"data_collection": "shop.orders", "event_count": -1}]},
            (
                "data_collections: each has a name and a number of changes, not {'data_collection': "
                "'shop.orders', 'event_count': -1}"
            ),
        ),
        (
            END | {"data_collections": ["shop.orders"]},
            "data_collections: each has a name and a number of changes, not 'shop.orders'",
        ),
        (
            END | {"status": "ABORT"},
            (
                "status: a message of a topic of transactions is a BEGIN or an END, not {'status': "
                "'ABORT'"
            ),
        ),
        ([1], "status: a message of a topic of transactions is a BEGIN or an END, not [1]"),
    ],
)
def test_an_end_that_is_damaged_is_kept_and_says_why(value: Any, reason: str) -> None:
    reading = READER.read(of_transactions(value))
    assert isinstance(reading, Unreadable)
    assert reading.reason.startswith(reason)
    row = row_of(of_transactions(value))
    assert (row["kind"], row["problem"], row["value"]) == (
        "unreadable",
        reading.reason,
        json.dumps(value),
    )


def test_what_it_reports_stands_beside_the_message() -> None:
    row = row_of(of_transactions(END | {"id": "826:36898320"}))
    reported = {
        name: row[name]
        for name in ("kind", "op", "transaction", "transaction_order", "transaction_counts")
    }
    assert reported == {
        "kind": "transaction",
        "op": "END",
        "transaction": "826",
        "transaction_order": None,
        "transaction_counts": '{"shop.orders":3}',
    }


SCHEMA = envelope_schema(
    ("id", "int32", False), ("name", "string", True), ("amount", "int64", True)
)


def test_a_change_says_its_position_in_its_transaction() -> None:
    payload = make_payload(
        "c", transaction={"id": "826:36898192", "total_order": 4, "data_collection_order": 2}
    )
    row = row_of(make_record(payload, schema=SCHEMA))
    assert (
        row["kind"],
        row["transaction"],
        row["transaction_order"],
        row["transaction_counts"],
    ) == ("change", "826", 2, None)


def test_so_does_a_flattened_row_beside_its_columns() -> None:
    fields = (
        ("id", "int32", False),
        ("__transaction_id", "string", True),
        ("__transaction_data_collection_order", "int64", True),
    )
    schema = {
        "type": "struct",
        "fields": [
            {"field": name, "type": kind, "optional": optional} for name, kind, optional in fields
        ],
    }
    row = {"id": 1, "__transaction_id": "0-1-38", "__transaction_data_collection_order": 2}
    reading = READER.read(make_record(row, schema=schema))
    assert isinstance(reading, Changes)
    assert (reading.placed, set(reading.types)) == (Placed("0-1-38", 2), {"id"})


@pytest.mark.parametrize(
    "transaction",
    [
        None,
        {},
        {"id": "", "data_collection_order": 1},
        {"id": "a", "data_collection_order": "1"},
        5,
    ],
)
def test_a_change_without_a_transaction_is_in_none(transaction: Any) -> None:
    row = row_of(make_record(make_payload("r", transaction=transaction), schema=SCHEMA))
    assert (row["kind"], row["transaction"], row["transaction_order"]) == ("change", None, None)
