"""Rows that Spark was given: those of a text of SQL are constants, those of a program may have come
from anywhere.
"""

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakechime_dagster.lineage.columns import Names
from lakechime_dagster.lineage.plan_dump import dump_of
from lakechime_dagster.lineage.plan_nodes import PROGRAM
from lakechime_dagster.lineage.plan_statements import statements_of
from lakechime_dagster.lineage.spark import dump
from lakechime_dagster.spark.session import session_confs

pytestmark = pytest.mark.spark

NUMBERS = {"a": [1, 2]}


def opaque(frame: DataFrame) -> set[str]:
    """Why it is not known what a frame's columns come from; nothing if they are all constants."""
    (statement,) = statements_of([dump_of(dump(frame))], Names(), "made").statements
    assert not any(column.sources for column in statement.columns)
    return {reason for column in statement.columns for reason in column.opaque}


@pytest.mark.parametrize("by_arrow", ["true", "false"])
def test_rows_of_a_program_are_not_known_however_they_came(
    spark: SparkSession, by_arrow: str
) -> None:
    with session_confs(spark, {"spark.sql.execution.arrow.pyspark.enabled": by_arrow}):
        reported = [
            opaque(spark.createDataFrame(rows))
            for rows in (pd.DataFrame(NUMBERS), pa.table(NUMBERS), [(1,), (2,)])
        ]
    assert reported[1] == {PROGRAM}
    assert all(reported)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM {rows}",
        "SELECT l.a, r.a AS b FROM {rows} l JOIN {rows} r ON l.a = r.a",
        "SELECT (SELECT max(r.a) FROM {rows} l JOIN {rows} r ON l.a = r.a) AS a",
        (
            "WITH q AS (SELECT a FROM {rows}) SELECT l.a FROM q l JOIN q r ON l.a = r.a JOIN {rows} s "
            "ON l.a = s.a"
        ),
    ],
)
def test_whose_rows_these_are_is_reported_through_joins_and_queries_of_themselves(
    spark: SparkSession, query: str
) -> None:
    of_program, of_text = (
        spark.createDataFrame(pa.table(NUMBERS)),
        spark.sql("SELECT * FROM VALUES (1), (2) AS t(a)"),
    )
    assert opaque(spark.sql(query, rows=of_program)) == {PROGRAM}
    assert opaque(spark.sql(query, rows=of_text)) == set()
