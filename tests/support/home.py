"""A home folder for what a test runs in this process: a store that is up to date, and a small driver of its own."""

from pathlib import Path

import pytest


def local_home(home: Path, monkeypatch: pytest.MonkeyPatch, upgraded_sqlite: Path) -> None:
    """Let this process work in a home with a store."""
    for name, value in {"HOME": str(home), "SPARK_DRIVER": "local", "SPARK_MEMORY": "1g"}.items():
        monkeypatch.setenv(f"LAKECHIME_{name}", value)
    monkeypatch.delenv("LAKECHIME_STORE_URL", raising=False)
    (home / "dce.sqlite").write_bytes(upgraded_sqlite.read_bytes())
