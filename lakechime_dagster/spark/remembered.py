"""What of a table's changes concerns more than their own keys, from the messages of a step and from what was remembered."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.cdc.defaults import Schema
from lakechime_dagster.cdc.epoch import Epochs, Partition
from lakechime_dagster.cdc.fold import BEFORE_ALL
from lakechime_dagster.cdc.merging import Fate
from lakechime_dagster.cdc.order import Order, Position
from lakechime_dagster.cdc.record import Beat
from lakechime_dagster.cdc.snapshot import MARKS, Snapshots
from lakechime_dagster.cdc.state import COLUMNS, Role, StateRow, change_of, change_row
from lakechime_dagster.cdc.wire import order_of, order_text
from lakechime_dagster.spark.batches import Computing
from lakechime_dagster.spark.oldest import oldest

STATE_COLUMNS = [name for name in COLUMNS if name != "step"]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Schemas, key changes, truncations, heartbeats, the first and last rows of snapshots; the frontiers, epochs and probes that are known.

    `used` are the names of a step's schemas by source, `columns` since when sources have those that are remembered, `tables` the columns
    of the database's tables where messages do not bring them. `fates`
    counts the messages whose fate is known at once, `changes` those that are remembered.
    """

    schemas: tuple[Schema, ...] = ()
    used: frozenset[tuple[str, str]] = frozenset()
    columns: tuple[StateRow, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    truncations: tuple[StateRow, ...] = ()
    marks: tuple[StateRow, ...] = ()
    places: tuple[StateRow, ...] = ()
    beats: tuple[StateRow, ...] = ()
    probes: tuple[StateRow, ...] = ()
    frontiers: tuple[StateRow, ...] = ()
    tables: tuple[StateRow, ...] = ()
    fates: Mapping[str, int] = field(default_factory=dict)
    changes: int = 0

    def ended(self, known: "Seen") -> list[StateRow]:
        """The truncations that snapshots mean which are complete with what was known before, and are not known themselves."""
        _, complete = Snapshots().with_changes(map(change_of, [*known.marks, *self.marks]))
        told = {(row.source, row.order) for row in known.truncations}
        rows = [change_row(change, Role.TRUNCATION) for change in complete]
        return [row for row in rows if (row.source, row.order) not in told]

    def added_to(self, known: "Seen", ended: Sequence[StateRow], marks: Sequence[StateRow]) -> "Seen":
        """What was known, and of this step what is to be remembered."""
        return replace(
            known, truncations=(*known.truncations, *self.truncations, *ended), marks=(*known.marks, *marks),
            places=(*known.places, *self.places), links=(*known.links, *self.links),
            beats=(*known.beats, *self.beats), probes=(*known.probes, *self.probes), columns=(*known.columns, *self.columns),
            tables=(*known.tables, *self.tables),
        )  # fmt: skip

    @cached_property
    def epochs(self) -> dict[str, Epochs]:
        """How far the epochs of each source have come."""
        found: dict[str, Epochs] = {}
        for row in self.places:
            order, epochs = order_of(row.order), found.get(row.source, Epochs())
            if row.op == OPENED:
                found[row.source] = Epochs(opened=max(epochs.opened, order.epoch), places=epochs.places)
                continue
            partition = order.topic, order.partition
            place = max(epochs.places.get(partition, (0, ())), (order.epoch, order.position))
            found[row.source] = Epochs(opened=max(epochs.opened, order.epoch), places={**epochs.places, partition: place})
        return found

    @property
    def offsets(self) -> dict[tuple[str, str, int], int]:
        """Of each source the offset up to which each partition has come."""
        found: dict[tuple[str, str, int], int] = {}
        for row in self.places:
            order = order_of(row.order)
            if row.op != OPENED:
                line = row.source, order.topic, order.partition
                found[line] = max(order.offset, found.get(line, order.offset))
        return found

    @property
    def newest_ms(self) -> dict[str, int]:
        """Of each source the newest time that it told of."""
        found: dict[str, int] = {}
        for row in self.places:
            if row.ts_ms is not None:
                found[row.source] = max(row.ts_ms, found.get(row.source, row.ts_ms))
        return found

    def beaten(self, newest_ms: Mapping[str, int]) -> dict[str, int]:
        """The newest time of each source, or that to which a heartbeat says that its log had come.

        Of what was remembered only: the messages that came before a heartbeat lie in partitions whose ends were asked after it was
        read, which a later step knows of its messages.
        """
        beats = [Beat(row.source, row.ts_ms) for row in self.beats if row.ts_ms is not None]
        return {source: max([at, *(one.ts_ms for one in beats if one.is_of(source))]) for source, at in newest_ms.items()}

    @property
    def frontier(self) -> dict[str, Order]:
        """By source the order below which it is forgotten which rows were deleted."""
        found: dict[str, Order] = {}
        for row in self.frontiers:
            order = order_of(row.order)
            found[row.source] = max(order, found.get(row.source, order))
        return found


OPENED = "opened"  # of a row of Role.PLACE that says which epoch of its source may be entered


def place_row(source: str, partition: Partition, place: tuple[int, Position], offset: int, newest_ms: int | None) -> StateRow:
    """How far a partition has come, and the newest time that it told of."""
    order = Order(epoch=place[0], position=place[1], topic=partition[0], partition=partition[1], offset=offset)
    return StateRow(Role.PLACE.value, None, source, order_text(order), ts_ms=newest_ms)


def opened_row(source: str, epoch: int) -> StateRow:
    """That an epoch of a source may be entered."""
    return StateRow(Role.PLACE.value, None, source, order_text(Order(epoch=epoch)), op=OPENED)


def seen_in(told: DataFrame) -> Seen:
    """What of the messages of a step concerns more than their keys, and the fates that are known at once."""
    is_truncation = (F.col("role") == Role.TRUNCATION.value) & (F.col("fate") == Fate.APPLIED.value)
    is_mark = (F.col("op") == "r") & F.col("snapshot").isin(*MARKS)
    found = told.agg(
        F.collect_set(F.when(F.col("types").isNotNull(), F.struct("types", "defaults"))).alias("schemas"),
        F.collect_set(F.when(_has_schema(), F.struct("source", "schema"))).alias("used"), *_common(is_truncation, is_mark),
        *[F.count_if(F.col("fate") == fate.value).alias(fate.value) for fate in Fate],
    ).collect()[0]  # fmt: skip
    return Seen(
        schemas=tuple(Schema.of_texts(*texts) for texts in found["schemas"]), used=frozenset(map(tuple, found["used"])),
        fates={fate.value: found[fate.value] for fate in Fate}, **_read(found),
    )  # fmt: skip


def seen_before(state: DataFrame) -> Seen:
    """The same of what was remembered."""
    role = F.col("role")
    found = state.agg(
        *_common(role == Role.TRUNCATION.value, role == Role.MARK.value),
        _rows(role == Role.PLACE.value).alias("places"), _rows(role == Role.FRONTIER.value).alias("frontiers"),
        _rows(role == Role.BEAT.value).alias("beats"), _rows(role == Role.PROBE.value).alias("probes"),
        _rows(role == Role.COLUMNS.value).alias("columns"),
        _rows(role == Role.SCHEMA.value).alias("tables"),
        F.count_if(role == Role.CHANGE.value).alias("changes"),
    ).collect()[0]  # fmt: skip
    rows = {name: _state_rows(found[name]) for name in ("places", "beats", "probes", "columns", "frontiers", "tables")}
    return Seen(**rows, changes=found["changes"], **_read(found))


def columns_in(told: DataFrame, seen: Seen, known: Seen, compute: Computing) -> tuple[StateRow, ...]:
    """Since when sources have the columns of schemas of a step of which nothing was known before."""
    new = seen.used - {(row.source, row.op or "") for row in known.columns}
    if not new:
        return ()
    changes = told.where(_has_schema() & F.col("schema").isin(sorted({name for _, name in new}))).select("source", "schema", "order")
    schemas = {schema.name: schema for schema in seen.schemas}
    return tuple(schemas[name].row(source, order) for (source, name), order in oldest(changes, compute).items() if (source, name) in new)


def beats_in(told: DataFrame) -> tuple[StateRow, ...]:
    """Of each server the newest heartbeat of a step."""
    newest = told.where(F.col("role") == Role.BEAT.value).groupBy("source").agg(F.max("ts_ms"))
    return tuple(StateRow(Role.BEAT.value, None, source, order_text(BEFORE_ALL), ts_ms=at) for source, at in newest.collect())


def _has_schema() -> Any:
    return F.col("schema").isNotNull() & F.col("order").isNotNull()


def _common(is_truncation: Any, is_mark: Any) -> list[Any]:
    link = F.when(F.col("continues").isNotNull(), F.struct("key", "continues"))
    return [F.collect_set(link).alias("links"), _rows(is_truncation).alias("truncations"), _rows(is_mark).alias("marks")]


def _rows(condition: Any) -> Any:
    return F.collect_list(F.when(condition, F.struct(*STATE_COLUMNS)))


def _read(found: Any) -> dict[str, Any]:
    return {
        "links": tuple((link["key"], link["continues"]) for link in found["links"]),
        "truncations": _state_rows(found["truncations"]),
        "marks": _state_rows(found["marks"]),
    }


def _state_rows(found: Sequence[Any]) -> tuple[StateRow, ...]:
    return tuple(StateRow(*row) for row in found)


def groups_of(spark: SparkSession, links: Sequence[tuple[str, str]]) -> DataFrame | None:
    """Of each key that continues another one, or is continued, the group (`linked`) that is merged together; None where no key does."""
    return spark.createDataFrame(list(components(links).items()), "key string, linked string") if links else None


def in_groups(rows: DataFrame, groups: DataFrame | None) -> DataFrame:
    """Rows in the groups of their keys, which are by themselves where they are in none."""
    if groups is None:
        return rows
    return rows.join(F.broadcast(groups), "key", "left").withColumn("group", F.coalesce("linked", "group")).drop("linked")


def orders_of(truncations: Iterable[StateRow]) -> dict[str, frozenset[Order]]:
    """By source the orders of its truncations."""
    found: dict[str, frozenset[Order]] = {}
    for row in truncations:
        found[row.source] = found.get(row.source, frozenset()) | {order_of(row.order)}
    return found


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
