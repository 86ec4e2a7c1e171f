"""Functions whose source writes are found before they are run over empty inputs."""

from functools import partial
from typing import Any

import pytest

from lakechime_dagster.lineage.spark import writes


def reads(orders: Any) -> Any:
    """Create rows: a docstring is no statement."""
    return orders.where("amount > 0").select("id")


def overwrites(orders: Any) -> Any:
    orders.write.format("delta").mode("overwrite").save("/lake/copy")
    return orders


def by_a_helper(orders: Any) -> Any:
    return overwrites(orders)


def by_sql(orders: Any) -> Any:
    orders.sparkSession.sql(f"insert into {orders.name} SELECT 1")
    return orders


def merges(orders: Any, delta: Any) -> Any:
    delta.DeltaTable.forPath(orders.sparkSession, "/lake/copy").delete()
    return orders


def calls_itself(orders: Any) -> Any:
    return calls_itself(orders)


@pytest.mark.parametrize(
    ("function", "where"),
    [
        (reads, ""),
        (calls_itself, ""),
        (len, ""),
        (overwrites, "`write` in `overwrites`"),
        (partial(overwrites, orders=None), "`write` in `overwrites`"),
        (by_a_helper, "`write` in `overwrites`"),
        (by_sql, "`insert` in `by_sql`"),
        (merges, "`DeltaTable` in `merges`"),
    ],
)
def test_a_function_that_writes_is_named_with_what_it_calls(function: Any, where: str) -> None:
    assert writes(function) == where
