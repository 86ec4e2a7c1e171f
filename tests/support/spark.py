"""One small Spark driver for all tests of a process, and the folder of jars that it needs."""

import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.settings import SparkSettings
from lakechime_dagster.spark.driver import Driver, open_driver
from lakechime_dagster.spark.jvm import ensure_jars, find_java
from tests.support.archive import OPTIMISED, SHORT_LIVED, archive_options
from tests.support.missing import missing

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


def pytest_configure() -> None:
    """The drivers of tests live for seconds or few minutes: options by which they start fast."""
    if "JAVA_TOOL_OPTIONS" not in os.environ:  # it is there in the workers of this process
        os.environ["JAVA_TOOL_OPTIONS"] = f"{SHORT_LIVED} {archive_options()}".rstrip()


@pytest.fixture(scope="session")
def spark_driver(
    spark_jars: Path, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Driver]:
    """The driver of this test process, with Spark's defaults.

    A driver that a test opens meanwhile shares its JVM, in a session of its own.
    """
    with pytest.MonkeyPatch.context() as patched:
        options = os.environ["JAVA_TOOL_OPTIONS"]
        # it lives for many minutes
        if pytestconfig.option.markexpr == "tier3" and SHORT_LIVED in options:
            patched.setenv("JAVA_TOOL_OPTIONS", f"{options} {OPTIMISED}")
        # of the many tables of a tier it keeps more than the others
        settings = small_settings(memory="2g")
        driver = open_driver(settings, tmp_path_factory.mktemp("spark-home"), jars=spark_jars)
    with driver:
        yield driver


@pytest.fixture(scope="session")
def spark(spark_driver: Driver) -> SparkSession:
    """The session of `spark_driver`: temporary views and confs that a test sets, it also unsets."""
    return spark_driver.spark


CLIENT = """
import os, sys
from pathlib import Path
from lakechime_dagster.settings import SparkSettings
from lakechime_dagster.spark.driver import open_driver
settings = SparkSettings.model_validate_json(os.environ["TEST_SETTINGS"])
home, jars = Path(os.environ["TEST_HOME"]), Path(os.environ["TEST_JARS"])
def say(*words):
    print(*words, flush=True)
def log(line):
    if not line.startswith("Using Java"):  # said on a machine whose own Java does not fit
        say("log:", line)
def open_here():
    return open_driver(settings, home, jars=jars, log=log)
def jvm_pid(driver):
    return driver.spark._jvm.java.lang.ProcessHandle.current().pid()
"""


def start_client(
    code: str, home: Path, jars: Path, settings: SparkSettings
) -> subprocess.Popen[str]:
    """A process of its own that runs this code after `CLIENT`; what it says comes line by line."""
    wishes = {
        "TEST_SETTINGS": settings.model_dump_json(),
        "TEST_HOME": str(home),
        "TEST_JARS": str(jars),
        "PYTHONPATH": str(REPOSITORY),
    }
    return subprocess.Popen(
        [sys.executable, "-c", CLIENT + textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | wishes,
        cwd=home,
    )


def run_client(code: str, home: Path, jars: Path, settings: SparkSettings) -> list[str]:
    """What such a process says until it ends, which must be well."""
    with start_client(code, home, jars, settings) as process:
        said, complaints = process.communicate(timeout=480)
    assert process.returncode == 0, complaints
    return said.splitlines()


def need_bash() -> None:
    """Spark's own scripts are written for bash, which ours do without."""
    if shutil.which("bash") is None:
        missing("Spark's own scripts need bash", "put bash on PATH")


def await_true(condition: Callable[[], object], what: str, seconds: float = 120) -> None:
    """Waits until this holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.05)
