"""`lakechime cdc plan --types`: what a table declares whose messages bring no types."""

import ast
from collections.abc import Iterator

import pytest

from lakechime_dagster.tables.cdc import CDCMerge
from lakechime_dagster.tables.databases import Canal, Debezium, Dms, Maxwell, Monitor
from tests.cli.shop import NAME, Shop
from tests.sources.test_cut import Database, on_mariadb, on_postgres
from tests.support.cli import Answer, Cli
from tests.support.mariadb import MariaDB

NOWHERE = "mysql+pymysql://reader:hunter2@127.0.0.1:1/shop"
WRITTEN = """types={
    "id": "decimal(20,0)",
    "amount": "decimal(10,2)",
    "of \\"whom\\"": "string",
    "at": "timestamp",
    "seen": "timestamp_ntz",
    "paid": "boolean",
    # "checkpoint": point has no exact type
},
"""


@pytest.fixture
def shop(mariadb: MariaDB) -> Iterator[Database]:
    with on_mariadb(mariadb) as found:
        found.run(
            'CREATE TABLE orders (id BIGINT UNSIGNED PRIMARY KEY, amount DECIMAL(10,2), `of "whom"` VARCHAR(9), at TIMESTAMP,'
            " seen DATETIME(6), paid BIT(1), checkpoint POINT)"
        )
        yield found


@pytest.fixture
def store(postgres_url: str) -> Iterator[Database]:
    with on_postgres(postgres_url) as found:
        found.run("CREATE TABLE orders (id BIGINT PRIMARY KEY, amount NUMERIC(10,2), at TIMESTAMPTZ, note TEXT)")
        yield found


def written(lakechime: Cli, *arguments: str) -> Answer:
    return lakechime("cdc", "plan", NAME, "--types", *arguments)


def of_database(database: Database, table: str = "orders") -> tuple[str, ...]:
    return "--source-url", database.url, "--source-table", f"{database.schema}.{table}"


@pytest.mark.services
def test_types_are_written_as_they_are_declared_and_what_has_none_is_named(lakechime: Cli, shop: Database) -> None:
    Shop.declared(lakechime, envelope=Maxwell())
    answer = written(lakechime, *of_database(shop))
    assert (answer.code, answer.out) == (1, WRITTEN)
    assert 'no exact type for checkpoint (point): declare "string" to keep the text that the tool writes' in answer.err
    document = written(lakechime, *of_database(shop), "--json").json
    assert (document["source_table"], document["refused"]) == (f"{shop.schema}.orders", {"checkpoint": "point"})
    assert ast.literal_eval(answer.out.strip().removeprefix("types=").removesuffix(",")) == document["types"]


@pytest.mark.services
def test_types_of_postgresql_are_written_for_a_tool_that_follows_it(lakechime: Cli, store: Database) -> None:
    lakechime.monkeypatch.setenv("SHOP", store.url)
    Shop.declared(lakechime, envelope=Dms(), monitor=Monitor(database="$SHOP", table=f"{store.schema}.orders"))
    answer = written(lakechime, "--json")
    assert (answer.code, answer.json["types"]) == (
        0,
        {"id": "bigint", "amount": "decimal(10,2)", "at": "timestamp", "note": "string"},
    )
    Shop.declared(lakechime, envelope=Canal())
    other = written(lakechime, *of_database(store))
    assert (other.code, "Canal follows MySQL and MariaDB, and this is PostgreSQL" in other.err) == (2, True)


@pytest.mark.services
def test_a_table_that_is_another_is_told(lakechime: Cli, shop: Database) -> None:
    Shop.declared(lakechime, envelope=Maxwell(), merge=CDCMerge(keys=("order_id",)))
    shop.run("CREATE TABLE items (id INT PRIMARY KEY)")
    answer = written(lakechime, *of_database(shop, "items"))
    assert (answer.code, "items has no column order_id of the declared key; is it this table?" in answer.err) == (0, True)
    missing = written(lakechime, *of_database(shop, "nothing"))
    assert (missing.code, f"the database has no table {shop.schema}.nothing that this user may read" in missing.err) == (3, True)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "'--source-url': give the URL of the database, or declare change_table(…, monitor=Monitor(…))"),
        (["--source-url", NOWHERE], 2, "'--source-table': give the table of the database, such as shop.orders"),
        (["--source-url", NOWHERE, "--source-table", "a.b.c"], 2, "'--source-table': 'a.b.c' is no schema.table of the database"),
        (["--source-url", "redis://h", "--source-table", "a.b"], 2, "'--source-url': url 'redis://h': give postgresql://"),
        (["--source-url", NOWHERE, "--source-table", "a.b"], 1, "mysql+pymysql://reader:***@127.0.0.1:1/shop cannot be read"),
    ],
)
def test_what_is_missing_or_wrong_is_named(lakechime: Cli, arguments: list[str], code: int, message: str) -> None:
    Shop.declared(lakechime, envelope=Maxwell())
    answer = written(lakechime, *arguments)
    assert (answer.code, message in answer.err, "hunter2" in answer.err, answer.out) == (code, True, False, "")


def test_a_deployment_that_may_ask_no_database_asks_none(lakechime: Cli) -> None:
    lakechime.monkeypatch.setenv("LAKECHIME_SOURCE_QUERIES", "off")
    lakechime.monkeypatch.setenv("SHOP", NOWHERE)
    Shop.declared(lakechime, envelope=Maxwell(), monitor=Monitor(database="$SHOP", table="shop.orders"))
    given = ("--source-url", NOWHERE)
    answers = written(lakechime), written(lakechime, *given)
    assert [answer.code for answer in answers] == [1, 1]
    assert all("LAKECHIME_SOURCE_QUERIES is off, so that no database is asked" in answer.err for answer in answers)


def test_a_table_whose_messages_bring_their_types_declares_none(lakechime: Cli) -> None:
    Shop.declared(lakechime, envelope=Debezium())
    answer = written(lakechime, "--source-url", NOWHERE)
    assert (answer.code, "messages of Debezium bring them; set value.converter.schemas.enable=true" in answer.err) == (1, True)
