"""The maintenance of a group's tables: fewer files and the same rows, while steps, replays and readers of changes go on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.formats.delta import table_files
from lakechime_dagster.runtime.platform import open_platform
from lakechime_dagster.runtime.reconcile import reconcile
from lakechime_dagster.silver.requests import event_replays
from lakechime_dagster.silver.results import Replayed
from lakechime_dagster.spark.driver import Driver
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.events import GroupOptions, event_group, event_stream
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.maintenance import Maintenance
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.triggers.interventions import By
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.assets.test_events import FINE, Game, buy, checks, sell
from tests.support.streams import event, stream_home

KEPT = dg.AssetKey(["shop__maintenance"])
POLICY = Maintenance(min_files=2)
BOUGHT = sql_table("gold.bought", sql="SELECT n FROM shop.shop__buy", refresh="rows", keys=["n"], trigger=SnapshotTrigger())
BUY = event_group("shop", event_stream("game", source=JsonLines("in"))).table("shop.buy")


def lake(folder: str = "in", **options: Any) -> Lake:
    stream = event_stream("game", source=JsonLines(folder), producer_field="$.title")
    shop = event_group("shop", stream, match="shop.*", owner="team:shop", options=GroupOptions(maintenance=POLICY, **options))
    return Lake("ev", [stream, shop, shop.table("shop.buy"), BOUGHT])


@pytest.fixture
def game(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upgraded_sqlite: Path, spark_driver: Driver) -> Iterator[Game]:
    stream_home(tmp_path, monkeypatch, upgraded_sqlite)
    definitions = build_definitions(lake(str(tmp_path / "in")))
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        yield Game(instance, definitions, open_platform(), tmp_path / "in")


def files(game: Game) -> dict[str, int]:
    """How many files each type's table has."""
    return {kind: len(table_files(game.platform.log(f"shop.{kind}")).live) for kind in ("shop__buy", "shop__sell")}


def operations(game: Game, kind: str) -> list[str]:
    return [one["operation"] for one in reversed(DeltaTable(game.location(kind)).history())]


def maintained(game: Game) -> dict[str, Any]:
    """What a run of the group's maintenance says on its asset."""
    done = game.run("ev__maintenance", asset_selection=[KEPT])
    (made,) = done.asset_materializations_for_node("shop__maintenance")
    (seen,) = [one.asset_observation_data.asset_observation for one in done.all_events if one.event_type_value == "ASSET_OBSERVATION"]
    assert (made.asset_key, seen.asset_key) == (KEPT, dg.AssetKey("shop"))
    return {name: value.value for name, value in made.metadata.items()}


def bought(game: Game) -> list[int]:
    """The rows of the table that reads a type's changes, once it has read all of them."""
    while game.tick("gold_bought").run_requests:
        assert game.run_of("gold_bought", "ev__tables").success
    return sorted(n for (n,) in game.rows("gold.bought"))


@pytest.mark.spark
def test_files_of_types_are_joined_while_steps_replays_and_readers_of_changes_go_on(game: Game) -> None:
    for number in range(1, 6):
        game.step(buy(number), sell(number))
        if number == 2:
            assert bought(game) == [1, 2]
    before = [game.kept("shop.buy"), game.kept("shop.sell")]
    assert files(game) == {"shop__buy": 5, "shop__sell": 5}

    told = maintained(game)
    assert {name: told[name] for name in ("tables", "files before", "files after", "refused actions")} == {
        "tables": 2,
        "files before": 10,
        "files after": 2,
        "refused actions": 0,
    }
    assert (files(game), [game.kept("shop.buy"), game.kept("shop.sell")]) == ({"shop__buy": 1, "shop__sell": 1}, before)
    assert game.tick("shop").run_requests == []
    assert (reconcile(game.platform, [BUY])[0], len(game.events("shop.shop__buy"))) == ([], 5)
    assert bought(game) == [1, 2, 3, 4, 5]

    following = game.step(buy(6), sell(6), event("shop.gift", n=6))
    assert checks(following) == {**FINE, "is_written": True}
    assert (game.numbers("shop.buy"), game.known("shop.buy").checkpoint.commits, bought(game)) == (
        [1, 2, 3, 4, 5, 6],
        6,
        [1, 2, 3, 4, 5, 6],
    )
    assert operations(game, "shop.buy") == ["WRITE"] * 5 + ["OPTIMIZE", "WRITE"]

    DeltaTable(game.location("shop.buy")).delete("n = 2")
    event_replays(game.platform).ask("shop", ["shop.buy"], By(who="me", reason="a row is gone"), is_whole=True)
    game.step()
    assert game.numbers("shop.buy") == [1, 2, 3, 4, 5, 6]
    assert [one.done for one in event_replays(game.platform).of("shop", "shop.buy")] == [Replayed(replay_id=1, added=1)]
    assert maintained(game)["files after"] == 3
    assert maintained(game)["planned"] == "nothing"
    game.step(buy(7))
    assert (game.numbers("shop.buy"), bought(game)) == ([1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 6, 7])


def test_the_maintenance_of_a_group_is_an_asset_that_its_steps_need_not_wait_for() -> None:
    definitions = build_definitions(lake(dagster={"pool": "few"}))
    graph = definitions.resolve_asset_graph()
    assert (graph.get(dg.AssetKey("shop")).pools, graph.get(KEPT).pools, graph.get(KEPT).parent_keys) == ({"few"}, set(), set())
    assert (graph.get(KEPT).group_name, list(graph.get(KEPT).owners)) == ("shop", ["team:shop"])
    assert definitions.resolve_job_def("ev__maintenance").asset_layer.executable_asset_keys == {KEPT}
    assert "ev__maintenance" in {one.name for one in definitions.sensors or ()}
