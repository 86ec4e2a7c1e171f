"""A table that follows a database, run by Dagster: a file that is dropped becomes messages, and
these the table's rows.
"""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.lineage.store import LineageStandings
from lakechime_dagster.runtime.platform import open_platform
from lakechime_dagster.spark.driver import Driver
from lakechime_dagster.tables.cdc import CDCMerge, SourceSchema, cdc_table
from lakechime_dagster.tables.databases import Maxwell
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.sources import JsonLines
from tests.assets.test_table import Location, checks, shown
from tests.support.iceberg import IcebergWorld
from tests.support.replica import read

pytestmark = pytest.mark.spark


def reported(identity: int, amount: int, verb: str = "insert", at: int = 1) -> bytes:
    """A message of Maxwell."""
    data = {"id": identity, "amount": amount}
    message = {
        "database": "shop",
        "table": "orders",
        "type": verb,
        "ts": at,
        "position": f"binlog.000001:{at}",
        "data": data,
    }
    return json.dumps(message).encode() + b"\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


@pytest.fixture
def storage() -> Storage:
    return Storage()


@pytest.fixture
def location(
    home: Path, instance: dg.DagsterInstance, folder: Path, spark_driver: Driver, storage: Storage
) -> Any:
    table = cdc_table(
        "shop.orders",
        source=JsonLines(str(folder)),
        envelope=Maxwell(),
        merge=CDCMerge(keys=("id",), max_transaction=dt.timedelta(0)),
        schema=SourceSchema(types={"id": "bigint", "amount": "bigint"}),
        storage=storage,
    )
    definitions = build_definitions(Lake("shop", [table]))
    return Location(instance, definitions, open_platform())


def rows(location: Location) -> list[tuple[int, int]]:
    return sorted(
        (row["id"], row["amount"]) for row in read(location.platform.location("shop.orders"))
    )


def messages(location: Location) -> list[tuple[str, int, str]]:
    found = read(location.platform.location("shop.orders__changes"))
    return sorted((row["topic"], row["offset"], row["kind"]) for row in found)


@pytest.mark.tier2
def test_a_file_that_is_dropped_becomes_messages_and_these_the_rows_of_the_table(
    location: Location, folder: Path
) -> None:
    assert "nothing new in" in location.tick("shop_orders__changes").skip_message
    (folder / "a.jsonl").write_bytes(reported(1, 10) + reported(2, 20, at=2) + b"{damaged\n")
    first = location.run_of("shop_orders__changes")
    seen = shown(first)
    size = len(reported(1, 10)) + len(reported(2, 20, at=2)) + 9
    assert seen["last fired because"] == f"{size} new bytes in a.jsonl of {folder}"
    assert (seen["range"], seen["rows inserted"], seen["events unreadable"]) == (
        f"- `a.jsonl` from 0 up to {size}",
        3,
        1,
    )
    assert (seen["waiting in the source"], seen["commit"]) == ("nothing", "version 1")
    assert checks(first) == {"nothing_unreadable": False}
    assert location.run_of("shop_orders").success
    assert rows(location) == [(1, 10), (2, 20)]

    (folder / "a.jsonl").open("ab").write(
        reported(1, 11, "update", at=3) + reported(2, 20, "delete", at=4)
    )
    (folder / "b.jsonl").write_bytes(reported(3, 30, at=5))
    second = location.run_of("shop_orders__changes")
    assert (checks(second), shown(second)["number"]) == ({"nothing_unreadable": True}, 2)
    replica = location.run_of("shop_orders")
    assert replica.success
    assert rows(location) == [(1, 11), (3, 30)]
    assert len(messages(location)) == 6
    standing = LineageStandings(location.platform.store.engine).all()
    columns = {
        column.column: str(column.sources[0].ref)
        for one in standing
        for column in one.statement.columns
    }
    assert columns["amount"] == "shop.orders__changes.$.amount"
    assert columns["$.amount"] == f"file/{folder}/*.jsonl.amount"

    idle = location.run_alone("shop.orders__changes")
    assert shown(idle)["last fired because"].startswith(
        "nothing to do: shop.orders__changes: nothing new in"
    )


@pytest.mark.tier2
@pytest.mark.parametrize("storage", [Storage(format="iceberg", write_mode="merge-on-read")])
def test_a_table_in_iceberg_is_captured_by_its_snapshots(
    location: Location, folder: Path, storage: Storage
) -> None:
    (folder / "a.jsonl").write_bytes(reported(1, 10) + reported(2, 20, at=2))
    assert location.run_of("shop_orders__changes").success
    assert location.run_of("shop_orders").success
    (folder / "a.jsonl").open("ab").write(
        reported(1, 11, "update", at=3) + reported(2, 20, "delete", at=4)
    )
    assert location.run_of("shop_orders__changes").success
    seen = shown(location.run_of("shop_orders"))
    assert (seen["rows updated"], seen["rows deleted"]) == (1, 1)
    catalog = IcebergWorld(dict(location.platform.settings.iceberg_catalog)).catalog
    table = catalog.load_table("shop.orders")
    assert [(row["id"], row["amount"]) for row in table.scan().to_arrow().to_pylist()] == [(1, 11)]
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["total-delete-files"] != "0"
    assert seen["commit"] == f"snapshot {snapshot.snapshot_id}"
    assert [one for one, _, _ in location.events("shop.orders")] == [
        str(one.snapshot_id) for one in table.history()
    ]
