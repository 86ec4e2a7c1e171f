"""A small shop whose lineage is planned before any run: its tables, and the manifest of a lake of
them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.lineage.columns import Kind
from lakechime_dagster.lineage.manifest import Manifest, PlannedTable
from lakechime_dagster.lineage.plan import manifest_by
from lakechime_dagster.runtime.platform import open_platform
from lakechime_dagster.settings import load_settings
from lakechime_dagster.tables.declare import spark_table, sql_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Asset
from lakechime_dagster.tables.tables import LakeTable, SourceTable
from tests.support.declaring import grouped

orders = SourceTable("bronze.orders", asset=Asset(owner="team:shop"))
ORDERS = pa.schema(
    [
        ("id", pa.int64()),
        ("amount", pa.int64()),
        ("city", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)


def paid(orders: DataFrame) -> DataFrame:
    return orders.where("amount > 0").select(
        "id", (F.col("amount") * 2).alias("twice"), F.lower("city").alias("city")
    )


def paid_table(function: Callable[..., DataFrame] = paid, **fields: Any) -> LakeTable:
    return spark_table(
        "silver.paid", keys=["id"], reads={"orders": orders.changes()}, **grouped(**fields)
    )(function)


def towns_table(
    sql: str = "SELECT city, sum(twice) AS total FROM silver.paid GROUP BY city",
) -> LakeTable:
    return sql_table("gold.towns", sql=sql, refresh="full", asset=Asset(owner="team:gold"))


@pytest.fixture
def planned(spark: SparkSession, tmp_path: Path) -> Callable[..., Manifest]:
    """The manifest of a lake of these computed tables, in which the source is there."""
    platform = open_platform(load_settings(home=tmp_path))
    write_deltalake(platform.location("bronze.orders"), ORDERS.empty_table())

    def manifest(
        *tables: LakeTable, before: Manifest | None = None, only_manifest: bool = False
    ) -> Manifest:
        return manifest_by(
            spark, Lake("shop", [orders, *tables]), platform, before, only_manifest=only_manifest
        )

    return manifest


def orders_table(name: str, function: Callable[..., DataFrame]) -> LakeTable:
    return spark_table(name, keys=["id"], reads={"orders": orders.changes()})(function)


def direct(table: PlannedTable, column: str) -> set[tuple[str, str | None, Kind]]:
    return {(one.ref.table, one.ref.column, one.kind) for one in table.by_name[column].sources}
