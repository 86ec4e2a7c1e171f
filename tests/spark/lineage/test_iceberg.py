"""Statements on Iceberg tables, planned by Spark again, mean what is known of them; nothing is
executed.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.lineage.spark import listener_of
from tests.lineage.plans.meanings import known, read, reported
from tests.support.spark import run_client, small_settings
from tests.support.zoo_dumps import empty_tables
from tests.support.zoo_iceberg import MODES, make_tables, statements

pytestmark = pytest.mark.spark

PLANNED = (
    "merge_with_conditions",
    "merge_one_insert",
    "update_where",
    "update_where_others_say",
    "delete_where",
)


@pytest.fixture
def with_iceberg(spark: SparkSession, iceberg_jar: Path) -> Iterator[SparkSession]:
    """A session of its own that can plan statements on Iceberg tables; of the JVM only this thread
    has the jar.
    """
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
    return json.loads(str(listener_of(spark).dump(plan, '"name":"command",', False)))


@pytest.mark.parametrize("mode", MODES)
def test_statements_mean_the_same_when_they_are_planned_again(
    with_iceberg: SparkSession, tmp_path: Path, mode: str
) -> None:
    make_tables(empty_tables(with_iceberg), str(tmp_path), mode)
    found = {shape: reported(read(planned(with_iceberg, statements()[shape]))) for shape in PLANNED}
    meanings = known("iceberg")
    assert found == {shape: meanings[shape] for shape in PLANNED}


def test_what_a_program_writes_is_kept(
    iceberg_jar: Path, spark_jars: Path, tmp_path: Path, upgraded_sqlite: Path
) -> None:
    (tmp_path / "dce.sqlite").write_bytes(upgraded_sqlite.read_bytes())
    code = """
        from lakechime_dagster.lineage.columns import Names
        from lakechime_dagster.lineage.runs import recording
        from lakechime_dagster.runtime.platform import open_platform
        from lakechime_dagster.lineage.store import LineageStandings

        os.environ["LAKECHIME_HOME"] = os.environ["TEST_HOME"]
        platform = open_platform()
        with open_here() as driver:
            spark = driver.spark
            for key, value in {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": f"{home}/ice"}.items():
                spark.conf.set(f"spark.sql.catalog.ice{key}", value)
            spark.sql("create table ice.shop.orders using iceberg as select id, id as amount from range(3)")
            spark.sql("create table ice.shop.kept (id bigint, amount bigint) using iceberg")
            with recording(platform, spark, job="shop", run_id="1", names=Names(), log=say):
                spark.sql("insert into ice.shop.kept select id, amount from ice.shop.orders")
                spark.table("ice.shop.orders").selectExpr("id", "amount + 1 as amount").writeTo("ice.shop.kept").append()
                spark.read.table("ice.shop.orders").write.format("iceberg").mode("append").save(f"{home}/ice/shop/kept")
            for standing in LineageStandings(platform.store.engine).all():
                found = [source for one in standing.statement.columns if one.column == "amount" for source in one.sources]
                say(standing.statement.target.removeprefix(f"file{home}"), *sorted(f"{one.ref} {one.kind}" for one in found))
    """
    settings = small_settings(conf={"spark.jars": str(iceberg_jar)})
    assert sorted(run_client(code, tmp_path, spark_jars, settings)) == [
        "/ice/shop/kept catalog/ice.shop.orders.amount identity",
        (
            "catalog/ice.shop.kept catalog/ice.shop.orders.amount identity "
            "catalog/ice.shop.orders.amount transformation"
        ),
    ]
