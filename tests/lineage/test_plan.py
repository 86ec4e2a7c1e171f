"""The manifest of a lake: what its code says before any run, the same for the same code."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakechime_dagster.lineage.check import Class, compare
from lakechime_dagster.lineage.columns import ColumnRef, Kind, Source
from lakechime_dagster.lineage.manifest import Manifest, read_manifest
from lakechime_dagster.tables.declare import spark_table
from lakechime_dagster.tables.tables import SourceTable
from tests.support.planned import direct, paid, paid_table, planned, towns_table

pytestmark = pytest.mark.spark
__all__ = ["planned"]


def test_columns_of_functions_and_of_sql_are_known_before_any_run(
    planned: Callable[..., Manifest],
) -> None:
    tables = planned(paid_table(), towns_table()).tables
    paid_, towns = tables["silver.paid"], tables["gold.towns"]
    assert direct(paid_, "twice") == {("bronze.orders", "amount", Kind.TRANSFORMATION)}
    assert paid_.indirect == (Source(ColumnRef("bronze.orders", "amount"), Kind.FILTER),)
    assert [(column.column, column.type) for column in paid_.columns] == [
        ("id", "long"),
        ("twice", "long"),
        ("city", "string"),
    ]
    assert direct(towns, "total") == {("silver.paid", "twice", Kind.AGGREGATION)}
    assert (towns.owner, towns.inputs) == ("team:gold", ("silver.paid",))


def test_equal_code_gives_an_equal_file(planned: Callable[..., Manifest], tmp_path: Path) -> None:
    first, second = planned(paid_table(), towns_table()), planned(paid_table(), towns_table())
    path = tmp_path / "lineage.json"
    path.write_text(first.to_json(), encoding="utf-8")
    assert first.to_json() == second.to_json()
    assert read_manifest(path) == first
    assert read_manifest(path).to_json() == first.to_json()


def test_digests_report_what_changed(planned: Callable[..., Manifest]) -> None:
    def other_value(orders: DataFrame) -> DataFrame:
        return orders.where("amount > 0").select(
            "id", (F.col("amount") * 3).alias("twice"), F.lower("city").alias("city")
        )

    def other_rows(orders: DataFrame) -> DataFrame:
        return orders.where("amount > 1").select(
            "id", (F.col("amount") * 2).alias("twice"), F.lower("city").alias("city")
        )

    def same(orders: DataFrame) -> DataFrame:
        """Said in other words."""
        twice = orders.withColumn("t", F.col("amount") * 2).filter(F.col("amount") > 0)
        return twice.select("id", F.col("t").alias("twice"), F.lower("city").alias("city"))

    def digests(function: Callable[..., DataFrame]) -> tuple[str, ...]:
        table = planned(paid_table(function)).tables["silver.paid"]
        return (table.rows, *(column.digest for column in table.columns))

    was, value, rows, again = (
        digests(paid),
        digests(other_value),
        digests(other_rows),
        digests(same),
    )
    assert [one == other for one, other in zip(was, value, strict=True)] == [
        True,
        True,
        False,
        True,
    ]
    assert [one == other for one, other in zip(was, rows, strict=True)] == [False, True, True, True]
    assert again == was


def test_readers_that_do_not_say_what_they_read_are_unsure_of_what_changes(
    planned: Callable[..., Manifest],
) -> None:
    def other(orders: DataFrame) -> DataFrame:
        return orders.where("amount > 0").select(
            "id", (F.col("amount") * 3).alias("twice"), F.lower("city").alias("city")
        )

    def without(orders: DataFrame) -> DataFrame:
        return orders.where("amount > 0").select("id", F.lower("city").alias("city"))

    @spark_table(
        "gold.wants",
        keys=["id"],
        reads={"paid": SourceTable("silver.paid").snapshot()},
        refresh="full",
    )
    def wants(paid: DataFrame, context: Any) -> DataFrame:
        return paid

    @spark_table(
        "gold.by_rdd",
        keys=["id"],
        reads={"paid": SourceTable("silver.paid").snapshot()},
        refresh="full",
    )
    def by_rdd(paid: DataFrame) -> DataFrame:
        return paid.sparkSession.createDataFrame(paid.rdd.map(lambda row: (row[0],)), "id long")

    before = planned(paid_table(), wants, by_rdd)
    for function in (other, without):
        findings = compare(before, planned(paid_table(function), wants, by_rdd))
        unsure = {(one.table, one.column) for one in findings if one.kind is Class.UNSURE}
        assert unsure == {("gold.wants", None), ("gold.by_rdd", None)}
