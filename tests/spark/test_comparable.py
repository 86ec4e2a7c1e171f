"""Values that Spark cannot compare itself differ exactly where they differ: by a microsecond, a
null, a byte of a key.
"""

import pytest
from pyspark.sql import Column, DataFrame, SparkSession

from lakechime_dagster.spark.ranges import same
from lakechime_dagster.spark.rows import keyed_difference, sift
from lakechime_dagster.spark.session import column, comparable

pytestmark = pytest.mark.spark

SHAPES = [
    "map('a', {})",
    "map({}, 1)",
    "array(map('a', {}))",
    "named_struct('in', map('a', array({})))",
    "map('a', map('b', {}))",
    "named_struct('at', {}, 'other.name', parse_json('[1]'))",
    "map(named_struct('at', {}), 1)",
]
LEAST = [
    ("timestamp_micros(1)", "timestamp_micros(2)"),
    ("timestamp_ntz'1500-02-28 00:00:00.000001'", "timestamp_ntz'1500-02-28 00:00:00.000002'"),
    ("date'1500-02-28'", "date'1500-03-01'"),
    ("named_struct('a', 'x,', 'b', 'y')", "named_struct('a', 'x', 'b', ',y')"),
    ("unhex('00ff')", "unhex('00fe')"),
]
DIFFERENT = [
    ("""parse_json('{"a": 1, "b": null}')""", """parse_json('{"a": 1}')"""),
    ("parse_json('null')", "CAST(NULL AS VARIANT)"),
    ("CAST(timestamp_micros(1) AS VARIANT)", "CAST(timestamp_micros(2) AS VARIANT)"),
    ("map('a', CAST(NULL AS INT))", "map('a', 1)"),
    ("map('a', 1)", "CAST(NULL AS MAP<STRING, INT>)"),
    (
        "named_struct('m', CAST(NULL AS MAP<STRING, INT>))",
        "CAST(NULL AS STRUCT<m: MAP<STRING, INT>>)",
    ),
]
EQUAL = [
    ("""parse_json('{"a": 1, "b": null}')""", """parse_json('{"b": null, "a": 1}')"""),
    ("map('a', 1, 'b', 2)", "map('b', 2, 'a', 1)"),
    ("CAST(NULL AS MAP<STRING, INT>)", "CAST(NULL AS MAP<STRING, INT>)"),
]


def are_equal(spark: SparkSession, pairs: list[tuple[str, str]]) -> list[bool]:
    """For each pair of SQL values whether they are equal, asked in one query."""
    values = [
        (f"{one} AS `one.{i}`", f"{other} AS `other.{i}`") for i, (one, other) in enumerate(pairs)
    ]
    rows = spark.sql(f"SELECT {', '.join(text for pair in values for text in pair)}")

    def value(name: str) -> Column:
        return comparable(column(name), rows.schema[name].dataType)

    return list(
        rows.select(
            *[same(value(f"one.{i}"), value(f"other.{i}")) for i in range(len(pairs))]
        ).collect()[0]
    )


@pytest.mark.tier1
def test_nested_values_differ_by_the_least_that_they_can_hold(spark: SparkSession) -> None:
    pairs = [(shape.format(one), shape.format(other)) for shape in SHAPES for one, other in LEAST]
    assert [pair for pair, equal in zip(pairs, are_equal(spark, pairs), strict=True) if equal] == []
    alike = [(one, one) for one, _ in pairs]
    assert [
        pair for pair, equal in zip(alike, are_equal(spark, alike), strict=True) if not equal
    ] == []


def test_a_null_is_a_value_of_its_own_and_order_is_none(spark: SparkSession) -> None:
    assert are_equal(spark, DIFFERENT) == [False] * len(DIFFERENT)
    assert are_equal(spark, EQUAL) == [True] * len(EQUAL)


def one_row(spark: SparkSession, micros: int) -> DataFrame:
    return spark.sql(f"SELECT 1 AS k, map('at', timestamp_micros({micros})) AS v")


@pytest.mark.parametrize(("micros", "updated"), [(1, 0), (2, 1)])
def test_a_row_whose_map_differs_by_a_microsecond_is_updated(
    spark: SparkSession, micros: int, updated: int
) -> None:
    found = keyed_difference(one_row(spark, micros), one_row(spark, 1), ["k"])
    assert (found.updated, found.unchanged) == (updated, 1 - updated)


@pytest.mark.parametrize(
    "shape", ["map('a', timestamp_micros(id))", "map(CAST(CAST(id AS STRING) AS BINARY), 1)"]
)
def test_only_exact_repeats_of_a_row_are_one_row(spark: SparkSession, shape: str) -> None:
    repeated = spark.sql(
        f"SELECT k, {shape} AS v FROM VALUES (1, 1), (1, 1), (2, 1), (2, 2) AS t(k, id)"
    )
    sifted = sift(repeated, ["k"], {})
    assert (sifted.computed, sifted.deduplicated, sifted.quarantined) == (4, 1, 2)
    assert [row["k"] for row in sifted.good.collect()] == [1]
    sifted.kept.unpersist()
