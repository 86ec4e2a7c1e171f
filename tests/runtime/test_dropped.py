"""Dropping a table: all that is its own is put aside at once, comes back by renaming, and goes when
its time is over.
"""

import datetime as dt
import os
from pathlib import Path

import pyarrow as pa
import pytest

from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.errors import ConsumerConflictError, NotFoundError
from lakechime_dagster.formats.files import folder_at, remove_folder
from lakechime_dagster.runtime.maintenance import Dropped, drop, dropped, remove_expired, to_drop
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.runtime.reconcile import reconcile
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.tables import SourceTable
from lakechime_dagster.triggers.ledger import Claim
from lakechime_dagster.triggers.registry import By
from tests.support.iceberg import IcebergWorld, rows
from tests.support.metastore import HiveTable
from tests.support.tables import write
from tests.support.world import a_subscription, checkpoint

WEEK = dt.timedelta(days=7)
BY = By(who="ann", reason="it is not used any more")
OWN = ("orders", "orders__changes", "orders__quarantine", "orders__state")


@pytest.fixture
def platform(home: Path) -> Platform:
    platform = open_platform()
    for name in (*OWN, "orders_of_day"):
        write(folder(platform) / name, pa.table({"id": [1]}))
    return platform


def folder(platform: Platform) -> Path:
    return Path(platform.location("shop"))


def names(found: list[Dropped]) -> list[str]:
    return sorted(one.folder.name.partition("__dropped_until_")[0] for one in found)


def test_all_that_is_a_tables_own_is_put_aside_and_nothing_else(platform: Platform) -> None:
    subscriptions = ("shop.orders", "shop.orders__changes")
    for name, reads in zip(subscriptions, ("shop.orders__changes", "elsewhere"), strict=True):
        row = platform.evaluator.activate(a_subscription(name, reads, target=name))
        platform.ledger.ensure_consumer(row, "")
    what = to_drop(platform, "shop.orders")
    assert [subscription.name for subscription in what.subscriptions] == list(subscriptions)
    put = drop(platform, what, WEEK, BY, dry_run=True)
    assert (names(put), dropped(platform)) == (list(OWN), [])
    put = drop(platform, what, WEEK, BY)
    assert names(dropped(platform)) == names(put) == list(OWN)
    assert [
        one.name for one in folder(platform).iterdir() if "__dropped_until_" not in one.name
    ] == ["orders_of_day"]
    assert platform.ledger.subscriptions() == []


def test_a_table_comes_back_by_renaming_and_goes_when_its_time_is_over(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = platform.store.now()
    put = drop(platform, to_drop(platform, "shop.orders"), WEEK, BY)
    assert remove_expired(platform) == []
    (table,) = [one for one in put if one.folder.name.startswith("orders__dropped")]
    table.folder.rename(folder(platform) / "orders")
    monkeypatch.setattr(DCEStore, "now", lambda _: now + 8 * 86_400_000)
    assert names(remove_expired(platform)) == list(OWN[1:])
    assert sorted(one.name for one in folder(platform).iterdir()) == ["orders", "orders_of_day"]


def test_a_file_that_cannot_be_removed_keeps_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "orders"
    table.mkdir()
    for name in "abc":
        (table / name).touch()
    unlink, asked = os.unlink, list[str]()

    def refuse_the_first(path: str, **options: int) -> None:
        asked.append(path)
        if len(asked) == 1:
            raise PermissionError(path)
        unlink(path, **options)

    monkeypatch.setattr(os, "unlink", refuse_the_first)
    assert not remove_folder(folder_at(str(table)))
    assert [one.name for one in table.iterdir()] == [Path(asked[0]).name]


def test_a_drop_that_was_interrupted_is_completed_by_another_one(platform: Platform) -> None:
    (folder(platform) / "orders").rename(
        folder(platform) / "orders__dropped_until_20300101T000000Z"
    )
    assert names(drop(platform, to_drop(platform, "shop.orders"), WEEK, BY)) == list(OWN[1:])
    assert names(dropped(platform)) == list(OWN)


def test_an_iceberg_table_leaves_its_catalog_and_comes_back_by_its_metadata(
    platform: Platform,
) -> None:
    world = IcebergWorld(platform.settings.iceberg_catalog)
    world.create().append(rows(1))
    reconcile(platform, [SourceTable("bronze.ice", storage=Storage(format="iceberg"))])
    metadata = platform.iceberg_log("bronze.ice").metadata
    what = to_drop(platform, "bronze.ice")
    drop(platform, what, WEEK, BY, dry_run=True)
    assert world.catalog.table_exists("bronze.ice")
    (put,) = drop(platform, what, WEEK, BY)
    assert not world.catalog.table_exists("bronze.ice")
    with pytest.raises(NotFoundError, match=r"nothing of bronze\.ice"):
        to_drop(platform, "bronze.ice")
    put.folder.rename(Path(platform.location("bronze.ice")))
    again = world.catalog.register_table("bronze.ice", metadata)
    assert again.scan().to_arrow().num_rows == 1


def test_of_a_table_outside_of_the_warehouse_only_the_entry_goes(
    platform: Platform, hive_table: HiveTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKECHIME_METASTORE", hive_table.metastore.url)
    platform = open_platform()
    hive_table.create("day date")
    hive_table.write("2024-05-01")
    hive_table.add("2024-05-01")
    reconcile(platform, [SourceTable(hive_table.name, storage=Storage(format="hive"))])
    assert drop(platform, to_drop(platform, hive_table.name), WEEK, BY) == []
    assert not platform.hive_log(hive_table.name, PartitionLevels()).exists()
    assert list(hive_table.folder.rglob("*.parquet"))


def test_nothing_is_put_aside_where_one_of_its_consumers_is_at_work(platform: Platform) -> None:
    for name in ("shop.orders__changes", "shop.orders"):
        row = platform.evaluator.activate(a_subscription(name, "elsewhere", target=name))
    platform.ledger.claim(row, platform.ledger.ensure_consumer(row, ""), Claim(end=checkpoint(1)))
    with pytest.raises(ConsumerConflictError, match="open execution"):
        drop(platform, to_drop(platform, "shop.orders"), WEEK, BY)
    assert (len(platform.ledger.subscriptions()), dropped(platform)) == (2, [])
