"""The declaration of what is watched of a table that follows a database."""

import datetime as dt
import re
from typing import Any

import pytest

from lakechime_dagster.errors import DeclarationError, InvalidValueError
from lakechime_dagster.tables.databases import Database, Limits, Monitor
from lakechime_dagster.triggers.schedule import every
from tests.lake.test_change_tables import EU, orders

URL = "mysql+pymysql://reader:secret@db/shop"
ALONE: dict[str, Any] = {"database": None, "table": None}


def a_monitor(**declared: Any) -> Monitor:
    return Monitor(**{"database": URL, "table": "shop.orders", **declared})


def test_the_databases_of_shards_are_named_by_what_topics_tell() -> None:
    assert a_monitor().databases == {(): Database(URL, "shop.orders")}
    alone = a_monitor(**ALONE, shards={"eu": EU, ("us", "1"): EU})
    assert (alone.databases, alone.is_comparing, Monitor().is_comparing) == ({("eu",): EU, ("us", "1"): EU}, True, False)
    assert len({alone, a_monitor(**ALONE, shards={"eu": EU})}) == 2


def test_a_table_is_declared_with_its_monitor() -> None:
    monitor = a_monitor(every=every(hours=1), columns=["amount"])
    table = orders(monitor=monitor)
    assert table.monitor == monitor
    assert (monitor.columns, orders().monitor) == (("amount",), None)


def test_the_database_may_be_named_by_a_variable() -> None:
    monitor = a_monitor(database="$SHOP_DATABASE")
    assert monitor.url({"SHOP_DATABASE": URL}) == URL
    with pytest.raises(InvalidValueError, match=re.escape("database '$SHOP_DATABASE': is not in the environment")):
        monitor.url({})


def test_a_password_is_not_shown() -> None:
    monitor = a_monitor()
    assert "secret" not in f"{monitor!r} {monitor} {orders(monitor=monitor)!r}"


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ({"database": "oracle://u:secret@h/d"}, "Monitor, database: 'oracle://u:***@h/d' is neither mysql+pymysql://"),
        ({"database": "SHOP"}, "Monitor, database: 'SHOP' is neither"),
        ({"database": None}, "Monitor, database: None is neither"),
        ({"table": "orders"}, "Monitor, table: 'orders' is no schema.table of the database, such as shop.orders"),
        ({"every": 5}, "Monitor, every: 5 is no schedule; write every(hours=1)"),
        ({"within": 5}, "Monitor, within: 5 is no time; write timedelta(minutes=2)"),
        ({"within": dt.timedelta(-1)}, "is no time; write timedelta(minutes=2)"),
        ({"columns": "amount"}, "Monitor, columns: "),
        ({"limits": 5}, "Monitor, limits: 5 is no Limits(…)"),
        ({"table": None}, "Monitor, table: None is no schema.table"),
        ({"shards": {"eu": EU}}, "Monitor, shards: is declared beside database=; a table follows one database, or shards"),
        ({**ALONE, "shards": ["eu"]}, "Monitor, shards: ['eu'] is no mapping; write {'eu': Database(url, 'shop.orders')}"),
        ({**ALONE, "shards": {5: EU}}, "Monitor, shards: 5 is no name of a shard; write what its topics tell"),
        ({**ALONE, "shards": {(): EU}}, "Monitor, shards: () is no name of a shard"),
        ({**ALONE, "shards": {"eu": "mysql://u:secret@h"}}, "Monitor, shards: 'eu': "),
    ],
)
def test_a_monitor_that_cannot_work_is_refused_by_its_field(declared: dict[str, Any], problem: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(problem)) as refused:
        a_monitor(**declared)
    assert "secret" not in str(refused.value)


def test_what_is_no_monitor_is_refused() -> None:
    with pytest.raises(DeclarationError, match=re.escape("shop.orders, monitor: 'mysql://db' is no Monitor(database=…, table=…)")):
        orders(monitor="mysql://db")


def test_a_table_without_a_database_to_compare_it_with_has_limits_all_the_same() -> None:
    monitor = Monitor(limits=Limits(quiet=dt.timedelta(minutes=10)))
    assert orders(monitor=monitor).monitor == monitor
    with pytest.raises(InvalidValueError, match=re.escape("database None: is not declared; write Monitor(database=…, table=…)")):
        monitor.url({})


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ({"behind": 5}, "Limits, behind: 5 is no positive time; write timedelta(minutes=15)"),
        ({"quiet": dt.timedelta(0)}, "Limits, quiet: datetime.timedelta(0) is no positive time"),
        ({"waiting": -1}, "Limits, waiting: -1 is no whole number of 0 or more"),
        ({"waiting": None}, "Limits, waiting: None is no whole number"),
        ({"waiting": True}, "Limits, waiting: True is no whole number"),
    ],
)
def test_limits_that_cannot_work_are_refused_by_their_field(declared: dict[str, Any], problem: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(problem)):
        Limits(**declared)
