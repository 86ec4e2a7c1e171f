"""A disk without space is named, however deep Spark wraps what the system said."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.spark.driver import SparkFailedError, described

pytestmark = pytest.mark.spark

REPORTED = (
    "no space is left on a disk that Spark writes to; free some, and the next attempt goes on"
)


def test_a_full_disk_below_other_failures_is_reported_too(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    full = jvm.java.io.IOException("No space left on device")
    task = jvm.java.lang.RuntimeException(
        "[TASK_WRITE_FAILED] Task failed while writing rows", full
    )
    with pytest.raises(SparkFailedError) as reported, described():
        jvm.java.util.concurrent.CompletableFuture.failedFuture(task).get()
    assert str(reported.value) == REPORTED
