"""An execution whose input lost or retyped a column that the table reads is held before Spark
starts, and goes on when it fits again.
"""

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.errors import ConsumerBlockedError
from lakechime_dagster.lineage.recording import SqlLineage
from lakechime_dagster.runtime.platform import open_platform
from lakechime_dagster.spark.driver import Driver
from lakechime_dagster.tables.declare import spark_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.tables import SourceTable
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.assets.test_table import Location, shown
from tests.lineage.factories import make_record, make_statement

pytestmark = pytest.mark.spark

ORDERS = pa.schema([("id", pa.int64()), ("amount", pa.int64()), ("note", pa.string())])
orders = SourceTable("bronze.orders")


@spark_table(
    "silver.paid",
    keys=["id"],
    reads={"orders": orders.snapshot()},
    refresh="full",
    trigger=SnapshotTrigger(["bronze.orders"]),
)
def paid(orders: Any) -> Any:
    return orders.where("amount > 0").select("id", "amount")


@spark_table(
    "silver.ids",
    keys=["id"],
    reads={"orders": orders.snapshot()},
    refresh="full",
    trigger=SnapshotTrigger(["bronze.orders"]),
)
def ids(orders: Any) -> Any:
    return orders.select("id")


@pytest.fixture
def location(home: Path, instance: dg.DagsterInstance, spark_driver: Driver) -> Location:
    return Location(instance, build_definitions(Lake("shop", [orders, paid, ids])), open_platform())


def value_of(kind: pa.DataType) -> Any:
    """A one of that type."""
    if pa.types.is_struct(kind):
        return {one.name: value_of(one.type) for one in kind}
    return "1" if pa.types.is_string(kind) else 1


def rewrite(location: Location, schema: pa.Schema) -> None:
    """A producer's commit that replaces all columns, pushed."""
    path = location.platform.location("bronze.orders")
    rows = pa.Table.from_pylist([{one.name: value_of(one.type) for one in schema}], schema)
    write_deltalake(path, rows, mode="overwrite", schema_mode="overwrite")
    log = location.platform.log("bronze.orders")
    location.platform.store.register(log.events_of_commit(log.version))


def test_a_column_that_is_gone_blocks_who_reads_it_alone_until_it_is_back(
    location: Location,
) -> None:
    rewrite(location, ORDERS)
    assert location.run_of("silver_paid").success
    assert location.run_of("silver_ids").success

    rewrite(location, ORDERS.remove(1))
    with pytest.raises(ConsumerBlockedError) as held:
        location.run_of("silver_paid")
    reported = str(held.value)
    assert "bronze.orders.amount is gone since version 1" in reported
    assert "delta-rs" in reported
    reason = str(location.tick("silver_paid").skip_message)
    assert "is BLOCKED" in reason
    assert (
        "; it goes on by itself once schema or code fit, or `lakechime trigger resume silver.paid "
        "--reason …` tries execution 2" in reason
    )
    assert location.run_of("silver_ids").success

    assert "goes on" not in str(location.tick("shop__events").skip_message)
    rewrite(location, ORDERS)
    assert (
        "silver.paid goes on: schema and code fit again"
        in location.tick("shop__events").skip_message
    )
    resumed = location.run_of("silver_paid")
    assert resumed.success
    assert location.rows("silver.paid") == [(1, 1)]


def test_code_that_no_longer_reads_the_column_goes_on(location: Location) -> None:
    rewrite(location, ORDERS)
    assert location.run_of("silver_paid").success
    rewrite(location, ORDERS.remove(1))
    with pytest.raises(ConsumerBlockedError):
        location.run_of("silver_paid")

    @spark_table(
        "silver.paid",
        keys=["id"],
        reads=dict(paid.reads),
        refresh="full",
        trigger=SnapshotTrigger(["bronze.orders"]),
    )
    def other(orders: Any) -> Any:
        return orders.selectExpr("id", "0L as amount")

    location.definitions = build_definitions(Lake("shop", [orders, other, ids]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakechime_dagster.lineage.schema_check.code_digest", lambda table: "another")
        assert "silver.paid goes on" in location.tick("shop__events").skip_message
        assert shown(location.run_of("silver_paid"))["number"] == 2


def test_a_column_that_others_spell_otherwise_blocks_who_reads_it(location: Location) -> None:
    """Lineage has the spelling that was recorded first."""
    SqlLineage(location.platform.store.engine).record(
        make_record(make_statement("mart.orders", amount="bronze.orders.AMOUNT"))
    )
    rewrite(location, ORDERS)
    assert location.run_of("silver_paid").success
    rewrite(location, ORDERS.remove(1))
    with pytest.raises(ConsumerBlockedError, match=r"bronze\.orders\.AMOUNT is gone"):
        location.run_of("silver_paid")
