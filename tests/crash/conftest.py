"""`make test` strikes at the named points, `make test-crash KILLS=n` at random; both on the same deployment."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.harness import Deployment, deployed
from tests.support.missing import missing
from tests.support.postgres import ENABLE, find_binaries, fresh_database, server

KILLS = int(os.environ.get("LAKECHIME_TEST_KILLS", "0"))
MANY_ATTEMPTS = 1_000  # killed at random, five attempts in a row are no sign of a fault of their flow
collect_ignore = ["test_points.py"] if KILLS else ["test_random.py"]


@pytest.fixture
def deployment(tmp_path: Path, spark_jars: Path) -> Iterator[Deployment]:
    """A running deployment on a PostgreSQL of its own, which can be struck down."""
    try:
        binaries = find_binaries()
    except LookupError as error:
        missing(f"PostgreSQL is missing: {error}", ENABLE)
    attempts = MANY_ATTEMPTS if KILLS else 5
    with (
        server(binaries, durable=True) as store,
        fresh_database(store.url) as url,
        deployed(tmp_path, store, url, spark_jars, attempts=attempts) as running,
    ):
        yield running
