"""`lakechime table`: what is declared, known, and missing."""

import datetime as dt
from pathlib import Path

import pytest

from tests.cli.game import Game, event
from tests.support.cli import Cli
from tests.support.tables import rows, write

DAY = dt.date(2013, 1, 1)


@pytest.fixture
def orders(lakechime: Cli) -> Path:
    """A table of two commits that nobody has registered."""
    location = lakechime.home / "warehouse" / "bronze" / "orders"
    for hour in (1, 2):
        write(location, rows((DAY, hour, hour, "x")), partition_by=["day", "hour"])
    return location


def test_reconcile_registers_each_missing_commit_once(lakechime: Cli, orders: Path) -> None:
    would = lakechime("table", "reconcile", "bronze.orders", "--dry-run", "--json").json
    assert (would["dry_run"], [event["snapshot_id"] for event in would["tables"][0]["registered"]]) == (True, ["1", "1"])
    assert lakechime("dce", "list", "--json").json == {"events": []}
    first = lakechime("table", "reconcile", "bronze.orders", "--json").json["tables"][0]
    assert [event["tags"] for event in first["registered"]] == [{"baseline": "true"}] * 2
    write(orders, rows((DAY, 3, 3, "x")))
    (second,) = lakechime("table", "reconcile", "bronze.orders", "--json").json["tables"]
    assert [(event["snapshot_id"], event["partition"]) for event in second["registered"]] == [("2", ["2013-01-01", 3])]
    assert second["captured_up_to"] == "2"
    assert lakechime("table", "reconcile", "bronze.orders", "--json").json["tables"][0]["registered"] == []


def test_reconcile_looks_at_a_location_of_its_own(lakechime: Cli, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", rows((DAY, 1, 1, "x")))
    answer = lakechime("table", "reconcile", "my.table", "--location", str(tmp_path / "elsewhere"))
    assert (answer.code, answer.out) == (0, "my.table: 1 event registered; captured up to 0\n")


def test_a_location_on_the_command_line_is_meant_from_where_one_stands(
    lakechime: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "workspace.yaml").touch()
    write(tmp_path / "sub" / "orders", rows((DAY, 1, 1, "x")))
    monkeypatch.chdir(tmp_path / "sub")
    assert lakechime("table", "reconcile", "my.table", "--location", "orders").code == 0


def test_reconcile_of_all_leaves_out_declared_tables_that_are_not_there_yet(lakechime: Cli) -> None:
    assert lakechime("table", "reconcile", "--json").json == {"tables": [], "dry_run": False, "problems": []}


def test_reconcile_adds_nothing_to_what_was_pushed_before_it(lakechime: Cli, orders: Path) -> None:
    log = lakechime.platform.log("bronze.orders")
    for version in (0, 1):
        lakechime.platform.store.register(log.events_of_commit(version))
    pushed = lakechime("dce", "list", "--json").json["events"]
    would = lakechime("table", "reconcile", "bronze.orders", "--dry-run", "--json").json["tables"]
    assert lakechime("dce", "list", "--json").json["events"] == pushed
    done = lakechime("table", "reconcile", "bronze.orders", "--json").json["tables"]
    assert would == done == [{"table": "bronze.orders", "registered": [], "duplicates": pushed, "captured_up_to": "1"}]
    assert lakechime("dce", "list", "--json").json["events"] == pushed


def test_reconcile_makes_the_levels_of_a_table_known(lakechime: Cli, orders: Path) -> None:
    write(lakechime.home / "warehouse" / "bronze" / "flights", rows((DAY, 1, 1, "x")), partition_by=["day", "hour"])
    lakechime("table", "reconcile", "bronze.orders", "bronze.flights")
    levels = {one.name: one.levels.as_dict() for one in lakechime.platform.store.tables()}
    assert levels == {"bronze.orders": {"day": "date", "hour": "int"}, "bronze.flights": {"flight_date": "date", "hour": "int"}}


def test_a_table_that_cannot_be_reconciled_hinders_no_other(lakechime: Cli, orders: Path) -> None:
    names = ("bronze.nothing", "bronze.orders", "bronze.neither")
    answer = lakechime("table", "reconcile", *names, "--json")
    assert answer.code == 1
    assert [(one["table"], len(one["registered"])) for one in answer.json["tables"]] == [("bronze.orders", 2)]
    assert [one["table"] for one in answer.json["problems"]] == ["bronze.nothing", "bronze.neither"]
    assert "there is no Delta table" in answer.json["problems"][0]["problem"]
    told = lakechime("table", "reconcile", *names)
    assert (told.code, told.out) == (1, "bronze.orders: 0 events registered; captured up to 1\n")
    assert [line.split(":")[:2] for line in told.err.splitlines()] == [["error", " bronze.nothing"], ["error", " bronze.neither"]]


def test_a_table_out_of_reach_is_an_error_and_is_shown_all_the_same(lakechime: Cli) -> None:
    location = lakechime.home / "warehouse" / "bronze" / "flights"
    location.parent.mkdir(parents=True)
    location.touch()
    answer = lakechime("table", "reconcile")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith(f"error: bronze.flights: the Delta table at {location} cannot be read")
    shown = lakechime("table", "show", "bronze.flights", "--json")
    assert (shown.code, shown.json["table"]["version"]) == (0, None)
    assert shown.err.startswith(f"warning: bronze.flights: the log at {location} cannot be read")


def test_show_tells_no_secret_of_a_location(lakechime: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKECHIME_WAREHOUSE", "foo://ada:hunter2@bucket")
    shown = lakechime("table", "show", "bronze.flights", "--json")
    assert shown.json["table"]["location"] == "foo://ada:***@bucket/bronze/flights"
    assert "hunter2" not in shown.out + shown.err


def test_a_problem_of_reconciling_names_its_table(lakechime: Cli) -> None:
    write(lakechime.home / "warehouse" / "bronze" / "flights", rows((DAY, 1, 1, "x")), partition_by=["hour", "day"])
    answer = lakechime("table", "reconcile")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("error: bronze.flights: partition level 'flight_date' 1: is not a date")


def test_list_has_declared_and_known_tables(lakechime: Cli, orders: Path) -> None:
    lakechime("table", "reconcile", "bronze.orders")
    tables = {one["name"]: one for one in lakechime("table", "list", "--json").json["tables"]}
    assert (tables["bronze.orders"]["role"], tables["bronze.orders"]["events"], tables["bronze.orders"]["captured_up_to"]) == (
        "not declared",
        2,
        "1",
    )
    assert (tables["bronze.flights"]["role"], tables["bronze.flights"]["levels"]) == ("source", {"flight_date": "date", "hour": "int"})
    assert tables["silver.flights"]["role"] == "computed"
    assert "bronze.orders" in lakechime("table", "list").out


def test_a_table_of_another_cluster_is_not_the_declared_one(lakechime: Cli) -> None:
    lakechime("dce", "register", "--table", "bronze.flights", "--cluster", "eu")
    tables = {
        (one["cluster"], one["role"]) for one in lakechime("table", "list", "--json").json["tables"] if one["name"] == "bronze.flights"
    }
    assert tables == {("", "source"), ("eu", "not declared")}
    shown = lakechime("table", "show", "bronze.flights", "--cluster", "eu", "--json").json["table"]
    assert (shown["role"], shown["events"], shown["levels"]) == ("not declared", 1, {})
    assert {"location", "owner", "readers"}.isdisjoint(shown)
    assert lakechime("table", "show", "bronze.flights", "--cluster", "us").code == 3


def test_show_tells_declaration_store_and_log(lakechime: Cli, orders: Path) -> None:
    lakechime("table", "reconcile", "bronze.orders")
    write(orders, rows((DAY, 3, 3, "x")))
    known = lakechime("table", "show", "bronze.orders", "--json").json["table"]
    assert (known["version"], known["captured_up_to"], known["location"]) == (2, "1", str(orders))
    declared = lakechime("table", "show", "silver.flights", "--json").json["table"]
    assert (declared["inputs"], declared["version"]) == (["bronze.flights", "bronze.weather"], None)
    assert declared["readers"] == ["gold.route_hour", "gold.airline_scorecard"]
    assert "team:ops" in lakechime("table", "show", "silver.flights").out
    assert lakechime("table", "show", "no.such", "--json").code == 3


def test_the_table_of_a_stream_is_listed_and_shown_with_where_its_types_are_told(lakechime: Cli) -> None:
    game = Game.declared(lakechime)
    game.come(event("shop_buy"))
    (listed,) = lakechime("table", "list", "--json").json["tables"]
    assert (listed["name"], listed["role"]) == ("game.events", "events")
    shown = lakechime("table", "show", "game.events", "--json").json["table"]
    assert (shown["source"], shown["type_field"], shown["version"]) == ("in/*.jsonl", "$.type", 0)
