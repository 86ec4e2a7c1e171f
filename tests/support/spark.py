"""One small Spark driver for all tests of a process, and the folder of jars that it needs."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.settings import SparkSettings
from lakechime_dagster.spark.driver import Driver, open_driver
from lakechime_dagster.spark.jars import ensure_jars
from lakechime_dagster.spark.java import find_java

REPOSITORY = Path(__file__).parents[2]


def small_settings(driver: str = "local", **others: object) -> SparkSettings:
    """A driver that fits beside others on a small machine."""
    return SparkSettings.model_validate({"driver": driver, "memory": "1g", "cores": 2} | others)


@pytest.fixture(scope="session")
def spark_jars() -> Path:
    """Spark's jars: LAKECHIME_SPARK_JARS, or the repository's home folder, fetched into it once."""
    folder = Path(os.environ.get("LAKECHIME_SPARK_JARS") or REPOSITORY / ".lakechime" / "jars")
    ensure_jars(folder, find_java)
    return folder


@pytest.fixture(scope="session")
def spark_driver(spark_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """The driver of this test process; a driver that a test opens meanwhile shares its JVM, in a session of its own."""
    with open_driver(small_settings(), tmp_path_factory.mktemp("spark-home"), jars=spark_jars) as driver:
        yield driver


@pytest.fixture(scope="session")
def spark(spark_driver: Driver) -> SparkSession:
    """The session of `spark_driver`: temporary views and confs that a test sets, it also unsets."""
    return spark_driver.spark
