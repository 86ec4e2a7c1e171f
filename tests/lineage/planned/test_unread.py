"""Which columns of its inputs a table is known not to read: by a manifest that is of its code and
leaves nothing open.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lakechime_dagster.lineage.columns import ColumnRef, Kind, Source
from lakechime_dagster.lineage.manifest import Manifest, PlannedColumn, PlannedTable, unread_columns
from lakechime_dagster.tables.declare import spark_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.tables import LakeTable, SourceTable, code_digest
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.support.declaring import grouped

ORDERS = "bronze.orders"
orders = SourceTable(ORDERS, storage=Storage(partitioned_by={"day": "date"}))
COLUMNS = ("id", "Day", "amount", "note", "City", "at")


def paid_table(**fields: Any) -> LakeTable:
    values = {
        "keys": ["id"],
        "reads": {"orders": orders.snapshot()},
        "refresh": "full",
        "trigger": SnapshotTrigger([ORDERS]),
    }
    return spark_table("silver.paid", **grouped(**values | fields))(lambda orders: orders)


def planned_of(table: LakeTable, **fields: Any) -> PlannedTable:
    """A table that takes `id` as it is and filters by `amount`."""
    read = PlannedColumn(
        name="id", type="long", sources=(Source(ColumnRef(ORDERS, "id"), Kind.IDENTITY),)
    )
    indirect = (Source(ColumnRef(ORDERS, "AMOUNT"), Kind.FILTER),)
    return replace(
        PlannedTable(name=table.name, columns=(read,), indirect=indirect, code=code_digest(table)),
        **fields,
    )


def unread(
    table: LakeTable, planned: PlannedTable | None = None, lake: str = "shop"
) -> Mapping[str, frozenset[str]]:
    source = PlannedTable(
        name=ORDERS, columns=tuple(PlannedColumn(name=name, type="long") for name in COLUMNS)
    )
    manifest = Manifest(
        lake=lake, tables={ORDERS: source, table.name: planned or planned_of(table)}
    )
    return unread_columns(Lake("shop", [orders, table]), manifest).get(table.name, {})


def test_what_takes_no_part_is_not_read_but_partition_columns_are() -> None:
    assert unread(paid_table()) == {ORDERS: {"note", "city", "at"}}


def test_columns_of_the_declarations_conditions_count_as_read() -> None:
    assert unread(paid_table(expect={"near": "CITY <> ''"})) == {ORDERS: {"note", "at"}}
    assert unread(paid_table(watermark="at")) == {ORDERS: {"note", "city"}}


def test_a_field_within_a_column_is_of_it_and_a_whole_table_is_all_of_it() -> None:
    table = paid_table()
    for name, expected in [
        ("note.text", {"city", "at"}),
        ("notes", {"note", "city", "at"}),
        (None, None),
    ]:
        planned = planned_of(
            table,
            indirect=(
                Source(ColumnRef(ORDERS, "amount"), Kind.FILTER),
                Source(ColumnRef(ORDERS, name), Kind.JOIN),
            ),
        )
        assert unread(table, planned).get(ORDERS) == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"code": "of other code"},
        {"code": None},
        {"unknown": ("an action inside",)},
        {"columns": ()},
        {"columns": (PlannedColumn(name="id", type="long", opaque=("rows of an RDD",)),)},
        {"columns": (PlannedColumn(name="id", type="long", udfs=("mapInPandas",)),)},
        {"udfs": ("Python UDF is_paid",)},
    ],
)
def test_nothing_is_known_of_other_code_nor_of_what_could_not_be_reported(
    fields: dict[str, Any],
) -> None:
    table = paid_table()
    assert unread(table, planned_of(table, **fields)) == {}
