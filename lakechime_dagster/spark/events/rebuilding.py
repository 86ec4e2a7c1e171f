"""Makes the table of a type anew: all its events are read again up to the step's end, and one commit replaces what is there.

A rebuild is the step of its type, in place of an append: its commit takes the number that follows those that the table has, and
tells the step's end, to which the type's place moves with it. The layout is made anew too. The store keeps it before, and it holds
once the table has it: who is not let in behind that commit finds it there.
"""

from dataclasses import dataclass, replace

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.errors import LaneConflictError, TableUnreadableError
from lakechime_dagster.schema.learning import relearned
from lakechime_dagster.schema.replay import Replay, Replayed
from lakechime_dagster.schema.repository import KnownType, SchemaRepository, kept_of
from lakechime_dagster.schema.results import TypeResult
from lakechime_dagster.spark.commit import Target, commit
from lakechime_dagster.spark.compare import keyed_difference
from lakechime_dagster.spark.drivers.failures import described
from lakechime_dagster.spark.events.appending import FEW_ROWS, PROPERTIES, Ahead
from lakechime_dagster.spark.events.census import NOTHING, TypeCount, counted, prototypes
from lakechime_dagster.spark.events.rows import rows_of
from lakechime_dagster.spark.events.slices import Slices, of_types
from lakechime_dagster.spark.events.writing import TypeWriter, covered_by
from lakechime_dagster.spark.shape import same_type
from lakechime_dagster.spark.statistics import keep_listed, properties_of

KEY, NUMBER, RESCUED = "_src", "_schema_version", "_rescued"


@dataclass(frozen=True, kw_only=True)
class Anew:
    """A type's table as its events give it by now.

    Attributes:
        known: With the layout that is made anew.
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
        events: Behind the type's place, where these can be told; `came` of them have a row.
        rescued: Of these the ones that have something in `_rescued`.
    """

    done: Replayed
    is_same: bool
    events: int = 0
    came: int = 0
    rescued: int = 0


@dataclass(frozen=True, kw_only=True)
class TypeRebuilder:
    """Makes tables anew, one after the other: a commit takes its stamp from the session."""

    spark: SparkSession
    slices: Slices
    writer: TypeWriter
    repository: SchemaRepository

    def rebuilt(self, known: KnownType, asked: Replay, ahead: Ahead | None) -> TypeResult:
        """The table of a type made anew; what hinders that is told, the type keeps its place, and the rebuild waits for the next step."""
        try:
            with described():
                if self.slices.start(known.place) > self.slices.version:
                    raise LaneConflictError(f"its table has more than this step may read; the next step makes {known.type} anew")
                anew = self.learnt(known, asked)
                return self._committed(known, asked, anew, self.writer.with_earlier(self.writer.begun(known), known, ahead))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other types go on
            failed = self.writer.failed(known, error, None)
            return replace(failed, error=f"rebuild: {failed.error}")

    def learnt(self, known: KnownType, asked: Replay, *, is_kept: bool = True) -> Anew:
        """What all events of a type tell of it, kept by the store before its table is touched, and the rows that they give."""
        group, events = self.writer.tables.job.group, of_types(self.slices.after(-1), [known.type])
        contract = group.contract_of(known.type)
        count = counted(events).get(known.type, NOTHING)
        variations = dict(self.repository.variations(group.name, [known.type])[known.type])
        wanted = {known.type: {*count.variations} - {*variations}}
        found = prototypes(events, wanted, self.slices.version, wanted if count.is_cut else ()).get(known.type, [])
        variations |= kept_of(found)
        learning = relearned(known, found, contract, group.cap_of(known.type))
        version = self.repository.propose(group.name, learning, asked.replay_id) if is_kept else known.layout_version
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
            replay_id=asked.replay_id, replaced=found.updated if is_same else found.unchanged, added=max(0, found.inserted - came),
            removed=found.deleted,
        )  # fmt: skip
        is_same = is_same and found.is_empty and found.unchanged == total
        return Rebuilt(done=done, is_same=is_same, events=events, came=came, rescued=rescued)

    def _came(self, known: KnownType, rows: DataFrame) -> tuple[int, int, int]:
        """The events behind a type's place, their rows, and those with something rescued; nothing where they cannot be told apart."""
        try:
            events = of_types(self.slices.after(self.slices.start(known.place)), [known.type]).select(KEY)
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
                result, end=self.slices.version, rows=result.rows + found.events, written=result.written + found.came,
                rescued=result.rescued + found.rescued, discarded=result.discarded + found.events - found.came,
                replayed=(*result.replayed, found.done), layout=anew.known.layout_version,
            )  # fmt: skip
            if found.is_same:
                self._adopt(anew.known, known.place.commits)
                return reached
            start, end = self.slices.start(known.place), self.slices.version
            keep_listed(self.spark, self.writer.tables.target(anew.known), rows.schema)
            stamp = self.writer.tables.rebuild_stamp(anew.known, start, end, found.events, found.came, found.done)
            held = commit(self.spark, target, stamp, lambda: lambda: _replace(target, rows, anew.count.rows))
        finally:
            rows.unpersist()
        if held is None or not self.writer.tables.is_own(held):
            raise LaneConflictError(f"another attempt was first at {target.name}; the next step tries again")
        self._adopt(anew.known, held.stamp.step)
        return replace(reached, commits=(*reached.commits, held))

    def _adopt(self, anew: KnownType, step: int) -> None:
        self.repository.adopt(self.writer.tables.job.group.name, anew.type, step, anew.layout_version)


def _replace(target: Target, rows: DataFrame, count: int) -> None:
    """A commit that leaves nothing of what was there, be it rows or columns."""
    made = {} if target.log.exists() else PROPERTIES | properties_of(rows.schema, target)
    one = rows.coalesce(1) if count <= FEW_ROWS else rows
    one.write.format("delta").mode("overwrite").option("overwriteSchema", "true").options(**made).save(target.location)
