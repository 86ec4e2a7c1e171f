"""A table is not woken by a change of nothing but columns that its code does not read, and reads it
with the next.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakechime_dagster.dce.events import CHANGED_TAG
from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.lineage.plan import manifest_by
from lakechime_dagster.lineage.spark import Planner
from lakechime_dagster.runtime.explain import explain
from lakechime_dagster.runtime.platform import open_platform
from lakechime_dagster.runtime.resource import declared_subscriptions
from lakechime_dagster.spark.driver import Driver
from lakechime_dagster.tables.declare import spark_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.tables import SourceTable
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.assets.test_table import Location

pytestmark = pytest.mark.spark

ORDERS = pa.schema([("id", pa.int64()), ("amount", pa.int64()), ("note", pa.string())])
orders = SourceTable("bronze.orders")


@spark_table(
    "silver.orders", keys=["id"], reads={"orders": orders.changes()}, trigger=SnapshotTrigger()
)
def silver_orders(orders: Any) -> Any:
    return orders.select("id", "amount", "note")


@spark_table(
    "gold.paid",
    keys=["id"],
    reads={"orders": silver_orders.changes()},
    trigger=SnapshotTrigger(start_from="now"),
)
def paid(orders: Any) -> Any:
    return orders.where("amount > 0").select("id", "amount")


LAKE = Lake("shop", [orders, silver_orders, paid])


@pytest.fixture
def location(home: Path, instance: dg.DagsterInstance, spark_driver: Driver) -> Location:
    platform = open_platform()
    write_deltalake(
        platform.location("bronze.orders"),
        ORDERS.empty_table(),
        configuration={"delta.enableChangeDataFeed": "true"},
    )
    manifest = manifest_by(Planner(spark_driver.spark), LAKE, platform)
    return Location(instance, build_definitions(LAKE, manifest=manifest), platform)


def came(location: Location, change: Any) -> None:
    """A producer's commit, pushed, and what silver makes of it."""
    log = location.platform.log("bronze.orders")
    change(DeltaTable(log.location))
    location.platform.store.register(log.events_of_commit(log.version))
    assert location.run_of("silver_orders").success


def inserted(table: DeltaTable) -> None:
    rows = [{"id": 1, "amount": 10, "note": "a"}, {"id": 2, "amount": 20, "note": "b"}]
    write_deltalake(table, pa.Table.from_pylist(rows, ORDERS), mode="append")


def changed(**values: str) -> Any:
    return lambda table: table.update(updates=values, predicate="id = 1")


def test_a_change_of_a_column_that_is_not_read_wakes_nobody_and_is_read_with_the_next(
    location: Location,
) -> None:
    came(location, inserted)
    # it begins now
    assert "nothing new in silver.orders" in location.tick("gold_paid").skip_message
    came(location, changed(note="'late'"))
    assert location.events("silver.orders")[-1][2] == {CHANGED_TAG: '["note"]'}
    ticked = location.tick("gold_paid")
    assert ticked.run_requests == []
    reported = (
        "1 event changed only what gold.paid does not read (silver.orders.note); it is read with "
        "the next, at the latest at "
    )
    assert reported in ticked.skip_message
    subscription = declared_subscriptions()["gold.paid"]
    assert reported in explain(location.platform, subscription).sentence
    # as by code that nobody has planned
    assert explain(location.platform, replace(subscription, unread={})).fires

    came(location, changed(amount="11"))
    version, _, tags = location.events("silver.orders")[-1]
    assert tags == {CHANGED_TAG: '["amount"]'}
    (woken,) = location.run_of("gold_paid").get_asset_materialization_events()
    read = woken.materialization.metadata["range"].value
    assert (
        f"`silver.orders` after snapshot {int(version or 0) - 2} up to snapshot {version}"
        in str(read)
    )
    assert location.rows("gold.paid") == [(1, 11)]
