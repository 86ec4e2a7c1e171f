"""Stores for tests, on SQLite and on PostgreSQL."""

import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from sqlalchemy import Engine

from lakechime_dagster.dce.engine import memory_engine, open_engine, upgrade, writing
from lakechime_dagster.dce.schema import metadata
from lakechime_dagster.dce.store import DCEStore

DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.services)]


@pytest.fixture
def store(engine: Engine) -> DCEStore:
    """An empty store on each kind of database."""
    return DCEStore(engine)


@pytest.fixture(params=DATABASES)
def engine(request: pytest.FixtureRequest) -> Engine:
    """An engine on an empty, upgraded database of each kind."""
    return _engine(request, request.param)


@pytest.fixture(scope="session")
def upgraded_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty, upgraded SQLite file to copy: upgrading takes longer than most tests."""
    path = tmp_path_factory.mktemp("upgraded") / "dce.sqlite"
    engine = open_engine(f"sqlite:///{path}")
    upgrade(engine)
    engine.dispose()
    return path


def fresh_memory(engine: Engine | None = None) -> Engine:
    """An engine on an empty, upgraded SQLite database in memory, for one thread; one that is given
    loses what it had.
    """
    engine = engine or memory_engine()
    with _upgraded_memory().connect() as source, engine.connect() as target:
        source.connection.driver_connection.backup(target.connection.driver_connection)  # type: ignore[union-attr]
    return engine


@cache
def _reused() -> Engine:
    """An engine has compiled the statements of earlier tests, which takes longer than to run
    them.
    """
    return memory_engine()


@cache
def _upgraded_memory() -> Engine:
    """What `fresh_memory` copies: upgrading takes longer than most tests."""
    engine = memory_engine()
    upgrade(engine)
    return engine


@pytest.fixture
def sqlite_engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine on an empty, upgraded SQLite database: in memory, or a file for a test marked
    `several_connections`.
    """
    if request.node.get_closest_marker("several_connections") is None:
        yield fresh_memory(_reused())
    else:
        engine = request.getfixturevalue("sqlite_file")
        yield engine
        engine.dispose()


@pytest.fixture
def sqlite_file(tmp_path: Path, upgraded_sqlite: Path) -> Engine:
    """An engine on an empty, upgraded SQLite file."""
    return open_engine(f"sqlite:///{shutil.copy(upgraded_sqlite, tmp_path / 'dce.sqlite')}")


@pytest.fixture(scope="module")
def upgraded_postgres(postgres_url: str) -> Iterator[Engine]:
    """An engine on the module's PostgreSQL database."""
    engine = open_engine(postgres_url)
    upgrade(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def postgres_engine(upgraded_postgres: Engine) -> Engine:
    """An engine on PostgreSQL with every table emptied."""
    with writing(upgraded_postgres) as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(table.delete())
    return upgraded_postgres


def _engine(request: pytest.FixtureRequest, kind: str) -> Engine:
    return request.getfixturevalue(f"{kind}_engine")
