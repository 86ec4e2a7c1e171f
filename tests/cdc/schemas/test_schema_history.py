"""Which columns a table had at which place of its log, by what was read of them."""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

import pytest

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.change import Order
from lakechime_dagster.cdc.schema import SchemaHistory
from lakechime_dagster.cdc.state import TableSchema, needed
from lakechime_dagster.tables.databases import Debezium
from tests.cdc.factories import BINLOG, TOPIC, reported_once

TABLE = "shop.orders"


def read(at: int, **columns: str) -> TableSchema:
    return TableSchema(
        table=TABLE, order=Order(position=(3, at)), columns=columns, dialect=Dialect.MYSQL
    )


def columns(*schemas: TableSchema, at: int) -> Mapping[str, str]:
    """The types of all columns that a row may have there."""
    return SchemaHistory(schemas, Debezium()).columns(BINLOG | {"pos": at, "row": 1}, {}, TOPIC).ddl


def test_readings_that_agree_say_what_was_between_them_and_before_the_first() -> None:
    some = [
        read(10, id="int", gone="text"),
        read(20, id="int", note="text"),
        read(30, id="int", note="text"),
    ]
    assert columns(*some, at=5) == {"id": "int", "gone": "string"}
    # which of both it had the message itself says
    assert columns(*some, at=15) == {"id": "int", "gone": "string", "note": "string"}
    assert columns(*some, at=25) == columns(*some, at=35) == {"id": "int", "note": "string"}


@pytest.mark.parametrize(
    ("before", "after", "known"),
    [
        ("int(11)", "bigint(20)", "bigint"),
        ("bigint(20)", "smallint(6)", "bigint"),
        ("varchar(10)", "text", "string"),
        ("decimal(10,2)", "decimal(12,2)", "decimal(12,2)"),
        ("decimal(10,2)", "decimal(10,3)", None),
        ("datetime(3)", "datetime(6)", None),
        ("int(11)", "varchar(10)", None),
        ("int(10) unsigned", "bigint(20) unsigned", "decimal(20,0)"),
        ("bigint(20)", "bigint(20) unsigned", None),
    ],
)
def test_between_readings_that_differ_a_column_is_in_doubt_where_its_values_are_written_otherwise(
    before: str, after: str, known: str | None
) -> None:
    readings = read(10, a=before), read(20, a=after)
    if known is not None:
        assert columns(*readings, at=15) == {"a": known}
        return
    with pytest.raises(ValueError, match=r"a: it was .* when shop\.orders was read at"):
        columns(*readings, at=15)


def test_a_row_has_the_columns_that_it_brings_and_others_are_not_guessed() -> None:
    history = SchemaHistory(
        [read(10, id="int", amount="decimal(10,2)", position="point")], Debezium()
    )
    source = BINLOG | {"pos": 11}
    assert history.columns(source, {"amount": "AQ==", "id": 1}, TOPIC).ddl == {
        "amount": "decimal(10,2)",
        "id": "int",
    }
    with pytest.raises(ValueError, match=f"x: no such column of {TABLE} is known"):
        history.columns(source, {"id": 1, "x": 2}, TOPIC)
    with pytest.raises(ValueError, match=r"the columns of shop\.other"):
        history.columns(source | {"table": "other"}, {"id": 1}, TOPIC)


def test_a_column_of_a_type_that_cannot_be_read_is_text_and_the_row_is_read() -> None:
    history = SchemaHistory([read(10, id="int", position="point", shape="geometry")], Debezium())
    sent = {
        "id": 1,
        "position": {"x": 1.5, "wkb": "AQ=="},
        "shape": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
    }
    known = history.columns(BINLOG | {"pos": 11}, sent, TOPIC)
    assert known.ddl == {"id": "int", "position": "string", "shape": "string"}
    # `shape` was not sent
    assert known.read(sent) == {"id": 1, "position": '{"x":1.5,"wkb":"AQ=="}'}


@pytest.mark.parametrize(
    ("source", "topic", "table"),
    [
        ({"table": "orders"}, "m.shop.orders", "shop.orders"),  # `add.fields=table`
        ({}, "m.shop.people", "shop.people"),  # the row alone
        ({}, "shop.people", "shop.people"),
        ({"table": "people"}, "everything", "shop.people"),
        ({"db": "shop", "table": "orders"}, "m.shop.people", "shop.orders"),
        ({}, "everything", None),
        ({"db": "test", "table": "orders"}, "m.shop.orders", None),
        ({"table": "gone"}, "m.shop.orders", None),
    ],
)
def test_a_flattened_row_is_of_the_table_that_it_or_its_topic_names(
    source: dict[str, str], topic: str, table: str | None
) -> None:
    of_people = replace(read(10, ssn="int"), table="shop.people")
    history = SchemaHistory([read(10, id="int"), of_people], Debezium())
    if table is None:
        with pytest.raises(ValueError, match="the columns of"):
            history.columns(source, {}, topic)
    else:
        assert set(history.columns(source, {}, topic).ddl) == {"id" if table == TABLE else "ssn"}


def test_a_bigint_unsigned_is_read_without_a_sign_where_its_type_is_known() -> None:
    """Debezium writes it with one by default."""
    known = SchemaHistory([read(10, id="bigint(20) unsigned")], Debezium()).columns(
        BINLOG | {"pos": 11}, {"id": -1}, TOPIC
    )
    assert (known.ddl, known.read({"id": -1})) == (
        {"id": "decimal(20,0)"},
        {"id": Decimal(2**64 - 1)},
    )
    of_message = {
        "field": "id",
        "type": "int64",
        "parameters": {"__debezium.source.column.type": "BIGINT UNSIGNED"},
    }
    assert reported_once(of_message).known.read({"id": -2}) == {"id": Decimal(2**64 - 2)}
    assert reported_once(("id", "int64", False)).known.read({"id": -2}) == {"id": -2}


def test_a_flattened_row_in_a_topic_of_any_name_is_of_the_only_table() -> None:
    history = SchemaHistory([read(10, id="int")], Debezium())
    assert history.columns({}, {"id": 1}, "everything").ddl == {"id": "int"}


def test_of_readings_that_agree_the_first_and_the_last_are_needed() -> None:
    same = [read(at, id="int") for at in (10, 20, 30, 40)]
    others = [read(50, id="bigint"), read(60, id="bigint"), read(70, id="text")]
    assert needed([*others, *reversed(same)]) == [same[0], same[3], *others]
