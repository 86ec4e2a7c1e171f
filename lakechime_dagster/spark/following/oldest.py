"""The least order of each group of changes: only Python compares orders, which are text to Spark."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from lakechime_dagster.cdc.meaning.wire import order_of, order_text
from lakechime_dagster.cdc.order import Order
from lakechime_dagster.spark.batches import Batches, on_batches, record_batches, rows_of
from lakechime_dagster.spark.ddl import arrow_of, columns_of, ddl_of

Group = tuple[Any, ...]


def oldest(changes: DataFrame) -> dict[Group, Order]:
    """Of changes with these columns, their order the last one, the least order by all the others."""
    ddl = ddl_of(columns_of(changes.schema))
    found = on_batches(changes, Oldest(arrow_of(ddl)), ddl).collect()
    return _least(tuple(row) for row in found)


@dataclass(frozen=True)
class Oldest:
    """The same of some of them."""

    out: pa.Schema

    def __call__(self, batches: Batches) -> Batches:
        yield from record_batches([(*group, order_text(order)) for group, order in _least(rows_of(batches)).items()], self.out)


def _least(rows: Iterable[Group]) -> dict[Group, Order]:
    found: dict[Group, Order] = {}
    for *group, text in rows:
        order = order_of(text)
        found[tuple(group)] = min(found.get(tuple(group), order), order)
    return found
