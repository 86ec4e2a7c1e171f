"""A declared table as an asset, run by Dagster on real Spark and Delta: what it does, and what a
person then sees of it.
"""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakechime_dagster.cli.backfill import document
from lakechime_dagster.dce.events import EventQuery
from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.lineage.backfill import Asked, plan, run
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.runtime.reconcile import reconcile
from lakechime_dagster.runtime.resource import declared_subscriptions
from lakechime_dagster.spark.driver import Driver
from lakechime_dagster.tables.declare import spark_table, sql_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Asset, Storage
from lakechime_dagster.tables.tables import SourceTable
from lakechime_dagster.triggers.backfills import Backfills
from lakechime_dagster.triggers.consumers import RequestState
from lakechime_dagster.triggers.interventions import By
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.triggers import PartitionTrigger, SnapshotTrigger
from tests.support.metastore import Metastore
from tests.support.refreshes import read_rows
from tests.support.tables import write

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("amount", pa.int64())])
MAY = [dt.date(2024, 5, day) for day in range(1, 4)]
COMPLETE = {"complete": "true"}
DECLARED = {"inputs_are_declared": True}

orders = SourceTable("bronze.orders", storage=Storage(partitioned_by={"day": "date"}))


@spark_table(
    "silver.orders",
    keys=["id"],
    reads={"orders": orders.changes()},
    trigger=SnapshotTrigger(),
    asset=Asset(
        expect={"amount is positive": "amount > 0"},
        watermark="day",
        fresh_within=dt.timedelta(days=1),
    ),
)
def silver_orders(orders: Any) -> Any:
    """Orders, one row each."""
    return orders


orders_of_day = sql_table(
    "gold.orders_of_day",
    sql="SELECT day, count(*) AS orders FROM bronze.orders GROUP BY day",
    keys=["day"],
    refresh="partitions",
    trigger=PartitionTrigger(
        [orders.partitions(day=tick("-1d"))],
        every(days=1, start="2024-05-02", until="2024-05-04"),
        tags=COMPLETE,
    ),
    storage=Storage(partitioned_by={"day": "date"}),
)

totals = sql_table(
    "gold.totals",
    sql="SELECT sum(amount) AS amount, count(*) AS orders FROM silver.orders",
    refresh="full",
    trigger=SnapshotTrigger(),
)


@dataclass
class Location:
    """The code location of the lake, and an instance to run it in."""

    instance: dg.DagsterInstance
    definitions: dg.Definitions
    platform: Platform

    def commit(self, *rows: tuple[Any, ...], tags: dict[str, str] | None = None) -> None:
        """A producer's commit, pushed."""
        log = self.platform.log("bronze.orders")
        Path(log.location).mkdir(parents=True, exist_ok=True)
        data = pa.Table.from_pylist(
            [dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA
        )
        write(log.location, data, partition_by=["day"], tags=tags)
        self.platform.store.declare("bronze.orders", orders.levels)
        self.platform.store.register(log.events_of_commit(log.version))

    def tick(self, sensor: str) -> Any:
        with dg.build_sensor_context(
            instance=self.instance, definitions=self.definitions
        ) as context:
            return self.definitions.resolve_sensor_def(sensor).evaluate_tick(context)

    def run_of(self, sensor: str, job: str = "shop__tables") -> dg.ExecuteInProcessResult:
        """Tick, and run what is asked for."""
        (request,) = self.tick(sensor).run_requests
        return self.run(
            job,
            tags=dict(request.tags),
            partition_key=request.partition_key,
            asset_selection=request.asset_selection,
        )

    def run(self, job: str, **options: Any) -> dg.ExecuteInProcessResult:
        return self.definitions.resolve_job_def(job).execute_in_process(
            instance=self.instance, **options
        )

    def run_alone(self, table: str) -> dg.ExecuteInProcessResult:
        """What a person launches for one table."""
        return self.run("shop__tables", asset_selection=[dg.AssetKey(table.split("."))])

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return read_rows(self.platform.location(table))

    def events(self, table: str) -> list[tuple[str | None, object, dict[str, str]]]:
        found = self.platform.store.fetch(EventQuery(table=table))
        return [(one.event.snapshot_id, one.event.partition, dict(one.event.tags)) for one in found]


@pytest.fixture
def location(home: Path, instance: dg.DagsterInstance, spark_driver: Driver) -> Location:
    definitions = build_definitions(Lake("shop", [orders, silver_orders, orders_of_day, totals]))
    return Location(instance, definitions, open_platform())


def shown(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """What the asset shows of a run."""
    (event,) = result.get_asset_materialization_events()
    return {name: value.value for name, value in event.materialization.metadata.items()}


def checks(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {one.check_name: one.passed for one in result.get_asset_check_evaluations()}


@pytest.mark.tier1
def test_an_asset_shows_what_its_run_did(location: Location) -> None:
    location.commit((1, MAY[0], 10), (2, MAY[0], 20), (3, MAY[0], -1))
    first = location.run_of("silver_orders")
    seen = shown(first)
    assert seen["last fired because"] == "1 event arrived (1 of bronze.orders)"
    assert rows_of(seen) == {
        "returned": 3,
        "inserted": 2,
        "updated": 0,
        "deleted": 0,
        "unchanged": 0,
        "deduplicated": 0,
        "quarantined": 1,
    }
    assert "`bronze.orders` from nothing up to snapshot 0" in seen["range"]
    assert dt.datetime.fromtimestamp(seen["watermark"], dt.timezone.utc).date() == MAY[0]
    assert (seen["lag in commits"], seen["lag in seconds"] >= 0) == (0, True)
    assert (seen["commit"], "verdict" in seen) == ("version 1", False)
    assert [column.name for column in seen["dagster/column_schema"].columns] == [
        "id",
        "day",
        "amount",
    ]
    assert '| bronze.orders | ["2024-05-01"] | APPEND | 0 |' in seen["events consumed"]
    assert (seen["bytes written"] > 0, seen["seconds"] > 0) == (True, True)
    assert seen["spark"].startswith("local: this process has a driver already")
    assert checks(first) == {
        **DECLARED,
        "rows_add_up": True,
        "nothing_quarantined": False,
        "no_duplicate_keys": True,
        "fresh_by_watermark": False,
    }

    location.commit((1, MAY[0], 11), (4, MAY[0], 40))
    DeltaTable(location.platform.location("bronze.orders")).optimize.compact()
    location.commit((2, MAY[1], 20), (2, MAY[1], 20))
    second = location.run_of("silver_orders")
    seen = shown(second)
    assert rows_of(seen) == {
        "returned": 4,
        "inserted": 1,
        "updated": 2,
        "deleted": 0,
        "unchanged": 0,
        "deduplicated": 1,
        "quarantined": 0,
    }
    assert (
        "`bronze.orders` after snapshot 0 up to snapshot 3: 3 commits, 2 with data, read by"
        in seen["range"]
    )
    assert (seen["verdict"], seen["commit"]) == ("bronze.orders GAP_FILLED", "version 2")
    assert checks(second) == {
        **DECLARED,
        "rows_add_up": True,
        "nothing_quarantined": True,
        "no_duplicate_keys": False,
        "fresh_by_watermark": False,
    }
    assert [snapshot for snapshot, _, _ in location.events("silver.orders")] == ["1", "2"]
    assert [row[0] for row in location.rows("silver.orders")] == [1, 2, 4]

    idle = location.run_alone("silver.orders")
    assert (
        "nothing to do: silver.orders: no new events since execution 2"
        in shown(idle)["last fired because"]
    )
    assert checks(idle)["fresh_by_watermark"] is False


@pytest.mark.tier2
def test_a_hive_table_is_written_by_partitions_and_read_where_it_is_captured(
    home: Path,
    instance: dg.DagsterInstance,
    spark_driver: Driver,
    metastore: Metastore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAKECHIME_METASTORE", metastore.url)
    platform = open_platform()
    by_day = {"refresh": "partitions", "trigger": SnapshotTrigger()}
    written = sql_table(
        "gold.hive_days",
        sql="SELECT day, count(*) AS orders, sum(amount) AS amount FROM bronze.orders GROUP BY day",
        keys=["day"],
        storage=Storage(format="hive", partitioned_by={"day": "date"}),
        **by_day,
    )
    read = sql_table(
        "gold.hive_copy",
        sql="SELECT day, orders, amount FROM gold.hive_days",
        keys=["day"],
        storage=Storage(partitioned_by={"day": "date"}),
        **by_day,
    )
    location = Location(
        instance, build_definitions(Lake("shop", [orders, written, read])), platform
    )

    def run_both() -> list[dict[str, Any]]:
        runs = [shown(location.run_of("gold_hive_days"))]
        assert reconcile(platform, [written])[1] == []
        return [*runs, shown(location.run_of("gold_hive_copy"))]

    location.commit((1, MAY[0], 10), (2, MAY[1], 20), tags={"source": "shop"})
    run_both()
    location.commit((3, MAY[1], 30))
    changed = run_both()
    assert [one["rows updated"] for one in changed] == [1, 1]
    assert location.rows("gold.hive_copy") == [(MAY[0], 1, 10), (MAY[1], 2, 50)]
    assert [partition for _, partition, _ in location.events("gold.hive_days")] == [
        ("2024-05-01",),
        ("2024-05-02",),
        ("2024-05-02",),
    ]
    executions = location.platform.ledger.executions()
    assert {one.version for one in executions if one.consumer.subscription == written.name} == {
        "1",
        "2",
    }


@pytest.mark.tier2
def test_a_day_of_a_hive_table_is_complete_by_the_commit_of_its_key_once(
    home: Path,
    instance: dg.DagsterInstance,
    spark_driver: Driver,
    metastore: Metastore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAKECHIME_METASTORE", metastore.url)
    platform = open_platform()
    written = sql_table(
        "gold.hive_keys",
        sql="SELECT day, count(*) AS orders FROM bronze.orders WHERE amount > 10 GROUP BY day",
        keys=["day"],
        refresh="partitions",
        trigger=PartitionTrigger(
            [orders.partitions(day=tick("-1d"))],
            every(days=1, start="2024-05-02", until="2024-05-03"),
            tags=COMPLETE,
        ),
        storage=Storage(format="hive", partitioned_by={"day": "date"}),
    )
    location = Location(instance, build_definitions(Lake("shop", [orders, written])), platform)
    location.commit((1, MAY[0], 20), tags=COMPLETE)
    assert location.run_of("gold_hive_keys", "shop__daily").success
    (execution,) = platform.ledger.executions()
    log = platform.hive_log(written.name, written.levels)
    committed = log.committed(execution.consumer, 1)
    assert committed is not None
    assert platform.complete_if_committed(log, execution) == committed
    assert reconcile(platform, [written])[1] == []
    ((_, partition, tags),) = location.events("gold.hive_keys")
    assert (partition, tags["complete"]) == (("2024-05-01",), "true")


def test_materialising_all_claims_what_waits_for_each_table_in_its_order(
    location: Location,
) -> None:
    location.commit((1, MAY[0], 10))
    launched = location.tick("silver_orders").run_requests
    assert location.run("shop__tables").success
    assert location.rows("gold.totals") == [(10, 1)]
    executions = {
        execution.consumer.subscription: execution
        for execution in location.platform.ledger.executions()
    }
    assert {name: (one.number, one.state.value) for name, one in executions.items()} == {
        "silver.orders": (1, "COMPLETED"),
        "gold.totals": (1, "COMPLETED"),
    }
    assert (executions["silver.orders"].cause.value, executions["gold.totals"].cause.value) == (
        "trigger",
        "manual",
    )
    late = location.run(
        "shop__tables",
        tags=dict(launched[0].tags),
        asset_selection=[dg.AssetKey(["silver", "orders"])],
    )
    assert "execution 1 of silver.orders is completed" in shown(late)["last fired because"]
    assert location.rows("silver.orders") == [(1, MAY[0], 10)]


def rows_of(seen: dict[str, Any]) -> dict[str, int]:
    names = (
        "returned",
        "inserted",
        "updated",
        "deleted",
        "unchanged",
        "deduplicated",
        "quarantined",
    )
    return {name: seen[f"rows {name}"] for name in names}


__all__ = ["location"]
ME = By(who="me", reason="amounts were wrong")
LAKE = Lake("shop", [orders, silver_orders, orders_of_day, totals])


def ordered(location: Location) -> str:
    asked = Asked(columns=(ColumnRef("silver.orders", "amount"),))
    planned = plan(location.platform, LAKE, declared_subscriptions(), asked)
    assert [order["table"] for order in document(planned)["requests"]] == [
        "silver.orders",
        "gold.totals",
    ]
    return run(location.platform, planned, ME, max_in_flight=2)


def state(location: Location, backfill: str) -> list[RequestState]:
    return [order.state for order in Backfills(location.platform.ledger).requests(backfill)]


def test_the_readers_of_a_column_run_again_after_their_input_and_an_equal_outcome_commits_nothing(
    location: Location,
) -> None:
    location.commit((1, MAY[0], 10), (2, MAY[0], 20))
    location.run_of("silver_orders")
    location.run_of("gold_totals")
    versions = {
        name: location.platform.log(name).version for name in ("silver.orders", "gold.totals")
    }
    # what the backfill mends
    DeltaTable(location.platform.location("silver.orders")).delete("id = 2")
    location.platform.store.register(
        location.platform.log("silver.orders").events_of_commit(
            location.platform.log("silver.orders").version
        )
    )

    backfill = ordered(location)
    assert "after silver.orders" in location.tick("gold_totals").skip_message
    (request,) = location.tick("silver_orders").run_requests
    assert request.tags["lakechime/backfill"] == backfill
    location.run("shop__tables", tags=dict(request.tags), asset_selection=request.asset_selection)
    assert state(location, backfill) == [RequestState.DONE, RequestState.WAITING]
    assert [row[0] for row in location.rows("silver.orders")] == [1, 2]
    assert location.run_of("gold_totals").success
    assert state(location, backfill) == [RequestState.DONE, RequestState.DONE]
    # equal, so that nobody downstream wakes
    assert location.platform.log("gold.totals").version == versions["gold.totals"]
    assert (
        location.tick("silver_orders").run_requests
        == location.tick("gold_totals").run_requests
        == []
    )
