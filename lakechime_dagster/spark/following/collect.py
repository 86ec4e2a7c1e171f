"""Forgets what need no longer be remembered of a table's changes, so that what is does not grow with the table's age."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakechime_dagster.cdc.meaning.scd2 import Tracked
from lakechime_dagster.cdc.meaning.soft import Soft
from lakechime_dagster.cdc.order import Order
from lakechime_dagster.cdc.remembering.collecting import collected_rows, compacted, frontier_before, open_snapshots
from lakechime_dagster.cdc.remembering.state import Role, StateRow
from lakechime_dagster.spark.batches import CHUNK, Batches, record_batches, rows_of
from lakechime_dagster.spark.ddl import arrow_of
from lakechime_dagster.spark.following.change_rows import STATE_DDL
from lakechime_dagster.spark.following.oldest import oldest
from lakechime_dagster.spark.following.remembered import Seen, orders_of
from lakechime_dagster.spark.following.rows import InWorkers, Rows

COLLECTED_DDL = f"`group` string, {STATE_DDL}"


def is_worth_while(state: DataFrame, lateness: timedelta, least: int) -> bool:
    """Whether half of what is remembered, and at least so many changes, are older than is waited for."""
    newest = state.groupBy("source").agg(F.max("ts_ms").alias("newest"))
    aged = state.where(F.col("role") == Role.CHANGE.value).join(F.broadcast(newest), "source")
    old = F.count_if(F.col("ts_ms") < F.col("newest") - _milliseconds(lateness))
    found = aged.agg(old.alias("old"), F.count(F.lit(1)).alias("rows")).collect()[0]
    return found["old"] >= max(least, found["rows"] / 2)


def collected_state(
    workers: InWorkers, state: DataFrame, seen: Seen, lateness: timedelta, groups: Mapping[str, str],
    tracked: Tracked | None, soft: Soft | None,
) -> Rows:  # fmt: skip
    """All that is still to be remembered (`STATE_DDL`) of what is; `seen` is what of it concerns more than its keys.

    Nothing is forgotten of a source of which a snapshot is being taken.
    """
    frontiers = {**seen.frontier, **_frontiers(state, lateness, open_snapshots(seen.marks))}
    rows = workers.rows(state).where({"role": [Role.BASE.value, Role.CHANGE.value]}).shaped(COLLECTED_DDL, {"group": "key"})
    together = rows.translated("group", groups) if groups else rows
    collecting = Collecting(arrow_of(STATE_DDL), orders_of(seen.truncations), frontiers, tracked, soft)
    kept = together.on_batches(collecting, STATE_DDL, by="group", keep=False)
    whole = [*seen.places, *seen.beats, *seen.probes, *seen.truncations, *seen.marks, *seen.columns, *seen.tables]
    return kept.union(workers.made(list(compacted(whole, frontiers)), STATE_DDL))


def _frontiers(state: DataFrame, lateness: timedelta, without: set[str]) -> dict[str, Order]:
    """By source the order up to which nothing is waited for any more."""
    newest = state.groupBy("source").agg(F.max("ts_ms").alias("newest"))
    changes = state.where(F.col("role") == Role.CHANGE.value).join(F.broadcast(newest), "source")
    young = changes.where(F.coalesce(F.col("ts_ms") >= F.col("newest") - _milliseconds(lateness), F.lit(True)))
    least = {source: order for (source,), order in oldest(young.select("source", "order")).items()}
    found = {source: frontier_before(order) for source, order in least.items() if source not in without}
    return {source: order for source, order in found.items() if order is not None}


def _milliseconds(lateness: timedelta) -> int:
    return lateness // timedelta(milliseconds=1)


@dataclass(frozen=True)
class Collecting:
    """Collects each group of keys, which come one group after another."""

    out: pa.Schema
    truncated: Mapping[str, frozenset[Order]]
    frontiers: Mapping[str, Order]
    tracked: Tracked | None = None
    soft: Soft | None = None

    def __call__(self, batches: Batches) -> Batches:
        found: list[tuple[Any, ...]] = []
        for rows in self._groups(batches):
            found += collected_rows(rows, self.truncated, self.frontiers, self.tracked, self.soft)
            if len(found) >= CHUNK:
                yield from record_batches(found, self.out)
                found = []
        yield from record_batches(found, self.out)

    def _groups(self, batches: Batches) -> Iterator[Sequence[StateRow]]:
        for _, rows in groupby(rows_of(batches), key=lambda row: row[0]):
            yield [StateRow(*row[1:]) for row in rows]
