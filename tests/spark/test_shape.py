"""Computed rows come under a table's columns by name and without loss."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.spark.rows import shaped
from tests.support.refreshes import Source, make_subscription

pytestmark = pytest.mark.spark


@pytest.mark.tier1
@pytest.mark.parametrize(
    ("before", "now", "value"),
    [
        (
            "named_struct('a', 'x', 'b', 'y')",
            "named_struct('b', 'y', 'a', 'x')",
            {"a": "x", "b": "y"},
        ),
        (
            "array(named_struct('a', 'x', 'b', 'y'))",
            "array(named_struct('b', 'y', 'a', 'x'))",
            [{"a": "x", "b": "y"}],
        ),
        (
            "map('k', named_struct('a', 'x', 'b', 'y'))",
            "map('k', named_struct('b', 'y', 'a', 'x'))",
            {"k": {"a": "x", "b": "y"}},
        ),
        ("named_struct('a', 'x')", "named_struct('b', 'y', 'a', 'x')", {"a": "x", "b": "y"}),
        ("named_struct('a', 'x', 'b', 1L)", "named_struct('a', 'z')", {"a": "z", "b": None}),
        ("named_struct('a', 'x')", "CAST(NULL AS struct<b:int, a:string>)", None),
        ("1L", "1", 1),
        ("CAST(1 AS decimal(10, 2))", "7S", 7),
        ("'x'", "7", "7"),
        ("1", "NULL", None),
    ],
)
def test_values_are_brought_under_a_type_by_name_and_by_widening(
    spark: SparkSession, before: str, now: str, value: object
) -> None:
    schema = spark.range(1).selectExpr(f"{before} AS v").schema
    row = shaped("silver.t", spark.range(1).selectExpr(f"{now} AS v"), schema).collect()[0]
    assert row.asDict(recursive=True) == {"v": value}


@pytest.mark.tier1
@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ("1", "2.75D", "v is double, and int in the table"),
        (
            "DATE'2013-01-01'",
            "TIMESTAMP'2013-01-01 05:06:07'",
            "v is timestamp, and date in the table",
        ),
        ("1D", "9007199254740993L", "v is bigint, and double in the table"),
        (
            "named_struct('a', array(1))",
            "named_struct('a', array(1L))",
            "v.a.element is bigint, and int in the table",
        ),
    ],
)
def test_a_value_that_a_type_cannot_hold_is_refused(
    spark: SparkSession, before: str, now: str, said: str
) -> None:
    schema = spark.range(1).selectExpr(f"{before} AS v").schema
    with pytest.raises(
        DeclarationError,
        match=f"silver.t, columns: {said}, which would lose some of it; cast it to",
    ):
        shaped("silver.t", spark.range(1).selectExpr(f"{now} AS v"), schema)


def test_a_struct_that_grows_is_merged_and_compared(spark: SparkSession, tmp_path: Path) -> None:
    source = Source(tmp_path / "source", pa.schema([("k", pa.int64()), ("v", pa.string())]))
    source.write((1, "a"), (2, "b"))
    subscription = make_subscription(
        spark,
        tmp_path,
        {"source": source},
        sql="SELECT k, struct(v AS a) AS s FROM source",
        keys=("k",),
    )
    subscription.run()
    source.update({"v": "'z'"}, "k = 2")
    subscription.job = replace(
        subscription.job, sql="SELECT k, struct(upper(v) AS b, v AS a) AS s FROM source"
    )
    assert subscription.run().counts.updated == 1
    assert subscription.rows == [(1, {"a": "a", "b": None}), (2, {"a": "z", "b": "Z"})]
