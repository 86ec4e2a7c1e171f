import pytest

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.tables import SourceTable

ORDERS = SourceTable("shop.orders")


def test_a_lake_says_what_other_engines_call_its_tables() -> None:
    lake = Lake("shop", [ORDERS], aliases={"hive.*": "*", "pg.public.orders": "shop.orders"})
    assert lake.aliases["pg.public.orders"] == "shop.orders"
    assert Lake("shop", [ORDERS]).aliases == {}


@pytest.mark.parametrize(
    ("said", "meant", "problem"),
    [
        ("hive.*", "shop.orders", "end both with"),
        ("hive.orders", "*", "end both with"),
        ("hive.orders", "shop.nothing", "which is not in the lake"),
        ("", "shop.orders", "must be a name"),
    ],
)
def test_an_alias_that_means_nothing_is_refused(said: str, meant: str, problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        Lake("shop", [ORDERS], aliases={said: meant})
