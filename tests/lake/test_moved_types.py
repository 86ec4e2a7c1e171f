"""Types that move to another group keep the names of their tables; what cannot be meant is refused when it is declared."""

from typing import Any

import pytest

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.lake import JsonLines, Lake, event_group, event_stream, sql_table
from lakechime_dagster.lake.events import EventGroup

GAME = event_stream("game", source=JsonLines("in"))
SHOP = event_group("shop", GAME, match="shop.*")


def vip(moved: Any, match: str = "shop.buy", name: str = "vip") -> EventGroup:
    return event_group(name, GAME, match=match, moved=moved)


def test_a_type_that_moved_keeps_the_name_of_its_table() -> None:
    assert vip({"shop.buy": "shop"}).table("shop.buy").name == SHOP.table("shop.buy").name == "shop.shop__buy"
    assert vip({}).table("shop.buy").name == "vip.shop__buy"


def test_a_group_that_is_renamed_keeps_the_names_of_all_tables() -> None:
    kiosk = vip({"*": "shop"}, match="shop.*", name="kiosk")
    assert [kiosk.table(name).name for name in ("shop.buy", "shop.new one")] == [
        SHOP.table(name).name for name in ("shop.buy", "shop.new one")
    ]  # fmt: skip


def test_of_patterns_the_one_holds_that_says_most() -> None:
    kiosk = vip({"shop.*": "shop", "shop.buy*": "buys", "shop.buy": "buy"}, match="shop.*")
    assert [kiosk.home_of(name) for name in ("shop.sell", "shop.buyer", "shop.buy")] == ["shop", "buys", "buy"]
    assert kiosk.homes == ("vip", "shop", "buys", "buy")


@pytest.mark.parametrize(
    ("moved", "told"),
    [
        ("shop.buy", "'shop.buy' is no map of types; write such as"),
        (["shop.buy"], "is no map of types"),
        ({1: "shop"}, "1 is no type; write such as"),
        ({"": "shop"}, "'' is no type"),
        ({"shop.buy": None}, "None of shop.buy is no name of a group"),
        ({"shop.buy": "shop.x"}, "'shop.x' of shop.buy is no name of a group"),
        ({"shop.buy": "s" * 41}, "is no name of a group"),
        ({"shop.buy": "vip"}, "vip of shop.buy is this group itself; leave it out"),
        ({"shop.buy": "game"}, "game of shop.buy is the stream, which has no types of its own"),
        ({"shop.sell": "shop"}, "'shop.sell' is not matched by 'shop.buy'; it is of another group"),
        ({"play.*": "shop"}, "'play.*' is not matched by 'shop.buy'; it is of another group"),
        ({"shop.b*": "shop", "*hop.buy": "shop", "s*p.buy*": "a"}, "match the same types; make one of them longer"),
    ],
)
def test_what_cannot_be_meant_is_refused(moved: Any, told: str) -> None:
    with pytest.raises(DeclarationError) as raised:
        vip(moved)
    assert told in str(raised.value)
    assert str(raised.value).startswith("vip, moved: ")


def test_a_type_that_two_groups_claim_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"vip, moved: 'shop.buy' is a type of buy, which says more of its name"):
        Lake("ev", [GAME, vip({"shop.buy": "shop"}, match="shop.*"), vip({"shop.buy": "shop"}, name="buy")])


def test_two_groups_may_take_over_a_third() -> None:
    lake = Lake("ev", [GAME, vip({"shop.*": "shop"}, match="shop.*"), vip({"*": "shop"}, name="buy")])
    assert [one.homes for one in lake.groups] == [("vip", "shop"), ("buy", "shop"), ("game_other",)]


def test_tables_of_another_stream_cannot_be_taken_over() -> None:
    play = event_stream("play", source=JsonLines("play"))
    other = event_group("jump", play, match="shop.*", moved={"*": "shop"})
    with pytest.raises(DeclarationError, match=r"jump, moved: tables of shop are filled from game by shop; a table is of one stream"):
        Lake("ev", [GAME, SHOP, play, other])
    with pytest.raises(DeclarationError, match="jump, moved: tables of old are filled from game by vip"):
        Lake("ev", [GAME, vip({"*": "old"}), play, event_group("jump", play, moved={"*": "old"})])
    with pytest.raises(DeclarationError, match="vip, moved: play is a stream"):
        Lake("ev", [GAME, vip({"*": "play"}), play])


def test_the_folder_of_a_former_group_is_no_place_for_other_tables() -> None:
    kiosk = vip({"*": "shop"}, match="shop.*")
    with pytest.raises(DeclarationError, match=r"shop.total, name: would lie among the tables of group vip"):
        Lake("ev", [GAME, kiosk, sql_table("shop.total", sql="SELECT * FROM game.events")])


def test_a_table_that_moved_is_an_output_of_the_group_that_writes_it_now() -> None:
    table = vip({"shop.buy": "shop"}).table("shop.buy")
    for group, writer in ((vip({"shop.buy": "shop"}), "vip"), (vip({"*": "shop"}, match="shop.*", name="kiosk"), "kiosk")):
        total = sql_table("gold.total", sql="SELECT count(*) AS n FROM shop.shop__buy", refresh="full")
        graph = build_definitions(Lake("ev", [GAME, group, table, total])).resolve_asset_graph()
        (key,) = [key for key in graph.get_all_asset_keys() if key.path == ["shop", "shop__buy"]]
        assert graph.get(key).metadata["written by"] == f"the group {writer}"
        assert [parent.to_user_string() for parent in graph.get(key).parent_keys] == ["game/events"]
