"""A commit that changed nothing but values in rows that stay names the columns; any other does
not.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from lakechime_dagster.spark.commit import merge
from lakechime_dagster.spark.rows import keyed_difference
from lakechime_dagster.tables.tables import RefreshMode
from tests.support.refreshes import Source, Subscription, make_subscription, open_log

pytestmark = pytest.mark.spark

ORDERS = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("note", pa.string())])
TAG = "lakechime/changed"


def wide(spark: SparkSession, *others: int) -> DataFrame:
    """A row of 65 columns, of which these are other ones, and a row that is the same."""
    row = [f"{'NULL' if at in others else at}" for at in range(65)]
    return spark.sql(
        f"SELECT * FROM VALUES (1, {', '.join(row)}), (2, {', '.join(map(str, range(65)))})"
    )


def test_the_columns_that_differ_are_named_however_many_there_are(spark: SparkSession) -> None:
    found = keyed_difference(wide(spark, 0, 62, 63, 64), wide(spark, 64), ["col1"], named=True)
    assert (found.changed, found.updated, found.unchanged) == (("col2", "col64", "col65"), 1, 1)


def started(spark: SparkSession, folder: Path, refresh: RefreshMode) -> tuple[Source, Subscription]:
    source = Source(folder / "orders", ORDERS)
    source.write((1, 1.5, "a"), (2, float("nan"), None))
    subscription = make_subscription(
        spark, folder, {"orders": source}, lambda orders: orders, keys=("id",), refresh=refresh
    )
    subscription.run()
    return source, subscription


def reported(subscription: Subscription) -> str | None:
    """What the events of the newest commit of the target report."""
    subscription.run()
    log = open_log(subscription.job.location, "target")
    (event,) = log.events_of_commit(log.version)
    return event.tags.get(TAG)


def foreign(subscription: Subscription) -> None:
    """A commit of somebody else, of the target's newest row once more."""
    write_deltalake(
        subscription.job.location,
        pa.Table.from_pylist([{"id": 2, "amount": 3.0, "note": "b"}], ORDERS),
        mode="append",
    )


def test_a_table_that_is_replaced_names_them_if_all_its_rows_stay(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, subscription = started(spark, tmp_path, RefreshMode.FULL)
    source.update({"amount": "2.5", "note": "'late'"}, "id = 1")
    assert reported(subscription) == '["amount","note"]'
    foreign(subscription)
    source.update({"note": "'later'"}, "id = 1")
    assert reported(subscription) is None  # the row of another goes too


def test_a_merge_names_nothing_if_a_row_came_or_another_commit_was_first(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, subscription = started(spark, tmp_path, RefreshMode.ROWS)
    source.update({"note": "'late'"}, "id = 1")
    source.write((3, 3.5, "c"))
    assert reported(subscription) is None

    def overtaken(session: SparkSession, target: Any, changes: DataFrame) -> None:
        DeltaTable(subscription.job.location).update(updates={"amount": "9.0"}, predicate="id = 1")
        merge(session, target, changes)

    monkeypatch.setattr("lakechime_dagster.spark.refresh.merge", overtaken)
    source.update({"note": "'later'"}, "id = 1")
    assert reported(subscription) is None  # it put back an amount that it did not compare with
