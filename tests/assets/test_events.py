"""A stream of events and a group of its types, run by Dagster: a file that is dropped becomes rows
of a table for each type.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from lakechime_dagster.assets import events
from lakechime_dagster.assets.events import breaking_check
from lakechime_dagster.dce.engine import writing
from lakechime_dagster.dce.events import EventQuery
from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.lineage.store import LineageStandings
from lakechime_dagster.runtime.platform import open_platform
from lakechime_dagster.runtime.spark import spark_of
from lakechime_dagster.settings import load_settings
from lakechime_dagster.silver import store_schema as event_schema
from lakechime_dagster.silver.requests import event_requests, event_types
from lakechime_dagster.silver.results import REBUILT, RequestDone, RequestKind, TypeResult
from lakechime_dagster.silver.schema import KnownType
from lakechime_dagster.silver.service import Streamed, WouldChange, would_rebuild, would_replay
from lakechime_dagster.silver.shape import Rescue
from lakechime_dagster.spark.driver import Driver
from lakechime_dagster.tables.events import Contract, GroupOptions, event_group, event_stream
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.triggers.registry import By
from lakechime_dagster.triggers.schema import lc_attempt
from tests.assets.test_table import Location
from tests.support.event_types import committed
from tests.support.replica import read
from tests.support.streams import event

spark = pytest.mark.spark

TYPES = "ev__shop__types"
FINE = dict.fromkeys(
    ("rows_add_up", "no_type_fails", "nothing_waits", "no_value_lost", "nothing_breaks"), True
)


@dataclass
class Game(Location):
    """The code location of a stream and its groups, and the folder in which its events are
    dropped.
    """

    folder: Path

    def drop(self, *payloads: bytes) -> None:
        with (self.folder / "a.jsonl").open("ab") as file:
            file.writelines(one + b"\n" for one in payloads)

    def ingest(self, *payloads: bytes) -> None:
        """Events come to the stream's table."""
        self.drop(*payloads)
        assert self.run_of("game_events", "ev__tables").success

    def execute(self, *payloads: bytes, raise_on_error: bool = True) -> dg.ExecuteInProcessResult:
        """The group's next execution, as its sensor launches it; before it these events come to the
        stream's table.
        """
        if payloads:
            self.ingest(*payloads)
        (request,) = self.tick("shop").run_requests
        return self.run(
            "ev__shop",
            tags=dict(request.tags),
            asset_selection=request.asset_selection,
            raise_on_error=raise_on_error,
        )

    def kept(self, kind: str) -> list[dict[str, Any]]:
        """The rows of a type's table in the order of their events."""
        rows = read(self.location(kind))
        return sorted(rows, key=lambda row: int(row["_src"].partition("@")[2]))

    def numbers(self, kind: str) -> list[int]:
        return [row["n"] for row in self.kept(kind)]

    def location(self, kind: str) -> str:
        return self.platform.location(f"shop.{kind.replace('.', '__')}")

    def partitions(self) -> list[str]:
        return sorted(self.instance.get_dynamic_partitions(TYPES))

    def known(self, kind: str) -> KnownType:
        return event_types(self.platform).types("shop")[kind]

    def executions(self) -> list[tuple[int, str]]:
        """The executions of the group and how they are."""
        return sorted(
            (one.number, one.state.value)
            for one in self.platform.ledger.executions()
            if one.consumer.subscription == "shop"
        )

    def let_pass(self) -> None:
        """All that waits for its time may be tried again."""
        types, attempts = event_schema.event_type, lc_attempt
        with writing(self.platform.store.engine) as connection:
            connection.execute(sa.update(types).where(types.c.due_ts > 0).values(due_ts=1))
            connection.execute(sa.update(attempts).where(attempts.c.due_ts > 0).values(due_ts=1))


def buy(number: int, **fields: Any) -> bytes:
    return event("shop.buy", n=number, title="web", **fields)


def sell(number: int) -> bytes:
    return event("shop.sell", n=number)


@pytest.fixture
def game(
    events_home: Path,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    spark_driver: Driver,
) -> Game:
    # until a test lets it pass
    monkeypatch.setattr("lakechime_dagster.silver.store.PAUSES_MS", (3_600_000,))
    definitions = build_definitions(lake(str(events_home / "in")))
    return Game(instance, definitions, open_platform(), events_home / "in")


def lake(
    folder: str = "in", types: dict[str, Contract] | None = None, type_field: str = "$.type"
) -> Lake:
    stream = event_stream(
        "game", source=JsonLines(folder), type_field=type_field, producer_field="$.title"
    )
    shop = event_group("shop", stream, match="shop.*", owner="team:shop", types=types)
    return Lake("ev", [stream, shop])


def checks(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {one.check_name: one.passed for one in result.get_asset_check_evaluations()}


def shown(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """What the group shows of a run."""
    (whole,) = [
        one.materialization
        for one in result.get_asset_materialization_events()
        if one.materialization.metadata.get("number")
    ]
    return {name: value.value for name, value in whole.metadata.items()}


def reported(result: dg.ExecuteInProcessResult) -> dict[str | None, Any]:
    """The rows that were written, by the types that a run reports of."""
    several = [
        one.materialization
        for one in result.get_asset_materialization_events()
        if one.materialization.partition is not None
    ]
    return {one.partition: one.metadata["dagster/row_count"].value for one in several}


def test_a_stream_and_its_groups_are_assets_each_group_with_its_types_as_partitions() -> None:
    definitions = build_definitions(lake())
    graph = definitions.resolve_asset_graph()
    bronze, shop, other = (
        graph.get(dg.AssetKey(name)) for name in (["game", "events"], ["shop"], ["game_other"])
    )
    assert (
        {key.path[0] for key in bronze.parent_keys},
        bronze.partitions_def,
        bronze.group_name,
    ) == ({"file"}, None, "game")
    for group in (shop, other):
        types = graph.get(dg.AssetKey(f"{group.key.to_user_string()}__types"))
        assert (group.parent_keys, types.parent_keys, group.partitions_def) == (
            {bronze.key},
            {bronze.key},
            None,
        )
        assert types.partitions_def == dg.DynamicPartitionsDefinition(
            name=f"ev__{group.key.to_user_string()}__types"
        )
        assert (group.kinds, group.group_name) == (
            {"deltalake", "spark"},
            group.key.to_user_string(),
        )
        assert {key.name for key in group.check_keys} == {*FINE}
    assert (shop.owners, shop.metadata["types"], other.metadata["types"]) == (
        ["team:shop"],
        "shop.*",
        "*",
    )
    names = {sensor.name for sensor in definitions.sensors or ()}
    assert names >= {"game_events", "shop", "game_other"}
    jobs = {
        name: definitions.resolve_job_def(name).asset_layer.executable_asset_keys
        for name in ("ev__tables", "ev__shop")
    }
    assert jobs == {"ev__tables": {bronze.key}, "ev__shop": {shop.key, dg.AssetKey("shop__types")}}


def test_a_group_may_have_a_driver_and_a_pool_of_its_own() -> None:
    stream = event_stream("game", source=JsonLines("in"))
    shop = event_group(
        "shop",
        stream,
        options=GroupOptions(
            spark="spark://second:7077", dagster={"metadata": {"page": "shop"}, "pool": "few"}
        ),
    )
    definitions = build_definitions(Lake("ev", [stream, shop]))
    asset = definitions.resolve_asset_graph().get(dg.AssetKey("shop"))
    assert (asset.pools, asset.metadata["page"], asset.metadata["types"]) == ({"few"}, "shop", "*")
    settings = load_settings()
    assert spark_of(settings, shop) == settings.spark.model_copy(
        update={"driver": "spark://second:7077"}
    )
    assert spark_of(settings, event_group("other", stream)) == settings.spark


@pytest.mark.tier2
@spark
def test_events_that_are_dropped_become_the_rows_of_a_table_for_each_type(game: Game) -> None:
    assert game.tick("shop").run_requests == []
    game.ingest(buy(1), sell(2), buy(3), event("jump"), b"{damaged")
    assert [snapshot for snapshot, _, _ in game.events("game.events")] == ["1"]
    first = game.execute()
    assert checks(first) == FINE
    seen = shown(first)
    assert (
        seen["types written"],
        seen["events"],
        seen["rows written"],
        seen["rows without a type"],
        seen["number"],
    ) == (2, 3, 3, 1, 1)
    assert "| shop.buy | shop.shop__buy | 2 | 2 | 0 |" in seen["types"]
    assert reported(first) == {"shop.buy": 2, "shop.sell": 1}
    assert game.partitions() == ["shop.buy", "shop.sell"]
    assert [(row["n"], row["title"]) for row in game.kept("shop.buy")] == [(1, "web"), (3, "web")]
    assert game.numbers("shop.sell") == [2]
    assert (
        game.events("shop.shop__buy")
        == game.events("shop.shop__sell")
        == [("0", None, {"schema_version": "1"})]
    )
    assert (
        game.executions(),
        game.known("shop.buy").checkpoint.version,
        game.known("shop.buy").checkpoint.commits,
    ) == ([(1, "COMPLETED")], 1, 1)

    assert game.tick("shop").run_requests == []
    second = game.execute(buy(4, item="hat"))
    assert reported(second) == {"shop.buy": 1}
    assert (
        game.numbers("shop.buy"),
        game.kept("shop.buy")[-1]["item"],
        game.numbers("shop.sell"),
    ) == ([1, 3, 4], "hat", [2])
    assert game.events("shop.shop__buy")[1:] == [("1", None, {"schema_version": "2"})]
    assert game.tick("shop").run_requests == []
    selected = [request.asset_selection for request in game.tick("game_other").run_requests]
    assert selected == [[dg.AssetKey("game_other"), dg.AssetKey("game_other__types")]]

    standing = {
        one.statement.target: one for one in LineageStandings(game.platform.store.engine).all()
    }
    assert "game.events.$.n" in {
        str(source.ref)
        for one in standing["shop.shop__buy"].statement.columns
        for source in one.sources
    }
    assert standing["shop.shop__buy"].owners == ("team:shop",)


def test_what_a_contract_or_a_cap_keeps_out_of_columns_and_a_rebuild_break_too() -> None:
    group = lake().groups[0]
    kept_out = TypeResult(
        type="shop.buy",
        table="shop.shop__buy",
        start=0,
        end=1,
        reasons={Rescue.FROZEN: 2, Rescue.CAP: 1, Rescue.UNKNOWN: 5},
    )
    check = breaking_check(group, [], [kept_out, replace(kept_out, reasons={Rescue.INEXACT: 1})])
    frozen = "values of shop.buy kept out by the contract: 2"
    capped = "values of shop.buy kept out, as the table has as many columns as it may: 1"
    assert (check.passed, check.description) == (
        False,
        f"{frozen}; {capped}; shop is owned by team:shop",
    )
    inside = replace(kept_out, reasons={})
    assert breaking_check(group, [], [inside]).passed
    commit = committed(1, "shop.buy")
    metadata = replace(commit.commit_metadata, facts={REBUILT: True})
    rebuilt = replace(inside, commits=(replace(commit, commit_metadata=metadata),))
    assert not breaking_check(group, [], [rebuilt]).passed


@spark
def test_types_that_a_person_launches_as_partitions_are_replayed(game: Game) -> None:
    game.execute(buy(1), buy(2), sell(3))
    DeltaTable(game.location("shop.buy")).delete("n = 2")
    assert game.run("ev__shop", partition_key="shop.buy").success
    assert game.numbers("shop.buy") == [1, 2]
    (asked,) = event_requests(game.platform).of("shop.shop__buy")
    assert (asked.who, asked.done) == ("dagster", RequestDone(request_id=1, added=1))
    tags = [
        dict(one.event.tags)
        for one in game.platform.store.fetch(EventQuery(table="shop.shop__buy"))
    ][-1]
    assert (tags["cause"], tags["schema_version"]) == ("replay", "1")
    assert game.tick("shop").run_requests == []


@spark
def test_a_breaking_change_fails_a_check_for_a_while_with_whose_it_is(game: Game) -> None:
    first = game.execute(buy(1))
    assert checks(first) == FINE
    second = game.execute(event("shop.buy", n="one", title="ios"))
    assert checks(second) == {**FINE, "nothing_breaks": False}
    (check,) = (
        one for one in second.get_asset_check_evaluations() if one.check_name == "nothing_breaks"
    )
    reported = "schema 2 of shop.buy: + n__v_string string; shop is owned by team:shop"
    assert (check.description, check.severity, check.metadata["owner"].value) == (
        reported,
        dg.AssetCheckSeverity.WARN,
        "team:shop",
    )
    assert check.metadata["breaking"].value == [
        {"type": "shop.buy", "schema": 2, "columns": ["+ n__v_string string"]}
    ]
    assert game.tick("ev__alarms").skip_message.startswith("failing: shop nothing_breaks;")
    assert checks(game.execute(buy(2, more=1))) == {**FINE, "nothing_breaks": False}
    with writing(game.platform.store.engine) as connection:
        connection.execute(sa.update(event_schema.schema_version).values(made_ts=1))
    assert checks(game.execute(buy(3))) == FINE
    assert game.tick("ev__alarms").skip_message.startswith("no check fails;")


@spark
def test_a_type_that_cannot_be_written_fails_a_check_and_is_tried_again_without_new_events(
    game: Game,
) -> None:
    blocked = Path(game.location("shop.buy"))
    blocked.parent.mkdir(parents=True)
    blocked.write_text("no folder")
    first = game.execute(buy(1), sell(2))
    assert checks(first) == {**FINE, "no_type_fails": False}
    assert reported(first) == {"shop.sell": 1}
    assert game.tick("shop").run_requests == []

    blocked.unlink()
    game.let_pass()
    again = game.execute()
    assert shown(again)["last fired because"] == "failed and tried again: shop.buy"
    assert (checks(again), reported(again)) == (FINE, {"shop.buy": 1})


def dies(*_: object) -> bool:
    raise KeyboardInterrupt


@spark
def test_the_result_of_reprocessing_is_recorded_though_the_run_died_after_its_commit(
    game: Game, monkeypatch: pytest.MonkeyPatch
) -> None:
    game.ingest(b'{"kind": "shop.buy", "n": 1}')
    corrected = build_definitions(lake(str(game.folder), type_field="$.kind"))
    game = replace(game, definitions=corrected)
    requests = event_requests(game.platform)
    requests.ask("game.events", RequestKind.REPROCESS, By(who="me", reason="the type is the kind"))
    with monkeypatch.context() as patched:
        patched.setattr(events, "event_requests", dies)
        with pytest.raises(KeyboardInterrupt):
            game.run_of("game_events", "ev__tables")
    game.tick("game_events")
    game.let_pass()
    assert game.run_of("game_events", "ev__tables").success
    (one,) = requests.of("game.events")
    assert one.done == RequestDone(request_id=one.request.request_id, added=1)


@spark
def test_what_a_replay_or_a_rebuild_would_change_is_shown_and_not_done(game: Game) -> None:
    game.execute(buy(1))
    rescuing = lake(str(game.folder), types={"shop.buy": Contract(columns="rescue")})
    replace(game, definitions=build_definitions(rescuing)).execute(
        event("shop.buy", n=2, price=3), event("shop.buy", n=3)
    )
    assert game.kept("shop.buy")[1]["_rescued"] == '[{"p":"/price","v":3,"r":"unknown"}]'
    group = next(one for one in lake().groups if one.name == "shop")
    known, stream = game.known("shop.buy"), Streamed(game.platform, group.stream.table)
    would = WouldChange(replaced=1, added=0, removed=0, gained=(("price", "long"),))
    assert would_replay(game.platform, group, known, print) == would
    newest = stream.newest()
    assert newest is not None
    assert would_rebuild(game.platform, group, known, newest, print) == replace(would, replaced=3)
    assert (game.tick("shop").run_requests, game.known("shop.buy").schema_version) == ([], 1)
    event_requests(game.platform).ask(
        "shop.shop__buy", RequestKind.REPLAY, By(who="me", reason="prices matter")
    )
    game.execute()
    assert [(row.get("price"), row["_rescued"]) for row in game.kept("shop.buy")] == [
        (None, None),
        (3, None),
        (None, None),
    ]
