"""A driver of this process alone: Delta works, sessions are apart, jobs can be found and cancelled
by their tag.
"""

import logging
import re
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from logging.handlers import BufferingHandler
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.spark.driver import (
    Driver,
    SparkFailedError,
    described,
    open_driver,
    plain,
    stack,
)
from tests.support.spark import await_true, need_bash, run_client, small_settings

pytestmark = pytest.mark.spark

LONG_JOB = "SELECT sum(hash(id)) FROM range(0, 1000000000000, 1, 1)"


def test_a_second_driver_of_a_process_shares_its_jvm_but_not_its_views(
    spark_driver: Driver, tmp_path: Path, spark_jars: Path
) -> None:
    with open_driver(small_settings("warm"), tmp_path, jars=spark_jars) as second:
        second.spark.range(1).createOrReplaceTempView("only_in_the_second")
        second.spark.conf.set("spark.sql.shuffle.partitions", "7")
        assert second.kind == "local"
        assert second.reason.startswith("this process has a driver already")
        assert not spark_driver.spark.catalog.tableExists("only_in_the_second")
        assert spark_driver.spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark_driver.spark.range(2).count() == 2


def test_cancelling_a_tag_ends_its_jobs_and_no_others(spark_driver: Driver) -> None:
    outcomes: dict[str, str] = {}
    threads = [
        threading.Thread(target=run_tagged, args=(spark_driver, tag, outcomes))
        for tag in ("lakechime-a-1", "lakechime-b-1")
    ]
    for thread in threads:
        thread.start()
    try:
        await_true(
            lambda: all(spark_driver._running(tag) for tag in ("lakechime-a-1", "lakechime-b-1")),
            "both jobs run",
        )
        assert spark_driver.cancel("lakechime-a-1") == 1
        threads[0].join(30)
        assert "cancelled" in outcomes["lakechime-a-1"]
        assert spark_driver._running("lakechime-b-1")
    finally:
        assert spark_driver.cancel("lakechime-b-1") == 1
        threads[1].join(30)


def test_there_is_nothing_to_cancel_for_an_unknown_tag(spark_driver: Driver) -> None:
    assert spark_driver.cancel("lakechime-unknown-1") == 0


def test_a_tag_is_gone_after_its_block(spark_driver: Driver) -> None:
    with spark_driver.tagged("lakechime-c-1"):
        assert set(spark_driver.spark.sparkContext.getJobTags()) == {"lakechime-c-1"}
    assert not set(spark_driver.spark.sparkContext.getJobTags())


@pytest.mark.tier1
def test_python_functions_on_workers_see_the_modules_of_this_process(spark: SparkSession) -> None:
    def with_module(batches):  # type: ignore[no-untyped-def]
        from tests.support.spark import REPOSITORY

        assert REPOSITORY.is_dir()
        yield from batches

    assert spark.range(5).mapInArrow(with_module, "id long").count() == 5


def test_python_workers_import_from_folders_and_from_archives_that_a_program_adds(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(spark.sparkContext, "_python_includes", [])
    with zipfile.ZipFile(tmp_path / "reported_by_an_archive.zip", "w") as archive:
        archive.writestr("reported_by_an_archive.py", "ANSWER = 42")
    spark.sparkContext.addPyFile(str(tmp_path / "reported_by_an_archive.zip"))

    def asked(batches):  # type: ignore[no-untyped-def]
        import sys

        import pyarrow as pa
        from reported_by_an_archive import ANSWER  # type: ignore[import-not-found]

        archives = [
            entry.rpartition("/")[2] for entry in sys.path if entry.endswith((".jar", ".zip"))
        ]
        yield pa.RecordBatch.from_pydict({"answer": [ANSWER], "archives": [archives]})

    row = spark.range(1).mapInArrow(asked, "answer long, archives array<string>").collect()[0]
    assert row.answer == 42
    assert [name for name in row.archives if not name.startswith("python3")] == [
        "reported_by_an_archive.zip"
    ]


def test_closing_a_local_driver_ends_its_jvm_and_leaves_the_process_as_it_was(
    tmp_path: Path, spark_jars: Path
) -> None:
    code = """
        import signal
        from pyspark import SparkContext
        from lakechime_dagster.spark.jvm import is_alive
        handler, path = signal.getsignal(signal.SIGINT), list(sys.path)
        with open_here() as driver:
            pid = jvm_pid(driver)
            say(driver.kind, driver.reason)
            say(signal.getsignal(signal.SIGINT) is handler)
        say(is_alive(pid), SparkContext._active_spark_context, list((home / "spark" / "running").iterdir()))
        with open_here() as driver:
            say(driver.spark.range(4).count(), jvm_pid(driver) != pid)
    """
    said = run_client(code, tmp_path, spark_jars, small_settings())
    assert said[0].startswith("local started with Java")
    assert said[1:] == ["True", "False None []", "4 True"]


def test_a_run_whose_jvm_dies_says_so_and_the_next_one_of_its_process_has_another(
    tmp_path: Path, spark_jars: Path
) -> None:
    code = """
        import signal
        from lakechime_dagster.spark.driver import SparkFailedError, described
        from lakechime_dagster.spark.jvm import is_alive
        from lakechime_dagster.spark.commit import transaction
        try:
            with open_here() as driver, described(), driver.tagged("lakechime-a-1"), transaction(driver.spark, "a", 1, ""):
                pid = jvm_pid(driver)
                os.kill(pid, signal.SIGKILL)
                while is_alive(pid):
                    pass
                driver.spark.range(3).count()
        except SparkFailedError as error:
            say(error)
        with open_here() as driver:
            say(driver.kind, driver.spark.range(4).count())
    """
    assert run_client(code, tmp_path, spark_jars, small_settings()) == [
        "the Spark driver is gone: start the run again",
        "local 4",
    ]


def test_a_session_of_somebody_else_is_joined_and_left_running(
    tmp_path: Path, spark_jars: Path
) -> None:
    need_bash()
    code = """
        from lakechime_dagster.spark.jvm import find_java
        os.environ["JAVA_HOME"] = str(find_java().home)
        from pyspark.sql import SparkSession
        theirs = (SparkSession.builder.master("local[1]")
            .config("spark.driver.extraClassPath", f"{jars}/*").config("spark.ui.enabled", "false")
            .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
            .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog").getOrCreate())
        with open_here() as driver:
            say(driver.kind, driver.spark.range(3).count())
        say(theirs.range(2).count())
    """
    assert run_client(code, tmp_path, spark_jars, small_settings()) == ["joined 3", "2"]


def run_tagged(driver: Driver, tag: str, outcomes: dict[str, str]) -> None:
    with driver.tagged(tag):
        try:
            driver.spark.sql(LONG_JOB).collect()
        except (Py4JError, PySparkException) as error:
            outcomes[tag] = str(error)


@pytest.mark.tier1
def test_a_failure_says_what_spark_said_without_its_stack(spark: SparkSession) -> None:
    with (
        pytest.raises(SparkFailedError, match=r"AnalysisException: .*nowhere") as caught,
        described(),
    ):
        spark.sql("SELECT nowhere FROM range(1)")
    assert not re.search(r"JVM stacktrace|org\.apache|Project|Range \(", str(caught.value))
    assert re.search(
        r"test_driver\.py(.|\n)*org\.apache\.spark\S*AnalysisException(.|\n)*\tat org\.apache",
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
