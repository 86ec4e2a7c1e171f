"""Threads that share a session."""

import threading

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.spark.session import in_threads

pytestmark = pytest.mark.spark


def test_each_call_has_spark_properties_of_its_own(spark: SparkSession) -> None:
    all_have_set, context, key = (
        threading.Barrier(2, timeout=60),
        spark.sparkContext,
        "spark.job.description",
    )
    context.setLocalProperty(key, "inherited")

    def call(name: str) -> tuple[str | None, str | None]:
        inherited = context.getLocalProperty(key)
        context.setLocalProperty(key, name)
        all_have_set.wait()
        return inherited, context.getLocalProperty(key)

    try:
        assert in_threads(spark, 2, call, ["a", "b"]) == [("inherited", "a"), ("inherited", "b")]
        assert context.getLocalProperty(key) == "inherited"
    finally:
        context.setLocalProperty(key, None)  # type: ignore[arg-type]
