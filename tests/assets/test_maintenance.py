"""The maintenance of a table as an asset: what a run did and saved stands on it, and on the
table.
"""

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.formats.delta import table_files
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.spark.driver import Driver
from lakechime_dagster.tables.cdc import CDCMerge, cdc_table
from lakechime_dagster.tables.databases import Debezium
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.maintenance import Maintenance
from lakechime_dagster.tables.options import Asset, Storage
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.tables.tables import SourceTable
from tests.support.tables import write

POLICY = Maintenance(min_files=2)
ORDERS = sql_table(
    "silver.orders",
    sql="SELECT id FROM bronze.orders",
    refresh="full",
    storage=Storage(maintenance=POLICY),
    asset=Asset(owner="team:shop"),
)
TOTALS = sql_table("gold.totals", sql="SELECT count(*) AS n FROM silver.orders", refresh="full")
LAKE = Lake("shop", [SourceTable("bronze.orders"), ORDERS, TOTALS])
KEPT = dg.AssetKey(["silver", "orders__maintenance"])


@pytest.fixture
def platform(home: Path) -> Platform:
    platform = open_platform()
    for _ in range(3):
        write(Path(platform.location("silver.orders")), pa.table({"id": [1]}))
    return platform


def run(tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a run says on the asset of the maintenance, and on that of the table."""
    job = build_definitions(LAKE).resolve_job_def("shop__maintenance")
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        done = job.execute_in_process(instance=instance)
    (made,) = done.asset_materializations_for_node("silver__orders__maintenance")
    (seen,) = [
        event.asset_observation_data.asset_observation
        for event in done.all_events
        if event.event_type_value == "ASSET_OBSERVATION"
    ]
    assert (made.asset_key, seen.asset_key) == (KEPT, dg.AssetKey(["silver", "orders"]))
    return ({name: value.value for name, value in one.metadata.items()} for one in (made, seen))  # type: ignore[return-value]


@pytest.mark.spark
def test_a_run_says_what_it_did_and_saved(
    tmp_path: Path, platform: Platform, spark_driver: Driver
) -> None:
    size = sum(file.size for file in table_files(platform.log("silver.orders")).live)
    made, seen = run(tmp_path)
    assert {
        name: made[name]
        for name in (
            "files before",
            "files after",
            "bytes rewritten",
            "bytes freed",
            "refused actions",
        )
    } == {
        "files before": 3,
        "files after": 1,
        "bytes rewritten": size,
        "bytes freed": 0,
        "refused actions": 0,
    }
    assert (
        f"| silver.orders | compact |  | 3 | {size:,} | 3 files below 32.0 MiB" in made["planned"]
    )
    assert made["seconds"] > 0
    assert seen == {f"maintenance: {name}": value for name, value in made.items()}


def test_a_table_and_its_maintenance_take_a_slot_of_one_pool() -> None:
    graph = build_definitions(LAKE).resolve_asset_graph()
    assert [graph.get(key).pools for key in (dg.AssetKey(["silver", "orders"]), KEPT)] == [
        {"silver.orders"}
    ] * 2
    assert (graph.get(dg.AssetKey(["gold", "totals"])).pools, graph.get(KEPT).parent_keys) == (
        set(),
        set(),
    )
    assert (graph.get(KEPT).group_name, list(graph.get(KEPT).owners)) == ("silver", ["team:shop"])


def test_a_table_that_follows_a_database_is_kept_with_its_messages() -> None:
    follows = cdc_table(
        "shop.orders",
        source=JsonLines("in"),
        envelope=Debezium(),
        merge=CDCMerge(keys=("id",)),
        storage=Storage(maintenance=POLICY),
        asset=Asset(dagster={"pool": "shop"}),
    )
    graph = build_definitions(Lake("shop", [follows])).resolve_asset_graph()
    assert {
        key.to_user_string(): graph.get(key).pools for key in graph.materializable_asset_keys
    } == {
        "shop/orders": {"shop"},
        "shop/orders__maintenance": {"shop"},
        "shop/orders__changes": {"shop.orders__changes"},
        "shop/orders__changes__maintenance": {"shop.orders__changes"},
    }
