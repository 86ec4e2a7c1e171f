"""Makers of test values: each names only what a test is about."""

from typing import Any

from lakechime_dagster.dce.events import DataChangeEvent


def make_event(table: str = "bronze.orders", **fields: Any) -> DataChangeEvent:
    """An event of a table; a `tags` map, a `partition` list and whatever else matters may be
    given.
    """
    return DataChangeEvent(table=table, **fields)
