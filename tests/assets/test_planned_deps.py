"""What the manifest knows of further inputs are dependencies of assets."""

from typing import Any

import dagster as dg
import pytest

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.lineage.manifest import Manifest, PlannedTable
from lakechime_dagster.tables.declare import spark_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.tables import SourceTable

orders, rates = (
    SourceTable("bronze.orders"),
    SourceTable("bronze.rates", storage=Storage(partitioned_by={"day": "date"})),
)


@spark_table("silver.paid", reads={"orders": orders.changes()})
def paid(orders: Any) -> Any:
    return orders


@spark_table("gold.daily", reads={"paid": paid.snapshot()}, refresh="full")
def daily(paid: Any) -> Any:
    return paid


def make_manifest(table: str, *inputs: str, lake: str = "shop") -> Manifest:
    return Manifest(
        lake=lake, tables={table: PlannedTable(target=table, inputs=inputs, code="code")}
    )


def parents(manifest: Manifest | None, table: str = "silver.paid") -> set[str]:
    definitions = build_definitions(Lake("shop", [orders, rates, paid, daily]), manifest=manifest)
    dg.Definitions.validate_loadable(definitions)
    graph = definitions.resolve_asset_graph()
    return {key.to_user_string() for key in graph.get(dg.AssetKey(table.split("."))).parent_keys}


def test_an_input_that_the_manifest_knows_is_a_dependency_beside_the_declared_ones() -> None:
    assert parents(None) == {"bronze/orders"}
    assert parents(make_manifest("silver.paid", "bronze.orders", "bronze.rates")) == {
        "bronze/orders",
        "bronze/rates",
    }


def test_what_is_outside_of_the_lake_and_the_manifest_of_another_lake_add_nothing() -> None:
    assert parents(make_manifest("silver.paid", "bronze.orders", "file//data/rates")) == {
        "bronze/orders"
    }
    assert parents(make_manifest("silver.paid", "bronze.rates", lake="another")) == {
        "bronze/orders"
    }


def test_a_cycle_through_the_manifest_is_refused_with_its_path() -> None:
    with pytest.raises(DeclarationError, match=r"lineage\.json: is a cycle") as refused:
        parents(make_manifest("silver.paid", "gold.daily"))
    assert "gold.daily" in str(refused.value)
