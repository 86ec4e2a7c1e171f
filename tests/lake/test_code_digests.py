"""A table's code digest: another when its function's own source or its SQL says something else, and the same for comments and layout."""

import functools
from collections.abc import Callable
from typing import Any

from lakechime_dagster.tables.declare import spark_table, sql_table
from lakechime_dagster.tables.tables import SourceTable, code_digest
from tests.support.declaring import grouped

orders = SourceTable("bronze.orders")


def of(function: Any, **fields: Any) -> str:
    return code_digest(spark_table("silver.paid", keys=["id"], reads={"orders": orders.changes()}, **grouped(**fields))(function))


def plain() -> Callable[..., Any]:
    def paid(orders: Any) -> Any:
        return orders.where("amount > 0")

    return paid


def commented() -> Callable[..., Any]:
    @functools.cache
    def paid(orders: Any) -> Any:
        """Orders that are paid."""
        # more than nothing
        return orders.where("amount > 0")

    return paid


def other() -> Callable[..., Any]:
    def paid(orders: Any) -> Any:
        return orders.where("amount > 1")

    return paid


class Paid:
    def __call__(self, orders: Any) -> Any:
        return orders


def test_the_digest_of_a_function_is_that_of_what_its_source_says() -> None:
    assert of(plain()) == of(plain()) == of(commented()) != of(other())
    assert of(functools.partial(plain())) == of(plain())
    whole = of(lambda orders: orders)
    assert whole != of(lambda orders: orders.limit(1))
    assert of(Paid()) == of(Paid()) != of(plain())


def test_a_declared_code_version_is_the_digest_of_a_function() -> None:
    first, second = ({"code_version": version} for version in ("1", "2"))
    assert of(plain(), dagster=first) == of(other(), dagster=first) != of(plain(), dagster=second)


SAME_AND_OTHER = ("SELECT 1 AS id FROM bronze.orders", "select 1 as id -- one\nfrom bronze.orders", "SELECT 2 AS id FROM bronze.orders")


def test_the_digest_of_sql_is_that_of_what_it_says() -> None:
    said, spaced, other = (sql_table("silver.paid", sql=sql, keys=["id"]) for sql in SAME_AND_OTHER)
    assert code_digest(said) == code_digest(spaced) != code_digest(other)
