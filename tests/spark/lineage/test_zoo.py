"""The zoo's shapes, planned by Spark again, mean what is known of them; writes are executed."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.lineage.spark import dump, listener_of, watched
from tests.lineage.plans.meanings import known, read, reported
from tests.support.spark import run_client, small_settings
from tests.support.zoo_dumps import empty_tables, frame_dumps, write_dumps
from tests.support.zoo_iceberg import MODES, make_tables, statements

pytestmark = pytest.mark.spark

EXECUTED = ("delta_table_merge", "save_overwrite_by_the_session", "from_a_database")


def test_frames_mean_the_same_when_they_are_planned_again(spark: SparkSession) -> None:
    assert {
        shape: reported(read(one), shape) for shape, one in frame_dumps(spark).items()
    } == known("frames")


def test_statements_mean_the_same_when_they_are_executed_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    meanings = known("writes")
    found = {
        shape: reported(read(dumps))
        for shape, dumps in write_dumps(spark, str(tmp_path), EXECUTED).items()
    }
    assert found == {shape: meanings[shape] for shape in EXECUTED}


def test_what_delta_asks_of_logs_for_a_frame_that_is_kept_is_no_statement_of_the_program(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("left", "right"):
        spark.range(3).write.format("delta").save(f"{tmp_path}/{name}")
    left, right = (
        spark.read.format("delta").load(f"{tmp_path}/{name}") for name in ("left", "right")
    )
    with watched(spark) as dumps:
        left.join(right, "id").cache().unpersist()
        asked = len(dumps)
    assert (reported(read(dumps)), asked) == ("  nothing", 0)
    assert dumps != []


def test_a_checkpoint_is_followed_on_both_sides_of_a_self_join(spark: SparkSession) -> None:
    people = empty_tables(spark).people
    with watched(spark) as dumps:
        kept = (
            people.where("boss is null")
            .select("id", F.upper("name").alias("name"))
            .localCheckpoint()
        )
    joined = (
        kept.alias("a")
        .join(kept.alias("b"), "id")
        .select("id", "a.name", F.col("b.name").alias("other"))
    )
    assert (
        reported(read([*dumps, dump(joined)]), "made")
        == """\
  writes made from people
  id: identity people.id
  name: transformation people.name
  other: transformation people.name
  rows: filter people.boss, join people.id"""
    )


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
