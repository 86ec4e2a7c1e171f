"""The zoo's shapes, planned by Spark again, mean what is known of them; writes are executed."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.lineage.spark import dump, watched
from tests.lineage.plans.meanings import known, read, reported
from tests.support.zoo_dumps import empty_tables, frame_dumps, write_dumps

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
