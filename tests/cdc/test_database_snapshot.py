"""A snapshot of a real database: one state of it, beside writers, and its position in the log."""

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine.url import make_url

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.change import BinlogPosition, TransactionSnapshot
from lakechime_dagster.cdc.compare import Fault, Queries, compare, comparison_of
from lakechime_dagster.cdc.database import column_types, run_on, taken
from lakechime_dagster.errors import InvalidValueError, NotFoundError, SourceUnreadableError
from tests.support.mariadb import CAPTURE_USER, MariaDB

ODD = 'odd: "name" `of` a:b 100%'


@dataclass(frozen=True)
class Database:
    """A database that a test may write to; `quote` puts a name into its quotes."""

    url: str
    schema: str
    dialect: Dialect
    run: Callable[..., list[str]]
    quote: str

    def name(self, text: str) -> str:
        return self.quote + text.replace(self.quote, self.quote * 2) + self.quote


@contextmanager
def on_mariadb(server: MariaDB) -> Iterator[Database]:
    schema = f"cut_{uuid.uuid4().hex[:8]}"
    admin = server.session()
    admin.run(f"CREATE DATABASE {schema}", f"USE {schema}")
    try:
        url = f"mysql://{CAPTURE_USER}:{CAPTURE_USER}@127.0.0.1:{server.port}/{schema}"
        yield Database(url, schema, Dialect.MYSQL, admin.run, "`")
    finally:
        admin.run(f"DROP DATABASE {schema}")
        admin.close()


@contextmanager
def on_postgres(url: str) -> Iterator[Database]:
    schema = f"cut_{uuid.uuid4().hex[:8]}"
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection:

        def run(*statements: str) -> list[str]:
            cursors = [connection.execute(statement.encode()) for statement in statements]
            return [str(row[0]) for cursor in cursors if cursor.description for row in cursor]

        run(f"CREATE SCHEMA {schema}", f"SET search_path = {schema}")
        yield Database(url, schema, Dialect.POSTGRES, run, '"')


@pytest.fixture(params=[Dialect.MYSQL, Dialect.POSTGRES])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    if request.param is Dialect.MYSQL:
        with on_mariadb(request.getfixturevalue("mariadb")) as found:
            yield found
    else:
        with on_postgres(request.getfixturevalue("postgres_url")) as found:
            yield found


def a_side(
    database: Database,
    connection: sa.Connection,
    table: str = "orders",
    keys: Sequence[str] = ("id",),
) -> Queries:
    types = column_types(connection, database.schema, table)
    lake = {name: "bigint" if "int" in kind else "string" for name, kind in types.items()}
    compared = comparison_of(database.dialect, types, lake, keys)
    return compared.source(run_on(connection), database.schema, table)


@pytest.mark.services
def test_a_snapshot_does_not_see_what_is_committed_after_it(database: Database):
    database.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, value VARCHAR(20))",
        "INSERT INTO orders VALUES (1, 'a'), (2, 'b')",
    )
    with taken(database.url) as snapshot:
        side = a_side(database, snapshot.connection)
        before = side.summary(None, None)
        database.run("INSERT INTO orders VALUES (3, 'c')", "DELETE FROM orders WHERE id = 1")
        assert side.summary(None, None) == before
        assert before.count == 2
    with taken(database.url) as later:
        assert {key for key, _ in a_side(database, later.connection).rows(None, None)} == {
            ("2",),
            ("3",),
        }


@contextmanager
def written_to(*statements: Callable[[], object]) -> Iterator[None]:
    """While each of these is done again and again by a thread of its own."""
    over = threading.Event()

    def again(statement: Callable[[], object]) -> None:
        while not over.is_set():
            statement()

    with ThreadPoolExecutor(len(statements)) as pool:
        writers = [pool.submit(again, statement) for statement in statements]
        try:
            yield
        finally:
            over.set()
        for writer in writers:
            writer.result()


@pytest.mark.services
def test_a_snapshot_of_mariadb_beside_a_writer_holds_what_lies_below_its_position_and_nothing_else(
    mariadb: MariaDB,
):
    with on_mariadb(mariadb) as database:
        database.run("CREATE TABLE orders (id INT PRIMARY KEY AUTO_INCREMENT)")
        held = dict[tuple[int, ...], int]()
        with written_to(lambda: database.run("INSERT INTO orders VALUES ()")):
            while len(set(held.values())) < 5:
                with taken(database.url) as snapshot:
                    assert isinstance(snapshot.position, BinlogPosition)
                    held[snapshot.position.position] = (
                        a_side(database, snapshot.connection).summary(None, None).count
                    )
        events = [
            line.split("\t")
            for file in {position[0] for position in held}
            for line in database.run(f"SHOW BINLOG EVENTS IN 'mysql-bin.{file:06}'")
            if line.startswith(
                "mysql-bin."
            )  # no further line of a statement that another test wrote over several
        ]
        written = [
            (int(file.rpartition(".")[2]), int(byte))
            for file, byte, kind, *_, about in events
            if kind == "Table_map" and database.schema in about
        ]
        assert held == {position: sum(one < position for one in written) for position in held}


@pytest.mark.services
def test_a_snapshot_of_postgresql_beside_writers_holds_the_transactions_that_it_reports_and_no_others(
    postgres_url: str,
):
    with on_postgres(postgres_url) as database, on_postgres(postgres_url) as other:
        database.run("CREATE TABLE orders (id BIGINT PRIMARY KEY DEFAULT txid_current())")
        snapshots = list[tuple[TransactionSnapshot, set[int]]]()
        insert = f"INSERT INTO {database.schema}.orders DEFAULT VALUES"
        with written_to(lambda: database.run(insert), lambda: other.run("BEGIN", insert, "COMMIT")):
            while len({len(held) for _, held in snapshots}) < 5:
                with taken(database.url) as snapshot:
                    assert isinstance(snapshot.position, TransactionSnapshot)
                    snapshots.append(
                        (
                            snapshot.position,
                            {
                                int(key)
                                for (key,), _ in a_side(database, snapshot.connection).rows(
                                    None, None
                                )
                            },
                        )
                    )
        written = [int(one) for one in database.run("SELECT id FROM orders")]
        for position, held in snapshots:
            assert held == {
                one for one in written if one < position.end and one not in position.open
            }


@pytest.mark.services
def test_a_statement_that_takes_too_long_is_ended_by_the_database(database: Database):
    slow = "SELECT pg_sleep(60)" if database.dialect is Dialect.POSTGRES else "SELECT SLEEP(60)"
    with (
        pytest.raises(SourceUnreadableError, match=r"(?i)timeout|max_statement_time|interrupted"),
        taken(database.url, seconds=1) as snapshot,
    ):
        snapshot.connection.execute(sa.text(slow))


@pytest.mark.services
def test_names_of_any_letters_are_asked_by_their_exact_names(database: Database):
    name = database.name(ODD)
    database.run(
        f"CREATE TABLE {name} (id INT PRIMARY KEY, {name} VARCHAR(20))",
        f"INSERT INTO {name} VALUES (1, 'a'), (2, NULL)",
    )
    with taken(database.url) as snapshot:
        side = a_side(database, snapshot.connection, ODD)
        assert side.summary(None, ("1",)).count == 1
        assert [key for key, _ in side.at([("1",), ("7",)])] == [("1",)]
        assert side.middle(None, None, 1) == ("2",)
        assert side.middle(None, None, 2) is None


@pytest.mark.services
def test_the_two_databases_are_one_table_to_a_comparison(mariadb: MariaDB, postgres_url: str):
    """Their hashes are the same, and so is the order of keys that their own collations order
    differently.
    """
    words = ["a", "A ", "b", "B", "ä", "Z", "z", "～", "💡", "", "o''n"]
    values = ", ".join(f"('{word}', {number})" for number, word in enumerate(words))
    with on_mariadb(mariadb) as one, on_postgres(postgres_url) as other:
        one.run(
            "CREATE TABLE words (id VARCHAR(9) COLLATE utf8mb4_nopad_bin PRIMARY KEY, n INT)",
            f"INSERT INTO words VALUES {values}",
        )
        other.run(
            "CREATE TABLE words (id VARCHAR(9) PRIMARY KEY, n INT)",
            f"INSERT INTO words VALUES {values}",
        )
        with taken(one.url) as mine, taken(other.url) as theirs:
            assert not compare(
                a_side(one, mine.connection, "words"), a_side(other, theirs.connection, "words")
            ).faults
        other.run(
            "UPDATE words SET n = 7 WHERE id = 'Z'",
            "DELETE FROM words WHERE id = ''",
            "INSERT INTO words VALUES ('ö', 1)",
        )
        with taken(one.url) as mine, taken(other.url) as theirs:
            found = compare(
                a_side(one, mine.connection, "words"),
                a_side(other, theirs.connection, "words"),
                leaf=1,
            )
        assert found.faults == {("Z",): Fault.DIFFERENT, ("",): Fault.MISSING, ("ö",): Fault.EXTRA}


@pytest.mark.services
def test_a_table_that_is_not_there_is_named(database: Database):
    with (
        taken(database.url) as snapshot,
        pytest.raises(NotFoundError, match=f"no table {database.schema}.nothing"),
    ):
        column_types(snapshot.connection, database.schema, "nothing")


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///x",
        "oracle://u:secret@h/d",
        "nothing",
        "postgresql+asyncpg",
        "mysql://u:secret@h:port/d",
    ],
)
def test_a_url_of_another_database_is_refused(url: str):
    with pytest.raises(InvalidValueError, match="url") as refused, taken(url):
        pass
    assert "secret" not in str(refused.value)


def test_a_database_that_is_not_there_is_reported_without_the_password():
    with (
        pytest.raises(SourceUnreadableError, match="cannot be read") as refused,
        taken("postgresql://u:secret@127.0.0.1:1/d"),
    ):
        pass
    assert "secret" not in str(refused.value)
