"""`lakechime schema decide, replay, retry`: what a person decides of a type is kept with who and why, and told again."""

from dataclasses import replace

import pytest

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.silver.requests import event_hints, event_replays, event_types
from lakechime_dagster.silver.results import Replay, Replayed
from lakechime_dagster.silver.schema import Layout, relearned
from lakechime_dagster.silver.store import close
from lakechime_dagster.tables.events import Contract, Hint, event_group
from tests.cli.game import GAME, Game, event
from tests.support.cli import Cli

HAT = event("shop_buy", item="hat", price=3)
WHY = ("--reason", "prices are cents now", "--who", "me")


@pytest.fixture
def game(lakechime: Cli) -> Game:
    game = Game.declared(lakechime, event_group("shop", GAME, match="shop_*", contract=Contract(kinds="freeze")))
    game.come(HAT)
    game.step()
    return game


def test_a_hint_is_kept_with_who_and_why_and_shown_beside_the_type(lakechime: Cli, game: Game) -> None:
    said = lakechime("schema", "decide", "shop_buy", "/gift", "json", *WHY)
    assert said.out == (
        "/gift of shop_buy is json from the next execution on; earlier events stay as they are until"
        " `lakechime schema replay shop.shop_buy --reason …`\n"
    )
    assert event_hints(lakechime.platform).holding("shop") == [Hint(type="shop_buy", of="/gift", says="json")]
    assert "/gift  json  me" in lakechime("schema", "show", "shop_buy").out
    (shown,) = lakechime("schema", "show", "shop_buy", "--json").json["hints"]
    assert (shown["of"], shown["says"], shown["who"], shown["reason"]) == ("/gift", "json", "me", "prices are cents now")
    told = lakechime("schema", "decide", "shop_buy", "/gift", "-", *WHY, "--json").json
    assert told == {"group": "shop", "type": "shop_buy", "of": ["/gift"], "says": None, "dry_run": False}
    assert event_hints(lakechime.platform).holding("shop") == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("decide", "shop_buy", "gift", "json"), "'gift' is no path; write such as '/price'"),
        (("decide", "shop_buy", "kinds", "json"), "'json' is none of evolve, freeze"),
        (("decide", "shop_buy", "/gift", "jsn"), "'jsn' is none of bool, long, bigint, double, string, json, ignore"),
        (("decide", "shop_buy", "/gift", "-"), "nothing is said of '/gift' of 'shop_buy' beside what is declared"),
        (("decide", "shop_by", "/gift", "json"), "did you mean shop_buy?"),
        (("replay", "shop_by"), "did you mean shop_buy?"),
        (("replay", "shop_buy", "--cancel"), "no replay of 'shop_buy' is open"),
        (("replay", "shop_by", "--rebuild"), "did you mean shop_buy?"),
        (("replay", "shop_buy", "--whole", "--rebuild"), "reads all events anyway; leave --whole out"),
    ],
)
def test_what_cannot_be_decided_says_why(lakechime: Cli, game: Game, words: tuple[str, ...], told: str) -> None:
    answer = lakechime("schema", *words, *WHY)
    assert answer.code != 0
    assert told in " ".join(answer.err.replace("│", " ").split())
    assert (event_hints(lakechime.platform).said("shop"), event_replays(lakechime.platform).of("shop", "shop_buy")) == ([], [])


def test_what_a_contract_refuses_may_be_allowed_for_a_type(lakechime: Cli, game: Game) -> None:
    told = lakechime("schema", "decide", "shop_buy", "kinds", "evolve", *WHY, "--json").json
    assert told == {"group": "shop", "type": "shop_buy", "of": ["kinds"], "says": "evolve", "dry_run": False}
    lakechime("schema", "decide", "shop_buy", "all", "evolve", *WHY)
    assert [(one.of, one.says) for one in event_hints(lakechime.platform).holding("shop")] == [
        ("tables", "evolve"),
        ("columns", "evolve"),
        ("kinds", "evolve"),
    ]


def test_a_dry_run_decides_nothing(lakechime: Cli, game: Game) -> None:
    would = lakechime("schema", "decide", "shop_buy", "/gift", "json", *WHY, "--dry-run")
    assert "/gift of shop_buy would be json from the next execution on" in would.out
    assert lakechime("schema", "decide", "shop_buy", "all", "evolve", *WHY, "--dry-run", "--json").json["dry_run"]
    assert event_hints(lakechime.platform).said("shop") == []
    lakechime("schema", "decide", "shop_buy", "/gift", "json", *WHY)
    lakechime("schema", "decide", "shop_buy", "/gift", "-", *WHY, "--dry-run")
    assert event_hints(lakechime.platform).holding("shop") == [Hint(type="shop_buy", of="/gift", says="json")]


def test_a_replay_is_asked_for_once_and_its_end_is_told(lakechime: Cli, game: Game) -> None:
    told = lakechime("schema", "replay", "shop_buy", *WHY)
    assert told.out == (
        "replay 1 of shop_buy is done by the next execution of shop, which its sensor launches;"
        " `lakechime schema show shop.shop_buy` shows the result\n"
    )
    assert lakechime("schema", "replay", "shop_buy", "--whole", *WHY, "--json").json["replay"] == 2
    replays = event_replays(lakechime.platform)
    assert replays.open("shop") == {"shop_buy": Replay(replay_id=2, type="shop_buy", is_whole=True)}
    assert "waits" in lakechime("schema", "show", "shop_buy").out
    with writing(replays.engine) as connection:
        close(connection, "e1", [Replayed(replay_id=2, replaced=4, added=2)])
    shown, _ = lakechime("schema", "show", "shop_buy", "--json").json["replays"]
    assert (shown["replaced"], shown["added"], shown["who"], shown["done_ts"] is None) == (4, 2, "me", False)


def test_a_rebuild_is_asked_for_once_and_its_end_is_told(lakechime: Cli, game: Game) -> None:
    told = lakechime("schema", "replay", "shop_buy", "--rebuild", *WHY)
    assert told.out == (
        "rebuild 1 of shop_buy is done by the next execution of shop, which its sensor launches;"
        " `lakechime schema show shop.shop_buy` shows the result\n"
    )
    asked = lakechime("schema", "replay", "shop_buy", "--rebuild", *WHY, "--json").json
    assert (asked["replay"], asked["rebuild"]) == (1, True)
    replays = event_replays(lakechime.platform)
    assert replays.open("shop") == {"shop_buy": Replay(replay_id=1, type="shop_buy", is_rebuild=True)}
    with writing(replays.engine) as connection:
        close(connection, "e1", [Replayed(replay_id=1, replaced=4, added=2, removed=1)])
    (shown,) = lakechime("schema", "show", "shop_buy", "--json").json["replays"]
    assert (shown["rebuild"], shown["replaced"], shown["added"], shown["removed"]) == (True, 4, 2, 1)
    assert "1       rebuild" in lakechime("schema", "show", "shop_buy").out


def test_what_a_rebuild_makes_of_the_columns_is_told(lakechime: Cli, game: Game) -> None:
    types, known = event_types(lakechime.platform), event_types(lakechime.platform).types("shop")["shop_buy"]
    price = replace(known.layout.columns[1], name="price__v_long", is_sibling=True)
    anew = relearned(known, [], Contract())
    anew = replace(anew, layout=Layout((known.layout.columns[0], price)), is_new_layout=True, decision="rebuild\n+ price__v_long long")
    types.adopt("shop", "shop_buy", 2, types.propose("shop", anew, 0))
    layouts = lakechime("schema", "show", "shop_buy", "--json").json["layouts"]
    assert layouts[0]["decision"].splitlines() == ["rebuild", "+ price__v_long long"]


def test_a_type_without_a_table_has_nothing_to_replay_into(lakechime: Cli, game: Game) -> None:
    game.come(event("shop_fly"))
    game.step(waits={"shop_fly": "frozen"})
    answer = lakechime("schema", "replay", "shop_fly", *WHY)
    assert answer.code != 0
    assert "'shop_fly' has no table in event group shop" in " ".join(answer.err.split())
    answer = lakechime("schema", "replay", "shop_fly", "--rebuild", *WHY, "--dry-run")
    assert "shop_fly has no table" in " ".join(answer.err.split())
    assert event_replays(lakechime.platform).open("shop") == {}


def test_a_replay_that_waits_may_be_cancelled(lakechime: Cli, game: Game) -> None:
    lakechime("schema", "replay", "shop_buy", *WHY)
    would = lakechime("schema", "replay", "shop_buy", "--cancel", "--dry-run", *WHY)
    assert (would.out, len(event_replays(lakechime.platform).open("shop"))) == ("replay 1 of shop_buy would be cancelled\n", 1)
    done = lakechime("schema", "replay", "shop_buy", "--cancel", "--reason", "a mistake", "--who", "you")
    assert (done.out, event_replays(lakechime.platform).open("shop")) == ("replay 1 of shop_buy is cancelled\n", {})
    shown = " ".join(lakechime("schema", "show", "shop_buy").out.split())
    assert "prices are cents now; cancelled by you: a mistake cancelled" in shown


def test_what_holds_of_a_type_is_shown_and_what_it_kept_out(lakechime: Cli, game: Game) -> None:
    game.come(event("shop_buy", price="x"))
    game.step()
    shown = " ".join(lakechime("schema", "show", "shop_buy").out.split())
    assert "contract: of says kinds freeze breaking changes: made path kind how producer layout" in shown
    document = lakechime("schema", "show", "shop_buy", "--json").json
    assert document["contract"] == {"tables": "evolve", "columns": "evolve", "kinds": "freeze", "double first": False, "pins": {}}
    (one,) = document["breaking"]
    assert (one["path"], one["kind"], one["how"], one["producer"], one["layout"]) == ("/price", "string", "frozen", None, 1)
    lakechime("schema", "decide", "shop_buy", "all", "evolve", *WHY)
    assert lakechime("schema", "show", "shop_buy", "--json").json["contract"]["kinds"] == "evolve"
