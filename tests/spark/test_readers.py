"""Readers that are not ours read what executions wrote."""

import datetime as dt
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from duckdb_extensions import import_extension
from pyspark.sql import SparkSession

from lakechime_dagster.formats.iceberg import IcebergLog
from tests.support.iceberg import IcebergWorld
from tests.support.refreshes import Source, make_subscription

pytestmark = [pytest.mark.spark, pytest.mark.tier2]
ORDERS = pa.schema([("id", pa.int64()), ("amount", pa.int64())])
SQL = "SELECT id, CAST(amount AS DECIMAL(9, 2)) AS paid, DATE'2024-05-01' AS day FROM orders"
READERS = {"delta": ("delta",), "iceberg": ("avro", "iceberg")}  # DuckDB's extensions


@pytest.mark.parametrize("kind", READERS)
def test_duckdb_reads_what_was_added_changed_and_removed(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    source, world = Source(tmp_path / "orders", ORDERS), IcebergWorld.within(tmp_path)
    log = IcebergLog(world.properties, "shop.orders") if kind == "iceberg" else None
    subscription = make_subscription(
        spark.newSession(), tmp_path, {"orders": source}, sql=SQL, keys=("id",), log=log
    )
    source.write((1, 10), (2, 20), (3, 30))
    subscription.run()
    source.update({"amount": "11"}, "id = 1")
    source.delete("id = 2")
    source.write((4, 40))
    subscription.run()
    where = subscription.job.location if log is None else log.metadata.removeprefix("file://")
    with duckdb.connect() as connection:
        for extension in READERS[kind]:
            import_extension(extension)
            connection.execute(f"LOAD {extension}")
        rows = connection.table_function(f"{kind}_scan", [where]).order("id").fetchall()
    day = dt.date(2024, 5, 1)
    assert rows == [(1, Decimal(11), day), (3, Decimal(30), day), (4, Decimal(40), day)]
