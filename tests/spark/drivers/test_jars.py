"""A folder of jars is complete, broken or to be fetched, and that is known without Java or a
network.
"""

import zipfile
from pathlib import Path

import pytest

from lakechime_dagster.errors import SparkUnavailableError
from lakechime_dagster.spark import jvm
from lakechime_dagster.spark.jvm import Java, complete_jars, ensure_jars, jar_names


def test_jars_put_there_by_hand_are_accepted(tmp_path: Path) -> None:
    put_jars(tmp_path)
    assert ensure_jars(tmp_path, no_java) == [tmp_path / name for name in jar_names()]


def test_a_missing_jar_makes_the_folder_incomplete(tmp_path: Path) -> None:
    put_jars(tmp_path)
    (tmp_path / jar_names()[2]).unlink()
    assert complete_jars(tmp_path) is None


def test_a_truncated_jar_is_named_with_its_remedy(tmp_path: Path) -> None:
    put_jars(tmp_path)
    broken = tmp_path / jar_names()[0]
    broken.write_bytes(broken.read_bytes()[:-10])
    with pytest.raises(
        SparkUnavailableError, match=rf"{broken.name} is broken: delete it and start again"
    ):
        ensure_jars(tmp_path, no_java)


def test_fetched_jars_replace_those_of_an_incomplete_folder(tmp_path: Path) -> None:
    fetched, folder = tmp_path / "fetched", tmp_path / "jars"
    put_jars(fetched)
    folder.mkdir()
    (folder / jar_names()[0]).write_bytes(b"half a jar")
    jvm._move_in(fetched, folder)
    assert complete_jars(folder) == [folder / name for name in jar_names()]


def test_a_fetch_that_brings_nothing_says_what_is_missing_and_where_it_belongs(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "jars"
    with pytest.raises(SparkUnavailableError) as raised:
        ensure_jars(folder, lambda: failing_java(tmp_path), lambda line: None)
    assert f"put into {folder}: {jar_names()[0]}" in str(raised.value)
    assert "org.apache" not in str(raised.value)
    assert (tmp_path / "jars-fetch.log").read_text() == "no route to host\n"


def put_jars(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name in jar_names():
        put_jar(folder / name, name)


def put_jar(path: Path, content: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("content", content)


def no_java() -> Java:
    pytest.fail("Java was asked for")


def failing_java(folder: Path) -> Java:
    executable = folder / "java"
    executable.write_text("#!/bin/sh\necho no route to host\nexit 1\n")
    executable.chmod(0o755)
    return Java(home=folder, executable=executable, version=17)
