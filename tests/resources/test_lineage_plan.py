"""The manifest of a lake: what its code says before any run, the same for the same code, and what of it is not known and why."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.lake import Lake, SourceTable, spark_table, sql_table
from lakechime_dagster.lake.tables import LakeTable
from lakechime_dagster.lineage.columns import ColumnRef, Kind, Source
from lakechime_dagster.lineage.planned.manifest import Manifest, PlannedTable, read_manifest
from lakechime_dagster.resources.lineage.plan import manifest_by
from lakechime_dagster.resources.platform import open_platform
from lakechime_dagster.settings import load_settings
from lakechime_dagster.spark.lineage.planning import Planner

pytestmark = pytest.mark.spark

orders = SourceTable("bronze.orders", owner="team:shop")
ORDERS = pa.schema([("id", pa.int64()), ("amount", pa.int64()), ("city", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])


def paid(orders: DataFrame) -> DataFrame:
    return orders.where("amount > 0").select("id", (F.col("amount") * 2).alias("twice"), F.lower("city").alias("city"))


def paid_table(function: Callable[..., DataFrame] = paid, **fields: Any) -> LakeTable:
    return spark_table("silver.paid", keys=["id"], reads={"orders": orders.changes()}, **fields)(function)


def towns_table(sql: str = "SELECT city, sum(twice) AS total FROM silver.paid GROUP BY city") -> LakeTable:
    return sql_table("gold.towns", sql=sql, refresh="full", owner="team:gold")


@pytest.fixture
def planned(spark: SparkSession, tmp_path: Path) -> Callable[..., Manifest]:
    """The manifest of a lake of these computed tables, in which the source is there."""
    platform = open_platform(load_settings(home=tmp_path))
    write_deltalake(platform.location("bronze.orders"), ORDERS.empty_table())

    def manifest(*tables: LakeTable, before: Manifest | None = None, only_manifest: bool = False) -> Manifest:
        return manifest_by(Planner(spark), Lake("shop", [orders, *tables]), platform, before, only_manifest=only_manifest)

    return manifest


def direct(table: PlannedTable, column: str) -> set[tuple[str, str | None, Kind]]:
    return {(one.ref.table, one.ref.column, one.kind) for one in table.by_name[column].sources}


def test_columns_of_functions_and_of_sql_are_known_before_any_run(planned: Callable[..., Manifest]) -> None:
    tables = planned(paid_table(), towns_table()).tables
    paid_, towns = tables["silver.paid"], tables["gold.towns"]
    assert direct(paid_, "twice") == {("bronze.orders", "amount", Kind.TRANSFORMATION)}
    assert paid_.indirect == (Source(ColumnRef("bronze.orders", "amount"), Kind.FILTER),)
    assert [(column.name, column.type) for column in paid_.columns] == [("id", "long"), ("twice", "long"), ("city", "string")]
    assert direct(towns, "total") == {("silver.paid", "twice", Kind.AGGREGATION)}
    assert (towns.owner, towns.inputs) == ("team:gold", ("silver.paid",))


def test_equal_code_gives_an_equal_file(planned: Callable[..., Manifest], tmp_path: Path) -> None:
    first, second = planned(paid_table(), towns_table()), planned(paid_table(), towns_table())
    path = tmp_path / "lineage.json"
    path.write_text(first.to_json(), encoding="utf-8")
    assert first.to_json() == second.to_json()
    assert read_manifest(path) == first
    assert read_manifest(path).to_json() == first.to_json()


def test_a_file_stands_for_tables_that_are_not_there(planned: Callable[..., Manifest]) -> None:
    before = planned(paid_table(), towns_table())
    assert planned(paid_table(), towns_table(), before=before, only_manifest=True) == before
    unknown = planned(paid_table(), only_manifest=True)
    assert unknown.tables["silver.paid"].unknown == ("not known until bronze.orders is",)


def test_digests_tell_what_changed(planned: Callable[..., Manifest]) -> None:
    def other_value(orders: DataFrame) -> DataFrame:
        return orders.where("amount > 0").select("id", (F.col("amount") * 3).alias("twice"), F.lower("city").alias("city"))

    def other_rows(orders: DataFrame) -> DataFrame:
        return orders.where("amount > 1").select("id", (F.col("amount") * 2).alias("twice"), F.lower("city").alias("city"))

    def same(orders: DataFrame) -> DataFrame:
        """Said in other words."""
        twice = orders.withColumn("t", F.col("amount") * 2).filter(F.col("amount") > 0)
        return twice.select("id", F.col("t").alias("twice"), F.lower("city").alias("city"))

    def digests(function: Callable[..., DataFrame]) -> tuple[str, ...]:
        table = planned(paid_table(function)).tables["silver.paid"]
        return (table.rows, *(column.digest for column in table.columns))

    was, value, rows, again = digests(paid), digests(other_value), digests(other_rows), digests(same)
    assert [one == other for one, other in zip(was, value, strict=True)] == [True, True, False, True]
    assert [one == other for one, other in zip(was, rows, strict=True)] == [False, True, True, True]
    assert again == was


def test_what_cannot_be_asked_is_said(planned: Callable[..., Manifest]) -> None:
    def breaks(orders: DataFrame) -> DataFrame:
        return orders.where(F.col("id") > orders.first()["id"])  # type: ignore[index]

    def gone(orders: DataFrame) -> DataFrame:
        return orders.select("no_such_column")

    def wants(orders: DataFrame, context: Any) -> DataFrame:
        return orders

    def why(function: Callable[..., DataFrame]) -> str:
        (reason,) = planned(paid_table(function)).tables["silver.paid"].unknown
        return reason

    assert why(breaks).startswith("TypeError: ")
    assert "no_such_column" in why(gone)
    assert why(wants) == "not known until it runs: its function wants context; give it a default"


def test_a_value_that_goes_through_the_driver_is_told(planned: Callable[..., Manifest]) -> None:
    def newest(orders: DataFrame) -> DataFrame:
        return orders.select("id", F.lit(orders.agg(F.max("amount")).first()[0]).cast("long").alias("newest"))  # type: ignore[index]

    table = planned(paid_table(newest)).tables["silver.paid"]
    assert ("bronze.orders", "amount", Kind.DRIVER) in direct(table, "newest")
    assert table.by_name["newest"].opaque


def test_how_a_table_is_kept_is_told(planned: Callable[..., Manifest]) -> None:
    table = planned(paid_table(expect={"is positive": "twice > 0"})).tables["silver.paid"]
    assert table.laid_out == {"keys": "id", "refresh": "rows", "expect is positive": "twice > 0"}
    assert inspect.cleandoc(planned(paid_table()).to_json()).count('"name": "twice"') == 1
