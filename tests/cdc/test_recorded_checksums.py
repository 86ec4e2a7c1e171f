"""What the databases said when it was recorded, by which Spark and plain Python are tested, they
say of today's expressions too.
"""

import json

import pytest

from tests.cdc.checksums import FILE
from tests.cdc.recording.checksums import of_mariadb, of_postgres
from tests.support.mariadb import MariaDB

pytestmark = pytest.mark.services


def recorded(database: str) -> dict[str, object]:
    known = json.loads(FILE.read_text(encoding="utf-8"))
    return {
        table: reported for table, reported in known.items() if table.startswith(f"{database}-")
    }


def test_mariadb_says_what_is_recorded(mariadb: MariaDB):
    assert json.loads(json.dumps(of_mariadb(mariadb))) == recorded("mariadb")


def test_postgresql_says_what_is_recorded(postgres_server: str):
    assert json.loads(json.dumps(of_postgres(postgres_server))) == recorded("postgres")
