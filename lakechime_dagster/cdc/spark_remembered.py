"""What of a table's changes concerns more than their own keys, and what may be forgotten of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakechime_dagster.cdc.change import Order, Position, order_of, order_text
from lakechime_dagster.cdc.history import TrackHistory
from lakechime_dagster.cdc.job import CDCJob
from lakechime_dagster.cdc.merge import Truncations
from lakechime_dagster.cdc.record import Beat
from lakechime_dagster.cdc.spark_changes import STATE_DDL
from lakechime_dagster.cdc.spark_rows import InWorkers, Rows
from lakechime_dagster.cdc.state import (
    COLUMNS,
    Partition,
    Role,
    Schema,
    SourceEpochs,
    StateRow,
    change_of,
    change_row,
    collected_rows,
    compacted,
    completed_in,
    low_watermark_before,
    open_snapshots,
    opened_epochs,
    positions_of,
    truncations_of,
)
from lakechime_dagster.spark.session import CHUNK, Batches, arrow_of, record_batches, rows_of

STATE_COLUMNS = [name for name in COLUMNS if name != "number"]
OF_SOURCES = {
    Role.TRUNCATION: "truncations",
    Role.MARK: "marks",
    Role.POSITION: "positions",
    Role.LOW_WATERMARK: "low_watermarks",
    Role.BEAT: "beats",
    Role.COLUMNS: "columns",
    Role.SCHEMA: "tables",
}


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Schemas, key changes, truncations, heartbeats, the first and last rows of snapshots; the low
    watermarks and epochs that are known.

    `used` are the names of an execution's schemas by source, with the oldest change of each,
    `columns` since when sources have those that are remembered, `tables` the columns of the
    database's tables where messages do not bring them. `outcomes` counts the messages whose outcome
    is known at once.
    """

    schemas: tuple[Schema, ...] = ()
    used: Mapping[tuple[str, str], Order] = field(default_factory=dict)
    columns: tuple[StateRow, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    truncations: tuple[StateRow, ...] = ()
    marks: tuple[StateRow, ...] = ()
    positions: tuple[StateRow, ...] = ()
    beats: tuple[StateRow, ...] = ()
    low_watermarks: tuple[StateRow, ...] = ()
    tables: tuple[StateRow, ...] = ()
    outcomes: Mapping[str, int] = field(default_factory=dict)

    def columns_met(self) -> list[list[str]]:
        """The columns of the execution's schemas, those first that have the oldest change."""
        oldest: dict[str, Order] = {}
        for (_, name), order in self.used.items():
            oldest[name] = min(order, oldest.get(name, order))
        return [
            list(one.types)
            for one in sorted(
                self.schemas, key=lambda one: (oldest.get(one.name, Order()), one.types_text)
            )
        ]

    def ended(self, known: "Seen") -> list[StateRow]:
        """The truncations that snapshots mean which are complete with what was known before, and
        are not known themselves.
        """
        complete = completed_in(map(change_of, [*known.marks, *self.marks]))
        before = {(row.source, row.order) for row in known.truncations}
        rows = [change_row(change, Role.TRUNCATION) for change in complete]
        return [row for row in rows if (row.source, row.order) not in before]

    @cached_property
    def epochs(self) -> dict[str, SourceEpochs]:
        """How far the epochs of each source have come."""
        positions = positions_of(self.positions)
        return {
            source: SourceEpochs(
                opened=opened,
                positions={
                    (one.topic, one.partition): (one.epoch, one.position)
                    for one in positions
                    if one.source == source
                },
            )
            for source, opened in opened_epochs(self.positions).items()
        }

    @cached_property
    def offsets(self) -> dict[tuple[str, str, int], int]:
        """Of each source the offset up to which each partition has come."""
        return {
            (one.source, one.topic, one.partition): one.offset
            for one in positions_of(self.positions)
        }

    @property
    def newest_ms(self) -> dict[str, int]:
        """Of each source the newest time that it reported."""
        found: dict[str, int] = {}
        for row in self.positions:
            if row.ts_ms is not None:
                found[row.source] = max(row.ts_ms, found.get(row.source, row.ts_ms))
        return found

    def beaten(self, newest_ms: Mapping[str, int]) -> dict[str, int]:
        """The newest time of each source, or that to which a heartbeat says that its log had come.

        Of what was remembered only: the messages that came before a heartbeat lie in partitions
        whose ends were asked after it was read, which a later execution knows of its messages.
        """
        beats = [Beat(row.source, row.ts_ms) for row in self.beats if row.ts_ms is not None]
        return {
            source: max([at, *(one.ts_ms for one in beats if one.is_of(source))])
            for source, at in newest_ms.items()
        }

    @property
    def low_watermark(self) -> dict[str, Order]:
        """By source the order below which it is forgotten which rows were deleted."""
        found: dict[str, Order] = {}
        for row in self.low_watermarks:
            order = order_of(row.order)
            found[row.source] = max(order, found.get(row.source, order))
        return found


def position_row(
    source: str,
    partition: Partition,
    position: tuple[int, Position],
    offset: int,
    newest_ms: int | None,
) -> StateRow:
    """How far a partition has come, and the newest time that it reported."""
    order = Order(
        epoch=position[0],
        position=position[1],
        topic=partition[0],
        partition=partition[1],
        offset=offset,
    )
    return StateRow(Role.POSITION.value, None, source, order_text(order), ts_ms=newest_ms)


def seen_before(state: Rows) -> Seen:
    """The same of what was remembered."""
    found: dict[str, list[StateRow]] = {}
    for row in state.where({"role": [role.value for role in OF_SOURCES], "continues": None}).tuples(
        *STATE_COLUMNS
    ):
        found.setdefault(row[0], []).append(StateRow(*row))
    rows: dict[str, Any] = {name: tuple(found.get(role, ())) for role, name in OF_SOURCES.items()}
    links = {
        (row.key or "", row.continues): None
        for of_role in found.values()
        for row in of_role
        if row.continues is not None
    }
    return Seen(**rows, links=tuple(links))


def columns_in(seen: Seen, known: Seen) -> tuple[StateRow, ...]:
    """Since when sources have the columns of schemas of an execution of which nothing was known
    before.
    """
    before = {(row.source, row.op or "") for row in known.columns}
    schemas = {schema.name: schema for schema in seen.schemas}
    return tuple(
        schemas[name].row(source, order)
        for (source, name), order in seen.used.items()
        if (source, name) not in before
    )


def components(links: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Of each linked key the group that is merged together, named by one of its keys."""
    parents: dict[str, str] = {}

    def root(key: str) -> str:
        while (parent := parents.setdefault(key, key)) != key:
            parents[key] = parents[parent]
            key = parents[key]
        return key

    for one, other in links:
        first, second = sorted((root(one), root(other)))
        parents[second] = first
    return {key: root(key) for key in list(parents)}


COLLECTED_DDL = f"`group` string, {STATE_DDL}"


def is_worth_while(state: DataFrame, lateness: timedelta, least: int) -> bool:
    """Whether half of what is remembered, and at least so many changes, are older than is waited
    for.
    """
    newest = state.groupBy("source").agg(F.max("ts_ms").alias("newest"))
    aged = state.where(F.col("role") == Role.CHANGE.value).join(F.broadcast(newest), "source")
    old = F.count_if(F.col("ts_ms") < F.col("newest") - _milliseconds(lateness))
    found = aged.agg(old.alias("old"), F.count(F.lit(1)).alias("rows")).collect()[0]
    return found["old"] >= max(least, found["rows"] / 2)


def collected_state(
    workers: InWorkers, state: DataFrame, seen: Seen, job: CDCJob, groups: Mapping[str, str]
) -> Rows:
    """All that is still to be remembered (`STATE_DDL`) of what is; `seen` is what of it concerns
    more than its keys.

    Nothing is forgotten of a source of which a snapshot is being taken.
    """
    low_watermarks = {
        **seen.low_watermark,
        **_low_watermarks(state, job.merge.allowed_lateness, open_snapshots(seen.marks)),
    }
    rows = (
        workers.rows(state)
        .where({"role": [Role.BASE.value, Role.CHANGE.value]})
        .shaped(COLLECTED_DDL, {"group": "key"})
    )
    together = rows.translated("group", groups) if groups else rows
    collecting = Collecting(
        arrow_of(STATE_DDL),
        truncations_of(seen.truncations),
        low_watermarks,
        job.track,
        job.keeps_deleted,
    )
    kept = together.on_batches(collecting, STATE_DDL, by="group", keep=False)
    whole = [
        *seen.positions,
        *seen.beats,
        *seen.truncations,
        *seen.marks,
        *seen.columns,
        *seen.tables,
    ]
    return kept.union(workers.made(list(compacted(whole, low_watermarks)), STATE_DDL))


def _low_watermarks(state: DataFrame, lateness: timedelta, without: set[str]) -> dict[str, Order]:
    """By source the order up to which nothing is waited for any more."""
    newest = state.groupBy("source").agg(F.max("ts_ms").alias("newest"))
    changes = state.where(F.col("role") == Role.CHANGE.value).join(F.broadcast(newest), "source")
    young = changes.where(
        F.coalesce(F.col("ts_ms") >= F.col("newest") - _milliseconds(lateness), F.lit(True))
    )
    epoch = F.get_json_object("order", "$[0]").cast("int")
    position = F.from_json(F.get_json_object("order", "$[1]"), "array<bigint>")
    least = young.groupBy("source").agg(F.min(F.struct(epoch, position)))
    found = {
        source: low_watermark_before(Order(epoch, tuple(position or ())))
        for source, (epoch, position) in least.collect()
        if source not in without
    }
    return {source: order for source, order in found.items() if order is not None}


def _milliseconds(lateness: timedelta) -> int:
    return lateness // timedelta(milliseconds=1)


@dataclass(frozen=True)
class Collecting:
    """Collects each group of keys, which come one group after another."""

    out: pa.Schema
    truncated: Truncations
    low_watermarks: Mapping[str, Order]
    track: TrackHistory | None
    keeps_deleted: bool

    def __call__(self, batches: Batches) -> Batches:
        found: list[tuple[Any, ...]] = []
        for rows in self._groups(batches):
            found += collected_rows(
                rows,
                self.truncated,
                self.low_watermarks,
                self.track,
                keeps_deleted=self.keeps_deleted,
            )
            if len(found) >= CHUNK:
                yield from record_batches(found, self.out)
                found = []
        yield from record_batches(found, self.out)

    def _groups(self, batches: Batches) -> Iterator[Sequence[StateRow]]:
        for _, rows in groupby(rows_of(batches), key=lambda row: row[0]):
            yield [StateRow(*row[1:]) for row in rows]
