"""The types that a lake names: by a contract of their own, or in the list of its tables."""

from lakechime_dagster.tables.events import Contract, event_group, event_stream
from lakechime_dagster.tables.lake import Lake, foreign_sources, named_types
from lakechime_dagster.tables.options import Asset
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.tables.tables import SourceTable

STREAM = event_stream("game", source=JsonLines("in"))


def test_types_are_named_once_by_a_contract_or_in_the_list_of_tables() -> None:
    shop = event_group("shop", STREAM, match="shop.*", types={"shop.buy": Contract(columns="freeze"), "shop.sell": Contract()})
    buy = SourceTable("shop.shop__buy", asset=Asset(owner="team:other"))
    lake = Lake("ev", [STREAM, shop, buy, shop.table("shop.gift"), SourceTable("bronze.orders")])
    found = {table.name: table.owner for table in named_types(lake, shop)}
    assert found == {"shop.shop__buy": "team:other", "shop.shop__gift": None, "shop.shop__sell": None}
    assert [table.name for table in foreign_sources(lake)] == ["bronze.orders"]
    other = next(group for group in lake.groups if group.name == "game_other")
    assert named_types(lake, other) == ()
