"""A type that the lake names is an output of its group's run with a key, columns, commits, checks
and edges of its own.
"""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakechime_dagster.assets.events import type_checks
from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.runtime.platform import open_platform
from lakechime_dagster.runtime.reconcile import reconcile
from lakechime_dagster.silver.results import TypeResult
from lakechime_dagster.silver.service import verified
from lakechime_dagster.spark.driver import Driver
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.events import Contract, GroupOptions, event_group, event_stream
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.assets.test_events import Game, buy, sell
from tests.support.iceberg import IcebergWorld
from tests.support.streams import event

SHOP, BUY, SELL = (
    dg.AssetKey("shop"),
    dg.AssetKey(["shop", "shop__buy"]),
    dg.AssetKey(["shop", "shop__sell"]),
)


def lake(folder: str = "in", **declared: Any) -> Lake:
    """A lake that names two types: one that a table reads, and one by a contract of its own."""
    stream = event_stream("game", source=JsonLines(folder), producer_field="$.title")
    shop = event_group(
        "shop",
        stream,
        match="shop.*",
        types={"shop.sell": Contract(kinds="rescue")},
        owner="team:shop",
        **declared,
    )
    bought = sql_table(
        "gold.bought",
        sql="SELECT n FROM shop.shop__buy",
        refresh="rows",
        keys=["n"],
        trigger=SnapshotTrigger(),
    )
    return Lake("ev", [stream, shop, shop.table("shop.buy"), bought])


@pytest.fixture
def game(events_home: Path, instance: dg.DagsterInstance, spark_driver: Driver) -> Game:
    definitions = build_definitions(lake(str(events_home / "in")))
    return Game(instance, definitions, open_platform(), events_home / "in")


def made(result: dg.ExecuteInProcessResult, key: dg.AssetKey) -> list[dict[str, Any]]:
    """What a run shows of an asset as a whole, not of single types as partitions."""
    several = [one.materialization for one in result.get_asset_materialization_events()]
    of_asset = [one for one in several if one.asset_key == key and one.partition is None]
    return [{name: value.value for name, value in one.metadata.items()} for one in of_asset]


def checks(result: dg.ExecuteInProcessResult, key: dg.AssetKey) -> dict[str, bool]:
    return {
        one.check_name: one.passed
        for one in result.get_asset_check_evaluations()
        if one.asset_key == key
    }


def test_named_types_are_assets_of_their_groups_run_with_edges_and_checks() -> None:
    options = GroupOptions(
        dagster={"pool": "few", "metadata": {"page": "shop"}, "tags": {"team": "shop"}}
    )
    definitions = build_definitions(lake(options=options))
    graph = definitions.resolve_asset_graph()
    for key in (BUY, SELL):
        one = graph.get(key)
        assert (one.is_executable, one.partitions_def, one.group_name, list(one.owners)) == (
            True,
            None,
            "shop",
            ["team:shop"],
        )
        assert (one.parent_keys, one.pools, {check.name for check in one.check_keys}) == (
            {dg.AssetKey(["game", "events"])},
            {"few"},
            {"rows_add_up", "is_written"},
        )
        assert (one.metadata["dagster/table_name"], "page" in one.metadata) == (
            ".".join(key.path),
            False,
        )
    assert graph.get(dg.AssetKey(["gold", "bought"])).parent_keys == {BUY}
    assert (
        graph.get(SHOP).metadata["page"],
        graph.get(SHOP).tags["team"],
        graph.get(SHOP).pools,
    ) == ("shop", "shop", {"few"})
    assert definitions.resolve_job_def("ev__shop").asset_layer.executable_asset_keys == {
        SHOP,
        dg.AssetKey("shop__types"),
        BUY,
        SELL,
    }


@pytest.mark.spark
def test_a_named_type_shows_its_columns_its_rows_and_its_commit_whenever_it_is_written(
    game: Game,
) -> None:
    first = game.execute(buy(1), buy(2, price=3), event("shop.gift", n=1))
    (shown,) = made(first, BUY)
    assert {
        name: shown[name]
        for name in (
            "dagster/row_count",
            "rows written",
            "commit",
            "schema version",
            "columns added",
        )
    } == {
        "dagster/row_count": 2,
        "rows written": 2,
        "commit": "version 0",
        "schema version": 1,
        "columns added": 4,
    }
    columns = {one.name: one.type for one in shown["dagster/column_schema"].columns}
    assert list(columns)[:5] == ["_src", "_ingested_at", "_hash", "_schema_version", "_rescued"]
    assert {name: columns[name] for name in ("n", "title", "price", "type")} == {
        "n": "bigint",
        "title": "string",
        "price": "bigint",
        "type": "string",
    }
    assert (made(first, SELL), checks(first, BUY), checks(first, SELL)) == (
        [],
        {"rows_add_up": True, "is_written": True},
        {},
    )

    second = game.execute(buy(3), sell(1))
    assert [one["dagster/row_count"] for one in (*made(second, BUY), *made(second, SELL))] == [3, 1]
    assert (made(second, BUY)[0]["rows written"], made(second, BUY)[0]["commit"]) == (
        1,
        "version 1",
    )
    third = game.execute(sell(2))
    assert (made(third, BUY), len(made(third, SELL))) == ([], 1)
    assert checks(third, BUY) == checks(third, SELL) == {"rows_add_up": True, "is_written": True}
    shown_by_sensor = game.tick("ev__events").asset_events
    assert {one.asset_key for one in shown_by_sensor} & {BUY, SELL} == set()


def test_rows_that_do_not_add_up_fail_their_types_check() -> None:
    (table,) = (one for one in lake().sources if one.name == "shop.shop__buy")
    one = TypeResult(type="shop.buy", table="shop.shop__buy", start=0, end=1, rows=3, written=2)
    assert [(check.check_name, check.passed) for check in type_checks(table, one)] == [
        ("rows_add_up", False),
        ("is_written", True),
    ]


@pytest.mark.spark
@pytest.mark.tier2
def test_types_in_iceberg_are_events_and_inputs_by_their_snapshots(
    events_home: Path, instance: dg.DagsterInstance, spark_driver: Driver
) -> None:
    declared = lake(str(events_home / "in"), storage=Storage(format="iceberg"))
    platform = open_platform()
    game = Game(instance, build_definitions(declared), platform, events_home / "in")
    spec = game.definitions.resolve_asset_graph().get(BUY)
    assert spec.kinds == {"iceberg", "spark"}
    for several in ([buy(1), sell(1)], [buy(2, price=3)]):
        run = game.execute(*several)
        assert all(checks(run, SHOP).values())
        (shown,) = made(run, BUY)
        assert game.run_of("gold_bought", "ev__tables").success
    catalog = IcebergWorld(dict(platform.settings.iceberg_catalog)).catalog
    table = catalog.load_table("shop.shop__buy")
    snapshots = [str(one.snapshot_id) for one in table.history()]
    assert [found for found, _, _ in game.events("shop.shop__buy")] == snapshots
    assert (shown["commit"], shown["dagster/row_count"]) == (f"snapshot {snapshots[-1]}", 2)
    assert reconcile(platform, declared.sources) == ([], [])
    assert game.rows("gold.bought") == [(1,), (2,)]
    numbers = catalog.load_table("shop.shop__sell").scan().to_arrow()["n"].to_pylist()
    assert numbers == [1]
    assert [one.is_whole for one in verified(platform, declared.groups[0], print)] == [True, True]
