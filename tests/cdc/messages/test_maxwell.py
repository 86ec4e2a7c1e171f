"""Maxwell's messages become changes of rows, in the order of the binlog where they report it."""

import datetime
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.cdc.change import DELETE, READ, UPSERT, Change, Key, Operation, Order
from lakechime_dagster.cdc.record import Control, Record, Tombstone, Unreadable
from lakechime_dagster.cdc.row_messages import MaxwellReader
from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.tables.databases import Dms, Maxwell
from tests.cdc.histories import TOPIC, TYPES, Row, Statement, changed, changes_of, folded, history
from tests.cdc.merge.lake import Lake, follow_in_parts

ANN = {"id": 1, "name": "Ann", "amount": 5, "at": None}
READ_ANN = ANN | {"amount": Decimal("5.00")}
PART = {"id": 1, "name": "Ann"}
NULLED = {"id": 1, "name": "Ann", "amount": None, "at": None}
POSITION = "mysql-bin.000003:120"
READER = MaxwellReader(Maxwell(), ("id",), TYPES)


def make_record(kind: str | None = "insert", *, offset: int = 7, **others: Any) -> Record:
    message = {
        "database": "shop",
        "table": "orders",
        "type": kind,
        "ts": 1_700_000_000,
        "xid": 9,
        "commit": True,
        "data": ANN,
    } | others
    return Record(topic=TOPIC, value=json.dumps(message).encode(), offset=offset)


def at(rank: int = 0, position: tuple[int, ...] = (), item: int = 0) -> Order:
    return Order(position=position, rank=rank, topic=TOPIC, partition=0, offset=7, item=item)


@pytest.mark.parametrize(
    ("kind", "operation", "rank", "snapshot"),
    [
        ("insert", Operation.CREATE, UPSERT, None),
        ("update", Operation.UPDATE, UPSERT, None),
        ("bootstrap-insert", Operation.READ, READ, "bootstrap-insert"),
    ],
)
def test_a_row_is_one_change(
    kind: str, operation: Operation, rank: int, snapshot: str | None
) -> None:
    for position, order in [(POSITION, at(rank, (3, 120))), (None, at())]:
        (change,) = changes_of(READER, make_record(kind, position=position))
        reported = {
            "source": "shop.orders",
            "operation": operation,
            "event_ms": 1_700_000_000_000,
            "snapshot": snapshot,
        }
        assert change == Change(order=order, key=(1,), columns=READ_ANN, **reported)  # pyright: ignore[reportArgumentType]


def test_a_deletion_reports_its_key_alone_and_reads_nothing_else() -> None:
    (change,) = changes_of(
        READER, make_record("delete", position=POSITION, data={"id": 1, "amount": "no number"})
    )
    order = at(DELETE, (3, 120))
    assert change == Change(
        source="shop.orders",
        operation=Operation.DELETE,
        order=order,
        key=(1,),
        event_ms=1_700_000_000_000,
    )


def test_a_change_of_the_key_is_the_end_of_the_old_one_and_goes_on_with_its_row() -> None:
    for position, orders in [
        (POSITION, [at(DELETE, (3, 120)), at(UPSERT, (3, 120))]),
        (None, [at(), at(item=1)]),
    ]:
        old, new = changes_of(
            READER, make_record("update", position=position, old={"id": 9, "name": "Bob"})
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


@pytest.mark.parametrize("old", [None, {}, {"name": "Bob"}, {"id": "1"}, {"id": None}])
def test_what_was_before_is_no_other_key_unless_it_says_so(old: Any) -> None:
    (change,) = changes_of(READER, make_record("update", old=old))
    assert (change.key, change.continues) == ((1,), None)


def test_neither_a_transaction_nor_a_position_in_it_is_an_order() -> None:
    first, second = (
        changes_of(READER, make_record(xid=xid, xoffset=xid))[0].order for xid in (9, 3)
    )
    assert first == second


def test_a_row_of_a_bootstrap_without_a_position_comes_before_what_has_one() -> None:
    (read,) = changes_of(READER, make_record("bootstrap-insert", offset=9))
    (reported,) = changes_of(READER, make_record("update", position=POSITION, offset=1))
    assert read.order < reported.order


@pytest.mark.parametrize(
    ("kind", "envelope", "columns", "omitted"),
    [
        ("insert", Maxwell(), NULLED, ()),
        ("bootstrap-insert", Maxwell(), NULLED, ()),
        ("update", Maxwell(), PART, ()),
        ("update", Maxwell(omits_nulls=True), NULLED, ()),
        ("insert", Maxwell(omits_unchanged=True), NULLED, ()),
        ("update", Maxwell(omits_unchanged=True), PART, ("amount", "at")),
    ],
)
def test_an_inserted_row_is_whole_and_an_update_is_as_is_declared(
    kind: str, envelope: Maxwell, columns: Row, omitted: tuple[str, ...]
) -> None:
    (change,) = changes_of(MaxwellReader(envelope, ("id",), TYPES), make_record(kind, data=PART))
    assert (change.columns, change.omitted) == (columns, omitted)


def test_a_column_that_an_update_lacks_has_one_meaning() -> None:
    for envelope in (Maxwell, Dms):
        with pytest.raises(
            DeclarationError,
            match=r"null by omits_nulls and unchanged by omits_unchanged; declare omits_nulls=False",
        ):
            envelope(omits_nulls=True, omits_unchanged=True)


def test_bytes_are_base64_and_sets_are_arrays() -> None:
    reader = MaxwellReader(Maxwell(), ("id",), {"id": "int", "raw": "binary", "sizes": "string"})
    (change,) = changes_of(reader, make_record(data={"id": 1, "raw": "AP8=", "sizes": ["s", "m"]}))
    assert change.columns == {"id": 1, "raw": b"\x00\xff", "sizes": '["s","m"]'}


def test_a_fraction_in_json_is_read_exactly() -> None:
    reader = MaxwellReader(Maxwell(), ("id",), {"id": "int", "amount": "decimal(38,17)"})
    record = Record(
        topic=TOPIC,
        value=b'{"type":"insert","database":"shop","table":"orders","data":{"id":1,"amount":0.12345678901234567}}',
    )
    (change,) = changes_of(reader, record)
    assert change.columns == {"id": 1, "amount": Decimal("0.12345678901234567")}
    assert change.event_ms is None


@pytest.mark.parametrize(
    ("kind", "control"),
    [
        ("bootstrap-start", Control.SNAPSHOT),
        ("bootstrap-complete", Control.SNAPSHOT),
        ("table-create", Control.SCHEMA_CHANGE),
        ("table-alter", Control.SCHEMA_CHANGE),
        ("table-drop", Control.SCHEMA_CHANGE),
        ("database-create", Control.SCHEMA_CHANGE),
    ],
)
def test_what_concerns_no_row_is_distinguished(kind: str, control: Control) -> None:
    """Times of DDL are in milliseconds, and `old` is a table's schema."""
    record = make_record(kind, ts=1_700_000_000_123, data={}, old={"columns": []})
    assert READER.read(record) is control


@pytest.mark.parametrize("value", [None, b"null"])
def test_a_message_without_a_value_is_a_tombstone(value: bytes | None) -> None:
    assert READER.read(Record(topic=TOPIC, value=value, offset=7)) == Tombstone(None, at())


NO_TYPE = (
    "type: a message of Maxwell about a row has one of insert, update, delete, bootstrap-insert, "
    "not"
)
NO_UTF_8 = (
    "value: b'\\xff' is no JSON: str is not valid UTF-8: surrogates not allowed: line 1 column 1 "
    "(char 0)"
)
TOO_FINE = (
    "data.amount: Decimal('0.001') is no decimal(10,2): it has at most 8 digits before the point "
    "and 2 after it"
)
UNREADABLE = [
    (Record(topic=TOPIC, value=b"\xff"), NO_UTF_8),
    (Record(topic=TOPIC, value=b"5"), "value: a message of Maxwell is an object, not 5"),
    (make_record("replace"), f"{NO_TYPE} 'replace'"),
    (make_record(None), f"{NO_TYPE} None"),
    (make_record(database=5), "database: it is text, not 5"),
    (make_record(table=None), "table: it is text, not None"),
    (make_record(data="c2VjcmV0"), "data: it is an object, not 'c2VjcmV0'"),
    (make_record("update", old=[1]), "old: it is an object, not [1]"),
    (make_record("update", old={"id": "x"}), "old.id: 'x' is no int: it is a whole number"),
    (
        make_record(data={"name": "x"}),
        "data.id: a column of the key has a value in each row, this one has None",
    ),
    (
        make_record(data=ANN | {"colour": 1}),
        "data.colour: no type is declared for this column; name it in types=",
    ),
    (make_record(data=ANN | {"amount": 0.001}), TOO_FINE),
    (
        make_record(position="120"),
        "position: it is a binlog file and a byte in it, such as mysql-bin.000003:120, not '120'",
    ),
    (
        make_record(position=120),
        "position: it is a binlog file and a byte in it, such as mysql-bin.000003:120, not 120",
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
    """A message for each row; those of one statement have one position, those of a bootstrap may
    have none.
    """
    offset = 0
    for number, statement in enumerate(statements):
        for old, new in statement.rows:
            kind = "bootstrap-insert" if statement.kind == "read" else statement.kind
            others: dict[str, Any] = {"old": natural(changed(old, new))} if kind == "update" else {}
            if has_positions and (kind != "bootstrap-insert" or dice.random() < 0.5):
                others["position"] = (
                    f"mysql-bin.{99 + number // 3:06}:{1000 - 300 * (number // 3) + 120 * number}"
                )
            yield make_record(
                kind, data=natural(old if kind == "delete" else new), offset=offset, **others
            )
            offset += 1


def natural(row: Row) -> dict[str, Any]:
    written = {datetime.datetime: str, Decimal: float}
    return {name: written.get(type(value), lambda one: one)(value) for name, value in row.items()}


@given(seed=st.integers(0, 2**32), length=st.integers(0, 12), has_positions=st.booleans())
def test_any_history_is_reported(seed: int, length: int, has_positions: bool) -> None:
    dice = random.Random(seed)
    statements, rows = history(dice, length, ("read", "insert", "update", "update", "delete"))
    assert folded(READER, messages(statements, dice, has_positions=has_positions), dice) == rows


def test_columns_are_declared_in_letters_of_whatever_case() -> None:
    reader = MaxwellReader(Maxwell(), ("ID",), {"ID": "int", "Name": "string"})
    renamed, declared = {"id": 1, "NAME": "Ann"}, {"ID": 1, "Name": "Ann"}
    (change,) = changes_of(reader, make_record(data=renamed))
    assert (change.key, change.columns) == ((1,), declared)
    deletion, upsert = changes_of(reader, make_record("update", data=renamed, old={"Id": 2}))
    assert (deletion.key, upsert.key, upsert.continues) == ((2,), (1,), (2,))
    assert isinstance(
        reader.read(make_record(data={"ID": 1, "name": "Ann", "NAME": "Eve"})), Unreadable
    )


@given(seed=st.integers(0, 2**32), length=st.integers(1, 12))
def test_rows_depend_on_no_order_and_no_split_where_messages_lack_declared_columns(
    seed: int, length: int
) -> None:
    """Of a table that has a column for a while: an inserted row is whole, an update keeps what it
    does not carry.
    """
    dice = random.Random(seed)
    statements, _ = history(dice, length, ("read", "insert", "update", "update", "delete"))
    rows: dict[Key, Row] = {}
    reported: list[Statement] = []
    for statement in statements:
        gone = dice.choice([(), ("at",), ("amount", "at")])
        reported.append(
            replace(statement, rows=tuple((old, without(new, gone)) for old, new in statement.rows))
        )
        for old, new in reported[-1].rows:
            before = rows.pop((old["id"],), {}) if old else {}
            if new:
                rows[(new["id"],)] = {**dict.fromkeys(TYPES), **before, **new}
    changes = [
        change
        for record in messages(reported, dice, has_positions=True)
        for change in changes_of(READER, record)
    ]
    lake = Lake()
    follow_in_parts(lake, dice.sample(changes, len(changes)), dice)
    assert {key: {**dict.fromkeys(TYPES), **row} for key, row in lake.rows.items()} == rows


def without(row: Row, names: Sequence[str]) -> Row:
    return {name: value for name, value in row.items() if name not in names}
