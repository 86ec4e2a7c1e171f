"""Stores for tests: one test runs on memory, SQLite and PostgreSQL, or on both databases."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from lakechime_dagster.dce.memory import InMemoryDCEStore
from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.store.engine import open_engine, writing
from lakechime_dagster.store.events import SqlDCEStore
from lakechime_dagster.store.schema import metadata
from lakechime_dagster.store.upgrade import upgrade

DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.services)]


@pytest.fixture(params=["memory", *DATABASES])
def store(request: pytest.FixtureRequest) -> DCEStore:
    """An empty store of each kind."""
    if request.param == "memory":
        return InMemoryDCEStore()
    return SqlDCEStore(_engine(request, request.param))


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


@pytest.fixture
def sqlite_engine(tmp_path: Path, upgraded_sqlite: Path) -> Iterator[Engine]:
    """An engine on an empty, upgraded SQLite file."""
    path = Path(shutil.copy(upgraded_sqlite, tmp_path / "dce.sqlite"))
    engine = open_engine(f"sqlite:///{path}")
    yield engine
    engine.dispose()


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
