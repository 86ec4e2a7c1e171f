"""Statements on Iceberg tables, planned by Spark anew, mean what is known of them; nothing is executed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.spark.lineage.dumps import PlanDumper
from tests.lineage.plans.told import known, read, told
from tests.support.zoo_dumps import empty_tables
from tests.support.zoo_iceberg import MODES, make_tables, statements

pytestmark = pytest.mark.spark

PLANNED = ("merge_with_conditions", "merge_one_insert", "update_where", "update_where_others_say", "delete_where")


@pytest.fixture
def with_iceberg(spark: SparkSession, iceberg_jar: Path) -> Iterator[SparkSession]:
    """A session of its own that can plan statements on Iceberg tables; of the JVM only this thread has the jar."""
    jvm: Any = spark._jvm
    thread = jvm.java.lang.Thread.currentThread()
    before = thread.getContextClassLoader()
    jars = cast(Any, spark.sparkContext)._gateway.new_array(jvm.java.net.URL, 1)
    jars[0] = jvm.java.net.URI(iceberg_jar.as_uri()).toURL()
    thread.setContextClassLoader(jvm.java.net.URLClassLoader(jars, before))
    try:
        yield spark.newSession()
    finally:
        thread.setContextClassLoader(before)


def planned(spark: SparkSession, statement: str) -> dict[str, Any]:
    """The dump of a statement that is not executed."""
    state, jvm = cast(Any, spark)._jsparkSession.sessionState(), cast(Any, spark._jvm)
    skipping = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    plan = state.executePlan(state.sqlParser().parsePlan(statement), skipping).analyzed()
    return json.loads(str(PlanDumper(spark)._listener.dump(plan, '"name":"command",', False)))


@pytest.mark.parametrize("mode", MODES)
def test_statements_mean_the_same_when_they_are_planned_anew(with_iceberg: SparkSession, tmp_path: Path, mode: str) -> None:
    make_tables(empty_tables(with_iceberg), str(tmp_path), mode)
    found = {shape: told(read(planned(with_iceberg, statements()[shape]))) for shape in PLANNED}
    meanings = known("iceberg")
    assert found == {shape: meanings[shape] for shape in PLANNED}
