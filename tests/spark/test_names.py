"""Names of columns are found in any case, as Spark finds them, and keep the spelling that is
declared.
"""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.tables.tables import RefreshMode
from tests.support.refreshes import Source, Subscription, make_subscription

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("ID", pa.int64()), ("V", pa.string())])


def source_of(folder: Path) -> Source:
    source = Source(folder / "orders", SCHEMA)
    source.write((1, "a"), (2, "b"))
    return source


def subscription_of(
    spark: SparkSession, folder: Path, sql: str, **fields: object
) -> tuple[Source, Subscription]:
    source = source_of(folder)
    return source, make_subscription(
        spark, folder, {"orders": source}, sql=sql, **{"keys": ("id",), **fields}
    )


def columns(subscription: Subscription) -> list[str]:
    return DeltaTable(subscription.job.location).schema().to_arrow().names  # type: ignore[union-attr]


def test_a_key_that_is_returned_in_another_case_is_the_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, subscription = subscription_of(spark, tmp_path, "SELECT ID, V FROM orders")
    assert subscription.run().counts.inserted == 2
    assert columns(subscription) == ["id", "V"]
    source.update({"V": "'z'"}, "`ID` = 1")
    counts = subscription.run().counts
    assert (counts.updated, counts.inserted, counts.deleted) == (1, 0, 0)
    assert subscription.rows == [(1, "z"), (2, "b")]


@pytest.mark.parametrize("mode", [RefreshMode.ROWS, RefreshMode.FULL])
def test_a_table_that_is_there_is_written_by_its_own_columns(
    spark: SparkSession, tmp_path: Path, mode: RefreshMode
) -> None:
    _, subscription = subscription_of(spark, tmp_path, "SELECT id, v FROM orders", refresh=mode)
    write_deltalake(subscription.job.location, pa.table({"Id": [1, 2], "V": ["a", "old"]}))
    counts = subscription.run().counts
    assert (counts.updated, counts.unchanged, counts.inserted, counts.deleted) == (1, 1, 0, 0)
    assert subscription.rows == [(1, "a"), (2, "b")]


@pytest.mark.tier1
def test_a_key_that_is_not_returned_is_named_with_what_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    _, subscription = subscription_of(spark, tmp_path, "SELECT V AS name FROM orders")
    with pytest.raises(
        DeclarationError, match=r"target.*does not return the column id.*only name; return it"
    ):
        subscription.run()


@pytest.mark.tier1
def test_two_columns_of_one_name_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    def twice(orders: DataFrame) -> DataFrame:
        return orders.selectExpr("ID AS id", "ID + 1 AS Id")

    subscription = make_subscription(
        spark, tmp_path, {"orders": source_of(tmp_path)}, twice, keys=("id",)
    )
    with pytest.raises(
        DeclarationError,
        match=r"target.*returns id and Id, which are one column to Spark; return one of them",
    ):
        subscription.run()
