"""CDC tables and their monitors as declared."""

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.tables.cdc import CDCMerge, CDCTable, Drift, cdc_table
from lakechime_dagster.tables.databases import Database, Debezium, Maxwell, Monitor
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.maintenance import Maintenance
from lakechime_dagster.tables.names import spelled_as
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.sources import JsonLines, KafkaTopic
from lakechime_dagster.tables.tables import SourceTable
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.triggers import PartitionTrigger
from tests.support.declaring import grouped


def orders(name: str = "shop.orders", **declared: Any) -> CDCTable:
    """A table that follows one of which only what matters is named."""
    return cdc_table(
        name,
        **grouped(
            **{
                "source": JsonLines("in"),
                "envelope": Debezium(),
                "merge": CDCMerge(keys=("id",)),
                **declared,
            }
        ),
    )


def test_a_table_that_follows_a_database_brings_the_table_of_its_messages() -> None:
    table = orders(
        source=JsonLines("in", every=every(minutes=5)),
        owner="team:shop",
        location="/lake/orders/",
        on_drift="evolve",
        group="shop",
    )
    assert (table.bronze.name, table.bronze.location, table.bronze.owner) == (
        "shop.orders__changes",
        "/lake/orders__changes",
        "team:shop",
    )
    assert (table.keys, table.schema.on_drift, table.inputs, table.trigger.tables) == (
        ("id",),
        Drift.EVOLVE,
        ("shop.orders__changes",),
        ("shop.orders__changes",),
    )
    assert (table.bronze.inputs, table.bronze.trigger.tables, str(table.bronze.trigger.every)) == (
        (),
        (),
        "every 5 minutes",
    )
    lake = Lake("shop", [table])
    assert [one.name for one in lake.targets] == ["shop.orders__changes", "shop.orders"]


def test_tables_may_wait_for_its_complete_hours_where_transactions_have_a_longest_time() -> None:
    table = orders(max_transaction=dt.timedelta(minutes=1))
    assert (table.hours.name, table.hours.levels.as_dict()) == (
        "shop.orders__hours",
        {"source_date": "date", "source_hour": "int"},
    )
    daily = sql_table(
        "gold.daily",
        sql="SELECT count(*) AS n FROM shop.orders",
        refresh="full",
        trigger=PartitionTrigger(
            table.hours.partitions(source_date=tick("-1d"), source_hour=range(24)),
            every(days=1, start="2024-01-02"),
        ),
    )
    assert [one.name for one in Lake("shop", [table, daily]).sources] == ["shop.orders__hours"]
    with pytest.raises(DeclarationError, match="max_transaction: is not declared"):
        _ = orders().hours


EU = Database("$EU", "eu.orders")
ICEBERG = Storage(format="iceberg")


def kafka(heartbeats: str = "", transactions: str = "") -> KafkaTopic:
    return KafkaTopic(
        "orders.all", bootstrap="broker:9092", heartbeats=heartbeats, transactions=transactions
    )


WRONG = [
    (
        lambda: orders(source=kafka("orders.*")),
        "shop.orders, source: heartbeats='orders.*' are also the topic of its rows",
    ),
    (
        lambda: orders(source=kafka("beats"), envelope=Maxwell()),
        "shop.orders, source: heartbeats='beats' are of a table that Debezium",
    ),
    (
        lambda: orders(source=kafka(transactions="orders.*")),
        "shop.orders, source: transactions='orders.*' are also the topic of its rows",
    ),
    (
        lambda: orders(source=kafka("m.*", "m.transaction")),
        "shop.orders, source: transactions='m.transaction' are also the topic of heart",
    ),
    (
        lambda: JsonLines("in", shards="("),
        "JsonLines, shards: '(' is no regular expression: missing ), unterminated subpattern",
    ),
    (
        lambda: KafkaTopic("a", bootstrap=None),  # type: ignore[arg-type]
        "KafkaTopic, bootstrap: None names no server, such as broker:9092; in YAML it is None",
    ),
    (
        lambda: KafkaTopic("a", bootstrap="b", shards="a"),
        "KafkaTopic, shards: 'a' has no named group, such as (?P<shard>",
    ),
    (
        lambda: orders(
            source=JsonLines("in", shards="(?P<shard>.*)"),
            monitor=Monitor(database=Database("$SHOP", "shop.orders")),
        ),
        (
            "shop.orders, monitor: compares with one database's table; this one replicates those of "
            "all shards: name each one's"
        ),
    ),
    (
        lambda: orders(source=JsonLines("in"), monitor=Monitor(shards={"eu": EU})),
        (
            "shop.orders, monitor: shards=('eu',) has 1 values, and the names of the topics are of one "
            "database"
        ),
    ),
    (
        lambda: orders(
            source=JsonLines("in", shards="(?P<shard>.*)_(?P<part>.*)"),
            monitor=Monitor(shards={"eu": EU}),
        ),
        (
            "shop.orders, monitor: shards=('eu',) has 1 values, and the names of the topics have "
            "shard, part"
        ),
    ),
    (
        lambda: Database("shop", "shop.orders"),
        "Database, url: 'shop' is neither mysql+pymysql://user@host/database",
    ),
    (
        lambda: orders(
            source=JsonLines("in", shards="(?P<shard>.*)"),
            read_from=Database("$SHOP", "shop.orders"),
        ),
        (
            "shop.orders, read_from: is one database's table, and this one replicates those of all "
            "shards"
        ),
    ),
    (
        lambda: orders(envelope=Maxwell(), read_from=Database("$SHOP", "shop.orders")),
        "shop.orders, read_from: is for Debezium's messages without a schema; declare types={…}",
    ),
    (
        lambda: Debezium(settings={"decimal.mode": "precise"}),
        "Debezium, settings: 'decimal.mode' says nothing of how values are written",
    ),
    (
        lambda: Debezium(settings={"time.precision.mode": "exact"}),
        (
            "Debezium, settings: time.precision.mode='exact' is none of adaptive, "
            "adaptive_time_microseconds, connect, isostring"
        ),
    ),
    (
        lambda: orders(types={"id": "bigint"}),
        "shop.orders, types: is not read, as messages of Debezium bring their columns' types",
    ),
    (
        lambda: orders(max_continuous_empty_commits=-1),
        (
            "CDCMerge, max_continuous_empty_commits: -1 is no number of executions, 0 or more; leave "
            "it out to commit only what changes rows"
        ),
    ),
    (
        lambda: orders(deletes="soft", merge=CDCMerge(keys=("id",), stored_as_scd_type=2)),
        (
            "CDCMerge, deletes: 'soft' goes without stored_as_scd_type=2, whose histories keep deleted "
            "rows; leave it out"
        ),
    ),
    (
        lambda: orders(names={"removed": "__deleted_AT"}),
        "shop.orders, names: names '__deleted_AT': CDC tables have columns of that",
    ),
    (
        lambda: orders(names={"a b": "_Metadata"}),
        "shop.orders, names: names '_Metadata': Delta has columns of that name; give it",
    ),
    (
        lambda: orders(merge=CDCMerge(keys=("order id",))),
        "shop.orders, merge: names 'order id': Delta takes no ' ' in names",
    ),
    (
        lambda: orders(envelope=Maxwell(), types={"id": "int", "filePath": "string"}),
        (
            "shop.orders, types: names 'filePath': Delta has columns of that name; give it another "
            "name by names={'filePath': …}, or leave"
        ),
    ),
    (
        lambda: orders(names={"a b": "_File"}, storage=ICEBERG),
        "shop.orders, names: names '_File': Iceberg has columns of that name; give it",
    ),
    (
        lambda: orders(storage=replace(ICEBERG, cluster_by=("id",))),
        "shop.orders, cluster_by: is Delta's clustering; a table of Iceberg has partitions",
    ),
    (
        lambda: orders(storage=replace(ICEBERG, readers=("polars",))),
        "shop.orders, readers: chooses Delta's table features",
    ),
    (
        lambda: orders(storage=replace(ICEBERG, location="/orders")),
        "shop.orders, location: is that of the Iceberg catalog (LAKECHIME_ICEBERG_CATALOG)",
    ),
    (
        lambda: orders(storage=replace(ICEBERG, write_mode="merge")),
        "shop.orders, write_mode: 'merge' is neither copy-on-write nor merge-on-read",
    ),
    (
        lambda: orders(storage=Storage(write_mode="merge-on-read")),
        "shop.orders, write_mode: 'merge-on-read' is for format='iceberg'; name that too, or leave it out",
    ),
    (
        lambda: orders(storage=Storage(format="hive")),
        "shop.orders, format: is that of computed tables; name delta or iceberg",
    ),
    (
        lambda: sql_table(
            "a.b", sql="SELECT n FROM a.c", storage=replace(ICEBERG, maintenance=Maintenance())
        ),
        "a.b, maintenance: has no effect on a table of Iceberg; leave it out",
    ),
    (lambda: orders(names={"a": "b", "c": "b"}), "shop.orders, names: names column 'b' twice"),
    (
        lambda: orders(names={"a": "b"}, merge=CDCMerge(keys=("id",), column_list=("id", "a"))),
        "shop.orders, names: names 'b', which merge.column_list leaves out",
    ),
    (
        lambda: CDCMerge(keys=("id",), column_list=("name",)),
        "CDCMerge, column_list: leaves out 'id', a column of the key",
    ),
    (
        lambda: CDCMerge(keys=("id",), column_list=("id",), except_column_list=("name",)),
        "CDCMerge, except_column_list: goes without column_list",
    ),
    (lambda: orders("a." + "b" * 120), "name: has 122 characters; use at most 119"),
    (
        lambda: orders("shop.orders__State"),
        "shop.orders__State, name: ends with __state, which is kept for the state of CDC tables",
    ),
    (
        lambda: SourceTable("a.b__changes"),
        "a.b__changes, name: ends with __changes, which is kept for the bronze tables of CDC tables",
    ),
    (
        lambda: JsonLines("s3://bucket/in"),
        "JsonLines, folder: 's3://bucket/in' is no folder of this machine, or mounted there",
    ),
    (
        lambda: JsonLines("in", pattern="../*.jsonl"),
        "JsonLines, pattern: '../*.jsonl' is no pattern of names below the folder",
    ),
    (
        lambda: build_definitions(Lake("shop", [orders(envelope=Maxwell())])),
        "shop.orders, keys: no type is declared for id; name it in types=",
    ),
    (
        lambda: build_definitions(
            Lake("shop", [orders(envelope=Maxwell(), types={"id": "interval"})])
        ),
        "shop.orders, types",
    ),
]


def test_columns_are_named_in_letters_of_whatever_case() -> None:
    merge = CDCMerge(keys=("ORDER_ID",), column_list=("order_id", "Amt"))
    table = orders(
        envelope=Maxwell(),
        types={"ID": "int", "amount": "int"},
        names={"id": "Order_Id", "AMOUNT": "amt"},
        merge=merge,
    )
    assert (table.bronze.keys, dict(table.bronze.schema.types or {})) == (
        ("id",),
        {"id": "int", "amount": "int"},
    )
    assert [merge.takes(name) for name in ("ORDER_ID", "amt", "note")] == [True, True, False]
    assert [
        CDCMerge(keys=("id",), except_column_list=("NOTE",)).takes(name)
        for name in ("id", "note", "ſize")
    ] == [True, False, True]
    spelled = merge.spelled_as(["order_id", "amt", "note"])
    assert (spelled.keys, spelled.column_list) == (("order_id",), ("order_id", "amt"))
    with pytest.raises(DeclarationError, match=r"leaves out 'id', a column of the key"):
        CDCMerge(keys=("id",), except_column_list=("ID",))


def test_columns_that_differ_in_case_alone_stay_two() -> None:
    assert spelled_as(["A"], {"a": 1, "A": 2}) == {"a": 1, "A": 2}
    assert spelled_as(["A", "b"], {"a": 1, "B": 2}) == {"A": 1, "b": 2}


@pytest.mark.parametrize(("declare", "message"), WRONG)
def test_a_wrong_declaration_is_answered_with_table_field_and_remedy(
    declare: Callable[[], object], message: str
) -> None:
    with pytest.raises(DeclarationError, match=re.escape(message)):
        declare()


URL = "mysql+pymysql://reader:secret@db/shop"


ALONE: dict[str, Any] = {"database": None}


def a_monitor(**declared: Any) -> Monitor:
    return Monitor(**{"database": Database(URL, "shop.orders"), **declared})


def test_the_databases_of_shards_are_named_by_what_topics_report() -> None:
    assert a_monitor().databases == {(): Database(URL, "shop.orders")}
    alone = a_monitor(**ALONE, shards={"eu": EU, ("us", "1"): EU})
    assert (alone.databases, alone.is_comparing, Monitor().is_comparing) == (
        {("eu",): EU, ("us", "1"): EU},
        True,
        False,
    )
    assert len({alone, a_monitor(**ALONE, shards={"eu": EU})}) == 2


def test_a_table_is_declared_with_its_monitor() -> None:
    monitor = a_monitor(every=every(hours=1), columns=["amount"])
    table = orders(monitor=monitor)
    assert table.monitor == monitor
    assert (monitor.columns, orders().monitor) == (("amount",), None)


def test_a_password_is_not_shown() -> None:
    monitor = a_monitor()
    assert "secret" not in f"{monitor!r} {monitor} {orders(monitor=monitor)!r}"


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        (
            {"database": "oracle://u:secret@h/d"},
            "Monitor, database: 'oracle://u:***@h/d' is no Database(url, table)",
        ),
        ({"every": 5}, "Monitor, every: 5 is no schedule; write every(hours=1)"),
        ({"within": dt.timedelta(-1)}, "is no time; write timedelta(minutes=2)"),
        (
            {"shards": {"eu": EU}},
            (
                "Monitor, shards: is declared with database=; a table replicates one database's table, "
                "or shards"
            ),
        ),
        (
            {**ALONE, "shards": ["eu"]},
            "Monitor, shards: ['eu'] is no mapping; write {'eu': Database(url, 'shop.orders')}",
        ),
        ({**ALONE, "shards": {"eu": "mysql://u:secret@h"}}, "Monitor, shards: 'eu': "),
    ],
)
def test_a_monitor_that_cannot_work_is_refused_by_its_field(
    declared: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DeclarationError, match=re.escape(problem)) as refused:
        a_monitor(**declared)
    assert "secret" not in str(refused.value)
