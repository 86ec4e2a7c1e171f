"""A stream whose source is a table: what others append there becomes events, and rows of a table
for each type, by itself.
"""

from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lineage.store import LineageStandings
from lakechime_dagster.runtime.explain import explain
from lakechime_dagster.runtime.platform import open_platform
from lakechime_dagster.runtime.resource import declared_subscriptions
from lakechime_dagster.runtime.sources import checkpoint_at
from lakechime_dagster.spark.driver import Driver
from lakechime_dagster.tables.events import event_group, event_stream
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Asset
from lakechime_dagster.tables.sources import TableRows
from lakechime_dagster.tables.tables import SourceTable
from lakechime_dagster.triggers.triggers import StartFrom
from tests.assets.test_table import Location, shown
from tests.support.refreshes import Source
from tests.support.replica import read
from tests.support.streams import event

spark = pytest.mark.spark

RAW = SourceTable("bronze.raw", asset=Asset(owner="team:ingest"))


@dataclass
class Game(Location):
    """The code location of a stream of a table's rows and its groups."""

    @property
    def raw(self) -> Source:
        return Source(
            Path(self.platform.location("bronze.raw")),
            pa.schema([("value", pa.string())]),
            change_feed=False,
        )

    def reported(self) -> None:
        """The newest commit of the table is pushed."""
        log = self.platform.log("bronze.raw")
        self.platform.store.register(log.events_of_commit(log.version))

    def append(self, *payloads: bytes) -> None:
        self.raw.location.mkdir(parents=True, exist_ok=True)
        self.raw.write(*((one.decode(),) for one in payloads))
        self.reported()

    def execute(
        self, sensor: str = "game_events", job: str = "ev__tables"
    ) -> dg.ExecuteInProcessResult:
        """The next execution, as its sensor launches it."""
        (request,) = self.tick(sensor).run_requests
        return self.run(
            job,
            tags=dict(request.tags),
            asset_selection=request.asset_selection,
            raise_on_error=False,
        )

    def numbers(self, table: str) -> list[int]:
        return sorted(row["n"] for row in read(self.platform.location(table)))


@pytest.fixture
def game(home: Path, instance: dg.DagsterInstance, spark_driver: Driver) -> Game:
    definitions = build_definitions(lake())
    return Game(instance, definitions, open_platform())


def lake() -> Lake:
    stream = event_stream("game", source=TableRows(RAW, payload="value"))
    return Lake("ev", [RAW, stream, event_group("shop", stream, match="shop.*")])


def buy(number: int) -> bytes:
    return event("shop.buy", n=number)


def test_the_streams_table_depends_on_the_table_that_is_its_source() -> None:
    definitions = build_definitions(lake())
    graph = definitions.resolve_asset_graph()
    bronze = graph.get(dg.AssetKey(["game", "events"]))
    assert bronze.parent_keys == {dg.AssetKey(["bronze", "raw"])}
    assert (bronze.metadata["source"], bronze.metadata["waits for"]) == (
        "value of table bronze.raw",
        "a change of bronze.raw, as events arrive",
    )
    assert graph.get(dg.AssetKey("shop")).parent_keys == {bronze.key}


@spark
def test_rows_that_others_append_become_the_rows_of_types_by_themselves(game: Game) -> None:
    assert game.tick("game_events").run_requests == []
    game.append(buy(1), event("jump"))
    game.append(buy(2), b"{damaged")
    first = game.execute()
    seen = shown(first)
    assert (first.success, seen["rows inserted"], seen["last fired because"]) == (
        True,
        4,
        "2 events arrived (2 of bronze.raw)",
    )
    assert "`bronze.raw` from nothing up to snapshot 1" in seen["range"]
    (reported,) = LineageStandings(game.platform.store.engine).of_targets(["game.events"])
    assert {
        one.column: [str(source.ref) for source in one.sources]
        for one in reported.statement.columns
    } == {"payload": ["bronze.raw.value"]}
    assert game.tick("game_events").run_requests == []
    assert game.execute("shop", "ev__shop").success
    assert game.numbers("shop.shop__buy") == [1, 2]

    game.append(buy(3))
    assert (
        "1 of bronze.raw"
        in explain(game.platform, declared_subscriptions()["game.events"]).sentence
    )
    second = game.execute()
    assert (
        "`bronze.raw` after snapshot 1 up to snapshot 2: 1 commits, 1 with data, read by log_files"
        in shown(second)["range"]
    )
    assert game.execute("shop", "ev__shop").success
    assert game.numbers("shop.shop__buy") == [1, 2, 3]
    with pytest.raises(
        LakeChimeError, match=r"its rows would be there twice were bronze\.raw read again"
    ):
        checkpoint_at(
            game.platform, declared_subscriptions()["game.events"], StartFrom("beginning")
        )
