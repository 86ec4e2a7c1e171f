"""Brings earlier events of a type into the columns that it has by now, in one commit of its own.

A replay is a step of its type like any other: its commit follows those that the table has, so that whoever appends at the same
time is let in before it or not at all. What is as it should be is not written: done again, a replay changes nothing.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructType

from lakechime_dagster.errors import LaneConflictError
from lakechime_dagster.schema.replay import Replay, Replayed, settled_variations
from lakechime_dagster.schema.repository import KnownType, SchemaRepository, TypePlace
from lakechime_dagster.schema.results import TypeResult
from lakechime_dagster.schema.shape import covers
from lakechime_dagster.schema.variation import Variation
from lakechime_dagster.spark.commit import commit, merge
from lakechime_dagster.spark.compare import Difference, keyed_difference
from lakechime_dagster.spark.drivers.failures import described
from lakechime_dagster.spark.events.rows import rows_of
from lakechime_dagster.spark.events.slices import Slices, of_types
from lakechime_dagster.spark.events.tables import TypeTables
from lakechime_dagster.spark.names import column

KEY, NUMBER = "_src", "_schema_version"


@dataclass(frozen=True, kw_only=True)
class TypeReplayer:
    """Does the replays that are asked for, one type after the other: a merge takes its stamp from the session."""

    spark: SparkSession
    slices: Slices
    tables: TypeTables
    repository: SchemaRepository

    def replayed(self, known: KnownType, asked: Replay, result: TypeResult) -> TypeResult:
        """What a step did for a type, and the replay behind it; what hinders that is told, and the replay waits for the next step."""
        if result.waits:
            return replace(result, error=f"replay: {result.waits}", left=result.pending)
        is_at_end = self.slices.start(known.place) <= self.slices.version == result.end  # else others wrote more than it may tell of
        if result.failure or not is_at_end or not (known.place.commits or result.committed):
            return result
        commits = result.committed.stamp.step if result.committed is not None else known.place.commits
        place = TypePlace(uid=self.slices.end.table_uid, version=result.end, commits=commits)
        try:
            with described():
                return self._merged(replace(known, place=place), asked, result)
        except Exception as error:  # noqa: BLE001 - whatever it is, what was appended is settled, and the other types go on
            return replace(result, error=f"replay: {type(error).__name__}: {error}".splitlines()[0])

    def _merged(self, known: KnownType, asked: Replay, result: TypeResult) -> TypeResult:
        target = replace(self.tables.target(known), keys=(KEY,))
        with self.difference(known, asked) as found:
            done = Replayed(replay_id=asked.replay_id, replaced=found.updated, added=found.inserted)
            if found.is_empty:
                return replace(result, replayed=(*result.replayed, done))
            assert found.changes is not None
            changes = found.changes.withColumn(NUMBER, F.lit(known.layout_version))
            stamp = self.tables.replay_stamp(known, done)
            held = commit(self.spark, target, stamp, lambda: lambda: merge(self.spark, target, changes))
        if held is None or not self.tables.is_own(held):
            raise LaneConflictError(f"another attempt was first at {target.name}; the next step tries again")
        return replace(result, commits=(*result.commits, held), replayed=(*result.replayed, done))

    @contextmanager
    def difference(self, known: KnownType, asked: Replay) -> Iterator[Difference]:
        """What a replay up to the type's place would change, for as long as the block lasts."""
        new, old = self._new_and_old(known, asked)
        found = keyed_difference(new, old, (KEY,), F.lit(False), keep=True)
        try:
            yield found
        finally:
            if found.changes is not None:
                found.changes.unpersist()

    def _new_and_old(self, known: KnownType, asked: Replay) -> tuple[DataFrame, DataFrame]:
        """The rows that the events give by now, and those that are there, both of the variations alone that may differ."""
        group = self.tables.job.group
        variations = self.repository.variations(group.name, [known.type])[known.type]
        held = self.tables.target(known).read(self.spark)
        settled = [] if asked.is_whole else self._settled(known, held, variations)
        events = of_types(self.slices.after(-1), [known.type])
        rest, there = _without(events, "hash", settled), _without(held, "_hash", settled)
        covered = [name for name, one in variations.items() if covers(known.layout, one)]
        rows = rows_of(rest, known, group.contract_of(known.type), covered).drop(NUMBER)
        return rows, _widened(there, rows.schema)

    def _settled(self, known: KnownType, held: DataFrame, variations: Mapping[str, Variation]) -> list[str]:
        oldest = {row["_hash"]: row["oldest"] for row in held.groupBy("_hash").agg(F.min(NUMBER).alias("oldest")).collect()}
        layouts = self.repository.layouts(self.tables.job.group.name, known.type)
        return sorted(settled_variations(variations, layouts, oldest))


def _without(rows: DataFrame, name: str, hashes: list[str]) -> DataFrame:
    return rows.where(~F.col(name).isin(*hashes)) if hashes else rows


def _widened(rows: DataFrame, wanted: StructType) -> DataFrame:
    """Rows with all these columns, and all their fields, so far as they lack them."""
    had = {field.name: field.dataType for field in rows.schema}
    return rows.select(
        *(_as(column(one.name) if one.name in had else None, had.get(one.name), one.dataType).alias(one.name) for one in wanted)
    )  # fmt: skip


def _as(value: Column | None, had: DataType | None, wanted: DataType) -> Column:
    if value is None or had is None:
        return F.lit(None).cast(wanted)
    if isinstance(wanted, StructType) and isinstance(had, StructType) and had != wanted:
        types = {field.name: field.dataType for field in had}
        fields = [
            _as(value.getField(one.name) if one.name in types else None, types.get(one.name), one.dataType).alias(one.name)
            for one in wanted
        ]
        return F.when(value.isNotNull(), F.struct(*fields)).cast(wanted)
    if isinstance(wanted, ArrayType) and isinstance(had, ArrayType) and had != wanted:
        return F.transform(value, lambda item: _as(item, had.elementType, wanted.elementType)).cast(wanted)
    return value
