"""`lakechime cdc plan`: what is made, what waits, and what stands in the way."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from lakechime_dagster.tables.cdc import CHANGES
from lakechime_dagster.tables.databases import Maxwell, Monitor
from lakechime_dagster.tables.sources import JsonLines, KafkaTopic
from tests.cli.shop import NAME, Shop
from tests.cli.test_cdc import told
from tests.sources.test_cut import on_mariadb
from tests.support.cli import Cli
from tests.support.mariadb import MariaDB
from tests.support.topics import ENVIRONMENT, Topics

DATABASE = "mysql+pymysql://reader:hunter2@127.0.0.1:1/shop"


def maxwell(identity: int) -> str:
    data = {"id": identity, "amount": "1.50"}
    return json.dumps({"database": "shop", "table": "orders", "type": "insert", "ts": 1, "data": data}) + "\n"


def of_maxwell(lakechime: Cli, **declared: Any) -> Shop:
    return Shop.declared(lakechime, envelope=Maxwell(), types={"id": "bigint", "amount": "decimal(9,2)"}, **declared)


def planned(lakechime: Cli, *arguments: str) -> Any:
    return lakechime("cdc", "plan", NAME, *arguments, "--json").json


def about(document: Any) -> list[tuple[str, str]]:
    return [(one["weight"], one["about"]) for one in document["findings"]]


def test_a_plan_tells_the_tables_and_where_they_lie(lakechime: Cli) -> None:
    shop = Shop.declared(lakechime)
    shop.tell(told(1, 10))
    tables = {one["role"]: (one["name"], one["exists"]) for one in planned(lakechime)["tables"]}
    assert tables == {
        "messages": (NAME + CHANGES, True),
        "rows": (NAME, True),
        "remembered": ("shop.orders__state", True),
        "refused": ("shop.orders__quarantine", False),
    }


def test_a_plan_tells_what_waits_in_the_feed_and_looks_at_its_messages(lakechime: Cli) -> None:
    of_maxwell(lakechime)
    Path("in").mkdir()
    Path("in/a.jsonl").write_text(maxwell(1) + maxwell(2) + "{")
    document = planned(lakechime)
    size = len(maxwell(1)) * 2
    assert document["feed"] == [{"name": "a.jsonl", "end": size, "unread": size}]
    assert document["rest"] == "1 bytes at the end of a.jsonl wait for the end of their line"
    sample = document["sample"]
    assert (sample["of"], sample["messages"], sample["kinds"]) == ("feed", 2, {"change": 2})
    assert sample["columns"] == {"id": "bigint", "amount": "decimal(9,2)"}
    assert about(document) == [("warning", "keys"), ("warning", "position")]
    shown = lakechime("cdc", "plan", NAME).out
    assert all(part in shown for part in ("a.jsonl", "2 messages of the feed looked at: change 2", "output_binlog_position=true"))


def test_a_plan_looks_at_the_messages_of_the_bronze_table(lakechime: Cli) -> None:
    shop = Shop.declared(lakechime)
    shop.tell(told(1, 10), told(1, 11, "u"))
    sample = planned(lakechime)["sample"]
    assert (sample["of"], sample["messages"], sample["sources"], sample["connectors"]) == (
        "bronze table",
        2,
        ["m.shop.orders"],
        ["mariadb"],
    )
    assert sample["columns"] == {"id": "bigint", "name": "string", "amount": "bigint"}


def test_changes_that_tell_no_transaction_are_a_finding_where_a_topic_of_them_is_declared(lakechime: Cli) -> None:
    shop = Shop.declared(lakechime, source=JsonLines("in", records=True, transactions="m.transaction"))
    shop.tell(told(1, 10, "r"), told(1, 11, "u"))
    (found,) = [one for one in planned(lakechime)["findings"] if one["about"] == "transactions"]
    assert (found["weight"], found["problem"]) == (
        "warning",
        "1 of 2 messages tell no transaction, so that transactions= says nothing of whether all came",
    )
    assert found["remedy"].startswith("set `provide.transaction.metadata=true` in the connector")
    shop.tell(*[told(1, at, "u", transaction={"id": "0-1-2", "total_order": 1, "data_collection_order": 1}) for at in range(12, 212)])
    assert ("warning", "transactions") not in about(planned(lakechime))


@pytest.mark.services
def test_a_topic_of_transactions_that_is_not_there_is_a_finding(lakechime: Cli, topics: Topics) -> None:
    topics.create("orders")
    topics.send("orders", "{}")
    lakechime.monkeypatch.setenv("KAFKA_PASSWORD", ENVIRONMENT["KAFKA_PASSWORD"])
    Shop.declared(lakechime, source=topics.feed("orders", transactions=topics.named("transaction")))
    assert ("warning", "transactions") in about(planned(lakechime))
    topics.create("transaction")
    topics.send("transaction", "{}")
    assert ("warning", "transactions") not in about(planned(lakechime))


def test_a_feed_that_is_not_there_is_a_finding(lakechime: Cli) -> None:
    Shop.declared(lakechime)
    document = planned(lakechime)
    assert about(document) == [("error", "feed")]
    assert "is no folder, or not yet" in document["findings"][0]["problem"]


def test_a_cluster_that_cannot_be_reached_is_a_finding(lakechime: Cli) -> None:
    Shop.declared(lakechime, source=KafkaTopic("orders", bootstrap="127.0.0.1:1"))
    document = planned(lakechime)
    assert about(document)[0] == ("error", "feed")
    assert "orders at 127.0.0.1:1 cannot be asked" in document["findings"][0]["problem"]


def test_a_database_that_cannot_be_reached_is_a_finding_without_its_password(lakechime: Cli) -> None:
    Shop.declared(lakechime).tell(told(1, 10))
    answer = lakechime("cdc", "plan", NAME, "--source-url", DATABASE, "--json")
    assert ("error", "database") in about(answer.json)
    assert "hunter2" not in answer.out + answer.err


def test_a_database_is_asked_about_a_table_that_is_known(lakechime: Cli) -> None:
    of_maxwell(lakechime)
    document = planned(lakechime, "--source-url", DATABASE)
    assert ("error", "database") in about(document)
    assert any("--source-table schema.table" in one["remedy"] for one in document["findings"])


def test_a_url_that_is_none_is_a_wrong_usage(lakechime: Cli) -> None:
    Shop.declared(lakechime).tell(told(1, 10))
    answer = lakechime("cdc", "plan", NAME, "--source-url", "oracle://ada:hunter2@db/x")
    assert (answer.code, "'--source-url'" in answer.err, "hunter2" in answer.err) == (2, True, False)


def test_a_database_of_a_monitor_that_the_environment_lacks_is_not_asked(lakechime: Cli) -> None:
    Shop.declared(lakechime, monitor=Monitor(database="$NOT_THERE", table="shop.orders"))
    answer = lakechime("cdc", "plan", NAME, "--json")
    assert (answer.code, "the database is not asked: database '$NOT_THERE': is not in the environment" in answer.err) == (0, True)


def test_types_that_are_missing_are_a_finding(lakechime: Cli) -> None:
    Shop.declared(lakechime, envelope=Maxwell())
    Path("in").mkdir()
    Path("in/a.jsonl").write_text(maxwell(1))
    (found,) = planned(lakechime)["findings"]
    assert (found["weight"], found["about"], found["problem"]) == (
        "error",
        "types",
        "keys: no type is declared for id; name it in types=",
    )
    assert found["remedy"] == "`lakechime cdc plan --types shop.orders` writes types={…}"


def test_a_variable_of_the_feed_that_the_environment_lacks_is_a_finding(lakechime: Cli) -> None:
    Shop.declared(lakechime, source=KafkaTopic("orders", bootstrap="127.0.0.1:1", options={"sasl.password": "$NOT_THERE"}))
    (found,) = planned(lakechime)["findings"]
    assert (found["about"], "'$NOT_THERE'" in found["problem"]) == ("feed", True)


def test_the_last_messages_of_files_are_looked_at(lakechime: Cli) -> None:
    of_maxwell(lakechime)
    Path("in").mkdir()
    Path("in/a.jsonl").write_text(maxwell(1))
    Path("in/b.jsonl").write_text("damaged\n" + maxwell(2) * 199)
    assert planned(lakechime)["sample"]["kinds"] == {"change": 199, "unreadable": 1}
    Path("in/b.jsonl").write_text("damaged\n" + maxwell(2) * 300)
    assert planned(lakechime)["sample"]["kinds"] == {"change": 200}


def test_a_bronze_table_that_cannot_be_read_is_a_finding(lakechime: Cli) -> None:
    shop = Shop.declared(lakechime)
    shop.tell(told(1, 10))
    for file in Path(shop.location(CHANGES)).glob("*.parquet"):
        file.write_bytes(b"damaged")
    (found,) = [one for one in planned(lakechime)["findings"] if one["about"] == "messages"]
    assert "they cannot be looked at: shop.orders__changes" in found["problem"]


@pytest.mark.services
def test_a_database_is_asked_how_it_writes_its_log(lakechime: Cli, mariadb: MariaDB) -> None:
    Shop.declared(lakechime).tell(told(1, 10))
    Path("in").mkdir()
    with on_mariadb(mariadb) as database:
        database.run("CREATE TABLE orders (id INT PRIMARY KEY)", "SET GLOBAL binlog_row_image = 'MINIMAL'")
        arguments = "--source-url", database.url, "--source-table", f"{database.schema}.orders"
        try:
            assert about(planned(lakechime, *arguments))[0] == ("error", "binlog_row_image")
            shown = lakechime("cdc", "plan", NAME, *arguments).out
            assert "SET GLOBAL binlog_row_image = 'FULL';" in shown
        finally:
            database.run("SET GLOBAL binlog_row_image = 'FULL'")
        assert {weight for weight, _ in about(planned(lakechime, *arguments))} == {"note"}


@pytest.mark.services
def test_a_user_who_may_not_see_open_transactions_is_a_finding_where_hours_depend_on_it(lakechime: Cli, mariadb: MariaDB) -> None:
    Shop.declared(lakechime, max_transaction=dt.timedelta(hours=1)).tell(told(1, 10))
    with on_mariadb(mariadb) as database:
        database.run("CREATE TABLE orders (id INT PRIMARY KEY)")
        arguments = "--source-url", database.url, "--source-table", f"{database.schema}.orders"
        (found,) = [one for one in planned(lakechime, *arguments)["findings"] if one["about"] == "open transactions"]
        assert (found["weight"], found["remedy"]) == ("warning", "GRANT PROCESS ON *.* TO `debezium`@`127.0.0.1`;")
        assert "may not see which transactions are open, so that hours are complete by max_transaction" in found["problem"]
        database.run(found["remedy"])
        try:
            assert ("warning", "open transactions") not in about(planned(lakechime, *arguments))
        finally:
            database.run("REVOKE PROCESS ON *.* FROM `debezium`@`127.0.0.1`")


@pytest.mark.services
def test_a_plan_looks_at_what_waits_in_topics(lakechime: Cli, topics: Topics) -> None:
    for name, value in ENVIRONMENT.items():
        lakechime.monkeypatch.setenv(name, value)
    of_maxwell(lakechime, source=topics.feed())
    topics.create("orders", partitions=2)
    topics.send("orders", maxwell(1), maxwell(2), key="k")
    topics.send("orders", maxwell(3), partition=1, key="k")
    document = planned(lakechime)
    assert sum(part["unread"] for part in document["feed"]) == 3
    assert (document["sample"]["of"], document["sample"]["kinds"]) == ("feed", {"change": 3})
    assert ("error", "position") in about(document)
