"""`lakechime cdc view`: the statement that makes a view of a table's messages."""

import duckdb
import pytest

from lakechime_dagster.demo.verify import load_delta
from lakechime_dagster.lake import Maxwell
from tests.cdc.factories import envelope_schema, make_payload, make_record
from tests.cli.shop import NAME, Shop
from tests.support.cli import Cli
from tests.support.orders import at_position, deletion, order


def test_what_is_written_makes_the_view_whose_rows_are_newest_by_the_databases_log(lakechime: Cli) -> None:
    shop = Shop.declared(lakechime)
    read_at_3 = make_payload("r", source={**at_position(3), "snapshot": "incremental"}, after={"id": 1, "name": "Ann", "amount": 5})
    read = make_record(read_at_3, schema=envelope_schema(), key={"id": 1}, offset=9)
    shop.tell(order(1, at=1), order(2, at=2), order(1, at=3, name="Bob"), deletion(2, at=4), read)
    with duckdb.connect() as connection:
        load_delta(connection)
        connection.execute("CREATE SCHEMA shop")
        connection.execute(lakechime("cdc", "view", NAME, "--dialect", "duckdb").out)
        told = "SELECT row_key, op, json_record ->> 'name', \"offset\" FROM shop.orders__records ORDER BY row_key"
        assert connection.execute(told).fetchall() == [("[1]", "u", "Bob", 3), ("[2]", "d", None, 4)]


def test_it_is_for_spark_unless_another_engine_is_named(lakechime: Cli) -> None:
    Shop.declared(lakechime)
    document = lakechime("cdc", "view", NAME, "--name", "raw.orders", "--json").json
    assert (document["table"], document["view"], document["dialect"]) == (NAME, "raw.orders", "spark")
    assert document["statement"].startswith("CREATE OR REPLACE VIEW `raw`.`orders` AS\nSELECT\n  `row_key`,")
    assert f"FROM `delta`.`{Shop(lakechime, None).location('__changes')}`" in document["statement"]  # type: ignore[arg-type]


@pytest.mark.parametrize("dialect", ["spark", "duckdb"])
def test_messages_of_other_tools_have_none(lakechime: Cli, dialect: str) -> None:
    Shop.declared(lakechime, envelope=Maxwell(), types={"id": "bigint"})
    answer = lakechime("cdc", "view", NAME, "--dialect", dialect)
    assert answer.code == 1
    assert "shop.orders: the view is of Debezium's messages, which tell a row as it was before and after" in answer.err
