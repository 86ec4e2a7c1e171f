"""The PostgreSQL of the tests is a real server, or the one that is named."""

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.support.postgres import URL_VARIABLE
from tests.support.processes import REPOSITORY

ASKS = """
def test_the_server_is_the_one_that_is_named(postgres_server):
    assert postgres_server == "postgresql://somebody@elsewhere/postgres"
"""


@pytest.mark.services
def test_the_server_is_a_real_one_of_a_supported_version(postgres_server: str) -> None:
    with psycopg.connect(postgres_server.replace("+psycopg", "")) as connection:
        assert connection.info.server_version >= 140_000


@pytest.mark.tier2
def test_a_server_that_is_named_is_used_instead_of_starting_one(tmp_path: Path) -> None:
    (tmp_path / "test_asks.py").write_text(ASKS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.postgres", "-c", os.devnull, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=REPOSITORY,
        env=os.environ | {URL_VARIABLE: "postgresql://somebody@elsewhere/postgres"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
