"""The columns of a real database's table, and where its log stood when it had them."""

import pytest
import sqlalchemy as sa

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.change import lsn_of
from lakechime_dagster.cdc.database import LSN, connected, read_schema
from lakechime_dagster.errors import NotFoundError, SourceUnreadableError
from tests.cdc.test_database_snapshot import Database, database

__all__ = ["database"]
pytestmark = pytest.mark.services


def log_end(database: Database) -> tuple[int, ...]:
    if database.dialect is Dialect.POSTGRES:
        return (lsn_of(database.run(f"SELECT ({LSN})::text")[0]),)
    file, checkpoint = database.run("SHOW MASTER STATUS")[0].split("\t")[:2]
    return int(file.rpartition(".")[2]), int(checkpoint)


def test_a_reading_stands_between_what_was_written_before_and_after_it(database: Database) -> None:
    database.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, amount DECIMAL(10,2))",
        "INSERT INTO orders VALUES (1, 1)",
    )
    before = log_end(database)
    found = read_schema(database.url, database.schema, "orders")
    database.run("ALTER TABLE orders ADD COLUMN note VARCHAR(10)")
    assert before <= found.order.position < log_end(database)
    amount = "decimal(10,2)" if database.dialect is Dialect.MYSQL else "numeric(10,2)"
    assert (found.table, list(found.columns), found.columns["amount"]) == (
        f"{database.schema}.orders",
        ["id", "amount"],
        amount,
    )
    assert found.dialect == database.dialect
    assert "note" in read_schema(database.url, database.schema, "orders").columns


def test_columns_that_change_with_each_question_are_not_reported(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another session, each time that the place of the log is asked."""
    database.run("CREATE TABLE orders (id INT PRIMARY KEY)")
    with monkeypatch.context() as beside:
        beside.setattr(
            "lakechime_dagster.cdc.database._position",
            lambda *_: (
                (database.run(f"ALTER TABLE orders ADD COLUMN {next(names)} INT") and ()) or ()
            ),
        )
        names = iter("abcdefgh")
        with pytest.raises(SourceUnreadableError, match="changed with each of 5 readings"):
            read_schema(database.url, database.schema, "orders")


def test_nothing_stays_open_on_the_database(database: Database) -> None:
    """A table that was read can be altered at once."""
    database.run("CREATE TABLE orders (id INT PRIMARY KEY)")
    with connected(database.url) as (connection, _):
        read_schema(database.url, database.schema, "orders")
        connection.execute(sa.text("SELECT 1"))
        database.run("DROP TABLE orders")
    with pytest.raises(NotFoundError):
        read_schema(database.url, database.schema, "orders")
