"""Which group has a type by what is declared, whoever had it until now."""

import pytest

from lakechime_dagster.lake import EventGroup, JsonLines, event_group, event_stream
from lakechime_dagster.lake.declare_events import checked_groups
from lakechime_dagster.schema.moves import HeldType, misplaced, moves_of
from lakechime_dagster.schema.repository import KnownType

GAME = event_stream("game", source=JsonLines("in"))
SHOP = event_group("shop", GAME, match="shop.*")
VIP = event_group("vip", GAME, match="shop.buy", moved={"shop.buy": "shop"})
BUY = HeldType(type="shop.buy", group="shop", home="shop", uid="u")


def moved(groups: list[EventGroup], *held: HeldType, uid: str | None = "u") -> list[tuple[str, str, str]]:
    """Of the types that move: which group had each, which one has it then, and where its table lies."""
    return [(one.held.group, one.group, one.home) for one in moves_of(checked_groups(GAME, groups), held, uid)]


def test_a_type_is_of_the_group_that_is_declared_to_have_it() -> None:
    sell = HeldType(type="shop.sell", group="shop", home="shop", uid="u")
    assert moved([SHOP, VIP], BUY, sell) == [("shop", "vip", "shop")]
    assert moved([SHOP], BUY, sell) == []


def test_a_table_stays_where_it_lies_also_where_that_is_not_declared() -> None:
    undeclared = event_group("vip", GAME, match="shop.buy")
    assert moved([SHOP, undeclared], BUY) == [("shop", "vip", "shop")]
    without = HeldType(type="shop.buy", group="shop", home="shop", uid="u", has_table=False)
    assert moved([SHOP, undeclared], without) == [("shop", "vip", "vip")]
    own = HeldType(type="shop.buy", group="vip", home="vip", has_table=False)
    assert moved([SHOP, VIP], own) == [("vip", "vip", "shop")]


def test_a_type_moves_back() -> None:
    assert moved([SHOP], HeldType(type="shop.buy", group="vip", home="shop", uid="u")) == [("vip", "shop", "shop")]


def test_a_group_that_is_declared_no_more_is_known_by_its_stream_or_by_what_is_said_of_it() -> None:
    kiosk, undeclared = event_group("kiosk", GAME, match="shop.*", moved={"*": "shop"}), event_group("kiosk", GAME, match="shop.*")
    assert moved([kiosk], BUY, uid="made anew") == [("shop", "kiosk", "shop")]
    assert moved([undeclared], BUY) == [("shop", "kiosk", "shop")]
    assert moved([undeclared], BUY, uid="of another stream") == moved([undeclared], BUY, uid=None) == []


def test_of_two_tables_of_a_type_the_declared_one_goes_on() -> None:
    twin = HeldType(type="shop.buy", group="other", home="other", uid="u")
    assert moved([VIP], twin, BUY) == moved([VIP], BUY, twin) == [("shop", "vip", "shop")]
    own = HeldType(type="shop.buy", group="vip", home="vip", uid="u")
    assert moved([VIP], own, BUY) == []


@pytest.mark.parametrize(
    ("group", "home", "told"),
    [
        (VIP, "shop", ""),
        (SHOP, "", ""),
        (SHOP, "shop", ""),
        (event_group("vip", GAME), "shop", 'declare it as moved={"shop.buy": "shop"}'),
        (VIP, "vip", 'take "shop.buy" out of its moved='),
        (VIP, "", "its table is vip.shop__buy, and group vip is declared to write another"),
    ],
)
def test_a_table_elsewhere_than_declared_is_told_with_what_helps(group: EventGroup, home: str, told: str) -> None:
    found = misplaced(group, KnownType(type="shop.buy", table="shop__buy", home=home))
    assert told in found
    assert bool(told) == bool(found)
