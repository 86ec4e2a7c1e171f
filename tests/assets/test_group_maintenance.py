"""The maintenance of a group's tables, as an asset."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.runtime.platform import open_platform
from lakechime_dagster.spark.driver import Driver
from lakechime_dagster.tables.events import GroupOptions, event_group, event_stream
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.maintenance import Maintenance
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.sources import JsonLines
from tests.assets.test_events import Game, buy, sell

KEPT = dg.AssetKey(["shop__maintenance"])
POLICY = Maintenance(min_files=2)


def lake(folder: str = "in", **options: Any) -> Lake:
    stream = event_stream("game", source=JsonLines(folder), producer_field="$.title")
    shop = event_group(
        "shop",
        stream,
        match="shop.*",
        owner="team:shop",
        storage=Storage(maintenance=POLICY),
        options=GroupOptions(**options),
    )
    return Lake("ev", [stream, shop])


@pytest.fixture
def game(events_home: Path, instance: dg.DagsterInstance, spark_driver: Driver) -> Game:
    definitions = build_definitions(lake(str(events_home / "in")))
    return Game(instance, definitions, open_platform(), events_home / "in")


@pytest.mark.spark
def test_a_run_joins_the_files_of_all_types_and_their_rows_stay(game: Game) -> None:
    for number in (1, 2):
        game.execute(buy(number), sell(number))
    before = [game.kept("shop.buy"), game.kept("shop.sell")]
    done = game.run("ev__maintenance", asset_selection=[KEPT])
    (made,) = done.asset_materializations_for_node("shop__maintenance")
    assert [
        made.metadata[name].value
        for name in ("tables", "files before", "files after", "refused actions")
    ] == [2, 4, 2, 0]
    assert [game.kept("shop.buy"), game.kept("shop.sell")] == before
    assert game.tick("shop").run_requests == []
    game.execute(buy(3))
    assert game.numbers("shop.buy") == [1, 2, 3]


def test_the_maintenance_of_a_group_is_an_asset_that_its_executions_need_not_wait_for() -> None:
    definitions = build_definitions(lake(dagster={"pool": "few"}))
    graph = definitions.resolve_asset_graph()
    assert (
        graph.get(dg.AssetKey("shop")).pools,
        graph.get(KEPT).pools,
        graph.get(KEPT).parent_keys,
    ) == ({"few"}, set(), set())
    assert (graph.get(KEPT).group_name, list(graph.get(KEPT).owners)) == ("shop", ["team:shop"])
    assert definitions.resolve_job_def("ev__maintenance").asset_layer.executable_asset_keys == {
        KEPT
    }
    assert "ev__maintenance" in {one.name for one in definitions.sensors or ()}
