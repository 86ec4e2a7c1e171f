"""Replays and rebuilds types from their stream's table."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructType

from lakechime_dagster.errors import ConsumerConflictError, TableUnreadableError
from lakechime_dagster.silver.results import Replay, Replayed, TypeResult
from lakechime_dagster.silver.rows import rows_of
from lakechime_dagster.silver.schema import KnownType, SchemaRepository, TypeCheckpoint, kept_of, relearned
from lakechime_dagster.silver.shape import covers
from lakechime_dagster.silver.slices import (
    FEW_ROWS,
    NOTHING,
    PROPERTIES,
    Ahead,
    Slices,
    TypeCount,
    TypeTables,
    counted,
    of_types,
    prototypes,
)
from lakechime_dagster.silver.write import TypeWriter, covered_by
from lakechime_dagster.spark.commit import Target, commit, keep_listed, merge, properties_of
from lakechime_dagster.spark.driver import described
from lakechime_dagster.spark.rows import Difference, keyed_difference, same_type
from lakechime_dagster.spark.session import column

KEY, NUMBER, RESCUED = "_src", "_schema_version", "_rescued"


@dataclass(frozen=True, kw_only=True)
class TypeReplayer:
    """Does the replays that are asked for, one type after the other: a merge takes its commit metadata from the session."""

    spark: SparkSession
    slices: Slices
    tables: TypeTables
    repository: SchemaRepository

    def replayed(self, known: KnownType, asked: Replay, result: TypeResult) -> TypeResult:
        """What a step did for a type, and the replay behind it; what hinders that is told, and the replay waits for the next step."""
        if result.waits:
            return replace(result, error=f"replay: {result.waits}", left=result.pending)
        is_at_end = self.slices.start(known.checkpoint) <= self.slices.version == result.end  # else others wrote more than it may tell of
        if result.failure or not is_at_end or not (known.checkpoint.commits or result.committed):
            return result
        commits = result.committed.commit_metadata.step if result.committed is not None else known.checkpoint.commits
        checkpoint = TypeCheckpoint(uid=self.slices.end.table_uid, version=result.end, commits=commits)
        try:
            with described():
                return self._merged(replace(known, checkpoint=checkpoint), asked, result)
        except Exception as error:  # noqa: BLE001 - whatever it is, what was appended is completed, and the other types go on
            return replace(result, error=f"replay: {type(error).__name__}: {error}".splitlines()[0])

    def _merged(self, known: KnownType, asked: Replay, result: TypeResult) -> TypeResult:
        target = replace(self.tables.target(known), keys=(KEY,))
        with self.difference(known) as found:
            done = Replayed(replay_id=asked.replay_id, replaced=found.updated, added=found.inserted)
            if found.is_empty:
                return replace(result, replayed=(*result.replayed, done))
            assert found.changes is not None
            changes = found.changes.withColumn(NUMBER, F.lit(known.schema_version))
            commit_metadata = self.tables.replay_commit_metadata(known, done)
            held = commit(self.spark, target, commit_metadata, lambda: lambda: merge(self.spark, target, changes))
        if held is None or not self.tables.is_own(held):
            raise ConsumerConflictError(f"another attempt was first at {target.name}; the next step tries again")
        return replace(result, commits=(*result.commits, held), replayed=(*result.replayed, done))

    @contextmanager
    def difference(self, known: KnownType) -> Iterator[Difference]:
        """What a replay up to the type's checkpoint would change, for as long as the block lasts."""
        new, old = self._new_and_old(known)
        found = keyed_difference(new, old, (KEY,), F.lit(False), keep=True)
        try:
            yield found
        finally:
            if found.changes is not None:
                found.changes.unpersist()

    def _new_and_old(self, known: KnownType) -> tuple[DataFrame, DataFrame]:
        """The rows that the events give by now, and those that are there."""
        group, events = self.tables.job.group, of_types(self.slices.after(-1), [known.type])
        variations = self.repository.variations(group.name, [known.type])[known.type]
        covered = [name for name, one in variations.items() if covers(known.schema, one)]
        rows = rows_of(events, known, group.contract_of(known.type), covered).drop(NUMBER)
        return rows, _widened(self.tables.target(known).read(self.spark), rows.schema)


def _widened(rows: DataFrame, wanted: StructType) -> DataFrame:
    """Rows with all these columns, and all their fields, so far as they lack them."""
    had = {field.name: field.dataType for field in rows.schema}
    return rows.select(
        *(_as(column(one.name) if one.name in had else None, had.get(one.name), one.dataType).alias(one.name) for one in wanted)
    )


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


@dataclass(frozen=True, kw_only=True)
class Anew:
    """A type's table as its events give it by now.

    Attributes:
        known: With the schema that is made anew.
        rows: All of them.
        count: The events.
    """

    known: KnownType
    rows: DataFrame
    count: TypeCount


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """What a rebuild would do to a table.

    Attributes:
        done: The rows, in comparison with those that are there.
        is_same: Nothing would be another: no commit.
        events: Behind the type's checkpoint, where these can be told; `came` of them have a row.
        rescued: Of these the ones that have something in `_rescued`.
    """

    done: Replayed
    is_same: bool
    events: int = 0
    came: int = 0
    rescued: int = 0


@dataclass(frozen=True, kw_only=True)
class TypeRebuilder:
    """Makes tables anew, one after the other: a commit takes its commit metadata from the session."""

    spark: SparkSession
    slices: Slices
    writer: TypeWriter
    repository: SchemaRepository

    def rebuilt(self, known: KnownType, asked: Replay, ahead: Ahead | None) -> TypeResult:
        """The table of a type made anew; what hinders that is told, the type keeps its checkpoint, and the rebuild waits for the next
        step.
        """
        try:
            with described():
                if self.slices.start(known.checkpoint) > self.slices.version:
                    raise ConsumerConflictError(f"its table has more than this step may read; the next step makes {known.type} anew")
                anew = self.learnt(known)
                return self._committed(known, asked, anew, self.writer.with_earlier(self.writer.begun(known), known, ahead))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other types go on
            failed = self.writer.failed(known, error, None)
            return replace(failed, error=f"rebuild: {failed.error}")

    def learnt(self, known: KnownType, *, is_kept: bool = True) -> Anew:
        """What all events of a type tell of it, kept by the store before its table is touched, and the rows that they give."""
        group, events = self.writer.tables.job.group, of_types(self.slices.after(-1), [known.type])
        contract = group.contract_of(known.type)
        count = counted(events).get(known.type, NOTHING)
        variations = dict(self.repository.variations(group.name, [known.type])[known.type])
        wanted = {known.type: {*count.variations} - {*variations}}
        found = prototypes(events, wanted, self.slices.version, wanted if count.is_cut else ()).get(known.type, [])
        variations |= kept_of(found)
        learning = relearned(known, found, contract)
        version = self.repository.learn(group.name, [learning])[known.type] if is_kept else known.schema_version
        after = learning.known_after(known, version)
        covered, _ = covered_by(after, variations, count)
        return Anew(known=after, rows=rows_of(events, after, contract, covered), count=count)

    def compared(self, known: KnownType, asked: Replay, anew: Anew) -> Rebuilt:
        """What the rows, which are to be in memory, would do to the table that is there."""
        target, rows = self.writer.tables.target(known), anew.rows
        total = rows.count()
        events, came, rescued = self._came(known, rows)
        if not target.log.exists():
            done = Replayed(replay_id=asked.replay_id, added=total - came)
            return Rebuilt(done=done, is_same=False, events=events, came=came, rescued=rescued)
        old = target.read(self.spark)
        is_same = rows.columns == old.columns and all(same_type(one.dataType, old.schema[one.name].dataType) for one in rows.schema)
        new, there = (rows.drop(NUMBER), old.drop(NUMBER)) if is_same else (rows.select(KEY), old.select(KEY))
        found = keyed_difference(new, there, (KEY,))
        done = Replayed(
            replay_id=asked.replay_id,
            replaced=found.updated if is_same else found.unchanged,
            added=max(0, found.inserted - came),
            removed=found.deleted,
        )
        is_same = is_same and found.is_empty and found.unchanged == total
        return Rebuilt(done=done, is_same=is_same, events=events, came=came, rescued=rescued)

    def _came(self, known: KnownType, rows: DataFrame) -> tuple[int, int, int]:
        """The events behind a type's checkpoint, their rows, and those with something rescued; nothing where they cannot be told apart."""
        try:
            events = of_types(self.slices.after(self.slices.start(known.checkpoint)), [known.type]).select(KEY)
        except TableUnreadableError:
            return 0, 0, 0
        is_rescued = F.count_if(F.col(RESCUED).isNotNull())
        told = rows.join(events, KEY, "left_semi").agg(F.count(F.lit(1)), is_rescued).collect()[0]
        return events.count(), int(told[0]), int(told[1])

    def _committed(self, known: KnownType, asked: Replay, anew: Anew, result: TypeResult) -> TypeResult:
        target, rows = self.writer.tables.target(known), anew.rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            found = self.compared(known, asked, replace(anew, rows=rows))
            reached = replace(
                result,
                end=self.slices.version,
                rows=result.rows + found.events,
                written=result.written + found.came,
                rescued=result.rescued + found.rescued,
                discarded=result.discarded + found.events - found.came,
                replayed=(*result.replayed, found.done),
                schema_version=anew.known.schema_version,
            )
            if found.is_same:
                return reached
            start, end = self.slices.start(known.checkpoint), self.slices.version
            keep_listed(self.spark, self.writer.tables.target(anew.known), rows.schema)
            commit_metadata = self.writer.tables.rebuild_commit_metadata(anew.known, start, end, found.events, found.came, found.done)
            held = commit(self.spark, target, commit_metadata, lambda: lambda: _replace(target, rows, anew.count.rows))
        finally:
            rows.unpersist()
        if held is None or not self.writer.tables.is_own(held):
            raise ConsumerConflictError(f"another attempt was first at {target.name}; the next step tries again")
        return replace(reached, commits=(*reached.commits, held))


def _replace(target: Target, rows: DataFrame, count: int) -> None:
    """A commit that leaves nothing of what was there, be it rows or columns."""
    made = {} if target.log.exists() else PROPERTIES | properties_of(rows.schema, target)
    one = rows.coalesce(1) if count <= FEW_ROWS else rows
    one.write.format("delta").mode("overwrite").option("overwriteSchema", "true").options(**made).save(target.location)
