"""`lakechime table drop`: what would happen, what is refused, and what lies aside afterwards."""

import shutil

import pyarrow as pa
import pytest

from tests.support.cli import Cli
from tests.support.tables import write

WHY = ("--reason", "it is not used any more")


@pytest.fixture
def shop(lakechime: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A lake, and beside its tables one that it declares no more."""
    monkeypatch.setenv("LAKECHIME_LAKE", "tests.cli.shop_lake:lake")
    write(lakechime.home / "warehouse" / "gold" / "old", pa.table({"id": [1]}))
    return lakechime


def test_a_table_is_dropped_after_a_yes_and_listed_until_it_goes(shop: Cli) -> None:
    asked = shop("table", "drop", "gold.old", *WHY)
    assert asked.code == 1
    assert "1 folder put aside for 7 days: this is what would happen; nothing was done: say --yes to do it" in asked.err
    would = shop("table", "drop", "gold.old", *WHY, "--dry-run", "--json").json
    assert (would["triggers"], would["dry_run"]) == ([], True)
    done = shop("table", "drop", "gold.old", *WHY, "--yes", "--keep-days", "2", "--json").json
    listed = {one["name"]: one["dropped_until"] for one in shop("table", "list", "--json").json["tables"] if one["role"] == "dropped"}
    shown = shop("table", "show", "gold.old", "--json").json["table"]
    assert listed == {"gold.old": done["folders"][0]["until"]} == {shown["name"]: shown["dropped_until"]}
    assert shown["put_aside"] == done["folders"][0]["folder"]
    shutil.rmtree(done["folders"][0]["folder"])  # as maintenance does, when its time is over
    after = shop("table", "show", "gold.old", "--json").json["table"]
    assert (after["role"], after["dropped_until"], after["dropped_ts"]) == ("dropped", None, shown["dropped_ts"])
    assert after in [after | one for one in shop("table", "list", "--json").json["tables"] if one["dropped_ts"] is not None]
    again = shop("table", "drop", "gold.old", *WHY, "--yes")
    assert (again.code, "nothing of gold.old lies at" in again.err) == (3, True)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("gold.totals", "gold.totals is declared here, so that its next run would make it anew; remove it from the code first"),
        ("shop", "shop.orders__changes lies within the folder of shop, and is declared here"),
        ("../gold", "must be of letters, digits and _"),
        ("gold.old__state", "ends with __state, which is kept for"),
    ],
)
def test_what_the_lake_has_and_what_is_no_table_is_not_dropped(shop: Cli, name: str, problem: str) -> None:
    answer = shop("table", "drop", name, *WHY, "--yes")
    assert answer.code == 1
    assert problem in answer.err
