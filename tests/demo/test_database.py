"""The reservations in a real MariaDB: what is there after any stops is what the plan says."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pymysql
import pytest

from lakechime_dagster.demo.plan import Plan
from lakechime_dagster.demo.reservations import KEYS, SCHEMAS, ReservationsDatabase, tables_after
from lakechime_dagster.demo.servers import SCHEMA
from tests.support.mariadb import MariaDB

pytestmark = pytest.mark.services
PLAN = Plan(days=1)


@pytest.fixture
def url(mariadb: MariaDB) -> Iterator[str]:
    """The database, empty, as its application logs in."""
    session = mariadb.session()
    session.run(
        "CREATE OR REPLACE USER application@'127.0.0.1' IDENTIFIED BY 'secret'",
        "GRANT ALL ON *.* TO application@'127.0.0.1'",
    )
    session.run(*SCHEMA.read_text().strip().removesuffix(";").split(";\n"))
    yield f"mysql://application:secret@127.0.0.1:{mariadb.port}/reservations"
    session.run("DROP DATABASE reservations")
    session.close()


def held(url: str) -> dict[str, list[dict[str, Any]]]:
    """All rows of the database by the key of their table."""
    where = urlsplit(url)
    with (
        pymysql.connect(
            host=where.hostname,
            port=where.port or 0,
            user=where.username,
            password=where.password or "",
            database="reservations",
        ) as connection,
        connection.cursor() as cursor,
    ):
        tables = {}
        for table, key in KEYS.items():
            cursor.execute(f"SELECT {', '.join(SCHEMAS[table].names)} FROM {table} ORDER BY {key}")
            tables[table] = [
                dict(zip(SCHEMAS[table].names, row, strict=True)) for row in cursor.fetchall()
            ]
        return tables


def planned(ticks: int) -> dict[str, list[dict[str, Any]]]:
    return {
        table: rows.sort_by(KEYS[table]).to_pylist()
        for table, rows in tables_after(PLAN, ticks).items()
    }


def test_the_database_holds_what_the_plan_says_however_often_it_was_stopped(url: str) -> None:
    for ticks in (1, 7, 7, 30):
        ReservationsDatabase(url).advance(PLAN, ticks)
        assert held(url) == planned(ticks)
    assert ReservationsDatabase(url).advance(PLAN, 8) == 0
