"""The declaration of what is watched of a table that follows a database."""

import datetime as dt
import re
from typing import Any

import pytest

from lakechime_dagster.errors import DeclarationError, InvalidValueError
from lakechime_dagster.lake import Monitor
from lakechime_dagster.triggers import every
from tests.lake.test_change_tables import orders

URL = "mysql+pymysql://reader:secret@db/shop"


def a_monitor(**declared: Any) -> Monitor:
    return Monitor(**{"database": URL, "table": "shop.orders", **declared})


def test_a_table_is_declared_with_its_monitor() -> None:
    monitor = a_monitor(every=every(hours=1), columns=["amount"])
    table = orders(monitor=monitor)
    assert table.monitor == monitor
    assert (monitor.columns, orders().monitor) == (("amount",), None)


def test_the_database_may_be_named_by_a_variable() -> None:
    monitor = a_monitor(database="$SHOP_DATABASE")
    assert monitor.url({"SHOP_DATABASE": URL}) == URL
    assert monitor.shown_database == "$SHOP_DATABASE"
    with pytest.raises(InvalidValueError, match=re.escape("database '$SHOP_DATABASE': is not in the environment")):
        monitor.url({})


def test_a_password_is_not_shown() -> None:
    monitor = a_monitor()
    assert "secret" not in f"{monitor!r} {monitor} {monitor.shown_database} {orders(monitor=monitor)!r}"


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
    ],
)
def test_a_monitor_that_cannot_work_is_refused_by_its_field(declared: dict[str, Any], problem: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(problem)) as refused:
        a_monitor(**declared)
    assert "secret" not in str(refused.value)


def test_what_is_no_monitor_is_refused() -> None:
    with pytest.raises(DeclarationError, match=re.escape("shop.orders, monitor: 'mysql://db' is no Monitor(database=…, table=…)")):
        orders(monitor="mysql://db")
