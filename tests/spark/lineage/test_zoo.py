"""The zoo's shapes, planned by Spark anew, mean what is known of them; writes are executed."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.lineage.plans.told import known, read, told
from tests.support.zoo_dumps import frame_dumps, write_dumps

pytestmark = pytest.mark.spark

EXECUTED = ("delta_table_merge", "a_result_within_a_merge")


def test_frames_mean_the_same_when_they_are_planned_anew(spark: SparkSession) -> None:
    assert {shape: told(read(dump)) for shape, dump in frame_dumps(spark).items()} == known("frames")


def test_statements_mean_the_same_when_they_are_executed_anew(spark: SparkSession, tmp_path: Path) -> None:
    meanings = known("writes")
    found = {shape: told(read(dumps)) for shape, dumps in write_dumps(spark, str(tmp_path), EXECUTED).items()}
    assert found == {shape: meanings[shape] for shape in EXECUTED}
