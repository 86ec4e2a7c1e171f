"""What Spark's failures say to somebody who reads them later."""

import logging
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from logging.handlers import BufferingHandler
from pathlib import Path

import pytest
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.spark.driver import SparkFailedError, described, plain, stack

pytestmark = pytest.mark.spark


@pytest.mark.tier1
def test_a_failure_says_what_spark_said_without_its_stack(spark: SparkSession) -> None:
    with (
        pytest.raises(SparkFailedError, match=r"AnalysisException: .*nowhere") as caught,
        described(),
    ):
        spark.sql("SELECT nowhere FROM range(1)")
    assert not re.search(r"JVM stacktrace|org\.apache|Project|Range \(", str(caught.value))
    assert re.search(
        r"test_failures\.py(.|\n)*org\.apache\.spark\S*AnalysisException(.|\n)*\tat org\.apache",
        stack(caught.value),
    )


@pytest.mark.parametrize("of_frame", [False, True])
def test_a_failure_that_is_put_into_words_is_not_logged_with_its_stack_too(
    spark: SparkSession, of_frame: bool
) -> None:
    logger = PySparkLogger.getLogger(
        "DataFrameQueryContextLogger" if of_frame else "SQLQueryContextLogger"
    )
    logged = BufferingHandler(capacity=10)
    logger.addHandler(logged)
    try:
        with pytest.raises(SparkFailedError), described():
            spark.range(1).select(F.col("nowhere") + 1) if of_frame else spark.sql(
                "SELECT nowhere FROM range(1)"
            )
    finally:
        logger.removeHandler(logged)
    assert logged.buffer == []


def test_threads_that_put_failures_into_words_leave_each_others_logs_alone() -> None:
    logger, logged = PySparkLogger.getLogger("SQLQueryContextLogger"), BufferingHandler(capacity=10)
    logger.addHandler(logged)
    try:
        with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
            one, other = described(), described()
            first.submit(one.__enter__).result()
            second.submit(other.__enter__).result()
            logger.warning("of neither")
            second.submit(logger.warning, "of one that is described").result()
            first.submit(one.__exit__, None, None, None).result()
            second.submit(logger.warning, "of one that is described still").result()
            second.submit(other.__exit__, None, None, None).result()
            second.submit(logger.warning, "of one that was").result()
    finally:
        logger.removeHandler(logged)
    assert [record.getMessage() for record in logged.buffer] == ["of neither", "of one that was"]


def test_threads_that_begin_at_once_leave_the_class_of_new_loggers_alone() -> None:
    before, interval = logging.getLoggerClass(), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def begin(_: int) -> None:
        with described():
            pass

    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(begin, range(5_000)))
        assert logging.getLoggerClass() is before
    finally:
        sys.setswitchinterval(interval)
        logging.setLoggerClass(before)


@pytest.mark.tier1
def test_a_call_that_java_refuses_says_what_java_said(spark: SparkSession) -> None:
    with pytest.raises(SparkFailedError, match="NumberFormatException"), described():
        spark._jvm.java.lang.Integer.parseInt("many")  # type: ignore[union-attr]


@pytest.mark.tier1
def test_a_failure_in_a_task_says_what_the_task_said(spark: SparkSession) -> None:
    with (
        pytest.raises(SparkFailedError, match="an order without a customer") as caught,
        described(),
    ):
        spark.sql("SELECT raise_error('an order without a customer') FROM range(1)").collect()
    assert not re.search(r"Job aborted|stage|\bat \w|org\.apache", str(caught.value))


@pytest.mark.tier1
def test_a_file_that_is_gone_is_named(spark: SparkSession, tmp_path: Path) -> None:
    location = tmp_path / "t"
    spark.range(3).write.parquet(str(location))
    frame = spark.read.parquet(str(location))
    for file in location.glob("*.parquet"):
        file.unlink()
    with pytest.raises(SparkFailedError, match=str(location)) as caught, described():
        frame.write.parquet(str(tmp_path / "other"))
    assert not re.search(r"Job aborted|\bat \w+\.|org\.apache|java\.io", str(caught.value))


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "org.apache.spark.SparkException: no\n\tat org.apache.spark.X.y(X.scala:1)",
            "SparkException: no",
        ),
        ("java.lang.IllegalStateException: x\n\nJVM stacktrace:\nmore", "IllegalStateException: x"),
        (
            "Job failed: java.io.IOException: disk\n\nDriver stacktrace:",
            "Job failed: IOException: disk",
        ),
        (
            "table io.Orders and a.b.Orders at 5 o'clock",
            "table io.Orders and a.b.Orders at 5 o'clock",
        ),
        ("[X] no; line 1 pos 7;\n'Project ['k#1L]\n+- Range (0, 1)\n", "[X] no; line 1 pos 7"),
        ("[X] no;\n'Union\n:- Range (0, 1)\n+- Range (1, 2)", "[X] no"),
        ("two lines;\nOf a user", "two lines;\nOf a user"),
    ],
)
def test_stacks_and_packages_are_left_out_and_names_of_tables_are_not(
    said: str, shown: str
) -> None:
    assert plain(said) == shown


def test_other_errors_pass_as_they_are() -> None:
    with pytest.raises(ValueError, match="mine"), described():
        raise ValueError("mine")


def test_a_connection_of_somebody_else_that_fails_passes_as_it_is(spark: SparkSession) -> None:
    with pytest.raises(ConnectionRefusedError, match="their server"), described():
        raise ConnectionRefusedError("their server")
