"""What a stream refused is looked at again when a person asks, by the stream's next step, which launches by itself."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.runtime.explain import explain
from lakechime_dagster.runtime.platform import open_platform
from lakechime_dagster.runtime.resource import declared_subscriptions
from lakechime_dagster.silver.dry_run import would_reprocess
from lakechime_dagster.silver.requests import event_reprocesses
from lakechime_dagster.silver.service import Streamed
from lakechime_dagster.spark.driver import Driver
from lakechime_dagster.tables.events import event_group, event_stream
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.triggers.interventions import By
from tests.assets.test_events import Game, shown
from tests.support.follows import read
from tests.support.streams import stream_home

pytestmark = pytest.mark.spark

ME = By(who="me", reason="the type is in another field")


@pytest.fixture
def game(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upgraded_sqlite: Path, spark_driver: Driver) -> Iterator[Game]:
    stream_home(tmp_path, monkeypatch, upgraded_sqlite)
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        yield Game(instance, build_definitions(lake(tmp_path, "$.type")), open_platform(), tmp_path / "in")


def lake(folder: Path, type_field: str) -> Lake:
    stream = event_stream("game", source=JsonLines(str(folder / "in")), type_field=type_field)
    return Lake("ev", [stream, event_group("shop", stream, match="shop.*")])


def test_refused_events_are_reprocessed_by_the_next_step_once_a_person_asks(game: Game, tmp_path: Path) -> None:
    reprocesses = event_reprocesses(game.platform)
    game.ingest(b'{"kind": "shop.buy", "n": 1}', b"{damaged", b'{"kind": "shop.buy", "n": 2}')
    corrected = lake(tmp_path, "$.kind")
    game.definitions = build_definitions(corrected)
    assert game.tick("game_events").run_requests == []
    (table,) = corrected.targets
    would = would_reprocess(game.platform, table, print)  # type: ignore[arg-type]
    assert (would.rows, would.kinds) == (2, (("type_missing", "shop.buy", 2),))

    reprocesses.ask("game.events", ME)
    assert explain(game.platform, declared_subscriptions()["game.events"]).sentence == "reprocessing 1: what was refused is looked at again"
    first = game.run_of("game_events", "ev__tables")
    seen = shown(first)
    assert (seen["rows reprocessed"], seen["commit"], seen["last fired because"]) == (
        2,
        "version 2",
        "reprocessing 1: what was refused is looked at again",
    )
    (done,) = reprocesses.of("game.events")
    assert (done.rows, reprocesses.open("game.events")) == (2, None)
    assert Streamed(game.platform, table).refused_by_reason() == {"not_json": 1}  # type: ignore[arg-type]
    assert game.step().success
    assert game.numbers("shop.buy") == [1, 2]

    reprocesses.ask("game.events", ME)
    second = game.run_of("game_events", "ev__tables")
    assert (shown(second)["rows reprocessed"], shown(second)["commit"]) == (0, "nothing to do, no commit")
    assert [one.rows for one in reprocesses.of("game.events")] == [2, 0]
    assert game.tick("game_events").run_requests == []
    assert len(read(game.platform.location("game.events"))) == 5

    reprocesses.ask("game.events", ME)
    game.drop(b'{"kind": "shop.buy", "n": 3}')
    both = game.run_of("game_events", "ev__tables")
    assert (shown(both)["rows reprocessed"], shown(both)["events event"]) == (0, 1)
    assert (reprocesses.open("game.events"), game.tick("game_events").run_requests) == (None, [])


def test_a_reprocess_whose_run_died_after_its_commit_is_closed_by_the_sensor(
    game: Game, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reprocesses = event_reprocesses(game.platform)
    game.ingest(b'{"kind": "shop.buy", "n": 1}')
    game.definitions = build_definitions(lake(tmp_path, "$.kind"))
    reprocesses.ask("game.events", ME)
    (request,) = game.tick("game_events").run_requests
    with monkeypatch.context() as dying:
        dying.setattr("lakechime_dagster.assets.tables.complete", dies)
        died = game.run("ev__tables", tags=dict(request.tags), asset_selection=request.asset_selection, raise_on_error=False)
    assert (died.success, reprocesses.open("game.events")) == (False, 1)
    assert game.tick("game_events").run_requests == []
    (done,) = reprocesses.of("game.events")
    assert (done.rows, reprocesses.open("game.events")) == (1, None)
    assert game.step().success
    assert game.numbers("shop.buy") == [1]


def dies(*arguments: object) -> None:
    raise RuntimeError("the run died")
