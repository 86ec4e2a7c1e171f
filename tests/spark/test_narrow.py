"""A narrowed table has just the rows that were asked for, wherever the process runs and whatever
the year is.
"""

import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.spark.ranges import MAX_ALTERNATIVES, MAX_LISTED, literal_filter, narrowed
from lakechime_dagster.spark.session import MAX_LITERALS, column, local

pytestmark = pytest.mark.spark


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process in New York, whose clocks were put forward on 2013-03-10; the JVM stays where it
    is.
    """
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


EVERY_KIND = [
    "cast(id AS tinyint) AS small",
    "id % 2 = 0 AS flag",
    "cast(id AS decimal(20, 3)) / 3 AS price",
    "cast(id AS float) / 3 AS ratio",
    "cast(id AS double) / 7 AS share",
    "date_add(DATE'0001-01-01', cast(id AS int)) AS day",
    "TIMESTAMP'2013-03-10 06:30:00' AS at",
    "TIMESTAMP_NTZ'2013-03-10 02:30:00.123456' AS there",
    r"""concat("it's \\\n ", '$', '{spark.app.name}', id) AS name""",
]


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
def test_times_and_dates_are_found_in_a_process_of_another_zone(
    spark: SparkSession, new_york: None, value: str, count: int
) -> None:
    rows = spark.range(count + 20).selectExpr("id", f"{value} AS at")
    wanted = rows.where(f"id < {count}").select("at")
    found = narrowed(rows, wanted, {"at": column("at")})
    assert sorted(row["id"] for row in found.select("id").collect()) == list(range(count))


def test_long_values_are_bounded_without_a_checkpoint_that_holds_all_of_them(
    spark: SparkSession,
) -> None:
    """Together they would not fit into the driver's memory."""
    values = spark.range(1500).selectExpr("concat(id, repeat('x', 1000000)) AS name")
    condition = literal_filter(values, {"name": column("name")})
    assert condition is not None
    rows = spark.createDataFrame([("3x",), ("4x",), ("z",)], "name STRING")
    assert rows.where(condition).count() == 2


def is_one(left: DataFrame, right: DataFrame) -> bool:
    return (
        left.schema.simpleString() == right.schema.simpleString()
        and not left.exceptAll(right).count()
        and not right.exceptAll(left).count()
    )


def test_few_rows_of_every_kind_become_data_of_the_plan_as_they_are(
    spark: SparkSession, new_york: None
) -> None:
    values = spark.range(3).selectExpr(*EVERY_KIND)
    values = values.union(values.select(*[F.lit(None).alias(name) for name in values.columns]))
    held = local(values.union(values))
    assert held is not None
    assert is_one(held, values.distinct())


@pytest.mark.tier1
def test_what_is_data_of_the_plan_is_narrowed_by_without_a_job(spark: SparkSession) -> None:
    held, rows = local(spark.range(3)), spark.range(10)
    assert held is not None
    spark.sparkContext.setJobGroup(group := uuid4().hex, "")
    found = narrowed(rows, held, {"id": column("id")})
    assert not spark.sparkContext.statusTracker().getJobIdsForGroup(group)
    assert found.count() == 3
    assert spark.sparkContext.statusTracker().getJobIdsForGroup(group)


@pytest.mark.tier1
@pytest.mark.parametrize("key", ["id", "cast(id AS INT)", "concat('it''s ', id)"])
def test_many_keys_that_are_data_of_the_plan_are_listed_without_a_job_and_a_join(
    spark: SparkSession, key: str
) -> None:
    rows = spark.range(2000).selectExpr(f"{key} AS key")
    wanted = rows.where("hash(key) % 3 = 0").toArrow()
    held = spark.createDataFrame(wanted, rows.schema)
    assert held.count() > MAX_LITERALS
    spark.sparkContext.setJobGroup(group := uuid4().hex, "")
    found = narrowed(rows, held, {"key": column("key")}, MAX_LISTED)
    assert not spark.sparkContext.statusTracker().getJobIdsForGroup(group)
    assert "Join" not in str(found._jdf.queryExecution().optimizedPlan())  # type: ignore[operator]
    assert found.toArrow().sort_by("key") == wanted.sort_by("key")


@pytest.mark.tier1
def test_null_among_many_listed_keys_is_found_too(spark: SparkSession) -> None:
    rows = spark.range(1000).selectExpr("nullif(id, 7) AS key")
    assert (
        narrowed(
            rows, rows.where("key IS NULL OR key < 500"), {"key": column("key")}, MAX_LISTED
        ).count()
        == 500
    )


@pytest.mark.parametrize(
    "values",
    ["range(201)", "(SELECT repeat('x', 1001) AS name)", "(SELECT array(1) AS listed)"],
    ids=["many", "long", "of no literals"],
)
def test_rows_that_are_many_or_long_or_have_no_literals_stay_where_they_are(
    spark: SparkSession, values: str
) -> None:
    assert local(spark.sql(f"SELECT * FROM {values}")) is None


@pytest.mark.parametrize("alternatives", [0, MAX_ALTERNATIVES], ids=["by a join", "by literals"])
def test_values_of_several_columns_are_wanted_together(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, alternatives: int
) -> None:
    monkeypatch.setattr("lakechime_dagster.spark.ranges.MAX_ALTERNATIVES", alternatives)
    rows = spark.sql(
        "SELECT * FROM VALUES (1, 'a'), (1, 'b'), (2, 'a'), (2, null), (null, 'b'), (null, null) "
        "AS t(k, name)"
    )
    wanted = spark.sql(
        "SELECT * FROM VALUES ('b', 1), (null, 2), (null, null), ('b', 7) AS t(name, k)"
    )
    found = narrowed(rows, wanted, {"k": column("k"), "name": column("name")})
    assert {tuple(row) for row in found.collect()} == {(1, "b"), (2, None), (None, None)}


def test_nothing_is_wanted_by_no_values(spark: SparkSession) -> None:
    assert narrowed(spark.range(3), spark.range(0), {"id": column("id")}).count() == 0


@pytest.mark.tier1
def test_both_zeros_are_one_value(spark: SparkSession) -> None:
    rows, wanted = spark.sql("SELECT -0.0D AS x"), spark.sql("SELECT 0.0D AS x")
    assert narrowed(rows, wanted, {"x": column("x")}).count() == 1
