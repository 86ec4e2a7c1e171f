"""`lakechime schema`: what is known of the types that came, for a person who asks."""

import json
import re
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakechime_dagster.silver.results import TYPE_CAP
from lakechime_dagster.tables.events import event_group
from tests.cli.game import GAME, Game, event
from tests.support.cli import Answer, Cli

HAT = event("shop_buy", item="hat", price=3)
CAP = event("shop_buy", item="cap", price="four", more={"a b": [[1]], "at": [{"x": 1}]})
BAG = event("shop_buy", item="bag", price=1.5)


@pytest.fixture
def game(lakechime: Cli) -> Game:
    return Game.declared(lakechime)


@pytest.fixture
def bought(game: Game) -> Game:
    """A type with two layouts, whose table does not hold what came last."""
    game.come(HAT, CAP)
    game.step()
    game.come(BAG)
    game.step()
    game.come(HAT)
    return game


def plain(answer: Answer) -> str:
    """What was printed, with what differs from day to day named."""
    text = re.sub(r"\b[0-9a-f]{32}\b", "<hash>", answer.out)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "<time>".ljust(23), text)
    return re.sub(r" +$", "", text, flags=re.MULTILINE)


# list


def test_types_are_listed_with_how_far_their_tables_are_behind(lakechime: Cli, bought: Game) -> None:
    bought.step(event_group("game_other", GAME), waits={"shop_buy": TYPE_CAP})
    (other, one) = lakechime("schema", "show", "--json").json["types"]
    assert one == {
        "group": "shop",
        "type": "shop_buy",
        "table": "shop.shop_buy",
        "layout_version": 2,
        "columns": 7,
        "checkpoint": 1,
        "newest": 2,
        "behind": 1,
        "written": 3,
        "rescued": 0,
        "discarded": 0,
        "waiting": 0,
        "state": "ok",
        "reason": "",
        "left": "",
        "failures": 0,
        "due_ts": None,
    }
    assert [other[fact] for fact in ("group", "checkpoint", "behind", "waiting")] == ["game_other", None, 3, 4]
    assert (other["state"], other["reason"]) == ("waits", TYPE_CAP)
    assert lakechime("schema", "show", "shop", "--json").json == {"types": [one]}
    assert [line.split() for line in lakechime("schema", "show", "shop").out.splitlines()] == [
        ["group", "type", "table", "layout", "columns", "checkpoint", "behind", "written", "rescued", "state"],
        ["shop", "shop_buy", "shop.shop_buy", "2", "7", "1", "1", "3", "0", "ok"],
    ]


def test_a_type_that_failed_says_why_and_is_behind_until_it_is_written(lakechime: Cli, game: Game) -> None:
    game.come(HAT)
    game.step(fails={"shop_buy": "OSError: no space"})
    (one,) = lakechime("schema", "show", "--json").json["types"]
    assert (one["state"], one["reason"], one["failures"], one["behind"], one["layout_version"]) == ("failed", "OSError: no space", 1, 1, 1)
    assert one["due_ts"] is not None
    assert "failed: OSError: no space" in lakechime("schema", "show").out
    game.step()
    (one,) = lakechime("schema", "show", "--json").json["types"]
    assert (one["state"], one["behind"], one["due_ts"]) == ("ok", 0, None)


def test_rows_with_something_rescued_are_counted_among_those_written(lakechime: Cli, game: Game) -> None:
    game.come(event("shop_buy", tags=["a"]), event("shop_buy", tags=[1, "b"]))
    game.step()
    (one,) = lakechime("schema", "show", "--json").json["types"]
    assert (one["written"], one["rescued"]) == (2, 1)


def test_a_stream_that_was_made_anew_is_before_all_checkpoints(lakechime: Cli, bought: Game) -> None:
    shutil.rmtree(bought.location)
    (one,) = lakechime("schema", "show", "--json").json["types"]
    assert (one["checkpoint"], one["newest"], one["behind"]) == (1, None, None)
    bought.come(HAT)
    (one,) = lakechime("schema", "show", "--json").json["types"]
    assert (one["newest"], one["behind"]) == (0, 1)


def test_a_stream_that_cannot_be_read_hides_nothing_that_the_store_knows(lakechime: Cli, bought: Game) -> None:
    (Path(bought.location) / "_delta_log" / "00000000000000000000.json").write_text('{"commitInfo": \n')
    for answer in (lakechime("schema", "show", "--json"), lakechime("schema", "show", "shop_buy", "--json")):
        assert (answer.code, '"written": 3' in answer.out, '"newest": null' in answer.out) == (0, True, True)
        assert answer.err.startswith("warning: game.events: the Delta table at ")


@pytest.mark.usefixtures("game")
def test_groups_to_which_nothing_came_are_named(lakechime: Cli) -> None:
    assert lakechime("schema", "show").out == "no event has come yet to game_other, shop\n"
    assert lakechime("schema", "show", "--json").json == {"types": []}


# show


def test_a_type_as_json_has_its_layout_what_was_observed_and_the_variations(lakechime: Cli, bought: Game) -> None:
    document = lakechime("schema", "show", "shop_buy", "--json").json
    known = bought.types.types("shop")["shop_buy"]
    variations = bought.types.variations("shop", ["shop_buy"])["shop_buy"]
    assert document["layout"] == known.layout.to_json()
    assert document["observed"][0] == {"path": "/item", "kinds": ["string"], "first": 0, "last": 1}
    assert {one["typed_hash"] for one in document["variations"]} == variations.keys()
    assert [json.loads(one["shape"])["price"] for one in document["variations"]] == ["…", 1, 1.5]
    assert "hat" not in json.dumps(document)


def test_real_payloads_are_shown_only_where_they_are_asked_for(lakechime: Cli, bought: Game) -> None:
    answer = lakechime("schema", "show", "shop_buy", "--raw", "--json")
    assert answer.err == "warning: payloads are shown as they came, and may hold personal data\n"
    assert [one["payload"].encode() for one in answer.json["variations"]] == [CAP, HAT, BAG]
    assert f"\n  {HAT.decode()}\n" in lakechime("schema", "show", "shop_buy", "--raw").out
    shutil.rmtree(bought.location)
    bought.come(event("other"))
    answer = lakechime("schema", "show", "shop_buy", "--raw")
    assert (answer.code, answer.out.count("its payload is no longer in game.events")) == (0, 3)


@pytest.mark.usefixtures("bought")
def test_variations_beyond_the_limit_are_counted(lakechime: Cli) -> None:
    answer = lakechime("schema", "show", "shop_buy", "--limit", "1")
    assert answer.out.endswith("\n2 later ones not shown; --limit shows more\n")
    document = lakechime("schema", "show", "shop_buy", "--limit", "1", "--json").json
    assert (document["variations_kept"], len(document["variations"])) == (3, 1)


def test_a_type_may_be_named_by_its_table(lakechime: Cli, game: Game) -> None:
    game.come(event("shop_Größe"))
    game.step()
    (listed,) = lakechime("schema", "show", "--json").json["types"]
    assert lakechime("schema", "show", listed["table"], "--json").json["type"] == "shop_Größe"


def test_a_type_that_two_groups_have_had_needs_the_group(lakechime: Cli, bought: Game) -> None:
    bought.step(event_group("game_other", GAME))
    answer = lakechime("schema", "show", "shop_buy")
    assert (answer.code, "'--group': 'shop_buy' is a type of game_other and shop; say which" in answer.err) == (2, True)
    assert lakechime("schema", "show", "shop_buy", "--group", "shop", "--json").json["group"] == "shop"


@pytest.mark.usefixtures("bought")
def test_a_type_is_shown_with_what_each_layout_gained(lakechime: Cli) -> None:
    layouts = lakechime("schema", "show", "shop_buy", "--json").json["layouts"]
    assert [(one["version"], one["actor"], one["decision"].split("\n")) for one in layouts] == [
        (2, "lakechime", ["+ price__v_fraction fraction"]),
        (
            1,
            "lakechime",
            ["+ item string", "+ more.a_x20_b[][] long", "+ more.at[].x long", "+ price string", "+ price__v_long long", "+ type string"],
        ),
    ]
    assert all(isinstance(one["made_ts"], int) for one in layouts)


def test_a_type_that_waits_for_a_table_says_why(lakechime: Cli, game: Game) -> None:
    game.come(HAT)
    game.step(waits={"shop_buy": TYPE_CAP})
    why = "the group has as many tables as its max_types lets it; `lakechime schema decide TYPE tables evolve` lets this one in"
    assert why in " ".join(lakechime("schema", "show", "shop_buy").out.split())


# quarantine


def test_what_was_refused_as_json_has_payloads_as_text_that_is_cut(lakechime: Cli, game: Game) -> None:
    game.come(b"[" + b"1" * 300 + b"]", event("none")[:-1], b'{"kind": 1}', b"\xff" * 300)
    document = lakechime("schema", "show", "--quarantine", "game", "--json").json
    assert document.keys() == {"stream", "table", "total", "reasons", "refused", "reprocessing"}
    assert (document["total"], document["reasons"]) == (4, {"not_json": 1, "not_object": 1, "not_utf8": 1, "type_missing": 1})
    told = {one["reason"]: one for one in document["refused"]}
    assert {reason: one["_src"] for reason, one in told.items()} == {
        "not_object": "a.jsonl@0",
        "not_json": "a.jsonl@1",
        "type_missing": "a.jsonl@2",
        "not_utf8": "a.jsonl@3",
    }
    assert (told["type_missing"]["payload"], told["not_json"]["payload"]) == ('{"kind": 1}', '{"type": "none"')
    assert (told["not_object"]["payload"], told["not_utf8"]["payload"]) == ("[" + "1" * 199 + "…", "\\xff" * 50 + "…")
    assert told["not_json"]["_ingested_at"] == told["not_json"]["sent_at"] == "2024-02-29T00:00:00+00:00"


def test_a_stream_that_refused_nothing_or_holds_nothing_says_so(lakechime: Cli, game: Game) -> None:
    assert lakechime("schema", "show", "--quarantine", "game").out == "game.events has refused nothing\n"
    game.come(HAT)
    game.step()
    assert lakechime("schema", "show", "--quarantine", "game").out == "game.events has refused nothing\n"
    assert lakechime("schema", "show", "--quarantine", "shop").out.endswith("\ntypes of shop that wait or failed:\nnone\n")
    document = lakechime("schema", "show", "--quarantine", "shop", "--json").json
    assert (document["total"], document["refused"], document["types"]) == (0, [], [])


# what is not there


def test_a_type_that_moved_keeps_its_table(lakechime: Cli, bought: Game) -> None:
    kiosk = event_group("kiosk", GAME, match="shop_*")
    Game.declared(lakechime, kiosk)
    assert bought.types.move([kiosk], str(DeltaTable(bought.location).metadata().id))
    listed = lakechime("schema", "show", "--json").json["types"]
    (buy,) = [one for one in listed if one["type"] == "shop_buy"]
    assert (buy["group"], buy["table"], buy["state"]) == ("kiosk", "shop.shop_buy", "ok")
