"""Replays and rebuilds types from their stream's table."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

from lakechime_dagster.errors import ConsumerConflictError, TableUnreadableError
from lakechime_dagster.silver.results import Request, RequestDone, TypeResult
from lakechime_dagster.silver.rows import JSON_OPTIONS, RESCUED, rows_of
from lakechime_dagster.silver.schema import KnownType, TypeCheckpoint, kept_of, learned
from lakechime_dagster.silver.shape import covers
from lakechime_dagster.silver.slices import (
    NOTHING,
    Ahead,
    Slices,
    TypeTables,
    counted,
    in_few_files,
    of_types,
    prototypes,
)
from lakechime_dagster.silver.store import SqlEventTypes
from lakechime_dagster.silver.write import TypeWriter, covered_by
from lakechime_dagster.spark.commit import commit
from lakechime_dagster.spark.driver import described
from lakechime_dagster.spark.rows import Difference, keyed_difference, same_type
from lakechime_dagster.spark.session import column

KEY, NUMBER = "_src", "_schema_version"


@dataclass(frozen=True, kw_only=True)
class TypeReplayer:
    """Does the replays that are requested, one type after the other: a merge takes its commit
    metadata from the session.
    """

    spark: SparkSession
    slices: Slices
    tables: TypeTables
    repository: SqlEventTypes

    def replayed(self, known: KnownType, asked: Request, result: TypeResult) -> TypeResult:
        """The result of a type with that of its replay; an error becomes part of it, and the replay
        waits for the next execution.
        """
        if result.waits:
            return replace(result, error=f"replay: {result.waits}", left=result.pending)
        # else others wrote more than it may read
        is_at_end = self.slices.start(known.checkpoint) <= self.slices.version == result.end
        if result.failure or not is_at_end or not (known.checkpoint.commits or result.committed):
            return result
        commits = (
            result.committed.commit_metadata.number
            if result.committed is not None
            else known.checkpoint.commits
        )
        checkpoint = TypeCheckpoint(
            uid=self.slices.end.table_uid, version=result.end, commits=commits
        )
        try:
            with described():
                return self._merged(replace(known, checkpoint=checkpoint), asked, result)
        except Exception as error:  # noqa: BLE001 - whatever it is, what was appended is completed, and the other types go on
            return replace(result, error=f"replay: {type(error).__name__}: {error}".splitlines()[0])

    def _merged(self, known: KnownType, asked: Request, result: TypeResult) -> TypeResult:
        target = replace(self.tables.target(known), keys=(KEY,))
        with self.difference(known) as found:
            done = RequestDone(
                request_id=asked.request_id, replaced=found.updated, added=found.inserted
            )
            if found.is_empty:
                return replace(result, replayed=(*result.replayed, done))
            assert found.changes is not None
            changes = found.changes.withColumn(NUMBER, F.lit(known.schema_version))
            commit_metadata = self.tables.commit_metadata(known, known.checkpoint.version, 0, done)
            held = commit(
                self.spark, target, commit_metadata, lambda: lambda: target.merge(changes)
            )
        if held is None or not self.tables.is_own(held):
            raise ConsumerConflictError(
                f"another attempt was first at {target.name}; the next execution tries again"
            )
        return replace(result, commits=(*result.commits, held), replayed=(*result.replayed, done))

    @contextmanager
    def difference(self, known: KnownType) -> Iterator[Difference]:
        """What a replay up to the type's checkpoint would change, for as long as the block
        lasts.
        """
        new, old = self._new_and_old(known)
        found = keyed_difference(new, old, (KEY,), F.lit(False), keep=True)
        try:
            yield found
        finally:
            if found.changes is not None:
                found.changes.unpersist()

    def _new_and_old(self, known: KnownType) -> tuple[DataFrame, DataFrame]:
        """The rows that the events give now, and those that are there."""
        group, events = self.tables.job.group, of_types(self.slices.rows(-1), [known.type])
        variations = self.repository.variations(group.name, [known.type])[known.type]
        covered = [name for name, one in variations.items() if covers(known.schema, one)]
        rows = rows_of(events, known, group.contract_of(known.type), covered).drop(NUMBER)
        target = self.tables.target(known)
        target.begin()
        return rows, _widened(target.read(self.spark), rows.schema)


def _widened(rows: DataFrame, wanted: StructType) -> DataFrame:
    """Rows whose structs have the fields of these columns too; by way of JSON, as no cast adds a
    field.
    """
    types = {one.name: one.dataType for one in rows.schema}
    wider = {
        one.name: F.from_json(F.to_json(column(one.name)), one.dataType, JSON_OPTIONS)
        for one in wanted
        if isinstance(one.dataType, ArrayType | StructType)
        and one.name in types
        and not same_type(one.dataType, types[one.name])
    }
    return rows.withColumns(wider) if wider else rows


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """What a rebuild would do to a table.

    Attributes:
        known: The type with the schema that is made from all its events.
        done: The rows, in comparison with those that are there.
        is_same: Nothing would change: no commit.
        total: The rows of the table then.
        events: Behind the type's checkpoint, where these are known; `came` of them have a row.
        rescued: Of these the ones that have something in `_rescued`.
    """

    known: KnownType
    done: RequestDone
    is_same: bool
    total: int
    events: int
    came: int
    rescued: int


@dataclass(frozen=True, kw_only=True)
class TypeRebuilder:
    """Rebuilds tables, one after the other: a commit takes its commit metadata from the session."""

    spark: SparkSession
    slices: Slices
    writer: TypeWriter
    repository: SqlEventTypes

    def rebuilt(self, known: KnownType, asked: Request, ahead: Ahead | None) -> TypeResult:
        """The table of a type rebuilt; an error becomes part of the result, the type keeps its
        checkpoint and its schema, and the rebuild waits for the next execution.
        """
        try:
            with described():
                if self.slices.start(known.checkpoint) > self.slices.version:
                    raise ConsumerConflictError(
                        f"its table has more than this execution may read; the next one rebuilds "
                        f"{known.type}"
                    )
                return self._committed(known, asked, self.writer.begun(known, ahead))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other types go on
            failed = self.writer.failed(known, error)
            return replace(failed, error=f"rebuild: {failed.error}")

    @contextmanager
    def compared(
        self, known: KnownType, request_id: int = 0, *, is_kept: bool = False
    ) -> Iterator[tuple[Rebuilt, DataFrame]]:
        """What a rebuild would do, and the rows, which are in memory for as long as the block
        lasts.

        `is_kept` has the store keep the schema, which holds once the table's commit is completed.
        """
        after, rows = self._learnt(known, is_kept=is_kept)
        rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            yield self._difference(known, after, rows, request_id), rows
        finally:
            rows.unpersist()

    def _learnt(self, known: KnownType, *, is_kept: bool) -> tuple[KnownType, DataFrame]:
        """The type by all of its events, and the rows that they give."""
        group, events = self.writer.tables.job.group, of_types(self.slices.rows(-1), [known.type])
        contract, counts = group.contract_of(known.type), counted(events)
        variations = self.repository.variations(group.name, [known.type])
        found = prototypes(events, counts, variations).get(known.type, [])
        learning, after = learned(known, found, contract, is_rebuild=True), known
        if learning is not None:
            version = (
                self.repository.learn(group.name, [learning])[known.type]
                if is_kept
                else known.schema_version
            )
            after = learning.known_after(known, version)
        covered, _ = covered_by(
            after, {**variations[known.type], **kept_of(found)}, counts.get(known.type, NOTHING)
        )
        return after, rows_of(events, after, contract, covered)

    def _difference(
        self, known: KnownType, after: KnownType, rows: DataFrame, request_id: int
    ) -> Rebuilt:
        target, total = self.writer.tables.target(known), rows.count()
        events, came, rescued = self._came(known, rows)
        done, is_same = RequestDone(request_id=request_id, added=total - came), False
        if target.log.exists():
            target.begin()
            old = target.read(self.spark)
            is_same = rows.columns == old.columns and all(
                same_type(one.dataType, old.schema[one.name].dataType) for one in rows.schema
            )
            new, there = (
                (rows.drop(NUMBER), old.drop(NUMBER))
                if is_same
                else (rows.select(KEY), old.select(KEY))
            )
            found = keyed_difference(new, there, (KEY,))
            replaced = found.updated if is_same else found.unchanged
            done = replace(
                done, replaced=replaced, added=max(0, found.inserted - came), removed=found.deleted
            )
            is_same = is_same and found.is_empty and found.unchanged == total
        return Rebuilt(
            known=after,
            done=done,
            is_same=is_same,
            total=total,
            events=events,
            came=came,
            rescued=rescued,
        )

    def _came(self, known: KnownType, rows: DataFrame) -> tuple[int, int, int]:
        """The events behind a type's checkpoint, their rows, and those with something rescued;
        nothing where they are not known.
        """
        try:
            events = of_types(
                self.slices.rows(self.slices.start(known.checkpoint)), [known.type]
            ).select(KEY)
        except TableUnreadableError:
            return 0, 0, 0
        is_rescued = F.count_if(F.col(RESCUED).isNotNull())
        counts = rows.join(events, KEY, "left_semi").agg(F.count(F.lit(1)), is_rescued).collect()[0]
        return events.count(), int(counts[0]), int(counts[1])

    def _committed(self, known: KnownType, asked: Request, result: TypeResult) -> TypeResult:
        with self.compared(known, asked.request_id, is_kept=True) as (found, rows):
            reached = replace(
                result,
                end=self.slices.version,
                rows=result.rows + found.events,
                written=result.written + found.came,
                rescued=result.rescued + found.rescued,
                discarded=result.discarded + found.events - found.came,
                replayed=(*result.replayed, found.done),
                schema_version=found.known.schema_version,
            )
            if found.is_same:
                return reached
            target = self.writer.tables.target(found.known)
            target.prepare(self.spark, rows.schema)
            after = replace(found.known, checkpoint=known.checkpoint)
            commit_metadata = self.writer.tables.commit_metadata(
                after, reached.end, found.events, found.done, written=found.came
            )
            held = commit(
                self.spark,
                target,
                commit_metadata,
                lambda: lambda: target.replace_all(in_few_files(rows, found.total)),
            )
        if held is None or not self.writer.tables.is_own(held):
            raise ConsumerConflictError(
                f"another attempt was first at {target.name}; the next execution tries again"
            )
        return replace(reached, commits=(*reached.commits, held))
