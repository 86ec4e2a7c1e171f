"""A type that moves to another group takes with it all that the store knows of it; nobody of the former group brings it back."""

from dataclasses import replace

import pytest
from sqlalchemy import Engine

from lakechime_dagster.errors import ConsumerConflictError
from lakechime_dagster.silver.schema import TypeCheckpoint
from lakechime_dagster.silver.store import Hints, Replays, SqlEventTypes
from lakechime_dagster.tables.events import EventGroup, Hint, checked_groups, event_group
from tests.store.test_event_decisions import ME
from tests.store.test_event_types import NEW, complete, learning, prototype, result
from tests.support.streams import GAME

SHOP = event_group("shop", GAME)
VIP = event_group("vip", GAME, match="buy")


@pytest.fixture
def types(engine: Engine) -> SqlEventTypes:
    types = SqlEventTypes(engine, "test")
    types.learn("shop", [learning(NEW, prototype(a=1)), learning(replace(NEW, type="sell", table="sell"), prototype(a=1))])
    complete(types, "e0", result(3, step=1))
    return types


def moved(types: SqlEventTypes, *groups: EventGroup, uid: str = "u") -> list[str]:
    return types.move(checked_groups(GAME, groups), uid)


def test_all_that_is_known_of_a_type_moves_with_it(types: SqlEventTypes) -> None:
    hints, replays = Hints(types.engine, "test"), Replays(types.engine, "test")
    for name in ("buy", "sell"):
        hints.say("shop", Hint(type=name, of="/a", says="double"), ME)
    (asked,) = replays.ask("shop", ["buy"], ME)
    before, kept = types.types("shop"), types.variations("shop", ["buy"])
    assert moved(types, SHOP, VIP) == ["buy"]
    assert types.types("shop") == {"sell": before["sell"]}
    assert types.types("vip") == {"buy": replace(before["buy"], due_ts=1)}
    assert (before["buy"].home, before["buy"].checkpoint) == ("shop", TypeCheckpoint(uid="u", version=3, commits=1))
    assert types.variations("vip", ["buy"]) == kept
    assert [one.version for one in types.history("vip", "buy")] == [1]
    assert (replays.open("vip"), replays.open("shop")) == ({"buy": asked.replay}, {})
    assert ([one.type for one in hints.holding("vip")], [one.type for one in hints.holding("shop")]) == (["buy"], ["sell"])
    assert moved(types, SHOP, VIP) == []


def test_a_step_of_the_former_group_that_completes_late_finds_its_type_gone(types: SqlEventTypes) -> None:
    before = types.types("shop")["buy"]
    moved(types, SHOP, VIP)
    complete(types, "e1", result(9, step=2))
    assert (types.types("vip")["buy"], "buy" in types.types("shop")) == (replace(before, told_ts=0, due_ts=1), False)


def test_what_the_former_group_finds_out_late_is_of_a_type_that_is_gone(types: SqlEventTypes) -> None:
    known = types.types("shop")["buy"]
    moved(types, SHOP, VIP)
    for late in (learning(known, prototype(b=1)), learning(NEW, prototype(b=1))):
        with pytest.raises(ConsumerConflictError, match="shop: buy is a type of vip by now"):
            types.learn("shop", [late])
    assert ([*types.types("shop")], types.types("vip")["buy"].schema_version) == (["sell"], 1)


def test_of_two_groups_of_a_stream_that_meet_a_type_at_once_one_learns_of_it(types: SqlEventTypes) -> None:
    gift, together = replace(NEW, type="gift", table="gift"), replace(types, beside=frozenset(("shop", "vip")))
    together.learn("vip", [learning(gift, prototype(a=1))])
    with pytest.raises(ConsumerConflictError, match="shop: gift has become a type of vip meanwhile"):
        together.learn("shop", [learning(gift, prototype(a=1))])
    assert ("gift" in types.types("shop"), "gift" in types.types("vip")) == (False, True)
    together.learn("vip", [learning(types.types("vip")["gift"], prototype(b=1))])
    types.learn("another_stream", [learning(gift, prototype(a=1))])


def test_types_of_other_deployments_and_streams_stay(types: SqlEventTypes) -> None:
    other = SqlEventTypes(types.engine, "production")
    other.learn("shop", [learning(NEW, prototype(a=1))])
    types.learn("play_shop", [learning(replace(NEW, checkpoint=TypeCheckpoint(uid="v")), prototype(a=1))])
    moved(types, SHOP, VIP)
    assert ([*other.types("shop")], [*types.types("play_shop")]) == (["buy"], ["buy"])
