"""What a process imports until it has written to a store in SQLite that is up to date: nothing that it does not use."""

import subprocess
import sys
from pathlib import Path

from lakechime_dagster.dce.engine import open_engine
from lakechime_dagster.dce.upgrade import upgrade

USE = """
import sys
from lakechime_dagster.dce.events import DataChangeEvent
from lakechime_dagster.dce.engine import open_engine
from lakechime_dagster.dce.store import SqlDCEStore
from lakechime_dagster.dce.upgrade import upgrade
engine = open_engine(sys.argv[1])
upgrade(engine)
(event,) = SqlDCEStore(engine).register([DataChangeEvent(table="bronze.orders")]).registered
print(event.event.table, [name for name in ("alembic", "psycopg") if name in sys.modules])
"""


def test_neither_alembic_nor_the_driver_of_another_database_is_imported(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'dce.sqlite'}"
    engine = open_engine(url)
    upgrade(engine)
    engine.dispose()

    used = subprocess.run([sys.executable, "-c", USE, url], capture_output=True, text=True, check=True)

    assert used.stdout == "bronze.orders []\n"
