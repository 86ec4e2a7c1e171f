"""`lakechime schema producers`: who sends events, what each brought, and what is withheld of whom."""

import sys
from dataclasses import replace
from types import ModuleType

import pytest

from lakechime_dagster.lake import JsonLines, Lake, event_group, event_stream
from lakechime_dagster.lake.contracts import Hint
from lakechime_dagster.resources.streams.event_types import event_hints, event_types
from lakechime_dagster.schema.repository import KnownType, TypePlace
from lakechime_dagster.schema.rescue import Rescue
from lakechime_dagster.schema.results import Sent
from lakechime_dagster.store.engine import writing
from lakechime_dagster.store.interventions import By
from tests.cli.game import Game
from tests.store.test_event_producers import learning, sent_by, step
from tests.support.cli import Cli

STREAM = event_stream("play", source=JsonLines("in"), producer_field="$.title")
SHOP = event_group("shop", STREAM, match="shop_*", max_columns_per_producer=2)
BUY = KnownType(type="shop_buy", table="shop_buy", place=TypePlace(uid="u"))


@pytest.fixture
def bought(lakechime: Cli) -> Cli:
    """Two types of which one producer brought as much as he may."""
    module = ModuleType("play_lake")
    module.__dict__["lake"] = Lake("play", [STREAM, SHOP])
    lakechime.monkeypatch.setitem(sys.modules, "play_lake", module)
    lakechime.monkeypatch.setenv("LAKECHIME_LAKE", "play_lake:lake")
    types, sell = event_types(lakechime.platform), replace(BUY, type="shop_sell", table="shop_sell")
    crash = "crash\x1b[2J"
    types.learn("shop", [
        learning(BUY, sent_by(crash, a=1, b=1, c=1), sent_by("", a="x"), cap=2), learning(sell, sent_by(crash, a=1), cap=2),
    ])  # fmt: skip
    sent = {crash: Sent(events=2_000, rescued=7, reasons={Rescue.PRODUCER_CAP: 7, Rescue.CASE: 1}), "": Sent(events=1)}
    results = [replace(step(5, **sent), type="shop_buy"), replace(step(5, **{crash: Sent(events=5)}), type="shop_sell")]
    with writing(types.engine) as connection:
        types.settle(connection, "shop", "e1", results, "u")
    return lakechime


def test_as_json_names_are_as_they_are_spelled(bought: Cli) -> None:
    told = bought("schema", "producers", "shop_buy", "--json").json
    assert (told["cap"], told["withheld"]) == (2, [{"path": "/c", "kind": "long", "producer": "crash\x1b[2J"}])
    assert told["producers"][1] == {
        "group": "shop", "producer": "", "events": 1, "rescued": 0, "variations": 1, "columns": 1, "conflicts": 0, "reasons": {},
    }  # fmt: skip


def test_without_a_type_all_of_a_group_are_told_in_sum_and_no_more_than_asked_for(bought: Cli) -> None:
    (one,) = bought("schema", "producers", "--limit", "1", "--json").json["producers"]
    assert (one["events"], one["columns"], one["reasons"]) == (2_005, 3, {"case": 1, "producer_cap": 7})
    assert "1 other not shown; --limit shows more" in bought("schema", "producers", "--group", "shop", "--limit", "1").out
    assert bought("schema", "producers", "--group", "play_other").out == "no step has been settled since producers are counted\n"


def test_the_cap_that_a_person_has_lifted_is_none(bought: Cli) -> None:
    event_hints(bought.platform).say("shop", Hint(type="shop_buy", of="columns", says="evolve"), By(who="me", reason="agreed"))
    assert bought("schema", "producers", "shop_buy", "--json").json["cap"] is None
    assert bought("schema", "producers", "shop_sell", "--json").json["cap"] == 2


def test_a_stream_without_a_field_for_producers_is_told_what_to_declare(lakechime: Cli) -> None:
    Game.declared(lakechime)
    out = lakechime("schema", "producers").out
    assert out == 'game tells no producer; add producer_field="$.…" to its event_stream(…)\n'
