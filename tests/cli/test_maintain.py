"""`lakechime table maintain`: the plan as a table with reasons, and what is answered where there is nothing to do."""

import datetime as dt

import pyarrow as pa
import pytest

from tests.cli.game import Game, event
from tests.support.cli import Cli
from tests.support.tables import write

DAYS = (dt.date(2013, 1, 1), dt.date(2013, 1, 2))


@pytest.fixture
def shop(lakechime: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A lake with a table of three small files in one partition and two in the other."""
    monkeypatch.setenv("LAKECHIME_LAKE", "tests.cli.shop_lake:lake")
    for day in (DAYS[0], DAYS[0], DAYS[0], DAYS[1], DAYS[1]):
        write(lakechime.home / "warehouse" / "gold" / "totals", pa.table({"day": [day], "n": [1]}), partition_by=["day"])
    return lakechime


def test_a_dry_run_shows_what_would_be_done_and_why_and_why_not(shop: Cli) -> None:
    (table,) = shop("table", "maintain", "gold.totals", "--dry-run", "--json").json["tables"]
    (action,), (refused,) = table["actions"], table["refused"]
    assert (action["what"], action["partition"], action["files"]) == ("compact", ["2013-01-01"], 3)
    assert action["bytes"] == table["bytes_to_rewrite"] <= 2_000
    assert (refused["partition"], refused["refused"].split(",")[0]) == (["2013-01-02"], "2.0 KiB are the budget of a run")
    shown = shop("table", "maintain", "gold.totals", "--dry-run").out
    assert "3 files below 32.0 MiB, at most 128.0 MiB together in one" in shown
    assert "not: compact" in shown
    assert shop.platform.log("gold.totals").version == 4


def test_with_nothing_to_do_no_driver_is_asked_for(shop: Cli) -> None:
    answer = shop("table", "maintain", "shop.orders")
    assert (answer.code, answer.out) == (0, "shop.orders is not there yet\n")
    for name in ("orders__changes", "orders", "orders__state"):
        write(shop.home / "warehouse" / "shop" / name, pa.table({"id": [1]}))
    (*others, state) = shop("table", "maintain", "shop.orders", "--json").json["tables"]
    assert [table["table"] for table in others] == ["shop.orders__changes", "shop.orders"]
    assert state | {"seconds": 0} == {
        "table": "shop.orders__state",
        "actions": [],
        "refused": [],
        "bytes_to_rewrite": 0,
        "files_before": 1,
        "files_after": 1,
        "bytes_rewritten": 0,
        "bytes_freed": 0,
        "seconds": 0,
    }
    assert shop("table", "maintain", "shop.orders").out.startswith("nothing is to be done\n")


def test_of_an_event_group_the_tables_of_all_types_are_kept_or_one_of_them(lakechime: Cli) -> None:
    game = Game.declared(lakechime)
    game.come(event("shop_buy", n=1), event("shop_sell", n=1))
    game.step()
    assert lakechime("table", "maintain", "shop").out == "shop is not there yet\n"
    for name in ("shop_buy", "shop_sell"):
        for _ in range(4):
            write(lakechime.home / "warehouse" / "shop" / name, pa.table({"n": [1]}))
    every = lakechime("table", "maintain", "shop", "--dry-run", "--json").json["tables"]
    assert {table["table"]: [action["what"] for action in table["actions"]] for table in every} == {
        "shop.shop_buy": ["compact"],
        "shop.shop_sell": ["compact"],
    }
    (one,) = lakechime("table", "maintain", "shop.shop_sell", "--dry-run", "--json").json["tables"]
    assert one["table"] == "shop.shop_sell"


def test_what_was_dropped_goes_when_its_time_is_over_whichever_table_is_maintained(shop: Cli) -> None:
    old = shop.home / "warehouse" / "gold" / "old__dropped_until_20200101T000000Z"
    old.mkdir()
    would = shop("table", "maintain", "shop.orders", "--dry-run", "--json").json
    assert (would["dropped_removed"], old.exists()) == ([str(old)], True)
    done = shop("table", "maintain", "shop.orders", "--json").json
    assert (done["dropped_removed"], old.exists()) == ([str(old)], False)


def test_a_table_of_somebody_else_is_not_kept_here(shop: Cli) -> None:
    answer = shop("table", "maintain", "bronze.orders")
    assert (answer.code, answer.err) == (
        3,
        "error: bronze.orders is written elsewhere, which is where its files are kept; name one of this lake's own tables\n",
    )
    assert shop("table", "maintain", "bronze.none").code == 3
