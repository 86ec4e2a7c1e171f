"""Lineage that the declaration reports: from the database's column or the event's field to the
table's column.
"""

from lakechime_dagster.lineage import declared
from lakechime_dagster.lineage.columns import ColumnRef, Kind, Source
from lakechime_dagster.lineage.declared import paths_of
from lakechime_dagster.silver.schema import Column, Holds, TypeSchema


def test_a_column_of_a_followed_table_comes_from_the_databases_through_the_messages() -> None:
    here = declared.following(
        "silver.orders", "silver.orders__changes", {"id": "id", "amount": "amt"}, ["id"]
    )
    through = declared.messages_of("silver.orders__changes", "mysql/shop.orders", ["id", "amt"])
    assert {column.column: column.sources for column in here.columns}["amount"] == (
        Source(ColumnRef("silver.orders__changes", "$.amt"), Kind.IDENTITY),
    )
    assert here.indirect == (Source(ColumnRef("silver.orders__changes", "$.id"), Kind.JOIN),)
    assert {column.column: column.sources for column in through.columns}["$.amt"] == (
        Source(ColumnRef("mysql/shop.orders", "amt"), Kind.IDENTITY),
    )


def test_a_column_of_a_type_comes_from_the_paths_of_its_fields() -> None:
    user = Column(
        name="user",
        field="user",
        holds=Holds.OBJECT,
        fields=(
            Column(name="id", field="id", holds=Holds.LONG),
            Column(name="Id_", field="Id", holds=Holds.STRING),
        ),
    )
    items = Column(
        name="items",
        field="items",
        holds=Holds.ARRAY,
        element=Column(name="", field="", holds=Holds.LONG),
    )
    paths = paths_of(TypeSchema((user, items)))
    assert paths == {"user": [("user", "id"), ("user", "Id")], "items": [("items",)]}
    reported = declared.of_type("game.login", "bronze.events", paths, ("type",))
    assert [str(source.ref) for column in reported.columns for source in column.sources] == [
        "bronze.events.$.user.Id",
        "bronze.events.$.user.id",
        "bronze.events.$.items",
    ]
    assert reported.indirect == (Source(ColumnRef("bronze.events", "$.type"), Kind.FILTER),)
