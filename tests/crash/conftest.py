"""A deployment whose processes are killed: at named points in tier 2, at random in tier 3."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.harness import Deployment, deployed
from tests.support.missing import missing
from tests.support.postgres import ENABLE, find_binaries, fresh_database, server


@pytest.fixture
def deployment(
    tmp_path: Path, spark_jars: Path, request: pytest.FixtureRequest
) -> Iterator[Deployment]:
    """A running deployment on a PostgreSQL of its own. A parameter is the number of attempts before
    an execution is blocked.
    """
    try:
        binaries = find_binaries()
    except LookupError as error:
        missing(f"PostgreSQL is missing: {error}", ENABLE)
    attempts: int = getattr(request, "param", 5)
    with (
        server(binaries, durable=True) as store,
        fresh_database(store.url) as url,
        deployed(tmp_path, store, url, spark_jars, attempts=attempts) as running,
    ):
        yield running
