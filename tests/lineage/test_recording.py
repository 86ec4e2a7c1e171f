"""Lineage of a program's own writes: every statement that succeeded, and none that failed."""

from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.lineage.columns import Kind
from lakechime_dagster.lineage.graph import Standing
from lakechime_dagster.lineage.runs import spark_lineage
from lakechime_dagster.lineage.store import LineageStandings
from lakechime_dagster.runtime.platform import Platform, open_platform

pytestmark = pytest.mark.spark

Writes = Callable[[SparkSession, str, str], None]  # with the paths of a source and a target
TABLES = {"bronze.orders": None, "silver.orders": None}


@pytest.fixture
def platform(home: Path, spark: SparkSession) -> Platform:
    platform = open_platform()
    for name in TABLES:
        spark.range(3).withColumn("amount", F.col("id") * 10).write.format("delta").save(
            platform.location(name)
        )
    return platform


def run(platform: Platform, spark: SparkSession, writes: Writes) -> list[str]:
    """A run of a job of its own that writes; what it logs."""
    lines: list[str] = []
    tables = {name: platform.location(name) for name in TABLES}

    @dg.op
    def op(context: dg.OpExecutionContext) -> None:
        context.log.info = lines.append  # type: ignore[method-assign]
        with spark_lineage(context, spark, tables, {"default.fed": "bronze.fed"}):
            writes(spark, tables["bronze.orders"], tables["silver.orders"])

    @dg.job
    def shop() -> None:
        op()

    shop.execute_in_process(raise_on_error=False)
    return lines


def reported(platform: Platform) -> dict[str, Standing]:
    return {one.statement.target: one for one in LineageStandings(platform.store.engine).all()}


def sources(platform: Platform, column: str, table: str = "silver.orders") -> set[tuple[str, Kind]]:
    statement = reported(platform)[table].statement
    return {
        (str(source.ref), source.kind)
        for one in statement.columns
        if one.column == column
        for source in one.sources
    }


def test_statements_of_sql_and_of_both_apis_on_one_table_add_up(
    platform: Platform, spark: SparkSession
) -> None:
    def writes(spark: SparkSession, source: str, target: str) -> None:
        spark.sql(
            f"MERGE INTO delta.`{target}` t USING delta.`{source}` s ON t.id = s.id WHEN MATCHED "
            f"THEN UPDATE SET amount = s.amount + 1"
        )
        new = (
            spark.read.format("delta")
            .load(source)
            .select((F.col("id") + 100).alias("id"), "amount")
        )
        DeltaTable.forPath(spark, target).alias("t").merge(
            new.alias("s"), "t.id = s.id"
        ).whenNotMatchedInsertAll().execute()

    run(platform, spark, writes)
    assert sources(platform, "amount") == {
        ("bronze.orders.amount", Kind.TRANSFORMATION),
        ("bronze.orders.amount", Kind.IDENTITY),
    }
    assert ("bronze.orders.id", Kind.TRANSFORMATION) in sources(platform, "id")
    standing = reported(platform)["silver.orders"]
    assert (standing.producer.job, standing.statement.unknown) == ("shop", ())


def test_a_table_of_which_rows_come_from_elsewhere_than_a_query_is_said_as_not_known(
    platform: Platform, spark: SparkSession
) -> None:
    def writes(spark: SparkSession, source: str, target: str) -> None:
        spark.read.format("delta").load(source).write.format("delta").mode("append").save(target)
        spark.sql(f"RESTORE TABLE delta.`{target}` TO VERSION AS OF 0")
        spark.sql(f"CREATE TABLE delta.`{target}__copy` SHALLOW CLONE delta.`{source}`")

    lines = run(platform, spark, writes)
    assert [line for line in lines if "a clone" in line] != []
    assert (
        "rows of another version of the table"
        in reported(platform)["silver.orders"].statement.unknown
    )


def test_what_a_failing_body_has_committed_is_kept_and_what_failed_is_not(
    platform: Platform, spark: SparkSession
) -> None:
    def writes(spark: SparkSession, source: str, target: str) -> None:
        spark.read.format("delta").load(source).write.format("delta").mode("append").save(target)
        spark.sql(
            f"INSERT INTO delta.`{target}` SELECT id, raise_error('on purpose') FROM "
            f"delta.`{source}`"
        )

    run(platform, spark, writes)
    assert sources(platform, "amount") == {("bronze.orders.amount", Kind.IDENTITY)}


def test_a_stream_reports_its_batches_and_what_its_function_does_with_them(
    platform: Platform, spark: SparkSession, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"

    def batch(frame: DataFrame, number: int) -> None:
        frame.selectExpr("id", "amount * 2 as amount").write.format("delta").mode("append").save(
            str(outside)
        )

    def writes(spark: SparkSession, source: str, target: str) -> None:
        orders = spark.readStream.format("delta").load(source)
        appended = (
            orders.writeStream.format("delta")
            .option("checkpointLocation", str(tmp_path / "a"))
            .trigger(availableNow=True)
        )
        appended.start(target).awaitTermination()
        each = (
            orders.writeStream.foreachBatch(batch)
            .option("checkpointLocation", str(tmp_path / "b"))
            .trigger(availableNow=True)
        )
        each.start().awaitTermination()

    assert run(platform, spark, writes) == []
    assert sources(platform, "amount") == {("bronze.orders.amount", Kind.IDENTITY)}
    assert sources(platform, "amount", f"file{outside}") == {
        ("bronze.orders.amount", Kind.TRANSFORMATION)
    }
    assert reported(platform)["silver.orders"].statement.unknown == ()
