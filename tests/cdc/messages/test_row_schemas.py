"""Of which types the columns are that Canal, Maxwell and AWS DMS wrote, where these are read in the database."""

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pytest

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.change import Change, Operation, Order
from lakechime_dagster.cdc.readers import MessageFormat
from lakechime_dagster.cdc.record import Changes, EnvelopeReader, Record, Unreadable
from lakechime_dagster.cdc.state import TableSchema
from lakechime_dagster.tables.databases import Canal, Dms, Envelope, Maxwell

TABLE = "shop.orders"
ROW = {"id": 1, "amount": "1.50"}


def read(at: int, **columns: str) -> TableSchema:
    """The columns as they were when they were read at a place."""
    columns = {"id": "int(11)", **columns}
    return TableSchema(table=TABLE, order=Order(position=(3, at)), columns=columns, dialect=Dialect.MYSQL, is_told=False)


def reader(envelope: Envelope, readings: Iterable[TableSchema] | None, types: dict[str, str] | None = None) -> EnvelopeReader:
    tables = None if readings is None else tuple(readings)
    return MessageFormat(envelope=envelope, keys=("id",), types=types or {}, is_typed_elsewhere=True, tables=tables).reader()


def maxwell(row: dict[str, Any], at: int | None = None, kind: str = "insert", **others: Any) -> Record:
    message = {"database": "shop", "table": "orders", "type": kind, "ts": 1, "data": row, **others}
    return Record(topic="t", value=json.dumps(message if at is None else message | {"position": f"mysql-bin.000003:{at}"}).encode())


def canal(*rows: dict[str, Any], **others: Any) -> Record:
    data = [{name: None if value is None else str(value) for name, value in row.items()} for row in rows]
    message = {"database": "shop", "table": "orders", "type": "INSERT", "isDdl": False, "es": 1, "data": data, "old": None, **others}
    return Record(topic="t", value=json.dumps(message).encode())


def dms(row: dict[str, Any], at: int | None = None, **others: Any) -> Record:
    metadata = {"record-type": "data", "operation": "insert", "schema-name": "shop", "table-name": "orders"}
    place = {} if at is None else {"stream-position": f"mysql-bin.000003:{at}:-1:9:1:mysql-bin.000003:4", "transaction-record-id": 1}
    return Record(topic="t", value=json.dumps({"data": row, "metadata": {**metadata, **place, **others}}).encode())


def told(reading: object) -> tuple[dict[str, Any], dict[str, str]]:
    """The columns of the one change that a message tells, and their types."""
    assert isinstance(reading, Changes), reading
    (change,) = reading.changes
    return dict(change.columns), dict(reading.types)


def reason(reading: object) -> str:
    assert isinstance(reading, Unreadable), reading
    return reading.reason


MESSAGES = [(Maxwell(), maxwell(ROW, 15)), (Canal(), canal(ROW)), (Dms(), dms(ROW, 15))]


@pytest.mark.parametrize(("envelope", "message"), MESSAGES, ids=["maxwell", "canal", "dms"])
def test_the_types_of_columns_are_those_that_were_read(envelope: Envelope, message: Record) -> None:
    found = reader(envelope, [read(10, amount="decimal(10,2)"), read(20, amount="decimal(10,2)")]).read(message)
    assert told(found) == ({"id": 1, "amount": Decimal("1.50")}, {"id": "int", "amount": "decimal(10,2)"})
    assert told(reader(envelope, [read(10, amount="varchar(9)")]).read(message))[0] == {"id": 1, "amount": "1.50"}


LARGE = {"ID": 1, "AMOUNT": "1.50"}


@pytest.mark.parametrize(
    ("envelope", "message"),
    [(Maxwell(), maxwell(LARGE, 15)), (Canal(), canal(LARGE)), (Dms(), dms(LARGE, 15))],
    ids=["maxwell", "canal", "dms"],
)
def test_names_of_columns_are_declared_in_letters_of_whatever_case(envelope: Envelope, message: Record) -> None:
    one = TableSchema(
        table=TABLE, order=Order(position=(3, 10)), columns={"ID": "int(11)", "AMOUNT": "blob"}, dialect=Dialect.MYSQL, is_told=False
    )
    assert told(reader(envelope, [one], {"amount": "decimal(9,2)"}).read(message))[0] == {"id": 1, "amount": Decimal("1.50")}
    kept = reader(envelope, None).read(message)
    assert isinstance(kept, Changes)
    assert kept.changes[0].columns.keys() == {"id", "AMOUNT"}


@pytest.mark.parametrize(("envelope", "message"), MESSAGES, ids=["maxwell", "canal", "dms"])
def test_until_they_are_read_a_message_is_kept_as_it_is_written(envelope: Envelope, message: Record) -> None:
    found = reader(envelope, None).read(message)
    assert isinstance(found, Changes)
    (change,) = found.changes
    assert (change.source, change.operation, change.columns["amount"], found.types) == (TABLE, Operation.CREATE, "1.50", {})
    position = () if envelope == Canal() else (3, 15) if envelope == Maxwell() else (3, 15, 1)
    assert change.order.position == position


READINGS = [read(10, amount="decimal(10,2)"), read(20, amount="varchar(9)"), read(30, amount="varchar(9)")]


@pytest.mark.parametrize(("make", "envelope"), [(maxwell, Maxwell()), (dms, Dms())], ids=["maxwell", "dms"])
def test_a_message_is_read_by_the_readings_around_its_place(make: Any, envelope: Envelope) -> None:
    reading = reader(envelope, reversed(READINGS))
    assert [told(reading.read(make(ROW, at)))[1]["amount"] for at in (5, 10, 25, 30, 35)] == [
        "decimal(10,2)",
        "decimal(10,2)",
        "string",
        "string",
        "string",
    ]
    doubt = "amount: it was decimal(10,2) when shop.orders was read at (3, 10), and varchar(9) at (3, 20)"
    for at in (11, 15, 20):  # a place may be that of a change's end, so that one at 20 may be before the reading there
        assert reason(reading.read(make(ROW, at))) == f"data.{doubt}"


@pytest.mark.parametrize("message", [maxwell(ROW), maxwell(ROW, kind="bootstrap-insert")])
def test_a_message_without_a_place_is_read_only_where_all_readings_agree(message: Record) -> None:
    assert told(reader(Maxwell(), READINGS[1:]).read(message))[1]["amount"] == "string"
    assert "amount: it was decimal(10,2) when" in reason(reader(Maxwell(), READINGS).read(message))


@pytest.mark.parametrize(
    ("before", "after", "ddl", "value"),
    [
        ("int(11)", "bigint(20)", "bigint", 7),
        ("bigint(20)", "smallint(6)", "bigint", 7),
        ("int(11)", "bigint(20) unsigned", "decimal(20,0)", Decimal(7)),
        ("decimal(10,2)", "decimal(10,3)", "decimal(11,3)", Decimal("7.000")),
        ("varchar(9)", "text", "string", "7"),
    ],
)
def test_a_number_that_only_grew_is_read_by_what_holds_all_as_each_digit_is_written(
    before: str, after: str, ddl: str, value: object
) -> None:
    for one in (canal({"id": 1, "amount": 7}), canal({"id": 1, "amount": 7}, {"id": 2, "amount": 8})):
        found = reader(Canal(), [read(10, amount=before), read(20, amount=after)]).read(one)
        assert isinstance(found, Changes)
        assert (found.types["amount"], found.changes[0].columns["amount"]) == (ddl, value)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("int(11)", "varchar(9)"),
        ("float", "double"),
        ("datetime", "timestamp"),
        ("text", "blob"),
        ("decimal(38,0)", "decimal(38,10)"),
        ("date", "datetime"),
    ],
)
def test_what_is_written_otherwise_is_in_doubt(before: str, after: str) -> None:
    found = reader(Canal(), [read(10, amount=before), read(20, amount=after)]).read(canal({"id": 1, "amount": 7}))
    assert reason(found) == f"data[0].amount: it was {before} when shop.orders was read at (3, 10), and {after} at (3, 20)"


def test_a_column_in_doubt_concerns_neither_deletions_nor_rows_without_it() -> None:
    reading = reader(Canal(), READINGS)
    (change,) = changes(reading.read(canal(ROW, type="DELETE")))
    assert (change.operation, change.key) == (Operation.DELETE, (1,))
    assert told(reading.read(canal({"id": 1})))[1] == {"id": "int"}


def changes(reading: object) -> tuple[Change, ...]:
    assert isinstance(reading, Changes), reading
    return reading.changes


def test_what_is_declared_beside_is_so_at_every_place() -> None:
    assert told(reader(Canal(), READINGS, {"amount": "string"}).read(canal(ROW)))[0] == {"id": 1, "amount": "1.50"}


def test_a_column_of_a_type_that_the_lake_has_none_for_is_text_as_the_tool_writes_it() -> None:
    of_sets = reader(Maxwell(), [read(10, kinds="set('a','b')", place="point")])
    row = {"id": 1, "kinds": ["a"], "place": {"x": 1.5}}
    assert told(of_sets.read(maxwell(row, 11)))[0] == {"id": 1, "kinds": '["a"]', "place": '{"x":1.5}'}


def test_a_column_that_was_added_or_dropped_between_two_readings_is_read_by_the_one_that_has_it() -> None:
    reading = reader(Maxwell(), [read(10, gone="text"), read(20, note="text")])
    assert told(reading.read(maxwell({"id": 1, "gone": "g"}, 15)))[0] == {"id": 1, "gone": "g"}
    assert told(reading.read(maxwell({"id": 1, "note": "n"}, 15)))[1] == {"id": "int", "note": "string"}
    assert (
        reason(reading.read(maxwell({"id": 1, "gone": "g"}, 21)))
        == "data.gone: no such column of shop.orders is known at this place of the log"
    )


def test_where_nulls_are_left_out_a_column_that_a_reading_lacks_may_be_null_or_not_be_there() -> None:
    reading = reader(
        Maxwell(omits_nulls=True), [read(10, note="text"), read(20, note="text", level="int(11)"), read(30, note="text", level="int(11)")]
    )
    assert told(reading.read(maxwell({"id": 1}, 5)))[0] == {"id": 1, "note": None}
    assert told(reading.read(maxwell({"id": 1}, 25)))[0] == {"id": 1, "note": None, "level": None}
    assert told(reading.read(maxwell({"id": 1, "level": 2}, 15)))[0] == {"id": 1, "note": None, "level": 2}
    assert reason(reading.read(maxwell({"id": 1}, 15))) == (
        "data.level: it is null, or was not there, as shop.orders had it at one of (3, 10) and (3, 20) alone; let the tool write nulls"
    )
    (deleted,) = changes(reading.read(maxwell({"id": 1}, 15, kind="delete")))
    assert deleted.operation is Operation.DELETE


def test_where_unchanged_columns_are_left_out_a_row_has_what_all_readings_have() -> None:
    reading = reader(Maxwell(omits_unchanged=True), [read(10, note="text"), read(20, note="text", level="int(11)")])
    (update,) = changes(reading.read(maxwell({"id": 1}, 15, kind="update")))
    assert (update.columns, update.omitted) == ({"id": 1}, ("note",))
    (insert,) = changes(reading.read(maxwell({"id": 1}, 15)))
    assert (insert.columns, insert.omitted) == ({"id": 1, "note": None}, ())


def test_a_truncation_tells_no_columns_and_needs_none() -> None:
    truncation = canal(isDdl=True, type="TRUNCATE", sql="TRUNCATE TABLE orders", data=None)
    (change,) = changes(reader(Canal(), READINGS).read(truncation))
    assert change.operation is Operation.TRUNCATE


def test_of_another_table_nothing_was_told() -> None:
    found = reader(Maxwell(), READINGS).read(maxwell(ROW, 15, table="lines"))
    assert reason(found) == "types: nothing told the columns of shop.lines; read_from= read shop.orders"


def test_a_row_without_its_key_is_refused() -> None:
    assert reason(reader(Maxwell(), READINGS).read(maxwell({"amount": "1"}, 35))) == "keys: id is no column of the row, or of shop.orders"


def test_a_before_image_of_dms_is_no_column_unless_the_table_has_it() -> None:
    row = {"id": 2, "BI_id": 1, "amount": "1"}
    old, new = changes(reader(Dms(), READINGS[1:]).read(dms(row, 25, operation="update")))
    assert (old.key, new.key) == ((1,), (2,))
    of_table = reader(Dms(), [read(10, amount="text", BI_id="int(11)")]).read(dms(row, 15, operation="update"))
    assert told(of_table)[0] == {"id": 2, "BI_id": 1, "amount": "1"}
