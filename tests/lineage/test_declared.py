"""Lineage that the declaration reports: from the database's column or the event's field to the
table's column.
"""

from lakechime_dagster.lineage.columns import ColumnRef, Kind, Source
from lakechime_dagster.lineage.declared import of_cdc, of_type, paths_of
from lakechime_dagster.silver.schema import Column, Holds, TypeSchema
from lakechime_dagster.tables.cdc import CDCMerge, SourceSchema, cdc_table
from lakechime_dagster.tables.databases import Database, Debezium
from lakechime_dagster.tables.events import event_stream
from lakechime_dagster.tables.sources import JsonLines


def test_a_column_of_a_cdc_table_comes_from_the_databases_through_the_messages() -> None:
    table = cdc_table(
        "silver.orders",
        source=JsonLines("in"),
        envelope=Debezium(),
        merge=CDCMerge(keys=("id",)),
        schema=SourceSchema(
            names={"amt": "amount"}, read_from=Database("mysql://db/shop", "shop.orders")
        ),
    )
    here, through = of_cdc(table, ["id", "amount"])
    bronze = table.bronze.name
    assert {column.column: column.sources for column in here.columns}["amount"] == (
        Source(ColumnRef(bronze, "$.amt"), Kind.IDENTITY),
    )
    assert here.indirect == (Source(ColumnRef(bronze, "$.id"), Kind.JOIN),)
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
    schema = TypeSchema((user, items))
    assert paths_of(schema) == {"user": [("user", "id"), ("user", "Id")], "items": [("items",)]}
    events = event_stream("game", source=JsonLines("in")).table
    reported = of_type("game.login", events, schema)
    assert [str(source.ref) for column in reported.columns for source in column.sources] == [
        f"{events.name}.$.user.Id",
        f"{events.name}.$.user.id",
        f"{events.name}.$.items",
    ]
    assert reported.indirect == (Source(ColumnRef(events.name, "$.type"), Kind.FILTER),)
