"""`lakechime cdc`: what is there of tables that follow a database."""

import datetime as dt

import pytest

from lakechime_dagster.cdc.record import Record
from lakechime_dagster.cdc.service import QUARANTINE
from lakechime_dagster.spark.write import SUFFIX
from tests.cdc.factories import envelope_schema, make_payload, make_record
from tests.cli.shop import NAME, Shop, counted
from tests.support.cli import Cli

SCHEMA = envelope_schema(("id", "int64", False), ("name", "string", True), ("amount", "int64", True))
MARIADB = {"connector": "mariadb", "name": "m", "db": "shop", "table": "orders", "file": "mysql-bin.000003", "ts_ms": 1_700_000_000_000}


def told(identity: int, pos: int, op: str = "c", *, transaction: object = None, **columns: object) -> Record:
    """A message of Debezium about an order, at a position, which is its offset too."""
    row = {"id": identity, "name": "Ann", "amount": 5, **columns}
    sides = {"before": row if op == "d" else None, "after": None if op == "d" else row}
    payload = make_payload(op, source={**MARIADB, "pos": pos, "row": 0}, transaction=transaction, **sides)
    return make_record(payload, schema=SCHEMA, key={"id": identity}, offset=pos)


@pytest.fixture
def shop(lakechime: Cli) -> Shop:
    shop = Shop.declared(lakechime)
    shop.tell(told(1, 10), told(2, 11, name="Bob"), told(1, 12, "u", amount=6), told(2, 13, "d", name="Bob"))
    return shop


def test_what_the_command_knows_of_tables_is_what_spark_writes() -> None:
    assert QUARANTINE == SUFFIX


def test_list_tells_what_a_table_holds_remembers_and_refused(lakechime: Cli, shop: Shop) -> None:
    shop.refuse((1, "value: it is no JSON", "{}"))
    (table,) = lakechime("cdc", "list", "--json").json["tables"]
    assert (table["name"], table["source"], table["envelope"], table["keys"]) == (NAME, "in/*.jsonl", "Debezium", ["id"])
    assert (table["rows"], table["deleted"], table["remembered"], table["waiting"], table["quarantined"]) == (1, None, 4, 0, 1)
    assert table["consumers"][NAME] == {"state": None, "reason": "", "completed": 0}
    shown = lakechime("cdc", "list").out
    assert (NAME in shown, "not begun" in shown) == (True, True)


def test_list_counts_rows_that_wait_for_a_column(lakechime: Cli, shop: Shop) -> None:
    shop.tell(told(3, 14, "u", name="__debezium_unavailable_value"), told(4, 15))
    (table,) = lakechime("cdc", "list", "--json").json["tables"]
    assert (table["rows"], table["waiting"]) == (2, 1)
    shop.tell(told(3, 16, "u", name="Eve"))
    (table,) = lakechime("cdc", "list", "--json").json["tables"]
    assert (table["rows"], table["waiting"]) == (3, 0)


def test_a_deleted_row_that_stays_is_counted_apart_and_shown_with_its_end(lakechime: Cli) -> None:
    shop = Shop.declared(lakechime, deletes="soft")
    shop.tell(told(1, 10), told(2, 11, name="Bob"), told(2, 13, "d", name="Bob"))
    (table,) = lakechime("cdc", "list", "--json").json["tables"]
    assert (table["rows"], table["deleted"], table["waiting"]) == (1, 1, 0)
    document = lakechime("cdc", "explain", NAME, "--key", "[2]", "--json").json
    assert document["rows"] == [{"id": 2, "name": "Bob", "amount": 5, "__DELETED_AT": "2023-11-14T22:13:20+00:00"}]
    assert (document["orders"][0]["upserted"][1], document["orders"][0]["deleted"][1]) == ([3, 11, 0], [3, 13, 0])


def test_list_of_tables_that_hold_nothing_yet(lakechime: Cli) -> None:
    Shop.declared(lakechime)
    (table,) = lakechime("cdc", "list", "--json").json["tables"]
    assert (table["rows"], table["remembered"], table["waiting"], table["quarantined"], table["checkpoint"]) == (0, 0, 0, 0, None)


def test_a_lake_without_such_tables_says_so(lakechime: Cli) -> None:
    assert lakechime("cdc", "list").out == "the lake declares no table that follows a database\n"
    assert "there are none" in lakechime("cdc", "explain", "shop.orders", "--key", "[1]").err


def test_a_table_that_cannot_be_read_hinders_no_other_fact(lakechime: Cli, shop: Shop) -> None:
    (lakechime.home / "warehouse/shop/orders__state/_delta_log/00000000000000000000.json").write_text("{")
    answer = lakechime("cdc", "list", "--json")
    (table,) = answer.json["tables"]
    assert (answer.code, table["rows"], table["remembered"]) == (0, 1, None)
    assert "shop.orders__state" in table["problems"][0]
    assert "shop.orders__state" in lakechime("cdc", "list").out


def test_explain_tells_all_that_is_known_of_a_key(lakechime: Cli, shop: Shop) -> None:
    document = lakechime("cdc", "explain", NAME, "--key", "[1]", "--json").json
    assert document["rows"] == [{"id": 1, "name": "Ann", "amount": 6}]
    (orders,) = document["orders"]
    assert (orders["source"], orders["upserted"][1], orders["deleted"]) == ("m.shop.orders", [3, 12, 0], None)
    assert counted(document) == {"change": 2}
    assert document["remembered"][0]["columns"]["amount"] == 5
    assert [(one["offset"], one["op"]) for one in document["messages"]] == [(12, "u"), (10, "c")]
    shown = lakechime("cdc", "explain", NAME, "--key", "[1]").out
    assert all(part in shown for part in ("amount", "m.shop.orders", "remembered:", "messages, newest first:"))


def test_explain_of_a_row_that_was_deleted_tells_what_is_remembered(lakechime: Cli, shop: Shop) -> None:
    answer = lakechime("cdc", "explain", NAME, "--key", "[2]")
    assert answer.out.startswith("the table has no row of this key\n")
    document = lakechime("cdc", "explain", NAME, "--key", "[2]", "--json").json
    assert (document["rows"], [row["op"] for row in document["remembered"]]) == ([], ["c", "d"])


def test_a_key_of_which_nothing_is_known_is_not_found(lakechime: Cli, shop: Shop) -> None:
    answer = lakechime("cdc", "explain", NAME, "--key", "[9]")
    assert (answer.code, answer.out) == (3, "")
    assert "nothing is known of key '[9]'" in answer.err


def test_a_key_is_told_by_the_types_of_its_columns(lakechime: Cli) -> None:
    shop = Shop.declared(lakechime)
    day = {"field": "id", "type": "int32", "name": "io.debezium.time.Date", "optional": False}
    schema = envelope_schema(day, ("name", "string", True), ("amount", "int64", True))
    number = (dt.date(2024, 5, 1) - dt.date(1970, 1, 1)).days
    row = {"id": number, "name": "Ann", "amount": 1}
    shop.tell(make_record(make_payload(after=row), schema=schema, key=None))
    document = lakechime("cdc", "explain", NAME, "--key", '["2024-05-01"]', "--json").json
    assert (document["rows"][0]["id"], len(document["messages"]), len(document["remembered"])) == ("2024-05-01", 1, 1)
    wrong = lakechime("cdc", "explain", NAME, "--key", '["May"]')
    assert (wrong.code, "id: 'May' is no date" in wrong.err) == (2, True)


def test_quarantine_tells_where_each_refused_message_stands_and_why(lakechime: Cli, shop: Shop) -> None:
    assert lakechime("cdc", "quarantine", NAME).out == f"{NAME} has refused nothing\n"
    checkpoint = '{"topic": "shop.orders", "partition": 0, "offset": %d, "key": null, "message": "{}"}'
    shop.refuse((1, "value: it is no JSON", checkpoint % 7), (2, "op: it is none", checkpoint % 9))
    document = lakechime("cdc", "quarantine", NAME, "--json").json
    assert document["total"] == 2
    assert [(one["step"], one["topic"], one["offset"], one["reason"]) for one in document["refused"]] == [
        (2, "shop.orders", 9, "op: it is none"),
        (1, "shop.orders", 7, "value: it is no JSON"),
    ]
    cut = lakechime("cdc", "quarantine", NAME, "--limit", "1").out
    assert ("op: it is none" in cut, "value: it is no JSON" in cut, "1 older one not shown" in cut) == (True, False, True)


@pytest.mark.parametrize(("name", "remedy"), [("shop.order", "did you mean shop.orders?"), ("silver.flights", "there are shop.orders")])
def test_a_name_that_is_none_is_answered_with_the_nearest(lakechime: Cli, shop: Shop, name: str, remedy: str) -> None:
    for command in (["explain", name, "--key", "[1]"], ["quarantine", name]):
        answer = lakechime("cdc", *command)
        assert (answer.code, remedy in answer.err) == (3, True)
