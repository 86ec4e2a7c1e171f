"""What the names of topics report are columns of the rows, of their keys too."""

from dataclasses import replace

from lakechime_dagster.cdc.change import Operation
from lakechime_dagster.cdc.job import MessageFormat
from lakechime_dagster.cdc.record import Changes, Record, Tombstone, Unreadable
from lakechime_dagster.tables.databases import Debezium
from tests.cdc.factories import envelope_schema, make_payload, make_record

READER = MessageFormat(
    envelope=Debezium(), keys=("shard", "id"), shards=r"shop\.(?P<shard>\w+)\.orders_(?P<part>\d+)"
).reader()


def message(op: str, topic: str = "shop.eu.orders_07", **images: object) -> Record:
    return replace(make_record(make_payload(op, **images), schema=envelope_schema()), topic=topic)


def read(record: Record) -> Changes:
    found = READER.read(record)
    assert isinstance(found, Changes)
    return found


def test_a_row_has_the_columns_that_its_topic_reports() -> None:
    found = read(message("c", after={"id": 1, "name": "Ann", "amount": 5}))
    assert found.types == {
        "shard": "string",
        "part": "string",
        "id": "int",
        "name": "string",
        "amount": "bigint",
    }
    assert [(one.key, one.columns) for one in found.changes] == [
        (("eu", 1), {"shard": "eu", "part": "07", "id": 1, "name": "Ann", "amount": 5})
    ]


def test_a_deletion_is_of_its_own_shard() -> None:
    (change,) = read(message("d", before={"id": 1, "name": "Ann", "amount": 5})).changes
    assert (change.operation, change.key, change.columns) == (Operation.DELETE, ("eu", 1), {})


def test_a_key_change_stays_in_its_shard() -> None:
    before, after = {"id": 1, "name": "Ann", "amount": 5}, {"id": 2, "name": "Ann", "amount": 5}
    deletion, upsert = read(message("u", before=before, after=after)).changes
    assert (deletion.key, upsert.key, upsert.continues) == (("eu", 1), ("eu", 2), ("eu", 1))


def test_a_tombstone_is_of_its_own_shard() -> None:
    found = READER.read(
        replace(make_record(schema=envelope_schema()), topic="shop.eu.orders_07", value=None)
    )
    assert isinstance(found, Tombstone)
    assert found.key == ("eu", 1)


def test_a_topic_that_reports_no_columns_is_not_guessed_at() -> None:
    found = READER.read(message("c", topic="shop.orders", after={"id": 1}))
    assert isinstance(found, Unreadable)
    assert found.reason.startswith("topic: 'shop.orders' does not match shards=")
