"""Partitions in Dagster: every key that a trigger resolves is one of them, at the time when the
trigger fires for it.
"""

import datetime as dt
from typing import Any

import dagster as dg
import pytest

from lakechime_dagster.assets.partitions import partitions_of
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.tables import SourceTable
from lakechime_dagster.triggers.schedule import Schedule, every, tick
from lakechime_dagster.triggers.triggers import PartitionTrigger

NOW = dt.datetime(2024, 5, 2, 12, 59, tzinfo=dt.timezone.utc)
YESTERDAY, TODAY, TOMORROW = (str(NOW.date() + dt.timedelta(days=days)) for days in (-1, 0, 1))


def partitions(levels: dict[str, str], schedule: Schedule, **specs: Any) -> dg.PartitionsDefinition:
    """The partitions of a table that is computed by the same levels as its input."""
    orders = SourceTable("bronze.orders", storage=Storage(partitioned_by=levels))
    daily = sql_table(
        "gold.daily",
        sql="SELECT * FROM bronze.orders",
        refresh="partitions",
        trigger=PartitionTrigger(orders.partitions(**specs), schedule),
        storage=Storage(partitioned_by=levels),
    )
    found = partitions_of(Lake("shop", [orders, daily]), daily)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("offset", "first", "last", "after"), [("", 2, 4, 5), ("-1d", 1, 3, 4), ("+1d", 3, 5, 6)]
)
def test_the_last_key_that_a_trigger_resolves_is_the_last_partition(
    offset: str, first: int, last: int, after: int
) -> None:
    found = partitions(
        {"day": "date"}, every(days=1, start="2013-01-02", until="2013-01-04"), day=tick(offset)
    )
    known = [day for day in range(1, 8) if found.has_partition_key(f"2013-01-0{day}")]
    assert known == list(range(first, after))
    assert known[-1] == last


@pytest.mark.parametrize(
    ("offset", "known"),
    [("-1d", [True, False, False]), ("", [True, True, False]), ("+1d", [True, True, True])],
)
def test_a_day_that_is_not_over_is_a_partition_where_the_trigger_fires_for_it(
    offset: str, known: list[bool]
) -> None:
    found = partitions(
        {"day": "date"}, every(days=1, start=NOW.date() - dt.timedelta(days=3)), day=tick(offset)
    )
    with dg.partition_loading_context(effective_dt=NOW):
        assert [found.has_partition_key(day) for day in (YESTERDAY, TODAY, TOMORROW)] == known


def test_the_partitions_are_those_of_the_level_that_the_table_has_and_not_of_another_date() -> None:
    orders = SourceTable(
        "bronze.orders", storage=Storage(partitioned_by={"load_date": "date", "event_date": "date"})
    )
    week_before = orders.partitions(load_date=tick(), event_date=tick("-7d"))
    daily = sql_table(
        "gold.daily",
        sql="SELECT * FROM bronze.orders",
        refresh="partitions",
        trigger=PartitionTrigger(
            week_before, every(days=1, start="2013-01-10", until="2013-01-12")
        ),
        storage=Storage(partitioned_by={"event_date": "date"}),
    )
    found = partitions_of(Lake("shop", [orders, daily]), daily)
    assert found is not None
    assert list(found.get_partition_keys()) == ["2013-01-03", "2013-01-04", "2013-01-05"]
