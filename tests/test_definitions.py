"""From a declared lake alone: assets, edges, checks, sensors, jobs, and what a person sees before
any run.
"""

import datetime as dt
import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.demo import flights as demo
from lakechime_dagster.errors import DeclarationError, LakeChimeError, failures_kept
from lakechime_dagster.tables.declare import spark_table, sql_table
from lakechime_dagster.tables.events import event_group, event_stream
from lakechime_dagster.tables.lake import Lake, Table
from lakechime_dagster.tables.options import Asset, Storage
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.tables.tables import LakeTable, SourceTable
from lakechime_dagster.triggers.schedule import every
from lakechime_dagster.triggers.triggers import PartitionTrigger, SnapshotTrigger


@pytest.fixture(scope="module")
def definitions() -> dg.Definitions:
    return build_definitions(demo.lake)


def node(definitions: dg.Definitions, key: str) -> Any:
    return definitions.resolve_asset_graph().get(dg.AssetKey(key.split("/")))


def test_every_table_is_an_asset_and_every_input_an_edge(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    edges = {
        key.to_user_string(): {parent.to_user_string() for parent in graph.get(key).parent_keys}
        for key in graph.get_all_asset_keys()
    }
    (folder,) = edges["airport/events"]
    assert (folder.startswith("file/"), folder.endswith("/airport/*.jsonl")) == (True, True)
    assert edges == {
        folder: set(),  # into which a program elsewhere writes
        "bronze/flights": set(),
        "bronze/weather": set(),
        "silver/flights": {"bronze/flights", "bronze/weather"},
        "gold/route_hour": {"silver/flights"},
        "gold/daily_delays": {"bronze/flights", "bronze/weather"},
        "gold/airline_scorecard": {"silver/flights", "gold/daily_delays"},
        "airport/events": {folder},
        "gates": {"airport/events"},
        "crews": {"airport/events"},
        "airport_other": {"airport/events"},
        **{
            key: {"airport/events"}
            for key in ("gates__types", "crews__types", "airport_other__types")
        },
        "gates/gate__changed": {"airport/events"},
        "gold/gate_changes": {"gates/gate__changed"},
    }
    assert {key for key in edges if graph.get(dg.AssetKey(key.split("/"))).is_external} == {
        folder,
        "bronze/flights",
        "bronze/weather",
    }


def test_groups_owners_and_kinds_are_set(definitions: dg.Definitions) -> None:
    silver, weather = node(definitions, "silver/flights"), node(definitions, "bronze/weather")
    assert (silver.group_name, list(silver.owners), set(silver.kinds)) == (
        "silver",
        ["team:ops"],
        {"deltalake", "spark"},
    )
    assert (weather.group_name, list(weather.owners), set(weather.kinds)) == (
        "bronze",
        ["team:ops"],
        {"deltalake"},
    )
    assert node(definitions, "gold/route_hour").owners == ["team:analytics"]


def test_time_levels_are_dagster_partitions_shared_lake_wide(definitions: dg.Definitions) -> None:
    hourly, daily = (
        node(definitions, "bronze/flights").partitions_def,
        node(definitions, "gold/daily_delays").partitions_def,
    )
    assert hourly == node(definitions, "bronze/weather").partitions_def
    assert (
        hourly.has_partition_key("2013-01-01-05"),
        hourly.has_partition_key("2014-01-01-00"),
    ) == (True, False)
    assert (
        daily.has_partition_key("2013-01-01"),
        daily.has_partition_key("2013-12-31"),
        daily.has_partition_key("2014-01-01"),
    ) == (True, True, False)
    assert node(definitions, "silver/flights").partitions_def is None


def test_a_trigger_is_a_sensor_that_runs_and_sensors_share_jobs(
    definitions: dg.Definitions,
) -> None:
    sensors = {sensor.name: sensor for sensor in definitions.sensors or []}
    assert set(sensors) == {
        "silver_flights",
        "gold_route_hour",
        "gold_daily_delays",
        "gold_airline_scorecard",
        "gold_gate_changes",
        "airport_events",
        "gates",
        "crews",
        "airport_other",
        "flights__events",
        "flights__outside",
        "flights__alarms",
    }
    assert {sensor.default_status for sensor in sensors.values()} == {
        dg.DefaultSensorStatus.RUNNING
    }
    jobs = {
        name: sensor.job_name
        for name, sensor in sensors.items()
        if name not in ("flights__events", "flights__outside", "flights__alarms")
    }
    assert jobs.pop("gold_daily_delays") == "flights__daily"
    assert {jobs.pop(group) for group in ("gates", "crews", "airport_other")} == {
        "flights__gates",
        "flights__crews",
        "flights__airport_other",
    }
    assert set(jobs.values()) == {"flights__tables"}


def test_every_computed_table_has_its_checks(definitions: dg.Definitions) -> None:
    found: dict[str, set[str]] = {}
    for check in definitions.resolve_asset_graph().asset_check_keys:
        found.setdefault(check.asset_key.to_user_string(), set()).add(check.name)
    checked = {"rows_add_up", "no_duplicate_keys", "nothing_quarantined", "inputs_are_declared"}
    computed = (
        "silver/flights",
        "gold/route_hour",
        "gold/daily_delays",
        "gold/airline_scorecard",
        "gold/gate_changes",
    )
    of_types = {"rows_add_up", "no_type_fails", "nothing_waits", "no_value_lost", "nothing_breaks"}
    groups = dict.fromkeys(("gates", "crews", "airport_other"), of_types)
    named = {"gates/gate__changed": {"rows_add_up", "is_written"}}
    assert found == dict.fromkeys(computed, checked) | groups | named | {
        "airport/events": {"nothing_refused"}
    }


ORDERS = SourceTable("bronze.orders", storage=Storage(partitioned_by={"shop": "string"}))
BY_SHOP = "SELECT shop, count(*) AS n FROM bronze.orders GROUP BY shop"


def whole(name: str, trigger: SnapshotTrigger | None = None) -> LakeTable:
    return sql_table(name, sql=BY_SHOP, trigger=trigger)


def partitioned(name: str) -> LakeTable:
    trigger = PartitionTrigger(ORDERS.partitions(shop="north"), every(days=1, start="2013-01-02"))
    return sql_table(
        name,
        sql=BY_SHOP,
        keys=["shop"],
        refresh="partitions",
        trigger=trigger,
        storage=Storage(partitioned_by={"shop": "string"}),
    )


@pytest.mark.parametrize(
    ("names", "reported"),
    [
        (
            ["silver.daily_x", "silver_daily.x"],
            (
                "silver_daily.x, name: is silver_daily_x in Dagster, as silver.daily_x is; rename one "
                "of them"
            ),
        ),
        (
            ["gold.a__b", "gold__a.b"],
            "gold__a.b, name: is gold__a__b in Dagster, as gold.a__b is; rename one of them",
        ),
        (
            ["shop._events"],
            (
                "shop._events, name: is shop__events in Dagster, as the sensor of shop's events is; "
                "rename one of them"
            ),
        ),
    ],
)
def test_tables_that_dagster_could_not_distinguish_are_refused(
    names: list[str], reported: str
) -> None:
    with pytest.raises(DeclarationError, match=f"^{re.escape(reported)}$"):
        build_definitions(
            Lake("shop", [ORDERS, *[whole(name, SnapshotTrigger()) for name in names]])
        )


ODD = {"owner": "me"}


@pytest.mark.parametrize(
    "table",
    [
        SourceTable("gold.x", asset=Asset(dagster=ODD)),
        sql_table("gold.x", sql=BY_SHOP, asset=Asset(dagster=ODD)),
    ],
)
def test_what_dagster_refuses_is_reported_by_the_name_of_the_table(table: Table) -> None:
    with pytest.raises(
        DeclarationError,
        match=r"^gold\.x, dagster: Dagster refuses the asset: .*unexpected keyword argument 'owner'$",
    ):
        build_definitions(Lake("shop", [ORDERS, table]))
    with pytest.raises(
        DeclarationError, match=r'^output, dagster: .* "output" is not a valid name in Dagster'
    ):
        build_definitions(Lake("shop", [ORDERS, whole("output")]))


def test_tables_of_the_same_partitions_share_a_job_whatever_they_are_called() -> None:
    built = build_definitions(
        Lake(
            "shop",
            [
                ORDERS,
                partitioned("daily"),
                partitioned("tables"),
                whole("gold.x", SnapshotTrigger()),
            ],
        )
    )
    jobs = {
        sensor.name: sensor.job_name
        for sensor in built.sensors or []
        if sensor.name not in ("shop__events", "shop__outside", "shop__alarms")
    }
    assert jobs == {"daily": "shop__by__shop", "tables": "shop__by__shop", "gold_x": "shop__tables"}
    assert built.resolve_job_def("shop__by__shop").partitions_def == dg.DynamicPartitionsDefinition(
        name="shop__shop"
    )


def test_a_table_that_must_be_fresh_has_a_check_for_it_and_what_dagster_takes_passes_through() -> (
    None
):
    orders = SourceTable("bronze.orders", asset=Asset(fresh_within=dt.timedelta(hours=1)))

    @spark_table(
        "silver.orders",
        reads={"orders": orders.changes()},
        keys=["id"],
        trigger=SnapshotTrigger(),
        asset=Asset(
            group="sales",
            fresh_within=dt.timedelta(hours=2),
            watermark="ordered_at",
            dagster={"tags": {"tier": "1"}},
        ),
    )
    def silver(orders: Any) -> Any:
        return orders

    built = build_definitions(Lake("shop", [orders, silver]))
    checks = {check.name for check in built.resolve_asset_graph().asset_check_keys}
    assert "fresh_by_watermark" in checks
    assert (node(built, "silver/orders").group_name, node(built, "silver/orders").tags["tier"]) == (
        "sales",
        "1",
    )


def test_a_failed_group_is_shown_with_its_reason_and_the_others_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAKECHIME_HOME", str(tmp_path))
    game = event_stream("game", source=JsonLines("in"))
    with failures_kept():
        shop = event_group("shop", game, match="shop.*", owner="nobody")
        definitions = build_definitions(
            Lake("play", [game, shop, event_group("fights", game, match="fight.*")])
        )
    graph = definitions.resolve_asset_graph()
    shown, other = graph.get(dg.AssetKey("shop")), graph.get(dg.AssetKey("fights"))
    assert (shown.is_executable, "owner" in shown.metadata["failed"], other.is_executable) == (
        False,
        True,
        True,
    )
    sensor = definitions.resolve_sensor_def("shop")
    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(LakeChimeError, match="owner"):
        sensor(dg.build_sensor_context(instance=instance))
    assert "play__shop" not in {job.name for job in definitions.resolve_all_job_defs()}
