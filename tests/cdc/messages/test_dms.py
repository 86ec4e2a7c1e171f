"""AWS DMS's messages become changes of rows, in the order of MySQL's binlog where they report it."""

import datetime
import json
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.cdc.change import DELETE, UPSERT, Change, Operation, Order
from lakechime_dagster.cdc.record import Control, Record, Unreadable
from lakechime_dagster.cdc.row_messages import DmsReader
from lakechime_dagster.tables.databases import Dms
from tests.cdc.histories import TOPIC, TYPES, Row, Statement, changed, changes_of, folded, history

ANN = {"id": 1, "name": "Ann", "amount": 5}  # `at` is null
READ_ANN = {"id": 1, "name": "Ann", "amount": Decimal("5.00"), "at": None}
BINLOG = "mysql-bin-changelog.000012:1234:-1:1300:677883278264080:mysql-bin-changelog.000012:1100"
WAL = "00000002/7C007178.3.00000002/7C007178"
COMMITTED = {
    "commit-timestamp": "2023-11-14T22:13:20.123456Z",
    "transaction-id": 77,
    "transaction-record-id": 2,
}
READER = DmsReader(Dms(), ("id",), TYPES)


def make_record(
    operation: str = "insert", *, offset: int = 7, metadata: object = ..., **others: Any
) -> Record:
    reported = {
        "timestamp": "2023-11-14T22:13:21.000000Z",
        "record-type": "data",
        "operation": operation,
        "partition-key-type": "schema-table",
        "schema-name": "shop",
        "table-name": "orders",
    }
    reported |= metadata if isinstance(metadata, dict) else {}
    message = (
        {"data": ANN}
        | others
        | {"metadata": reported if metadata is ... or isinstance(metadata, dict) else metadata}
    )
    return Record(topic=TOPIC, value=json.dumps(message).encode(), offset=offset)


def at(rank: int = 0, position: tuple[int, ...] = (), item: int = 0) -> Order:
    return Order(position=position, rank=rank, topic=TOPIC, partition=0, offset=7, item=item)


@pytest.mark.parametrize(
    ("kind", "operation"), [("insert", Operation.CREATE), ("update", Operation.UPDATE)]
)
@pytest.mark.parametrize(
    ("position", "order"),
    [
        (BINLOG, at(UPSERT, (12, 1234, 2))),
        (WAL, at()),
        ("00000028:00000189:0003", at()),
        (None, at()),
    ],
)
def test_a_row_is_one_change(
    kind: str, operation: Operation, position: str | None, order: Order
) -> None:
    """A position that is not of a binlog is none."""
    (change,) = changes_of(
        READER, make_record(kind, metadata=COMMITTED | {"stream-position": position})
    )
    assert change == Change(
        source="shop.orders",
        operation=operation,
        order=order,
        key=(1,),
        columns=READ_ANN,
        event_ms=1_700_000_000_123,
    )


def test_a_row_of_a_full_load_was_read_before_all_that_has_a_position() -> None:
    (read,) = changes_of(READER, make_record("load", offset=9))
    assert (read.operation, read.snapshot, read.order) == (
        Operation.READ,
        "load",
        at()._replace(offset=9),
    )
    (reported,) = changes_of(
        READER, make_record("update", metadata={"stream-position": BINLOG}, offset=1)
    )
    assert (reported.snapshot, reported.event_ms) == (None, None)
    assert read.order < reported.order


@pytest.mark.parametrize(
    "others",
    [
        {"before-image": {"id": 9}},
        {"before": {"id": "9", "name": "Bob"}},
        {"data": ANN | {"BI_id": 9, "BI_colour": "red"}},
        {"data": ANN | {"BI_name": "Bob"}, "before-image": {"id": 9}},
    ],
)
def test_a_before_image_with_another_key_is_the_end_of_it_and_its_row_goes_on(
    others: dict[str, Any],
) -> None:
    for position, orders in [
        (BINLOG, [at(DELETE, (12, 1234, 0)), at(UPSERT, (12, 1234, 0))]),
        (WAL, [at(), at(item=1)]),
    ]:
        old, new = changes_of(
            READER, make_record("update", metadata={"stream-position": position}, **others)
        )
        assert [change.order for change in (old, new)] == orders
        assert (old.operation, old.key, old.columns, old.continues) == (
            Operation.DELETE,
            (9,),
            {},
            None,
        )
        assert (new.operation, new.key, new.columns, new.continues) == (
            Operation.UPDATE,
            (1,),
            READ_ANN,
            (9,),
        )


def test_a_declared_column_is_one_of_the_row_however_it_is_named() -> None:
    reader = DmsReader(Dms(), ("id",), {"id": "int", "BI_id": "int"})
    (change,) = changes_of(reader, make_record("update", data={"id": 1, "BI_id": 9}))
    assert (change.columns, change.continues) == ({"id": 1, "BI_id": 9}, None)
    other = DmsReader(Dms(before_prefix="old-"), ("id",), {"id": "int"})
    assert [
        change.key
        for change in changes_of(other, make_record("update", data={"id": 1, "old-id": 9}))
    ] == [(9,), (1,)]


def test_a_column_that_a_row_lacks_is_null_unless_nulls_are_written() -> None:
    record = make_record("update")
    assert changes_of(DmsReader(Dms(), ("id",), TYPES), record)[0].columns == READ_ANN
    (change,) = changes_of(DmsReader(Dms(omits_nulls=False), ("id",), TYPES), record)
    assert change.columns == {name: READ_ANN[name] for name in ANN}


def test_a_truncation_is_one_of_its_whole_source() -> None:
    record = make_record("truncate-table", metadata={"record-type": "control"}, control={})
    assert changes_of(READER, record) == (
        Change(source="shop.orders", operation=Operation.TRUNCATE, order=at()),
    )


@pytest.mark.parametrize(
    "operation",
    ["create-table", "drop-table", "rename-table", "add-column", "change-columns", "load"],
)
def test_other_control_records_change_no_rows(operation: str) -> None:
    assert (
        READER.read(make_record(operation, metadata={"record-type": "control"}, control={}))
        is Control.SCHEMA_CHANGE
    )


NO_OPERATION = (
    "metadata.operation: a message of AWS DMS about a row has one of load, insert, update, delete, "
    "not"
)
UNREADABLE = [
    (make_record(metadata=None), "metadata: it is an object, not None"),
    (make_record("merge"), f"{NO_OPERATION} 'merge'"),
    (make_record("truncate-table"), f"{NO_OPERATION} 'truncate-table'"),
    (make_record(metadata={"schema-name": None}), "metadata.schema-name: it is text, not None"),
    (make_record("update", before=[1]), "before: it is an object, not [1]"),
    (
        make_record("update", data=ANN | {"BI_id": "x"}),
        "data.id: 'x' is no int: it is a whole number",
    ),
    (
        make_record("update", before={}, after={}),
        "before, after: beside data and metadata a message of AWS DMS has a before image at most",
    ),
]


@pytest.mark.parametrize(("record", "said"), UNREADABLE, ids=[said[:60] for _, said in UNREADABLE])
def test_what_cannot_be_read_says_why_and_does_not_end_the_reading(
    record: Record, said: str
) -> None:
    assert READER.read(record) == Unreadable(said)


def messages(
    statements: list[Statement], dice: random.Random, *, has_positions: bool
) -> Iterator[Record]:
    """A message for each row; those of one statement have one position, which rows of a full load
    have not.
    """
    offset = 0
    for number, statement in enumerate(statements):
        position = {
            "stream-position": f"mysql-bin-changelog.{99 + number // 3:06}:{1000 - 300 * (number // 3) + 120 * number}:-1"
        }
        if statement.kind == "truncate":
            position["record-type"] = "control"
        for step, (old, new) in enumerate(statement.rows or [({}, {})]):
            kind = {"read": "load", "truncate": "truncate-table"}.get(
                statement.kind, statement.kind
            )
            metadata: dict[str, Any] = (
                position
                if has_positions and kind != "load"
                else {**position, "stream-position": None}
            )
            data, others = natural(old if kind == "delete" else new), {}
            if kind == "update" and dice.random() < 0.5:
                others = {"before-image": natural(changed(old, new))}
            elif kind == "update":
                data |= {f"BI_{name}": value for name, value in natural(changed(old, new)).items()}
            yield make_record(
                kind,
                data=data,
                metadata={**metadata, "transaction-record-id": step},
                offset=offset,
                **others,
            )
            offset += 1


def natural(row: Row) -> dict[str, Any]:
    written = {datetime.datetime: lambda one: f"{one.isoformat()}Z", Decimal: float}
    return {
        name: written.get(type(value), lambda one: one)(value)
        for name, value in row.items()
        if value is not None
    }


@given(seed=st.integers(0, 2**32), length=st.integers(0, 12), has_positions=st.booleans())
def test_any_history_is_reported(seed: int, length: int, has_positions: bool) -> None:
    dice = random.Random(seed)
    statements, rows = history(
        dice, length, ("read", "insert", "insert", "update", "update", "delete", "truncate")
    )
    assert folded(READER, messages(statements, dice, has_positions=has_positions), dice) == rows
