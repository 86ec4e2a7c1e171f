"""Folders of appends that hold nothing any more are removed, and nothing else is."""

import os
from pathlib import Path
from uuid import uuid4

from lakechime_dagster.silver.maintenance import remove_empty_folders

NOW = 2_000_000_000_000  # milliseconds


def make_folder(root: Path, name: str = "", age_ms: int = 1_000) -> Path:
    folder = root / (name or uuid4().hex)
    folder.mkdir(parents=True)
    grow(folder, age_ms)
    return folder


def grow(folder: Path, age_ms: int) -> None:
    moment = (NOW - age_ms) * 1_000_000
    os.utime(folder, ns=(moment, moment))


def test_empty_folders_of_appends_are_removed_once_they_are_old(tmp_path: Path) -> None:
    old, young, full, other = make_folder(tmp_path), make_folder(tmp_path, age_ms=0), make_folder(tmp_path), make_folder(tmp_path, "day=1")
    (full / "part-0.parquet").touch()
    grow(full, 1_000)
    file = tmp_path / uuid4().hex
    file.touch()
    assert remove_empty_folders(str(tmp_path), NOW - 500) == 1
    assert [one.exists() for one in (old, young, full, other, file)] == [False, True, True, True, True]
    assert remove_empty_folders(str(tmp_path), NOW - 500) == 0
