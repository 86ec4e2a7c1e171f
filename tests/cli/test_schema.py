"""`lakechime schema`: what is known of types of events, what was refused, and verification."""

import datetime as dt
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakechime_dagster.silver import service
from lakechime_dagster.silver.bronze import WouldReprocess
from lakechime_dagster.silver.requests import event_requests
from lakechime_dagster.silver.results import (
    TYPE_CAP,
    Example,
    Fault,
    RequestDone,
    RequestKind,
    Verified,
)
from lakechime_dagster.tables.events import Contract, EventGroup, event_group
from tests.cli.game import GAME, SCHEMA, Game, event
from tests.support.cli import Cli

HAT = event("shop_buy", item="hat", price=3)
CAP = event("shop_buy", item="cap", price="four", more={"a b": [[1]], "at": [{"x": 1}]})
BAG = event("shop_buy", item="bag", price=1.5)


@pytest.fixture
def game(lakechime: Cli) -> Game:
    return Game.declared(lakechime)


@pytest.fixture
def bought(game: Game) -> Game:
    """A type with two schemas, whose table does not hold what came last."""
    game.come(HAT, CAP)
    game.execute()
    game.come(BAG)
    game.execute()
    game.come(HAT)
    return game


def test_types_are_listed_with_how_far_their_tables_are_behind(
    lakechime: Cli, bought: Game
) -> None:
    bought.come(event("jump"))
    bought.execute(event_group("game_other", GAME), waits={"jump": TYPE_CAP})
    (other, one) = lakechime("schema", "show", "--json").json["types"]
    assert one == {
        "group": "shop",
        "type": "shop_buy",
        "table": "shop.shop_buy",
        "schema_version": 2,
        "columns": 7,
        "checkpoint": 1,
        "newest": 3,
        "behind": 2,
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
    assert [other[fact] for fact in ("group", "checkpoint", "behind", "waiting")] == [
        "game_other",
        None,
        4,
        1,
    ]
    assert (other["state"], other["reason"]) == ("waits", TYPE_CAP)
    assert lakechime("schema", "show", "shop", "--json").json == {"types": [one]}
    shown = lakechime("schema", "show", "shop").out.splitlines()[1].split()
    assert shown == ["shop", "shop_buy", "shop.shop_buy", "2", "7", "1", "2", "3", "0", "ok"]


def test_the_table_of_a_type_is_listed_as_such_and_is_not_dropped(
    lakechime: Cli, bought: Game
) -> None:
    table = bought.types.types("shop")["shop_buy"].table
    write_deltalake(str(lakechime.home / "warehouse" / "shop" / "shop_buy"), pa.table({"id": [1]}))
    marker = ("--partition", '["a"]', "--tag", "complete=true")
    assert lakechime("dce", "register", "--table", table, *marker).code == 0
    listed = {one["name"]: one for one in lakechime("table", "show", "--json").json["tables"]}
    assert {fact: listed[table][fact] for fact in ("role", "group", "format")} == {
        "role": "type",
        "group": "shop",
        "format": "DELTA",
    }
    refused = lakechime("table", "drop", table, "--reason", "why", "--yes")
    assert (refused.code, f"{table} holds a type of event group shop" in refused.err) == (1, True)
    assert (lakechime.home / "warehouse" / "shop" / "shop_buy").is_dir()


def test_the_changes_of_a_schema_are_shown_in_a_line(lakechime: Cli, bought: Game) -> None:
    assert "+ price string, + price__v_long long" in lakechime("schema", "show", "shop_buy").out


def test_a_stream_that_cannot_be_read_hides_nothing_that_the_store_knows(
    lakechime: Cli, bought: Game
) -> None:
    (Path(bought.location) / "_delta_log" / "00000000000000000000.json").write_text(
        '{"commitInfo": \n'
    )
    for answer in (
        lakechime("schema", "show", "--json"),
        lakechime("schema", "show", "shop_buy", "--json"),
    ):
        assert (answer.code, '"written": 3' in answer.out, '"newest": null' in answer.out) == (
            0,
            True,
            True,
        )
        assert answer.err.startswith("warning: game.events: the Delta table at ")


# show


def test_a_type_as_json_has_its_schema_and_what_was_observed(lakechime: Cli, bought: Game) -> None:
    document = lakechime("schema", "show", "shop_buy", "--json").json
    known = bought.types.types("shop")["shop_buy"]
    assert document["schema"] == known.schema.to_json()
    assert document["observed"][0] == {"path": "/item", "kinds": ["string"]}
    assert "hat" not in json.dumps(document)


BUY = "shop.shop_buy"
WHY = ("--reason", "prices are cents now", "--who", "me")


@pytest.fixture
def frozen(lakechime: Cli) -> Game:
    game = Game.declared(
        lakechime, event_group("shop", GAME, match="shop_*", contract=Contract(kinds="freeze"))
    )
    game.come(HAT)
    game.execute()
    return game


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (("shop_by",), "did you mean shop_buy?"),
        (("shop_buy", "--cancel"), "no request for 'shop.shop_buy' is open"),
    ],
)
def test_what_cannot_be_replayed_says_why(
    lakechime: Cli, frozen: Game, words: tuple[str, ...], reported: str
) -> None:
    answer = lakechime("schema", "replay", *words, *WHY)
    assert answer.code != 0
    assert reported in answer.err
    assert event_requests(lakechime.platform).of(BUY) == []


def test_a_replay_is_requested_and_its_result_is_shown(lakechime: Cli, frozen: Game) -> None:
    asked = lakechime("schema", "replay", "shop_buy", *WHY)
    assert asked.out == (
        "replay 1 of shop.shop_buy is done by the next execution of shop, which its sensor "
        "launches;"
        " `lakechime schema show shop.shop_buy` shows the result\n"
    )
    assert (
        lakechime("schema", "replay", "shop_buy", "--rebuild", *WHY, "--json").json["request"] == 2
    )
    requests = event_requests(lakechime.platform)
    assert requests.open_of_group("shop")["shop_buy"].kind is RequestKind.REBUILD
    assert "waiting" in lakechime("schema", "show", "shop_buy").out
    requests.close("e1", RequestDone(request_id=2, replaced=4, added=2))
    shown = lakechime("schema", "show", "shop_buy", "--json").json["requests"][0]
    assert (
        shown["kind"],
        shown["replaced"],
        shown["added"],
        shown["who"],
        shown["done_ts"] is None,
    ) == ("rebuild", 4, 2, "me", False)


def test_a_replay_of_a_type_without_a_table_is_refused(lakechime: Cli, frozen: Game) -> None:
    frozen.come(event("shop_wait"))
    frozen.execute(waits={"shop_wait": TYPE_CAP})
    for more in ((), ("--rebuild",), ("--dry-run",)):
        answer = lakechime("schema", "replay", "shop_wait", *more, *WHY)
        assert (answer.code, "'shop_wait' has no table" in answer.err) == (3, True)
    assert event_requests(lakechime.platform).of("shop.shop_wait") == []
    frozen.execute(fails={"shop_wait": "its events cannot be separated; rebuild it"})
    assert lakechime("schema", "replay", "shop_wait", "--rebuild", *WHY).code == 0


def test_a_replay_that_waits_may_be_cancelled(lakechime: Cli, frozen: Game) -> None:
    lakechime("schema", "replay", "shop_buy", *WHY)
    would = lakechime("schema", "replay", "shop_buy", "--cancel", "--dry-run", *WHY)
    open_ = event_requests(lakechime.platform).open(BUY)
    assert (would.out, open_ is None) == ("request 1 for shop.shop_buy would be cancelled\n", False)
    done = lakechime(
        "schema", "replay", "shop_buy", "--cancel", "--reason", "a mistake", "--who", "you"
    )
    assert (done.out, event_requests(lakechime.platform).open(BUY)) == (
        "request 1 for shop.shop_buy is cancelled\n",
        None,
    )
    shown = " ".join(lakechime("schema", "show", "shop_buy").out.split())
    assert "prices are cents now; cancelled by you: a mistake cancelled" in shown


WHY_REFUSING = ("--reason", "the type is in another field", "--who", "me")


@pytest.fixture
def refusing(lakechime: Cli) -> Game:
    game = Game.declared(lakechime)
    game.come(b'{"kind": "buy"}', b"{damaged", b'{"kind": "sell"}')
    return game


def test_reprocessing_is_requested_and_its_result_is_shown(lakechime: Cli, refusing: Game) -> None:
    asked = lakechime("schema", "replay", "game", "--quarantine", *WHY_REFUSING)
    assert asked.out == (
        "reprocess 1 of game.events is done by the next execution of game.events, which its sensor "
        "launches;"
        " `lakechime schema show game --quarantine` shows the result\n"
    )
    assert "waiting" in lakechime("schema", "show", "game", "--quarantine").out
    event_requests(lakechime.platform).close("e1", RequestDone(request_id=1, added=2))
    (shown,) = lakechime("schema", "show", "game", "--quarantine", "--json").json["requests"]
    assert (shown["request"], shown["added"], shown["who"], shown["reason"]) == (
        1,
        2,
        "me",
        WHY_REFUSING[1],
    )


def test_a_row_that_was_reprocessed_is_neither_shown_nor_counted_any_more(
    lakechime: Cli, refusing: Game
) -> None:
    assert lakechime("schema", "show", "game", "--quarantine", "--json").json["reasons"] == {
        "type_missing": 2,
        "not_json": 1,
    }
    moment = dt.datetime(2024, 3, 1, tzinfo=dt.timezone.utc)
    row = {
        "_src": "a.jsonl@0",
        "_ingested_at": moment,
        "type": "buy",
        "payload": '{"kind": "buy"}',
        "refused_before": "type_missing",
    }
    data = pa.Table.from_pylist([row], schema=SCHEMA)
    write_deltalake(refusing.location, data, mode="append", schema_mode="merge")
    document = lakechime("schema", "show", "game", "--quarantine", "--json").json
    assert (document["total"], document["reasons"]) == (2, {"not_json": 1, "type_missing": 1})
    assert sorted(one["_src"] for one in document["refused"]) == ["a.jsonl@1", "a.jsonl@2"]


def test_a_dry_run_reports_what_would_be_reprocessed(
    lakechime: Cli, refusing: Game, monkeypatch: pytest.MonkeyPatch
) -> None:
    would = WouldReprocess(rows=3, kinds=(("type_missing", "buy", 2), ("type_missing", "sell", 1)))
    monkeypatch.setattr(
        "lakechime_dagster.silver.service.would_reprocess", lambda platform, table, log: would
    )
    reported = lakechime("schema", "replay", "game", "--quarantine", "--dry-run", *WHY_REFUSING)
    assert reported.out.splitlines()[0] == "3 rows of game.events would be reprocessed"
    assert [line.split() for line in reported.out.splitlines()[-2:]] == [
        ["type_missing", "buy", "2"],
        ["type_missing", "sell", "1"],
    ]
    assert lakechime(
        "schema", "replay", "game", "--quarantine", "--dry-run", *WHY_REFUSING, "--json"
    ).json["kinds"][1] == {"reason": "type_missing", "type": "sell", "rows": 1}
    assert event_requests(lakechime.platform).of("game.events") == []


WHOLE = Verified(
    type="shop_buy",
    table="shop.shop_buy",
    version=3,
    checkpoint=9,
    events=7,
    rows=6,
    discarded=1,
    sampled=5,
)
WRONG = Verified(
    type="shop_sell",
    table="shop.shop_sell",
    version=1,
    checkpoint=9,
    events=3,
    rows=2,
    gone=1,
    sampled=2,
    faults={Fault.LOST: 1, Fault.LACKS: 1},
    examples=(
        Example(fault=Fault.LOST, source="a@0"),
        Example(fault=Fault.LACKS, source="a@7", pointer="/name", value="Ann\x1b"),
    ),
)


class Looked:
    """In checkpoint of Spark, which tests of its own start: what was asked, and what is found."""

    def __init__(self, *found: Verified) -> None:
        self.found = found
        self.asked: list[tuple[str, Collection[str] | None, int]] = []

    def __call__(
        self,
        platform: object,
        group: EventGroup,
        log: object,
        *,
        names: Collection[str] | None,
        sample: int,
        seed: int,
    ) -> list[Verified]:
        self.asked.append((group.name, names, sample))
        return [*self.found] if group.name == "shop" else []


def looking(monkeypatch: pytest.MonkeyPatch, *found: Verified) -> Looked:
    looked = Looked(*found)
    monkeypatch.setattr(service, "verified", looked)
    return looked


@pytest.fixture
def compared(lakechime: Cli) -> Game:
    game = Game.declared(lakechime)
    game.come(event("shop_buy", n=1), event("shop_sell", n=1))
    game.execute()
    return game


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ((), [("game_other", None, 100), ("shop", None, 100)]),
        (("shop", "--sample", "5"), [("shop", None, 5)]),
        (("shop.shop_sell",), [("shop", ["shop_sell"], 100)]),
        (("--group", "shop"), [("shop", None, 100)]),
    ],
)
def test_groups_and_types_are_looked_at_by_name(
    lakechime: Cli,
    compared: Game,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    asked: list[Any],
) -> None:
    looked = looking(monkeypatch, WHOLE)
    assert lakechime("schema", "verify", *arguments).code == 0
    assert looked.asked == asked


def test_what_is_wrong_ends_with_one_and_shows_no_value_unasked(
    lakechime: Cli, compared: Game, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking(monkeypatch, WHOLE, WRONG)
    answer = lakechime("schema", "verify", "shop")
    assert answer.code == 1
    assert "1 lost, 1 lacks" in answer.out
    assert "1 row older than all events in the stream's table" in answer.out
    assert "shop.shop_sell: lacks a@7 /name\n" in answer.out
    assert "Ann" not in lakechime("schema", "verify", "shop", "--json").out
    asked = lakechime("schema", "verify", "shop", "--values")
    assert "shop.shop_sell: lacks a@7 /name Ann\\x1b" in asked.out
    assert "may be personal data" in asked.err


def test_types_that_failed_are_tried_at_once(lakechime: Cli, game: Game) -> None:
    assert "nothing to try again" in lakechime("schema", "replay", "shop", "--failed", *WHY).err
    game.come(HAT)
    game.execute(fails={"shop_buy": "OSError: no space"})
    assert lakechime("schema", "replay", "shop", "--failed", "--dry-run", "--json", *WHY).json[
        "dry_run"
    ]
    assert [one.is_due for one in game.types.left("shop")] == [False]
    answer = lakechime("schema", "replay", "shop", "--failed", "--json", *WHY)
    assert answer.json == {"group": "shop", "types": ["shop_buy"], "dry_run": False}
    assert [one.is_due for one in game.types.left("shop")] == [True]
    assert lakechime("schema", "replay", "shop_buy", "--failed", "--rebuild", *WHY).code == 2


def test_a_type_shows_its_contract(lakechime: Cli, frozen: Game) -> None:
    document = lakechime("schema", "show", "shop_buy", "--json").json
    assert document["contract"] == {
        "tables": "evolve",
        "columns": "evolve",
        "kinds": "freeze",
        "double first": False,
        "pins": {},
    }
