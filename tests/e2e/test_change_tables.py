"""A table of a real database in the lake, while all that stands between them is killed: in the end every row is the same."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pymysql
import pytest

from lakechime_dagster.demo.verify import load_delta
from tests.support.background import Background
from tests.support.chain import Chain, Place, chain
from tests.support.followed_table import FollowedTable
from tests.support.mariadb import CAPTURE_USER, MariaDB
from tests.support.processes import await_found
from tests.support.stack import debezium_settings

pytestmark = [pytest.mark.tier3, pytest.mark.e2e, pytest.mark.services, pytest.mark.spark]

NAME = "killed"  # of the database, the connector and its topics
COLUMNS = ("id", "customer", "amount", "note", "changed_at")
TABLE = """
    CREATE TABLE orders (
      id INT PRIMARY KEY, customer VARCHAR(40) NOT NULL, amount DECIMAL(12,2) NOT NULL, note VARCHAR(40), changed_at DATETIME(6) NOT NULL)
"""
Row = tuple[Any, ...]


class Writer(Background):
    """Changes rows, a transaction after another."""

    def __init__(self, mariadb: MariaDB) -> None:
        super().__init__(pause=0.5)  # so that a table of hundreds of rows comes of it, not of thousands
        self._session = mariadb.session(NAME)
        self.transactions = 0

    def turn(self) -> None:
        new = 10 * self.transactions
        values = ", ".join(f"({new + n}, 'käufer {n}', {new}.{n}5, NULL, NOW(6))" for n in range(3))
        self._session.run(
            "BEGIN",
            f"INSERT INTO orders VALUES {values}",
            f"UPDATE orders SET amount = amount + 1, note = 'paid', changed_at = NOW(6) WHERE id = {new - 10}",
            f"UPDATE orders SET id = {new - 11}, changed_at = NOW(6) WHERE id = {new - 19}",
            f"DELETE FROM orders WHERE id = {new - 28}",
            "COMMIT",
        )
        self.transactions += 1

    def close(self) -> None:
        self._session.close()


def committed(mariadb: MariaDB) -> list[Row]:
    """All rows of the database."""
    with (
        pymysql.connect(host="127.0.0.1", port=mariadb.port, user=CAPTURE_USER, password=CAPTURE_USER, database=NAME) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(f"SELECT {', '.join(COLUMNS)} FROM orders ORDER BY id")
        return list(cursor.fetchall())


def read_by_duckdb(location: str) -> list[Row]:
    with duckdb.connect() as connection:
        load_delta(connection)
        rows = connection.table_function("delta_scan", [location])
        return rows.select(*map(duckdb.ColumnExpression, COLUMNS)).sort(duckdb.ColumnExpression("id")).fetchall()


@pytest.fixture
def orders(tmp_path: Path, mariadb: MariaDB, stack_folder: Path, stack_jars: Path, spark_jars: Path) -> Iterator[FollowedTable]:
    session = mariadb.session()
    session.run(f"CREATE DATABASE {NAME}", f"USE {NAME}", TABLE, "INSERT INTO orders VALUES (1000000, 'first', 1, NULL, NOW(6))")
    session.close()
    url = f"mysql+pymysql://{CAPTURE_USER}:{CAPTURE_USER}@127.0.0.1:{mariadb.port}/{NAME}"
    place = Place(tmp_path, stack_folder, spark_jars, stack_jars)
    with chain(
        place, "tests.e2e.followed", lambda kafka: {NAME: debezium_settings(NAME, mariadb, kafka)}, LAKECHIME_TEST_DATABASE=url
    ) as running:
        yield FollowedTable(running, "shop.orders")


def kill_all(chain: Chain, table: FollowedTable, writer: Writer) -> None:
    """One kill each of a run, Connect, the broker and Spark, while rows are written."""
    kills = (lambda: chain.kill_run(table.name), chain.kill_connect, chain.kill_broker, lambda: chain.kill_spark(table.bronze, table.name))
    for kill in kills:
        before = writer.transactions
        kill()
        await_found(lambda before=before: writer.transactions > before, "the writer goes on", 30)


def test_every_row_of_a_database_is_the_lakes_though_all_between_them_was_killed(orders: FollowedTable, mariadb: MariaDB) -> None:
    chain = orders.chain
    with Writer(mariadb) as writer:
        chain.await_true(lambda: orders.rows(COLUMNS), "the first rows")
        kill_all(chain, orders, writer)
        compared = chain.running.lakechime("cdc", "compare", orders.name)
    rows = committed(mariadb)
    chain.await_true(lambda: orders.rows(COLUMNS) == rows, f"{len(rows)} rows as the database has them")
    chain.await_true(chain.running.is_at_rest, "nothing is on the way")
    assert (compared["keys"], compared["unchecked"]) == ({}, {})
    assert read_by_duckdb(orders.location) == rows
    messages = sorted((one["topic"], one["partition"], one["offset"]) for one in orders.messages())
    assert messages == [(f"{NAME}.{NAME}.orders", 0, offset) for offset in range(len(messages))]
    told, read_by_steps = orders.told(), orders.read_by_steps()
    assert sum(read_by_steps.values()) == len(messages)
    assert told == {step: read_by_steps[step] for step in told}
    assert len(read_by_steps) - len(told) <= len(chain.killed), "what was killed after its commit alone tells no counts"
    assert len(chain.failed()) >= 2, "one whose process was killed, one whose Spark was"
    assert not orders.refused()
