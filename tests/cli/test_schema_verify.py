"""`lakechime schema verify`: what it looks at, how it tells what is wrong, and that it shows values only to who asks."""

from collections.abc import Collection
from typing import Any

import pytest

from lakechime_dagster.silver import dry_run
from lakechime_dagster.silver.results import Example, Fault, Verified
from lakechime_dagster.tables.events import EventGroup
from tests.cli.game import Game, event
from tests.support.cli import Cli

WHOLE = Verified(type="shop_buy", table="shop.shop_buy", version=3, checkpoint=9, events=7, rows=6, discarded=1, sampled=5)
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
    examples=(Example(fault=Fault.LOST, source="a@0"), Example(fault=Fault.LACKS, source="a@7", pointer="/name", value="Ann\x1b")),
)


class Looked:
    """In checkpoint of Spark, which tests of its own start: what was asked, and what is found."""

    def __init__(self, *found: Verified) -> None:
        self.found = found
        self.asked: list[tuple[str, Collection[str] | None, int]] = []

    def __call__(
        self, platform: object, group: EventGroup, log: object, *, names: Collection[str] | None, sample: int, seed: int
    ) -> list[Verified]:
        self.asked.append((group.name, names, sample))
        return [*self.found] if group.name == "shop" else []


def looking(monkeypatch: pytest.MonkeyPatch, *found: Verified) -> Looked:
    looked = Looked(*found)
    monkeypatch.setattr(dry_run, "verified", looked)
    return looked


@pytest.fixture
def game(lakechime: Cli) -> Game:
    game = Game.declared(lakechime)
    game.come(event("shop_buy", n=1), event("shop_sell", n=1))
    game.step()
    return game


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ((), [("game_other", None, 100), ("shop", None, 100)]),
        (("shop", "--sample", "5"), [("shop", None, 5)]),
        (("shop_buy",), [("shop", ["shop_buy"], 100)]),
        (("shop.shop_sell",), [("shop", ["shop_sell"], 100)]),
        (("--group", "shop"), [("shop", None, 100)]),
    ],
)
def test_groups_and_types_are_looked_at_by_name(
    lakechime: Cli, game: Game, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], asked: list[Any]
) -> None:
    looked = looking(monkeypatch, WHOLE)
    assert lakechime("schema", "verify", *arguments).code == 0
    assert looked.asked == asked


def test_what_is_wrong_ends_with_one_and_shows_no_value_unasked(lakechime: Cli, game: Game, monkeypatch: pytest.MonkeyPatch) -> None:
    looking(monkeypatch, WHOLE, WRONG)
    answer = lakechime("schema", "verify", "shop")
    assert answer.code == 1
    assert [line.split() for line in answer.out.splitlines()] == [
        ["type", "table", "events", "rows", "discarded", "looked", "into", "is"],
        ["shop_buy", "shop.shop_buy", "7", "6", "1", "5", "whole"],
        ["shop_sell", "shop.shop_sell", "3", "2", "0", "2", "1", "lost,", "1", "lacks"],
        ["shop.shop_sell:", "1", "row", "older", "than", "all", "that", "the", "stream's", "table", "still", "has"],
        ["shop.shop_sell:", "lost", "a@0"],
        ["shop.shop_sell:", "lacks", "a@7", "/name"],
    ]
    assert "Ann" not in lakechime("schema", "verify", "shop", "--json").out
    asked = lakechime("schema", "verify", "shop", "--values")
    assert "shop.shop_sell: lacks a@7 /name Ann\\x1b" in asked.out
    assert "may be personal data" in asked.err


def test_a_type_that_could_not_be_looked_at_ends_with_one(lakechime: Cli, game: Game, monkeypatch: pytest.MonkeyPatch) -> None:
    looking(monkeypatch, Verified(type="shop_buy", table="shop.shop_buy", unread="OSError: no room"))
    answer = lakechime("schema", "verify", "shop_buy", "--json")
    (one,) = answer.json["types"]
    assert (answer.code, one["unread"], one["faults"], one["table"]) == (1, "OSError: no room", {}, "shop.shop_buy")


def test_a_name_of_nothing_is_answered_with_those_that_there_are(lakechime: Cli, game: Game) -> None:
    answer = lakechime("schema", "verify", "shop_bye")
    assert (answer.code, "did you mean shop_buy?" in answer.err) == (3, True)
