"""The command line in tests: its own process state per call is a home folder in the test's
temporary one.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from lakechime_dagster.cli.main import main
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.settings import make_home


@dataclass(frozen=True)
class Answer:
    """What one command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The document on standard output, which must be the only thing there."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Cli:
    """Runs `lakechime` in this process, in a home folder of its own."""

    home: Path
    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch

    def __call__(self, *arguments: str, stdin: str | bytes = "") -> Answer:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        self.monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(given), encoding="utf-8"))
        self.capsys.readouterr()
        code = main(arguments)
        captured = self.capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    @property
    def platform(self) -> Platform:
        """The platform that the commands work on."""
        return open_platform()


@pytest.fixture
def lakechime(lakechime_fresh: Cli, upgraded_sqlite: Path) -> Cli:
    """The command line in a folder with an empty store, with no setting of the outside, on the
    flights demo.
    """
    make_home(lakechime_fresh.home)
    shutil.copy(upgraded_sqlite, lakechime_fresh.home / "dce.sqlite")
    return lakechime_fresh


@pytest.fixture
def lakechime_fresh(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cli]:
    """The command line in an empty folder, with no setting of the outside: its first command makes
    the store.
    """
    for name in [name for name in os.environ if name.startswith("LAKECHIME_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LAKECHIME_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LAKECHIME_LAKE", "lakechime_dagster.demo.flights:lake")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    handlers = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    yield Cli(tmp_path / "home", capsys, monkeypatch)
    for number, handler in handlers.items():
        signal.signal(number, handler)
