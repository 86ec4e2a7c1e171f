"""A narrowed table has just the rows that were asked for, wherever the process runs and whatever the year is."""

import time
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.spark.narrow import MAX_LITERALS, column, literal_filter, narrowed

pytestmark = pytest.mark.spark


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process in New York, whose clocks were put forward on 2013-03-10; the JVM stays where it is."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("count", [4, MAX_LITERALS + 50], ids=["listed", "bounded"])
@pytest.mark.parametrize(
    "value",
    [
        "timestampadd(HOUR, cast(id AS INT), TIMESTAMP_NTZ'2013-03-10 00:30:00')",
        "timestampadd(HOUR, cast(id AS INT), TIMESTAMP'2013-03-10 00:30:00')",
        "date_add(DATE'0001-01-01', cast(id AS INT))",
        "date_add(DATE'9999-12-30', cast(id AS INT))",
    ],
    ids=["local time", "instant", "early date", "late date"],
)
def test_times_and_dates_are_found_in_a_process_of_another_zone(spark: SparkSession, new_york: None, value: str, count: int) -> None:
    rows = spark.range(count + 20).selectExpr("id", f"{value} AS at")
    wanted = rows.where(f"id < {count}").select("at")
    found = narrowed(rows, wanted, {"at": column("at")})
    assert sorted(row["id"] for row in found.select("id").collect()) == list(range(count))


def test_long_values_are_bounded_without_a_place_that_holds_all_of_them(spark: SparkSession) -> None:
    """Together they would not fit into the driver's memory."""
    values = spark.range(1500).selectExpr("concat(id, repeat('x', 1000000)) AS name")
    condition = literal_filter(values, {"name": column("name")})
    assert condition is not None
    rows = spark.createDataFrame([("3x",), ("4x",), ("z",)], "name STRING")
    assert rows.where(condition).count() == 2
