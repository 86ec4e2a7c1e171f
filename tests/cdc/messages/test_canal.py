"""Canal's flat messages become changes of rows, in the order of their topic."""

import json
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.cdc.change import Change, Operation, Order
from lakechime_dagster.cdc.record import Control, OtherTable, Record, TableFilter, Unreadable
from lakechime_dagster.cdc.row_messages import CanalReader
from lakechime_dagster.tables.databases import Canal
from tests.cdc.histories import TOPIC, TYPES, Row, Statement, changed, changes_of, folded, history

ANN = {"id": "1", "name": "Ann", "amount": "5.00", "at": None}
READ_ANN = {"id": 1, "name": "Ann", "amount": Decimal("5.00"), "at": None}
READER = CanalReader(Canal(), ("id",), TYPES)


def make_record(kind: str | None = "INSERT", *, offset: int = 7, **others: Any) -> Record:
    beside = {
        "id": 3,
        "database": "shop",
        "table": "orders",
        "pkNames": ["id"],
        "isDdl": False,
        "es": 1_700_000_000_000,
        "ts": 1_700_000_000_123,
    }
    message = (
        beside
        | {"sql": "", "sqlType": {}, "mysqlType": {}, "data": [ANN], "old": None, "type": kind}
        | others
    )
    return Record(topic=TOPIC, value=json.dumps(message).encode(), offset=offset)


def at(item: int, offset: int = 7) -> Order:
    return Order(topic=TOPIC, partition=0, offset=offset, item=item)


def test_a_row_is_one_change() -> None:
    for kind, operation in [("INSERT", Operation.CREATE), ("UPDATE", Operation.UPDATE)]:
        (change,) = changes_of(READER, make_record(kind))
        assert change == Change(
            source="shop.orders",
            operation=operation,
            order=at(0),
            key=(1,),
            columns=READ_ANN,
            event_ms=1_700_000_000_000,
        )


def test_rows_of_one_message_are_in_their_order() -> None:
    changes = changes_of(READER, make_record(data=[ANN, ANN | {"id": "2"}, ANN | {"id": "3"}]))
    assert [change.key for change in changes] == [(1,), (2,), (3,)]
    assert sorted(changes, key=lambda change: change.order) == list(changes)
    assert len({change.order for change in changes}) == 3


def test_a_change_of_the_key_is_the_end_of_the_old_one_and_goes_on_with_its_row() -> None:
    """Among other rows of the message, of which the first one's new key is the old one's."""
    record = make_record(
        "UPDATE", data=[ANN | {"id": "2"}, ANN], old=[{"id": "1"}, {"id": "9", "name": "Bob"}]
    )
    first, second, third, fourth = changes_of(READER, record)
    assert [change.operation for change in (first, second, third, fourth)] == [
        Operation.DELETE,
        Operation.UPDATE,
    ] * 2
    assert [(change.key, change.continues) for change in (first, second)] == [
        ((1,), None),
        ((2,), (1,)),
    ]
    assert [(change.key, change.continues) for change in (third, fourth)] == [
        ((9,), None),
        ((1,), (9,)),
    ]
    assert [change.order for change in (first, second, third, fourth)] == [
        at(0),
        at(1),
        at(2),
        at(3),
    ]
    assert (third.columns, fourth.columns) == ({}, READ_ANN)
    assert second.order.before_deletion() == first.order


def test_a_key_may_be_of_several_columns() -> None:
    reader = CanalReader(Canal(), ("name", "id"), TYPES)
    old, new = changes_of(reader, make_record("UPDATE", old=[{"name": "Bob"}]))
    assert (old.key, new.key) == (("Bob", 1), ("Ann", 1))


def test_bytes_are_characters() -> None:
    reader = CanalReader(Canal(), ("id",), {"id": "int", "raw": "binary"})
    (change,) = changes_of(reader, make_record(data=[{"id": "1", "raw": "\x00ÿ"}]))
    assert change.columns == {"id": 1, "raw": b"\x00\xff"}


@pytest.mark.parametrize(
    "message",
    [
        {"type": "TRUNCATE", "isDdl": True, "sql": "truncate table orders"},
        {"type": "TRUNCATE", "isDdl": False},
        {"type": "QUERY", "isDdl": True, "sql": "TRUNCATE TABLE `orders`;"},
        {"type": "QUERY", "isDdl": True, "sql": "/* nightly\njob */ truncate shop.orders"},
    ],
)
def test_a_truncation_is_one_of_its_whole_source(message: dict[str, Any]) -> None:
    (change,) = changes_of(READER, make_record(**message, data=None))
    assert change == Change(
        source="shop.orders", operation=Operation.TRUNCATE, order=at(0), event_ms=1_700_000_000_000
    )


@pytest.mark.parametrize(
    ("kind", "sql"),
    [
        ("ALTER", "ALTER TABLE orders ADD COLUMN colour TEXT"),
        ("ALTER", "ALTER TABLE orders TRUNCATE PARTITION p0"),
        ("QUERY", "TRUNCATE TABLE customers"),
        ("QUERY", "TRUNCATE TABLE old.orders"),
        ("QUERY", "create table x (a text default 'truncate table orders')"),
        ("ERASE", "DROP TABLE orders"),
        ("INSERT", None),
    ],
)
def test_other_ddl_changes_no_rows(kind: str, sql: str | None) -> None:
    assert READER.read(make_record(kind, isDdl=True, sql=sql, data=None)) is Control.SCHEMA_CHANGE


UNREADABLE = [
    (
        make_record("QUERY"),
        (
            "type: a message of Canal about a row has one of INSERT, UPDATE, DELETE, TRUNCATE, not "
            "'QUERY'"
        ),
    ),
    (make_record(data=[]), "data: a message of Canal that is no DDL has rows there, not []"),
    (
        make_record(data=ANN | {"at": 1}),
        f"data: a message of Canal that is no DDL has rows there, not {repr(ANN | {'at': 1})[:80]}",
    ),
    (make_record(data=[ANN, 5]), "data[1]: it is an object, not 5"),
    (
        make_record("UPDATE", old=[{}, {}]),
        "old: it is null, or has a row for each of the 1 of data, not [{}, {}]",
    ),
    (make_record("UPDATE", old=["2"]), "old[0]: it is an object, not '2'"),
    (
        make_record(data=[ANN, {"id": None}]),
        "data[1].id: a column of the key has a value in each row, this one has None",
    ),
]


@pytest.mark.parametrize(("record", "said"), UNREADABLE, ids=[said[:60] for _, said in UNREADABLE])
def test_what_cannot_be_read_says_why_and_does_not_end_the_reading(
    record: Record, said: str
) -> None:
    assert READER.read(record) == Unreadable(said)


def test_a_key_without_a_type_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^keys: no type is declared for code; name it in types=$"
    ):
        CanalReader(Canal(), ("id", "code"), TYPES)


def messages(statements: list[Statement]) -> Iterator[Record]:
    """A message for each statement, with all of its rows."""
    for offset, statement in enumerate(statements):
        reported = [old if statement.kind == "delete" else new for old, new in statement.rows]
        before = (
            [texts(changed(old, new)) for old, new in statement.rows]
            if statement.kind == "update"
            else None
        )
        yield make_record(
            statement.kind.upper(),
            data=[texts(row) for row in reported] or None,
            old=before,
            offset=offset,
        )


def texts(row: Row) -> dict[str, str | None]:
    return {name: None if value is None else str(value) for name, value in row.items()}


@given(seed=st.integers(0, 2**32), length=st.integers(0, 12))
def test_any_history_is_reported(seed: int, length: int) -> None:
    dice = random.Random(seed)
    statements, rows = history(
        dice, length, ("insert", "insert", "update", "update", "delete", "truncate")
    )
    assert folded(READER, messages(statements), dice) == rows


def test_only_the_messages_of_accepted_tables_are_read() -> None:
    """Neither the rows nor a truncation of another table."""
    reader = CanalReader(Canal(), ("id",), TYPES, only=TableFilter("shop", "orders"))
    assert len(changes_of(reader, make_record())) == 1
    assert reader.read(make_record(table="people", data=[{"ssn": "1"}])) == OtherTable(
        "shop.people"
    )
    truncation = make_record(
        "TRUNCATE", isDdl=True, sql="TRUNCATE TABLE people", table="people", data=None
    )
    assert reader.read(truncation) == OtherTable("shop.people")
