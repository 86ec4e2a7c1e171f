"""Statements on Iceberg tables, planned by Spark again, mean what is known of them; nothing is
executed.
"""

import json
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


def planned(spark: SparkSession, statement: str) -> dict[str, Any]:
    """The dump of a statement that is not executed."""
    state, jvm = cast(Any, spark)._jsparkSession.sessionState(), cast(Any, spark._jvm)
    skipping = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    plan = state.executePlan(state.sqlParser().parsePlan(statement), skipping).analyzed()
    return json.loads(str(listener_of(spark).dump(plan, '"name":"command",', False)))


@pytest.mark.parametrize("mode", MODES)
def test_statements_mean_the_same_when_they_are_planned_again(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    session = spark.newSession()
    make_tables(empty_tables(session), str(tmp_path), mode)
    found = {shape: reported(read(planned(session, statements()[shape]))) for shape in PLANNED}
    meanings = known("iceberg")
    assert found == {shape: meanings[shape] for shape in PLANNED}


def test_what_a_program_writes_is_kept(
    spark_jars: Path, tmp_path: Path, upgraded_sqlite: Path
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
    assert sorted(run_client(code, tmp_path, spark_jars, small_settings())) == [
        "/ice/shop/kept catalog/ice.shop.orders.amount identity",
        (
            "catalog/ice.shop.kept catalog/ice.shop.orders.amount identity "
            "catalog/ice.shop.orders.amount transformation"
        ),
    ]
