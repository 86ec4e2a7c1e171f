"""`lakechime table`: what is declared, recorded and missing, what maintenance does, and what a drop
leaves.
"""

import datetime as dt
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from lakechime_dagster.settings import load_settings
from tests.cli.game import Game, event
from tests.support import iceberg
from tests.support.cli import Cli
from tests.support.iceberg import IcebergWorld
from tests.support.tables import rows, write

DAY = dt.date(2013, 1, 1)
HIVE_LAKE = """
from lakechime_dagster import Lake, SourceTable, Storage

lake = Lake("hive", [SourceTable("bronze.hive", storage=Storage(format="hive"))])
"""
ICEBERG_LAKE = """
from lakechime_dagster import Lake, SourceTable, Storage

lake = Lake("iced", [SourceTable(name, storage=Storage(format="iceberg")) for name in {names}])
"""


@pytest.fixture
def orders(lakechime: Cli) -> Path:
    """A table of two commits that nobody has registered."""
    location = lakechime.home / "warehouse" / "bronze" / "orders"
    for hour in (1, 2):
        write(location, rows((DAY, hour, hour, "x")), partition_by=["day", "hour"])
    return location


def test_reconcile_registers_each_missing_commit_once(lakechime: Cli, orders: Path) -> None:
    would = lakechime("table", "reconcile", "bronze.orders", "--dry-run", "--json").json
    assert (
        would["dry_run"],
        [event["snapshot_id"] for event in would["tables"][0]["registered"]],
    ) == (True, ["1", "1"])
    assert lakechime("dce", "list", "--json").json == {"events": []}
    first = lakechime("table", "reconcile", "bronze.orders", "--json").json["tables"][0]
    assert [event["tags"] for event in first["registered"]] == [{"baseline": "true"}] * 2
    write(orders, rows((DAY, 3, 3, "x")))
    (second,) = lakechime("table", "reconcile", "bronze.orders", "--json").json["tables"]
    assert [(event["snapshot_id"], event["partition"]) for event in second["registered"]] == [
        ("2", ["2013-01-01", 3])
    ]
    assert second["captured_up_to"] == "2"
    assert (
        lakechime("table", "reconcile", "bronze.orders", "--json").json["tables"][0]["registered"]
        == []
    )


def test_a_table_that_cannot_be_reconciled_hinders_no_other(lakechime: Cli, orders: Path) -> None:
    names = ("bronze.nothing", "bronze.orders", "bronze.neither")
    answer = lakechime("table", "reconcile", *names, "--json")
    assert answer.code == 1
    assert [(one["table"], len(one["registered"])) for one in answer.json["tables"]] == [
        ("bronze.orders", 2)
    ]
    assert [one["table"] for one in answer.json["problems"]] == ["bronze.nothing", "bronze.neither"]
    assert "there is no Delta table" in answer.json["problems"][0]["problem"]


def test_a_table_out_of_reach_is_an_error_and_is_shown_all_the_same(lakechime: Cli) -> None:
    location = lakechime.home / "warehouse" / "bronze" / "flights"
    location.parent.mkdir(parents=True)
    location.touch()
    answer = lakechime("table", "reconcile")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith(
        f"error: bronze.flights: the Delta table at {location} cannot be read"
    )
    shown = lakechime("table", "show", "bronze.flights", "--json")
    assert (shown.code, shown.json["table"]["version"]) == (0, None)
    assert shown.err.startswith(f"warning: bronze.flights: the Delta table at {location} cannot")


def test_reconcile_names_the_setting_that_hive_tables_are_captured_by(
    lakechime: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hive_lake.py").write_text(HIVE_LAKE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("LAKECHIME_LAKE", "hive_lake:lake")
    answer = lakechime("table", "reconcile", "bronze.hive")
    what = "bronze.hive: changes of Hive tables are captured when LAKECHIME_METASTORE is set\n"
    assert (answer.code, answer.out, answer.err) == (0, "", what)
    monkeypatch.setenv("LAKECHIME_METASTORE", "thrift://127.0.0.1:9")
    answer = lakechime("table", "reconcile", "bronze.hive")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("error: bronze.hive: it cannot be read by the Hive metastore")


def test_the_tables_of_a_catalog_that_a_server_has_are_shown(
    lakechime: Cli, served_iceberg: IcebergWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"bronze.ice{number}" for number in range(6)]
    (tmp_path / "iced_lake.py").write_text(ICEBERG_LAKE.format(names=names))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("LAKECHIME_LAKE", "iced_lake:lake")
    monkeypatch.setenv("LAKECHIME_ICEBERG_CATALOG", json.dumps(served_iceberg.properties))
    newest = []
    for name in names:
        served_iceberg.fill(name, pa.table({"id": [1]}))
        current = served_iceberg.catalog.load_table(name).current_snapshot()
        newest.append(str(current and current.snapshot_id))
    assert lakechime("table", "reconcile", *names).code == 0
    listed = {one["name"]: one for one in lakechime("table", "show", "--json").json["tables"]}
    facts = ("format", "captured_by", "captured_up_to", "version", "lag_commits", "problem")
    assert [[listed[name][fact] for fact in facts] for name in names] == [
        ["ICEBERG", "log", snapshot, snapshot, 0, None] for snapshot in newest
    ]
    shown = lakechime("table", "show", names[0], "--json").json["table"]
    assert (shown["version"], shown["location"]) == (newest[0], served_iceberg.properties["uri"])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["gold.daily_delays", "--to", "delta"], "gold.daily_delays is written by the lake itself"),
        (["bronze.flights"], "bronze.flights is not being migrated; say to which format"),
        (["bronze.flights", "--to", "delta"], "bronze.flights is a table of delta already"),
        (["bronze.flights", "--to", "hive"], "'hive' is not one of 'iceberg', 'delta'"),
        (["bronze.flights", "--switch", "--back"], "are two ways; give one of them"),
        (["bronze.none", "--to", "iceberg"], "bronze.none"),
    ],
)
def test_a_migration_that_cannot_be_is_refused(
    lakechime: Cli, arguments: list[str], problem: str
) -> None:
    answer = lakechime("table", "migrate", *arguments)
    assert (answer.code != 0, answer.out, problem in answer.err) == (True, "", True)


def test_a_migration_says_what_hinders_it_and_who_reads_the_table(lakechime: Cli) -> None:
    answer = lakechime("table", "migrate", "bronze.flights", "--to", "iceberg", "--dry-run")
    begins = (
        "bronze.flights: not begun; `lakechime table migrate bronze.flights --to iceberg` begins"
    )
    assert (answer.code, answer.out.splitlines()[0]) == (0, begins)


def test_show_reports_no_secret_of_a_location(
    lakechime: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKECHIME_WAREHOUSE", "foo://ada:hunter2@bucket")
    shown = lakechime("table", "show", "bronze.flights", "--json")
    assert shown.json["table"]["location"] == "foo://ada:***@bucket/bronze/flights"
    assert "hunter2" not in shown.out + shown.err


def test_a_table_of_another_cluster_is_not_the_declared_one(lakechime: Cli) -> None:
    lakechime("dce", "register", "--table", "bronze.flights", "--cluster", "eu")
    tables = {
        (one["cluster"], one["role"])
        for one in lakechime("table", "show", "--json").json["tables"]
        if one["name"] == "bronze.flights"
    }
    assert tables == {("", "source"), ("eu", "not declared")}
    shown = lakechime("table", "show", "bronze.flights", "--cluster", "eu", "--json").json["table"]
    assert (shown["role"], shown["events"], shown["levels"]) == ("not declared", 1, {})
    assert (shown["location"], "owner" in shown, "readers" in shown) == (None, False, False)
    assert lakechime("table", "show", "bronze.flights", "--cluster", "us").code == 3


def test_show_reports_declaration_store_and_log(lakechime: Cli, orders: Path) -> None:
    lakechime("table", "reconcile", "bronze.orders")
    write(orders, rows((DAY, 3, 3, "x")))
    known = lakechime("table", "show", "bronze.orders", "--json").json["table"]
    assert (known["version"], known["captured_up_to"], known["location"]) == ("2", "1", str(orders))
    assert (known["captured_by"], known["lag_commits"]) == ("log", 1)
    assert known["lag_seconds"] >= 0
    declared = lakechime("table", "show", "silver.flights", "--json").json["table"]
    assert (declared["inputs"], declared["version"]) == (["bronze.flights", "bronze.weather"], None)
    assert declared["readers"] == ["gold.route_hour", "gold.airline_scorecard"]
    listed = {
        one["name"]: one["role"] for one in lakechime("table", "show", "--json").json["tables"]
    }
    assert [
        listed[f"{name}.{of}"]
        for name, of in (("bronze", "orders"), ("bronze", "flights"), ("silver", "flights"))
    ] == ["not declared", "source", "computed"]
    assert "team:ops" in lakechime("table", "show", "silver.flights").out
    assert lakechime("table", "show", "no.such", "--json").code == 3


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
    assert "1 folder kept for 7 days; nothing was done: add --yes to do it" in asked.err
    would = shop("table", "drop", "gold.old", *WHY, "--dry-run", "--json").json
    assert (would["triggers"], would["dry_run"]) == ([], True)
    done = shop("table", "drop", "gold.old", *WHY, "--yes", "--keep-days", "2", "--json").json
    listed = {
        one["name"]: one["dropped_until"]
        for one in shop("table", "show", "--json").json["tables"]
        if one["role"] == "dropped"
    }
    shown = shop("table", "show", "gold.old", "--json").json["table"]
    assert (
        listed
        == {"gold.old": done["folders"][0]["until"]}
        == {shown["name"]: shown["dropped_until"]}
    )
    assert shown["kept_in"] == done["folders"][0]["folder"]
    shutil.rmtree(done["folders"][0]["folder"])  # as maintenance does, when its time is over
    after = shop("table", "show", "gold.old", "--json").json["table"]
    assert (after["role"], after["dropped_until"], after["dropped_ts"]) == (
        "dropped",
        None,
        shown["dropped_ts"],
    )
    assert after in [
        after | one
        for one in shop("table", "show", "--json").json["tables"]
        if one["dropped_ts"] is not None
    ]
    again = shop("table", "drop", "gold.old", *WHY, "--yes")
    assert (again.code, "nothing of gold.old lies at" in again.err) == (3, True)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (
            "gold.totals",
            (
                "gold.totals is declared here, so that its next run would create it again; remove it "
                "from the code first"
            ),
        ),
        ("shop", "shop.orders__changes lies within the folder of shop, and is declared here"),
        ("gold.old__state", "ends with __state, which is kept for"),
    ],
)
def test_what_the_lake_has_and_what_is_no_table_is_not_dropped(
    shop: Cli, name: str, problem: str
) -> None:
    answer = shop("table", "drop", name, *WHY, "--yes")
    assert answer.code == 1
    assert problem in answer.err


def test_an_iceberg_table_that_nothing_declares_is_captured_and_dropped(shop: Cli) -> None:
    shop("dce", "register", "--table", "bronze.ice", "--format", "iceberg", "--snapshot-id", "7")
    world = IcebergWorld(load_settings().iceberg_catalog)
    world.create().append(iceberg.rows(1))
    answer = shop("table", "reconcile", "bronze.ice", "--json")
    assert len(json.loads(answer.out)["tables"][0]["registered"]) == 1
    answer = shop("table", "drop", "bronze.ice", *WHY, "--yes")
    assert answer.code == 0
    assert "1 folder kept for 7 days, taken out of the catalog sqlite:///" in answer.out
    assert not world.catalog.table_exists("bronze.ice")


DAYS = (dt.date(2013, 1, 1), dt.date(2013, 1, 2))


@pytest.fixture
def small_files(lakechime: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A lake with a table of three small files in one partition and two in the other."""
    monkeypatch.setenv("LAKECHIME_LAKE", "tests.cli.shop_lake:lake")
    for day in (DAYS[0], DAYS[0], DAYS[0], DAYS[1], DAYS[1]):
        write(
            lakechime.home / "warehouse" / "gold" / "totals",
            pa.table({"day": [day], "n": [1]}),
            partition_by=["day"],
        )
    return lakechime


def test_a_dry_run_shows_what_would_be_done_and_why_and_why_not(small_files: Cli) -> None:
    (table,) = small_files("table", "maintain", "gold.totals", "--dry-run", "--json").json["tables"]
    (action,), (refused,) = table["actions"], table["refused"]
    assert (action["what"], action["partition"], action["files"]) == ("compact", ["2013-01-01"], 3)
    assert action["bytes"] == table["bytes_to_rewrite"] <= 2_000
    assert (refused["partition"], refused["refused"].split(",")[0]) == (
        ["2013-01-02"],
        "2.0 KiB are the budget of a run",
    )
    shown = small_files("table", "maintain", "gold.totals", "--dry-run").out
    assert "3 files below 32.0 MiB, at most 128.0 MiB together in one" in shown
    assert "not: compact" in shown
    assert small_files.platform.log("gold.totals").version == 4


def test_with_nothing_to_do_no_driver_is_asked_for(small_files: Cli) -> None:
    answer = small_files("table", "maintain", "shop.orders")
    assert (answer.code, answer.out) == (0, "shop.orders does not exist yet\n")
    for name in ("orders__changes", "orders", "orders__state"):
        write(small_files.home / "warehouse" / "shop" / name, pa.table({"id": [1]}))
    (*others, state) = small_files("table", "maintain", "shop.orders", "--json").json["tables"]
    assert [table["table"] for table in others] == ["shop.orders__changes", "shop.orders"]
    assert (state["table"], state["actions"], state["files_before"], state["files_after"]) == (
        "shop.orders__state",
        [],
        1,
        1,
    )
    assert small_files("table", "maintain", "shop.orders").out.startswith("nothing is to be done\n")


def test_of_an_event_group_the_tables_of_all_types_are_kept_or_one_of_them(lakechime: Cli) -> None:
    game = Game.declared(lakechime)
    game.come(event("shop_buy", n=1), event("shop_sell", n=1))
    game.execute()
    assert lakechime("table", "maintain", "shop").out == "shop does not exist yet\n"
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


def test_what_was_dropped_goes_when_its_time_is_over_whichever_table_is_maintained(
    small_files: Cli,
) -> None:
    old = small_files.home / "warehouse" / "gold" / "old__dropped_until_20200101T000000Z"
    old.mkdir()
    would = small_files("table", "maintain", "shop.orders", "--dry-run", "--json").json
    assert (would["dropped_removed"], old.exists()) == ([str(old)], True)
    done = small_files("table", "maintain", "shop.orders", "--json").json
    assert (done["dropped_removed"], old.exists()) == ([str(old)], False)


def test_a_table_of_somebody_else_is_not_kept_here(small_files: Cli) -> None:
    answer = small_files("table", "maintain", "bronze.orders")
    assert (answer.code, "bronze.orders is written by other programs" in answer.err) == (3, True)
    assert small_files("table", "maintain", "bronze.none").code == 3
