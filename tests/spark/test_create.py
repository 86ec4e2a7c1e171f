"""Two runs that come to a missing target at the same time."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from lakechime_dagster.spark.commit import Target, create_if_missing
from tests.support.refreshes import open_log

pytestmark = pytest.mark.spark
RUNS = 4
SCHEMA = StructType([StructField("id", LongType())])


def test_runs_that_create_a_target_at_the_same_time_all_go_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    location = str(tmp_path / "target")
    together = Barrier(RUNS)

    def create(_: int) -> None:
        target = Target(
            name="silver.orders", location=location, log=open_log(location, "silver.orders")
        )
        together.wait(60)
        create_if_missing(spark.newSession(), target, SCHEMA)

    with ThreadPoolExecutor(RUNS) as pool:
        list(pool.map(create, range(RUNS)))
    assert open_log(location, "silver.orders").version == 0
