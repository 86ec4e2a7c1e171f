"""`lakechime cdc plan`: what a table is made of, and what its messages show."""

from typing import Any

from lakechime_dagster.tables.cdc import CHANGES
from tests.cli.shop import NAME, Shop
from tests.cli.test_cdc import told
from tests.support.cli import Cli


def planned(lakechime: Cli) -> Any:
    return lakechime("cdc", "plan", NAME, "--json").json


def test_a_plan_shows_tables_and_messages_of_the_bronze_table(lakechime: Cli) -> None:
    shop = Shop.declared(lakechime)
    assert planned(lakechime)["sample"]["messages"] == 0
    shop.tell(told(1, 10), told(1, 11, "u"))
    document = planned(lakechime)
    assert {one["role"]: (one["name"], one["exists"]) for one in document["tables"]} == {
        "messages": (NAME + CHANGES, True),
        "rows": (NAME, True),
        "remembered": ("shop.orders__state", True),
        "refused": ("shop.orders__quarantine", False),
    }
    sample = document["sample"]
    assert (sample["messages"], sample["kinds"], sample["sources"]) == (2, {"change": 2}, ["m.shop.orders"])
    assert sample["columns"] == {"id": "bigint", "name": "string", "amount": "bigint"}
    assert [(one["weight"], one["about"]) for one in document["findings"]] == [("warning", "row before")]
    shown = lakechime("cdc", "plan", NAME).out
    assert all(part in shown for part in ("2 messages of the bronze table read: change 2", "REPLICA IDENTITY FULL"))
