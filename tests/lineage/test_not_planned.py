"""What a manifest says that it does not know of a lake, and why; its functions run over empty
inputs.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.lineage.columns import Kind
from lakechime_dagster.lineage.manifest import Manifest
from lakechime_dagster.lineage.plan import manifest_by
from lakechime_dagster.runtime.platform import open_platform
from lakechime_dagster.sensors.trigger import lakechime_sensor
from lakechime_dagster.settings import load_settings
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.tables import SourceTable
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.support.planned import ORDERS, direct, orders, orders_table, paid_table, planned

pytestmark = pytest.mark.spark
__all__ = ["planned"]
NOTHING: dict[str, int] = {}


@dg.op
def nothing() -> None:
    pass


@dg.job
def nightly_job() -> None:
    nothing()


def test_what_cannot_be_asked_is_said(planned: Callable[..., Manifest]) -> None:
    def breaks(orders: DataFrame) -> DataFrame:
        return orders.where(F.col("id") > NOTHING["id"])

    def gone(orders: DataFrame) -> DataFrame:
        return orders.select("no_such_column")

    def wants(orders: DataFrame, context: Any) -> DataFrame:
        return orders

    def why(function: Callable[..., DataFrame]) -> str:
        (reason,) = planned(paid_table(function)).tables["silver.paid"].unknown
        return reason

    assert why(breaks).startswith("KeyError: ")
    assert "no_such_column" in why(gone)
    assert why(wants) == "not known until it runs: its function wants context; give it a default"


ACTIONS: dict[str, Callable[[DataFrame], Any]] = {
    "count": lambda orders: orders.count(),
    "a row that is not there": lambda orders: orders.collect()[0],
    "pivot": lambda orders: orders.groupBy("id").pivot("city").count(),
    "RDD": lambda orders: orders.sparkSession.sparkContext.parallelize([1]).count(),
}


def test_what_a_function_makes_of_rows_is_not_known_until_it_runs(
    planned: Callable[..., Manifest],
) -> None:
    def acting(act: Callable[[DataFrame], Any]) -> Callable[[DataFrame], DataFrame]:
        def acts(orders: DataFrame) -> DataFrame:
            act(orders)
            return orders

        return acts

    names = {f"silver.t{at}": action for at, action in enumerate(ACTIONS)}
    reported = planned(
        *[orders_table(name, acting(ACTIONS[action])) for name, action in names.items()]
    ).tables
    found = {action: reported[name].unknown[0].split(";")[0] for name, action in names.items()}
    assert found == dict.fromkeys(ACTIONS, "not known until it runs: its function acts on rows")


def test_code_that_reads_a_column_that_is_gone_does_not_resolve_and_does_not_wait_for_a_run(
    planned: Callable[..., Manifest],
) -> None:
    query = sql_table("silver.paid", "SELECT id, nope FROM bronze.orders")
    function = orders_table("silver.chosen", lambda orders: orders.select("id", "nope"))
    tables = planned(query, function).tables
    assert [tables[name].unknown[0].split("]")[0] for name in ("silver.paid", "silver.chosen")] == [
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION"
    ] * 2


def test_views_and_settings_of_a_function_are_its_own(
    planned: Callable[..., Manifest], spark: SparkSession
) -> None:
    partitions, views = (
        spark.conf.get("spark.sql.shuffle.partitions"),
        spark.sql("SHOW TABLES").collect(),
    )

    def sets(orders: DataFrame) -> DataFrame:
        orders.sparkSession.conf.set("spark.sql.shuffle.partitions", "3")
        orders.sparkSession.sql("SET spark.sql.ansi.enabled = false")
        orders.createOrReplaceTempView("left_behind")
        orders.cache().explain()
        return orders.sparkSession.sql("SELECT id FROM left_behind")

    table = planned(paid_table(sets)).tables["silver.paid"]
    assert (table.unknown, direct(table, "id")) == ((), {("bronze.orders", "id", Kind.IDENTITY)})
    assert (spark.conf.get("spark.sql.shuffle.partitions"), spark.sql("SHOW TABLES").collect()) == (
        partitions,
        views,
    )
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    spark.range(1).createOrReplaceTempView("of_this_session")
    active = SparkSession.getActiveSession()
    assert active is not None
    assert active.table("of_this_session").count() == 1
    spark.catalog.dropTempView("of_this_session")


def test_a_table_that_a_plain_asset_writes_is_not_known_until_it_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    nightly = SourceTable("lab.nightly")
    lakechime_sensor(
        "plain_nightly", SnapshotTrigger([orders.name]), job=nightly_job, writes=nightly.name
    )
    platform, lake = open_platform(load_settings(home=tmp_path)), Lake("shop", [orders, nightly])
    write_deltalake(platform.location("lab.nightly"), ORDERS.empty_table())
    made = manifest_by(spark, lake, platform)
    assert made.tables["lab.nightly"].unknown == (
        "not known until it runs: the job of plain_nightly writes it",
    )
    assert len(made.tables["lab.nightly"].columns) == len(ORDERS)
    assert (
        manifest_by(spark, lake, platform, made, only_manifest=True).tables["lab.nightly"]
        == made.tables["lab.nightly"]
    )
