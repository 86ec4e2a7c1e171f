"""What a real MariaDB says of its open transactions: none is missed whose changes may still come."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from lakechime_dagster.cdc.database import connected, earliest, open_transactions, tells_open_transactions
from lakechime_dagster.errors import SourceDeniedError, SourceUnreadableError
from tests.sources.test_cut import Database, on_mariadb
from tests.support.mariadb import CAPTURE_USER, MariaDB, MariaDBSession, mariadb_server
from tests.support.processes import await_found

pytestmark = pytest.mark.services


@pytest.fixture
def database(mariadb: MariaDB) -> Iterator[Database]:
    with on_mariadb(mariadb) as found:
        found.run(
            "CREATE TABLE orders (id INT PRIMARY KEY)",
            "INSERT INTO orders VALUES (1)",
            "CREATE USER prober@'127.0.0.1' IDENTIFIED BY 'secret'",
            "GRANT PROCESS ON *.* TO prober@'127.0.0.1'",
        )
        try:
            yield found
        finally:
            found.run("DROP USER prober@'127.0.0.1'")


@contextmanager
def session(server: MariaDB, database: Database) -> Iterator[MariaDBSession]:
    opened = server.session(database.schema)
    try:
        yield opened
    finally:
        opened.close()


def url_of(server: MariaDB) -> str:
    return f"mysql://prober:secret@127.0.0.1:{server.port}/"


def clock(database: Database) -> int:
    """The database's, in milliseconds of whole seconds."""
    return int(database.run("SELECT UNIX_TIMESTAMP()")[0]) * 1000


def next_second(database: Database) -> int:
    """The same when its second is over."""
    return int(database.run("DO SLEEP(1.001 - MICROSECOND(NOW(6)) / 1000000)", "SELECT UNIX_TIMESTAMP()")[0]) * 1000


def test_where_nothing_is_open_the_question_itself_is_the_oldest(mariadb: MariaDB, database: Database) -> None:
    before = clock(database)
    found = open_transactions(url_of(mariadb), "shop.orders")
    after = clock(database)
    assert (found.table, found.transaction_ms) == ("shop.orders", None)
    assert before - 1000 <= found.statement_ms < found.asked_ms <= after + 1000
    assert found.asked_ms > before


def test_a_transaction_that_changed_rows_is_open_until_it_ends(mariadb: MariaDB, database: Database) -> None:
    with session(mariadb, database) as writer, session(mariadb, database) as reader:
        reader.run("BEGIN", "SELECT * FROM orders")
        before = clock(database)
        writer.run("BEGIN", "INSERT INTO orders VALUES (2)")
        began = clock(database)
        next_second(database)
        held = open_transactions(url_of(mariadb), "shop.orders")
        assert held.transaction_ms is not None
        assert before <= held.transaction_ms <= began < held.asked_ms
        writer.run("ROLLBACK")
        assert open_transactions(url_of(mariadb), "shop.orders").transaction_ms is None


def test_a_prepared_transaction_that_nobody_holds_is_open(mariadb: MariaDB, database: Database) -> None:
    with session(mariadb, database) as writer:
        writer.run("XA START 'order'", "INSERT INTO orders VALUES (2)", "XA END 'order'", "XA PREPARE 'order'")
    prepared = open_transactions(url_of(mariadb), "shop.orders")
    database.run("XA ROLLBACK 'order'")
    assert prepared.transaction_ms is not None
    assert open_transactions(url_of(mariadb), "shop.orders").transaction_ms is None


def test_a_statement_that_waits_for_its_table_is_told_though_no_transaction_is_listed(mariadb: MariaDB, database: Database) -> None:
    """As behind an ALTER TABLE: its row has the time at which it began to wait, and its transaction begins after that."""
    with session(mariadb, database) as writer, session(mariadb, database) as locking:
        locking.run("LOCK TABLES orders WRITE")
        began = clock(database)
        writer.run("SET autocommit = 0")
        waiting = threading.Thread(target=writer.run, args=("INSERT INTO orders VALUES (2)",))
        waiting.start()
        try:
            query = "SELECT 1 FROM information_schema.processlist WHERE state LIKE 'Waiting for table metadata lock'"
            await_found(lambda: database.run(query), "a statement that waits", 30)
            next_second(database)
            over = next_second(database)
            waits = open_transactions(url_of(mariadb), "shop.orders")
        finally:
            locking.run("UNLOCK TABLES")
            waiting.join()
        held = open_transactions(url_of(mariadb), "shop.orders")
        writer.run("ROLLBACK")
    assert waits.transaction_ms is None
    assert began - 1000 <= waits.statement_ms < over - 1000
    assert held.transaction_ms is not None
    assert held.transaction_ms >= over


def test_a_user_who_may_not_ask_is_told_what_to_grant(mariadb: MariaDB, database: Database) -> None:
    database.run("REVOKE PROCESS ON *.* FROM prober@'127.0.0.1'")
    with pytest.raises(SourceDeniedError, match=r"prober@127\.0\.0\.1 may not see which transactions are open") as denied:
        open_transactions(url_of(mariadb), "shop.orders")
    assert "secret" not in str(denied.value)
    database.run(denied.value.remedy)
    assert open_transactions(url_of(mariadb), "shop.orders").transaction_ms is None


def test_a_server_that_applies_the_changes_of_another_one_is_not_believed(mariadb: MariaDB, database: Database) -> None:
    database.run("CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = 1, MASTER_USER = 'nobody'", "START SLAVE")
    try:
        with pytest.raises(SourceUnreadableError, match="it applies the changes of another server, whose times they have; ask that one"):
            open_transactions(url_of(mariadb), "shop.orders")
    finally:
        database.run("STOP SLAVE", "RESET SLAVE ALL")


def test_nothing_is_written_to_the_log(mariadb: MariaDB, database: Database) -> None:
    before = database.run("SHOW MASTER STATUS")
    open_transactions(url_of(mariadb), "shop.orders")
    assert database.run("SHOW MASTER STATUS") == before


@pytest.mark.usefixtures("mariadb")  # whose programs it needs
def test_times_are_those_of_the_clock_in_any_zone_of_the_server(stack_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour that the clock shows twice is the first one: nothing that is open is older then."""
    monkeypatch.setenv("TZ", "America/New_York")
    with mariadb_server(stack_folder / "zone") as server:
        writer = server.session()
        writer.run(f"GRANT PROCESS ON *.* TO {CAPTURE_USER}@'127.0.0.1'")
        writer.run("CREATE DATABASE shop", "USE shop", "CREATE TABLE orders (id INT PRIMARY KEY)", "BEGIN", "INSERT INTO orders VALUES (1)")
        url = f"mysql://{CAPTURE_USER}:{CAPTURE_USER}@127.0.0.1:{server.port}/"
        found = open_transactions(url, "shop.orders")
        assert found.transaction_ms is not None
        assert found.asked_ms - 30_000 <= found.transaction_ms <= found.asked_ms
        with connected(url) as (connection, _):
            connection.execute(sa.text("SET time_zone = 'SYSTEM'"))
            moments = [sa.literal(f"2024-11-03 0{hour}:30:00", sa.String) for hour in (0, 1, 2)]
            told = connection.execute(sa.select(*[earliest(sa.cast(one, sa.DateTime)) for one in moments])).one()
        writer.close()
    assert [int(one) for one in told] == [1730608200, 1730611800, 1730619000]


def test_postgresql_needs_not_to_be_asked() -> None:
    assert not tells_open_transactions("postgresql://reader@host/shop")
    assert tells_open_transactions("mariadb+pymysql://reader@host/shop")
