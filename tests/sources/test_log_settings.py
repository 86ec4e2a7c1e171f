"""Whether a real database writes its log as connectors need it, and the statements that set it so."""

from collections.abc import Iterator

import pytest

from lakechime_dagster.cdc.database import check_log
from lakechime_dagster.cdc.findings import Weight
from lakechime_dagster.errors import InvalidValueError, SourceUnreadableError
from tests.sources.test_cut import ODD, Database, on_mariadb, on_postgres
from tests.support.mariadb import MariaDB

pytestmark = pytest.mark.services


@pytest.fixture
def shop(mariadb: MariaDB) -> Iterator[Database]:
    with on_mariadb(mariadb) as found:
        found.run("CREATE TABLE orders (id int PRIMARY KEY)")
        yield found


@pytest.fixture
def store(postgres_url: str) -> Iterator[Database]:
    with on_postgres(postgres_url) as found:
        found.run("CREATE TABLE orders (id int PRIMARY KEY, note text)")
        yield found


def told(database: Database, table: str = "orders") -> dict[str, tuple[Weight, str]]:
    """Weight and remedy of what is found, by what it is about."""
    return {one.about: (one.weight, one.remedy) for one in check_log(database.url, database.schema, table)}


def test_a_mariadb_whose_log_tells_whole_rows_is_well(shop: Database) -> None:
    assert told(shop) == {}


def test_the_statement_that_is_told_sets_the_log_of_mariadb_right(shop: Database) -> None:
    shop.run("SET GLOBAL binlog_row_image = 'MINIMAL'", "SET GLOBAL binlog_format = 'STATEMENT'")
    try:
        found = told(shop)
        assert {about: weight for about, (weight, _) in found.items()} == {
            "binlog_format": Weight.ERROR,
            "binlog_row_image": Weight.ERROR,
        }
        shop.run(*(remedy.partition(";")[0] for _, remedy in found.values()))
        assert told(shop) == {}
    finally:
        shop.run("SET GLOBAL binlog_row_image = 'FULL'", "SET GLOBAL binlog_format = 'ROW'")


def test_a_postgresql_tells_what_its_log_lacks(store: Database) -> None:
    found = told(store)
    level = store.run("SHOW wal_level")
    assert ("wal_level" in found) == (level != ["logical"])
    assert found["replica identity"] == (Weight.WARNING, f"ALTER TABLE {store.schema}.orders REPLICA IDENTITY FULL;")
    assert found["publication"] == (Weight.WARNING, f"CREATE PUBLICATION dbz_publication FOR TABLE {store.schema}.orders;")


def test_the_statements_that_are_told_set_a_table_of_postgresql_right(store: Database) -> None:
    name = f"pub_{store.schema}"
    store.run(f"CREATE PUBLICATION {name} FOR TABLE {store.schema}.orders WITH (publish = 'insert, update, delete')")
    try:
        found = told(store)
        assert found["publication"][1] == f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate');"
        store.run(*(remedy for about, (_, remedy) in found.items() if about != "wal_level"))
        assert told(store).keys() <= {"wal_level"}
    finally:
        store.run(f"DROP PUBLICATION {name}")


def test_a_table_whose_changes_have_no_identity_is_wrong(store: Database) -> None:
    store.run(f"CREATE TABLE {store.name(ODD)} (note text)")
    weight, remedy = told(store, ODD)["replica identity"]
    assert weight is Weight.ERROR
    store.run(remedy)
    assert "replica identity" not in told(store, ODD)


def test_a_table_that_is_not_there_is_told(store: Database, shop: Database) -> None:
    assert [told(database, "nothing")["table"][0] for database in (store, shop)] == [Weight.ERROR, Weight.ERROR]


@pytest.mark.tier1
def test_a_database_that_cannot_be_asked_is_told_without_its_password() -> None:
    with pytest.raises(SourceUnreadableError, match=r"mysql\+pymysql://ada:\*\*\*@127.0.0.1:1/shop cannot be read"):
        check_log("mysql://ada:hunter2@127.0.0.1:1/shop", "shop", "orders")
    with pytest.raises(InvalidValueError, match="give postgresql://"):
        check_log("oracle://ada@db/x", "shop", "orders")
