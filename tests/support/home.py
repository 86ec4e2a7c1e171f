"""A home folder for what a test runs in this process: a store that is up to date, and a small
driver of its own.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # most tests do without it
    from dagster import DagsterInstance


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upgraded_sqlite: Path) -> Path:
    """The home in which this process works."""
    for name, value in {
        "HOME": str(tmp_path),
        "SPARK_DRIVER": "local",
        "SPARK_MEMORY": "1g",
    }.items():
        monkeypatch.setenv(f"LAKECHIME_{name}", value)
    monkeypatch.delenv("LAKECHIME_STORE_URL", raising=False)
    (tmp_path / "dce.sqlite").write_bytes(upgraded_sqlite.read_bytes())
    return tmp_path


@pytest.fixture
def events_home(home: Path) -> Path:
    """A home with a folder of events, `in`."""
    (home / "in").mkdir()
    return home


@pytest.fixture
def instance(tmp_path: Path) -> Iterator["DagsterInstance"]:
    """Dagster's instance in the home."""
    import dagster as dg

    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        yield instance
