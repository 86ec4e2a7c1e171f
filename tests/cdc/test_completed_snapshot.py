"""A snapshot of a real PostgreSQL beside writers: its position in the log lies between what it sees
of a table and what comes later.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from lakechime_dagster.cdc.change import WalPosition
from lakechime_dagster.cdc.database import POLLS, TableBusyError, completed_snapshot
from lakechime_dagster.errors import SourceUnreadableError
from tests.cdc.test_database_snapshot import Database, a_side, on_postgres
from tests.support.postgres import Server, fresh_database

pytestmark = pytest.mark.services


@pytest.fixture
def url(logical_postgres: Server) -> Iterator[str]:
    with fresh_database(logical_postgres.url) as found:
        yield found


@contextmanager
def on_orders(url: str) -> Iterator[tuple[Database, Database]]:
    """A table of orders, and two sessions that write to it."""
    with on_postgres(url) as one, on_postgres(url) as other:
        one.run("CREATE TABLE orders (id INT PRIMARY KEY)")
        other.run(f"SET search_path = {one.schema}, {other.schema}")
        yield one, other


def seen(database: Database, pause: Callable[[float], None]) -> tuple[set[int], int]:
    """The rows of a snapshot, and its place."""
    with completed_snapshot(database.url, database.schema, "orders", pause=pause) as found:
        assert isinstance(found.position, WalPosition)
        return {
            int(key) for (key,), _ in a_side(database, found.snapshot.connection).rows(None, None)
        }, found.position.lsn


def never(seconds: float) -> None:
    raise AssertionError(f"nobody is to be waited for, {seconds}")


def log_of(database: Database) -> int:
    return int(database.run("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")[0])


def test_a_snapshot_is_taken_when_those_have_ended_who_were_writing_when_its_position_was_asked(
    url: str,
) -> None:
    with on_orders(url) as (one, other):
        other.run("BEGIN", "INSERT INTO orders VALUES (1)")
        before, pauses = log_of(one), list[float]()

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 2:
                one.run("INSERT INTO orders VALUES (2)")
                other.run("COMMIT", "BEGIN", "INSERT INTO orders VALUES (3)")

        rows, position = seen(one, pause)
        assert (rows, pauses) == ({1, 2}, [1.0, 1.0])
        assert before <= position < log_of(one)
        other.run("ROLLBACK")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO of_1 VALUES (1)",
        "DELETE FROM orders",
        "TRUNCATE orders",
        "COPY of_1 FROM PROGRAM 'echo 1'",
    ],
)
def test_who_writes_to_a_partition_by_whatever_statement_is_waited_for(
    statement: str, url: str
) -> None:
    with on_orders(url) as (one, other):
        one.run(
            "DROP TABLE orders",
            "CREATE TABLE orders (id INT PRIMARY KEY) PARTITION BY RANGE (id)",
            "CREATE TABLE of_1 PARTITION OF orders FOR VALUES FROM (1) TO (2)",
        )
        other.run("BEGIN", statement)
        pauses = list[float]()

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            other.run("ROLLBACK")

        assert seen(one, pause)[0] == set()
        assert len(pauses) == 1


def test_a_transaction_that_is_prepared_meanwhile_has_not_ended(url: str) -> None:
    with on_orders(url) as (one, other):
        other.run("BEGIN", "INSERT INTO orders VALUES (1)")
        todo = iter([["PREPARE TRANSACTION 'later'"], [], ["COMMIT PREPARED 'later'"]])
        rows, _ = seen(one, lambda _: (other.run(*next(todo)), None)[1])
        assert (rows, list(todo)) == ({1}, [])


def test_transactions_that_do_not_end_are_named_with_the_remedy(url: str) -> None:
    with on_orders(url) as (one, other):
        one.run("BEGIN", "INSERT INTO orders VALUES (1)", "PREPARE TRANSACTION 'never'")
        (pid,) = other.run("SELECT pg_backend_pid()")
        other.run("BEGIN", "INSERT INTO orders VALUES (2)")
        pauses = list[float]()
        reported = (
            rf"\.orders: transactions of the processes {pid} \(pg_stat_activity\) and that are "
            rf"prepared .* end them, and try again"
        )
        with pytest.raises(TableBusyError, match=reported) as refused:
            seen(one, pauses.append)
        assert (set(refused.value.writers), len(pauses)) == ({int(pid), None}, POLLS)
        other.run("ROLLBACK")
        one.run("ROLLBACK PREPARED 'never'")


@pytest.mark.parametrize(
    "statement", ["ALTER TABLE orders ALTER id TYPE BIGINT", "TRUNCATE orders"]
)
def test_a_table_is_not_rewritten_during_a_snapshot_which_would_see_it_empty(
    statement: str, url: str
) -> None:
    with on_orders(url) as (one, other):
        one.run("INSERT INTO orders VALUES (1)")
        other.run("SET lock_timeout = '10ms'")
        with completed_snapshot(one.url, one.schema, "orders", pause=never) as found:
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.run(statement)
            assert a_side(one, found.snapshot.connection).rows(None, None)
        other.run(statement)


def test_who_locks_the_table_out_meanwhile_is_waited_for(url: str) -> None:
    with on_orders(url) as (one, other), on_orders(url) as (third, _):
        third.run(f"SET search_path = {one.schema}")
        other.run("BEGIN", "INSERT INTO orders VALUES (1)")
        todo = iter(
            [
                lambda: (other.run("COMMIT"), third.run("BEGIN", "TRUNCATE orders")),
                lambda: third.run("ROLLBACK"),
            ]
        )
        rows, _ = seen(one, lambda _: (next(todo)(), None)[1])
        assert (rows, list(todo)) == ({1}, [])


def test_a_standby_is_refused_with_the_remedy(logical_postgres: Server, url: str) -> None:
    data = Path(logical_postgres.control[logical_postgres.control.index("-D") + 1])
    signal = data / "standby.signal"
    with on_orders(url) as (one, _):
        schema = one.schema
    signal.touch()
    logical_postgres.restart()
    try:
        with (
            pytest.raises(
                SourceUnreadableError, match=r"it is a standby, .* name its primary server"
            ),
            completed_snapshot(url, schema, "orders"),
        ):
            pass
    finally:
        signal.unlink()
        logical_postgres.restart()
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)
