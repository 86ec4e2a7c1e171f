"""Types that change their group, run by Dagster: as patterns give them to another, or match what nobody had read."""

from dataclasses import replace

import pytest

from lakechime_dagster.assets import events
from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.silver.requests import UNREAD, event_hints, event_types
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.events import Hint, event_group, event_stream
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.triggers.interventions import By
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.assets.test_events import FINE, Game, buy, checks, dies, game, sell, shown, told
from tests.support.follows import read
from tests.support.streams import event

pytestmark = pytest.mark.spark
__all__ = ["game"]


def test_a_type_that_moves_is_a_partition_of_its_new_group_and_its_readers_go_on(game: Game) -> None:
    stream = event_stream("game", source=JsonLines(str(game.folder)), producer_field="$.title")
    shop = event_group("shop", stream, match="shop.*")
    vip = event_group("vip", stream, match="shop.buy")
    buys = sql_table("gold.buys", sql="SELECT n, _src FROM shop.shop__buy", keys=["_src"], refresh="rows", trigger=SnapshotTrigger())
    first = replace(game, definitions=build_definitions(Lake("ev", [stream, shop, shop.table("shop.buy"), buys])))
    first.step(buy(1), sell(1))
    assert first.run_of("gold_buys", "ev__tables").success
    event_hints(game.platform).say("shop", Hint(type="shop.buy", of="/price", says="double"), By(who="me", reason="cents"))

    second = replace(game, definitions=build_definitions(Lake("ev", [stream, shop, vip, shop.table("shop.buy"), buys])))
    second.ingest(buy(2, price=3), sell(2))
    (request,) = second.tick("vip").run_requests
    done = second.run("ev__vip", tags=dict(request.tags), asset_selection=request.asset_selection)
    assert (told(done), checks(done)["nothing_waits"]) == ({"shop.buy": 1}, True)
    assert second.instance.get_dynamic_partitions("ev__vip__types") == ["shop.buy"]
    assert [(row["n"], row["price"]) for row in second.kept("shop.buy")] == [(1, None), (2, 3.0)]
    assert [snapshot for snapshot, _, _ in second.events("shop.shop__buy")] == ["0", "1"]
    assert second.run_of("gold_buys", "ev__tables").success
    assert sorted(row["n"] for row in read(second.platform.location("gold.buys"))) == [1, 2]
    assert (told(second.step()), second.numbers("shop.sell")) == ({}, [1, 2])
    assert [*event_types(game.platform).types("shop")] == ["shop.sell"]


def test_a_group_whose_pattern_comes_to_match_a_type_that_nobody_had_read_takes_all_events_of_it(
    game: Game, monkeypatch: pytest.MonkeyPatch
) -> None:
    game.step(buy(1), event("sale", n=1))  # a type of the group for the rest, which does not run
    game.step(buy(2), event("sale", n=2))
    stream = event_stream("game", source=JsonLines(str(game.folder)), producer_field="$.title")
    wide = replace(game, definitions=build_definitions(Lake("ev", [stream, event_group("shop", stream, match="s*")])))
    with monkeypatch.context() as patched:
        patched.setattr(events, "complete_group", dies)
        with pytest.raises(KeyboardInterrupt):
            wide.step()  # though nothing came
    wide.tick("shop")
    wide.let_pass()
    done = wide.step()
    assert (checks(done), told(done), shown(done)["last fired because"]) == (FINE, {"sale": 2}, UNREAD)
    assert wide.tick("shop").run_requests == []
    wide.step(event("sale", n=3), event("soon", n=1), event("rest", n=1))
    assert told(wide.run("ev__game_other")) == {"rest": 1}
    assert (wide.numbers("sale"), wide.numbers("soon"), wide.numbers("shop.buy")) == ([1, 2, 3], [1], [1, 2])
