"""`lakechime store`: versions, and the end of old events."""

import sqlite3
from pathlib import Path

from lakechime_dagster.dce.engine import newest_version
from lakechime_dagster.triggers.progress import needs
from tests.cli import subscriptions
from tests.cli.test_trigger import change, claim, complete
from tests.support.cli import Cli

MODULE = ["--module", "tests.cli.subscriptions"]
ALL = ["--before", "2999-01-01T00:00Z"]


def test_upgrade_creates_the_tables_of_a_store(lakechime_fresh: Cli) -> None:
    would = lakechime_fresh("store", "upgrade", "--dry-run", "--json").json
    assert (would["before"], would["after"]) == (None, newest_version())
    assert lakechime_fresh("store", "upgrade", "--json").json["after"] == newest_version()
    assert lakechime_fresh("status", "--json").json["store_version"] == newest_version()
    assert lakechime_fresh("store", "upgrade").out.endswith(
        f"has version {newest_version()} already\n"
    )


def test_expire_leaves_what_a_consumer_still_needs(lakechime: Cli) -> None:
    change(lakechime, 1)
    complete(lakechime)
    change(lakechime, 2)
    lakechime("dce", "register", "--table", "other.table", "--snapshot-id", "1")
    would = lakechime("store", "expire", *ALL, "--dry-run", "--json").json
    assert (would["compacted"], would["held_back"]) == (2, 1)
    assert len(lakechime("dce", "list", "--json").json["events"]) == 3
    done = lakechime("store", "expire", *ALL, "--json").json
    held_back = {
        "table": "bronze.orders",
        "cluster": "",
        "compacted": 1,
        "needed": 1,
        "needed_by": subscriptions.ORDERS,
    }
    assert held_back in done["tables"]
    assert [
        event["snapshot_id"] for event in lakechime("dce", "list", "--json").json["events"]
    ] == ["2"]
    assert (
        lakechime("trigger", "show", subscriptions.ORDERS, *MODULE, "--json").json["decision"]
        == "fire"
    )


def test_a_trigger_that_is_declared_no_more_holds_events_back_until_it_is_forgotten(
    lakechime: Cli,
) -> None:
    change(lakechime, 1)
    complete(lakechime)
    change(lakechime, 2)
    assert lakechime("store", "expire", *ALL, "--json").json["held_back"] == 1
    why = ["--reason", "it was removed from the code"]
    refused = lakechime("trigger", "forget", subscriptions.ORDERS, *why, *MODULE)
    assert (refused.code, "is declared here" in refused.err) == (1, True)
    would = lakechime("trigger", "forget", subscriptions.ORDERS, *why, "--dry-run", "--json").json
    done = lakechime("trigger", "forget", subscriptions.ORDERS, *why, "--json").json
    assert (done, would) == (
        {"trigger": subscriptions.ORDERS, "consumers": 1, "dry_run": False},
        done | {"dry_run": True},
    )
    assert lakechime("store", "expire", *ALL, "--json").json["held_back"] == 0
    assert lakechime("trigger", "show", subscriptions.ORDERS).code == 3


def test_an_open_execution_keeps_its_events(lakechime: Cli) -> None:
    change(lakechime, 1)
    claim(lakechime)
    assert lakechime("store", "expire", *ALL, "--json").json["held_back"] == 1
    assert (
        needs(lakechime.platform.store.engine)["bronze.orders"].position
        == lakechime.platform.ledger.subscriptions()[0].start.position
    )


def test_expire_takes_an_age(lakechime: Cli) -> None:
    lakechime("dce", "register", "--table", "a.b", "--snapshot-id", "1")
    assert lakechime("store", "expire", "--before", "30d", "--json").json["compacted"] == 0
    assert lakechime("store", "expire", "--before", "soon").code == 2


def write_version(store: Path, version: str) -> None:
    """Make a store look as if another version of the program had written it."""
    with sqlite3.connect(store) as connection:
        connection.execute("UPDATE lakechime_alembic_version SET version_num = ?", [version])
    connection.close()


def test_a_newer_store_is_refused_by_every_command(lakechime: Cli) -> None:
    lakechime("store", "upgrade")
    write_version(lakechime.home / "dce.sqlite", "9999")
    for command in (["status"], ["store", "upgrade"]):
        answer = lakechime(*command, "--json")
        assert (answer.code, answer.json["error"]["type"]) == (1, "StoreVersionError")
