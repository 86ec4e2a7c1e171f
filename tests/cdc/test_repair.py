"""Rows that are read in a database are read back, of every type, as the recorded database has them,
at the snapshot's position.
"""

import dataclasses
import re
from typing import Any

import pytest

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.change import DELETE, READ, BinlogPosition, WalPosition
from lakechime_dagster.cdc.compare import Comparison, comparison_of
from lakechime_dagster.cdc.job import MessageFormat
from lakechime_dagster.cdc.load import (
    Form,
    RowWriter,
    Texts,
    UnrepairableError,
    form_of,
    left_out,
    snapshot_position,
)
from lakechime_dagster.cdc.record import Changes, Record
from lakechime_dagster.tables.databases import Debezium, Maxwell
from tests.cdc.checksums import CAPTURES, TABLES, comparison, lake_rows, reported, topic_of
from tests.cdc.factories import BINLOG, WAL, encoded, envelope_schema, make_payload, make_record

CUT = BinlogPosition((12, 345))
AT = Record(topic="t", topic_id="lakechime-repair/t", value=None)
ORDERS = MessageFormat(envelope=Debezium(), keys=("id",))


def messages_of(name: str, table: str) -> MessageFormat:
    return MessageFormat(envelope=Debezium(), keys=CAPTURES[name].keys[topic_of(name, table)])


def writer_of(name: str, table: str) -> RowWriter:
    first = next(
        record for record in CAPTURES[name].of(topic_of(name, table)) if record.value is not None
    )
    form = form_of(table, first, messages_of(name, table), 1_700_000_000_000)
    position = snapshot_position(
        form, WalPosition(346) if form.connector == "postgresql" else CUT, 12
    )
    return RowWriter(
        form=form,
        position=position,
        comparison=comparison(name, table, reported(name, table).types),
    )


def texts(compared: Comparison, row: Any) -> Texts:
    return {
        name: None if row[name] is None else one.twin(row[name])
        for name, one in compared.columns.items()
    }


@pytest.mark.parametrize(("name", "table"), TABLES)
def test_a_row_of_the_database_is_read_back_as_the_lake_has_it(name: str, table: str):
    writer, reader = writer_of(name, table), messages_of(name, table).reader()
    for row in lake_rows(name, table):
        whole = texts(writer.comparison, row)
        key = tuple(str(whole[one]) for one in writer.comparison.keys)
        for record, rank in (
            (writer.record(AT, key, whole), READ),
            (writer.record(AT, key, None), DELETE),
        ):
            reading = reader.read(record)
            assert isinstance(reading, Changes)
            (change,) = reading.changes
            assert (change.order.position, change.order.rank) == (
                (12, 345, 0)[: 3 if name.startswith("mariadb") else 2],
                rank,
            )
            assert change.key == tuple(row[one] for one in writer.comparison.keys)
            if rank == READ:
                assert {one: repr(value) for one, value in change.columns.items()} == {
                    one: repr(spelled(name, table, one, row[one]))
                    for one in writer.comparison.columns
                }


def spelled(name: str, table: str, column: str, value: Any) -> Any:
    """What a text means says nothing of these: blanks at the end, zeros at the end, the sign of
    zero.
    """
    compared = comparison(name, table, reported(name, table).types).columns[column]
    if (
        isinstance(value, str)
        and column != "d65"
        and compared.kind.value in ("padded text", "number", "uuid")
    ):
        return compared.twin(value)
    return value + 0.0 if isinstance(value, float) else value


def test_a_value_that_would_become_another_one_is_refused_by_its_column():
    writer = writer_of("mariadb-types", "numbers")
    row = texts(writer.comparison, lake_rows("mariadb-types", "numbers")[0])
    column = next(
        one
        for one, ddl in writer.form.types.items()
        if ddl == "int" and one not in writer.comparison.keys
    )
    for ddl, problem in (("boolean", "would become"), ("array<int>", "is no value of array<int>")):
        odd = dataclasses.replace(
            writer, form=dataclasses.replace(writer.form, types={**writer.form.types, column: ddl})
        )
        with pytest.raises(
            UnrepairableError, match=f"numbers: column {column}.* {re.escape(problem)}"
        ):
            odd.record(AT, ("1",), {**row, column: "7"})


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (
            make_record(),
            "the types of its columns are not known yet, as its messages have no schema",
        ),
        (
            make_record(
                make_payload(source={**WAL, "connector": "sqlserver"}), schema=envelope_schema()
            ),
            "no position of MariaDB's",
        ),
        (
            make_record(make_payload(source={**WAL, "sequence": None}), schema=envelope_schema()),
            "no position of MariaDB's",
        ),
    ],
)
def test_a_table_whose_messages_have_no_order_among_rows_that_are_read_is_refused(
    record: Record, problem: str
):
    with pytest.raises(UnrepairableError, match=f"shop.orders: .*{problem}"):
        form_of("shop.orders", record, ORDERS, None)


def test_rows_of_a_table_of_another_tool_are_written_alike():
    messages = MessageFormat(
        envelope=Maxwell(), keys=("id",), types={"id": "int", "name": "string", "at": "string"}
    )
    payload = {
        "database": "shop",
        "table": "orders",
        "type": "update",
        "ts": 1_700_000_000,
        "position": "mysql-bin.000012:345",
        "data": {"id": 1, "name": "a", "at": "12:30:00.250"},
        "old": {"name": "b"},
    }
    form = form_of("shop.orders", make_record(payload), messages, 1_700_000_000_000)
    source = {"id": "int(11)", "at": "time(3)"}
    position = snapshot_position(form, CUT, 0)
    writer = RowWriter(
        form=form,
        position=position,
        comparison=comparison_of(Dialect.MYSQL, source, form.types, ["id"]),
    )
    reading = messages.reader().read(writer.record(AT, ("7",), {"id": "7", "at": "01:02:03."}))
    assert isinstance(reading, Changes)
    (change,) = reading.changes
    assert (change.source, change.order.position, change.columns, change.omitted) == (
        "shop.orders",
        (12, 345),
        {"id": 7, "at": "01:02:03.000"},
        ("name",),
    )


def form(**source: object) -> Form:
    return form_of(
        "shop.orders",
        make_record(make_payload(source=source), schema=envelope_schema()),
        ORDERS,
        None,
    )


def test_a_snapshot_of_postgresql_is_above_what_was_streamed_and_below_what_comes_later() -> None:
    assert snapshot_position(form(**WAL), WalPosition(500), 90) == (90, 499)


def test_a_snapshot_of_another_server_than_the_connectors_is_refused() -> None:
    remedy = r"let Monitor\(database=…\) name the server that the connector reads"
    with pytest.raises(
        UnrepairableError,
        match=rf"messages have log 0/5A, which the database, at log 0/59, has not reached; {remedy}",
    ):
        snapshot_position(form(**WAL), WalPosition(89), 90)
    with pytest.raises(
        UnrepairableError,
        match=rf"its messages are those of mariadb, and log 0/1F4 is no position of it; {remedy}",
    ):
        snapshot_position(form(**BINLOG), WalPosition(500), 0)
    with pytest.raises(
        UnrepairableError,
        match=(
            rf"its messages are those of postgresql, and binlog 12:345 is no position of it; "
            rf"{remedy}"
        ),
    ):
        snapshot_position(form(**WAL), CUT, 90)


@pytest.mark.parametrize(
    ("source", "reported", "lake", "lacking"),
    [
        (["id", "b"], ["id", "b"], ["id", "a", "b"], []),  # a was dropped, or b was a before
        # it may be amount by another name
        (["id", "amount"], ["id", "amount"], ["id", "amt"], ["amt"]),
        (["id", "a"], ["id"], ["id", "a"], ["a"]),  # no message of it yet
        (["id"], ["id", "a"], ["id", "a"], ["a"]),  # dropped, and the messages do not know that yet
    ],
)
def test_a_column_that_is_gone_need_not_be_read(
    source: list[str], reported: list[str], lake: list[str], lacking: list[str]
) -> None:
    form = Form(
        table="shop.orders",
        source="",
        connector="mysql",
        newest_ms=None,
        types=dict.fromkeys(reported, "int"),
    )
    compared = comparison_of(
        Dialect.MYSQL, dict.fromkeys(source, "int"), dict.fromkeys(lake, "int"), ["id"]
    )
    assert left_out(form, source, lake, compared) == lacking


def test_a_row_that_nobody_can_read_says_why() -> None:
    reading = ORDERS.reader().read(dataclasses.replace(AT, value=encoded({"row": {}})))
    assert "it is no row of a snapshot: KeyError('deleted')" in str(reading)
