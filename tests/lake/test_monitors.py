"""The declaration of what is watched of a table that follows a database."""

import datetime as dt
import re
from typing import Any

import pytest

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.tables.databases import Database, Monitor
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


def test_a_password_is_not_shown() -> None:
    monitor = a_monitor()
    assert "secret" not in f"{monitor!r} {monitor} {orders(monitor=monitor)!r}"


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ({"database": "oracle://u:secret@h/d"}, "Monitor, database: 'oracle://u:***@h/d' is neither mysql+pymysql://"),
        ({"table": "orders"}, "Monitor, table: 'orders' is no schema.table of the database, such as shop.orders"),
        ({"every": 5}, "Monitor, every: 5 is no schedule; write every(hours=1)"),
        ({"within": dt.timedelta(-1)}, "is no time; write timedelta(minutes=2)"),
        ({"shards": {"eu": EU}}, "Monitor, shards: is declared beside database=; a table follows one database, or shards"),
        ({**ALONE, "shards": ["eu"]}, "Monitor, shards: ['eu'] is no mapping; write {'eu': Database(url, 'shop.orders')}"),
        ({**ALONE, "shards": {"eu": "mysql://u:secret@h"}}, "Monitor, shards: 'eu': "),
    ],
)
def test_a_monitor_that_cannot_work_is_refused_by_its_field(declared: dict[str, Any], problem: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(problem)) as refused:
        a_monitor(**declared)
    assert "secret" not in str(refused.value)
