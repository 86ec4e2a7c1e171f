"""What Spark's failures say to somebody who reads them later."""

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.spark.failures import SparkFailedError, described

pytestmark = pytest.mark.spark


def test_a_failure_says_what_spark_said_without_its_stack(spark: SparkSession) -> None:
    with pytest.raises(SparkFailedError, match=r"AnalysisException: .*nowhere") as caught, described():
        spark.sql("SELECT nowhere FROM range(1)")
    assert "JVM stacktrace" not in str(caught.value)
    assert "org.apache" not in str(caught.value)


def test_a_call_that_java_refuses_says_what_java_said(spark: SparkSession) -> None:
    with pytest.raises(SparkFailedError, match="NumberFormatException"), described():
        spark._jvm.java.lang.Integer.parseInt("many")  # type: ignore[union-attr]


def test_other_errors_pass_as_they_are() -> None:
    with pytest.raises(ValueError, match="mine"), described():
        raise ValueError("mine")
