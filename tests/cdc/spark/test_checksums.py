"""Two tables are compared by Spark down to the rows that differ, and by what it leaves of its
session's confs.
"""

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.compare import Fault, Queries, compare, comparison_of, confirmed
from lakechime_dagster.cdc.spark_compare import run_in

pytestmark = pytest.mark.spark

CONF = "spark.sql.legacy.parameterSubstitution.constantsOnly"


def a_side(spark: SparkSession, view: str, rows: str) -> Queries:
    types: dict[str, str] = dict.fromkeys(("id", "value"), "bigint")
    spark.sql(f"SELECT id, id * 10 AS value FROM {rows}").createOrReplaceTempView(view)
    return comparison_of(Dialect.POSTGRES, types, types, ["id"]).lake(run_in(spark), view)


def test_rows_that_differ_are_found_and_found_again(spark: SparkSession):
    session = spark.newSession()
    before = session.conf.get(CONF, None)
    one = a_side(session, "one", "range(1000)")
    other = a_side(session, "other", "(SELECT IF(id = 700, 7000, id) AS id FROM range(1000))")
    found = compare(one, other, leaf=500)
    assert found.faults == {("700",): Fault.MISSING, ("7000",): Fault.EXTRA}
    assert confirmed(found, one.at(list(found.faults)), other).faults == found.faults
    assert session.conf.get(CONF, None) == before
