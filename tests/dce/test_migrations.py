"""The store's tables are made and changed by migrations that any number of processes may run at
once.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, text

import lakechime_dagster
from lakechime_dagster.dce.engine import (
    VERSION_TABLE,
    check_version,
    newest_version,
    open_engine,
    reading,
    upgrade,
    writing,
)
from lakechime_dagster.dce.schema import metadata
from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.errors import StoreVersionError
from tests.factories import make_event
from tests.support.postgres import fresh_database

UPGRADE = """
import sys
from lakechime_dagster.dce.engine import open_engine
from lakechime_dagster.dce.engine import upgrade
sys.stdin.readline()
print(upgrade(open_engine(sys.argv[1])))
"""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.services)])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without tables."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'new' / 'dce.sqlite'}"
    else:
        with fresh_database(request.getfixturevalue("postgres_server")) as url:
            yield url


@pytest.mark.dialect
def test_migrated_tables_are_those_of_the_metadata(engine: Engine) -> None:
    def is_ours(
        object_: object, name: str | None, kind: str, reflected: bool, other: object
    ) -> bool:
        return name != VERSION_TABLE and not (
            kind == "index" and name == "dce_event_feed" and engine.dialect.name == "sqlite"
        )

    with reading(engine) as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "include_object": is_ours}
        )
        assert compare_metadata(context, metadata) == []


@pytest.mark.dialect
@pytest.mark.tier2
def test_eight_processes_upgrade_at_once(empty_url: str) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", UPGRADE, empty_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=Path(lakechime_dagster.__path__[0]).parent,
        )
        for _ in range(8)
    ]
    outputs = [process.communicate("go\n", timeout=120)[0] for process in processes]

    assert [output.strip() for output in outputs] == [newest_version()] * 8
    store = DCEStore(open_engine(empty_url))
    assert len(store.register([make_event()]).registered) == 1
    store.engine.dispose()


@pytest.mark.dialect
def test_a_store_without_tables_asks_for_an_upgrade(empty_url: str) -> None:
    engine = open_engine(empty_url)

    with pytest.raises(StoreVersionError, match="lakechime store upgrade"):
        check_version(engine)
    with pytest.raises(StoreVersionError, match="lakechime store upgrade"):
        DCEStore(engine).tables()
    upgrade(engine)
    assert check_version(engine) == newest_version()
    engine.dispose()


@pytest.mark.dialect
def test_a_store_of_a_newer_version_is_left_alone(empty_url: str) -> None:
    engine = open_engine(empty_url)
    upgrade(engine)
    with writing(engine) as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))

    for act in (check_version, upgrade):
        with pytest.raises(StoreVersionError, match="newer"):
            act(engine)
    engine.dispose()


USE = """
import sys
from lakechime_dagster.dce.events import DataChangeEvent
from lakechime_dagster.dce.engine import open_engine
from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.dce.engine import upgrade
engine = open_engine(sys.argv[1])
upgrade(engine)
(event,) = DCEStore(engine).register([DataChangeEvent(table="bronze.orders")]).registered
print(event.event.table, [name for name in ("alembic", "psycopg") if name in sys.modules])
"""


def test_neither_alembic_nor_the_driver_of_another_database_is_imported(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'dce.sqlite'}"
    engine = open_engine(url)
    upgrade(engine)
    engine.dispose()

    used = subprocess.run(
        [sys.executable, "-c", USE, url], capture_output=True, text=True, check=True
    )

    assert used.stdout == "bronze.orders []\n"
