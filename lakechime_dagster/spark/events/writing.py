"""Brings the events of one type into its table, from wherever that stands."""

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.dce.commits import TableCommit, TableSize
from lakechime_dagster.schema.replay import Replayed
from lakechime_dagster.schema.repository import KnownType, TypePlace
from lakechime_dagster.schema.rescue import Rescue
from lakechime_dagster.schema.results import TypeResult
from lakechime_dagster.schema.shape import covers
from lakechime_dagster.schema.variation import Variation
from lakechime_dagster.spark.commit import Target, commit_at
from lakechime_dagster.spark.delta_files import files_frame
from lakechime_dagster.spark.drivers.failures import described
from lakechime_dagster.spark.events.appending import Ahead, append_after
from lakechime_dagster.spark.events.census import NOTHING, TypeCount, counted
from lakechime_dagster.spark.events.rows import rows_of
from lakechime_dagster.spark.events.slices import Slices, of_types
from lakechime_dagster.spark.events.tables import TypeTables
from lakechime_dagster.triggers.lanes import Committed

RESCUED = "_rescued"
CODES = "array<struct<r:string>>"  # what is read of it to tell why
MAX_ROUNDS = 5  # in which others were first at one table

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ToWrite:
    """What a writer knows of its type: its layout, the variations with their kinds, and the events that were counted.

    Attributes:
        end: Up to which version of the stream's table it is read.
        ahead: What its table holds beyond what the store knows.
    """

    type: KnownType
    variations: Mapping[str, Variation]
    count: TypeCount
    end: int
    columns_added: int = 0
    ahead: Ahead | None = None


@dataclass(frozen=True, kw_only=True)
class TypeWriter:
    """Writes the tables of types, one after the other or several at a time."""

    spark: SparkSession
    slices: Slices
    tables: TypeTables

    def written(self, one: ToWrite) -> TypeResult:
        """A type's rows in its table; what hinders that is told, and the type keeps its place."""
        try:
            with described():
                return self._appended(one)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other types go on
            return self.failed(one.type, error, one.count.rows)

    def failed(self, known: KnownType, error: Exception, left: int | None) -> TypeResult:
        """A type of which nothing was written, why, and how many rows are left behind its place."""
        return replace(self._begun(known), error=f"{type(error).__name__}: {error}".splitlines()[0], left=left)

    def with_earlier(self, result: TypeResult, known: KnownType, ahead: Ahead | None) -> TypeResult:
        """What a step did for a type, with the commits of other attempts that the store does not know."""
        target = self.tables.target(known)
        for commit in ahead.commits if ahead is not None else ():
            if "replay" in commit.stamp.facts:
                result = replace(result, commits=(*result.commits, commit), replayed=(*result.replayed, _replayed(commit)))
                continue
            rows = int(commit.stamp.facts.get("rows", 0))  # as its writer counted the events
            result = self._with(result, target, commit, rows, rows)
        return result

    def _begun(self, known: KnownType) -> TypeResult:
        start = self.slices.start(known.place)
        return TypeResult(type=known.type, table=known.table, home=known.home, start=start, end=start, layout=known.layout_version)

    def _appended(self, one: ToWrite) -> TypeResult:
        known, place, count = one.type, one.type.place, one.count
        target, contract = self.tables.target(known), self.tables.job.group.contract_of(known.type)
        result = self.with_earlier(replace(self._begun(known), columns_added=one.columns_added), known, one.ahead)
        for _ in range(MAX_ROUNDS):
            start = self.slices.start(place)
            events = of_types(self.slices.between(start, one.end), [known.type])
            covered, rest = _covered(one, count)
            rows = rows_of(events, known.layout, known.layout_version, contract, covered)
            held = append_after(place, target, rows, count.rows, self.tables.stamp(known, place, start, one.end, count.rows))
            if self.tables.is_own(held):
                return replace(self._with(result, target, held, count.rows, rest), end=one.end)
            ahead = self.tables.ahead(replace(known, place=place))
            assert ahead is not None  # as it holds a commit
            place, result = ahead.place, self.with_earlier(result, known, ahead)
            count = self._left(known, place, one.end)
            if not count.rows:
                return replace(result, end=max(self.slices.start(place), one.end))
        raise RuntimeError(f"{MAX_ROUNDS} others were first at {target.name}; the next step tries again")

    def _left(self, known: KnownType, place: TypePlace, end: int) -> TypeCount:
        """The events between the place that a table tells and the end; none where another attempt was further."""
        start = self.slices.start(place)
        return counted(of_types(self.slices.between(start, end), [known.type])).get(known.type, NOTHING) if start < end else NOTHING

    def _with(self, result: TypeResult, target: Target, held: Committed, rows: int, rest: int) -> TypeResult:
        """What a type's commits did, with one more; `rest` of its events went through our own reader, which alone rescues."""
        record = commit_at(target.log, int(held.version))
        written = int(record.metrics.get("numOutputRows", TableSize.of(record.added).rows or 0))
        rescued = self._rescued(target, record) if rest else 0
        reasons = self._reasons(target, record) if rescued else {}
        return replace(
            result, commits=(*result.commits, held), rows=result.rows + rows, written=result.written + written,
            rescued=result.rescued + rescued, reasons=Counter(result.reasons) + Counter(reasons),
            discarded=result.discarded + rows - written,
        )  # fmt: skip

    def _rescued(self, target: Target, record: TableCommit) -> int:
        """How many rows of a commit that appended have a value that no column took, by its statistics where they tell."""
        if all(one.rows is not None and RESCUED in one.nulls for one in record.added):
            return sum((one.rows or 0) - one.nulls[RESCUED] for one in record.added)
        return self._rescuing(target, record).count()

    def _reasons(self, target: Target, record: TableCommit) -> dict[Rescue, int]:
        """How many values of a commit's rows no column took, by why; none where its files can be read no more.

        The rows are in the table by then, and a commit that another attempt made may be told late: that hinders no type.
        """
        try:
            with described():
                codes = self._rescuing(target, record).select(F.explode(F.from_json(RESCUED, CODES)).alias("one")).groupBy("one.r").count()
                return {Rescue(row["r"]): row["count"] for row in codes.collect()}
        except Exception as error:  # noqa: BLE001 - whatever it is, the rows are written
            _logger.warning("%s: why values of version %s were rescued is not counted: %s", target.name, record.version, error)
            return {}

    def _rescuing(self, target: Target, record: TableCommit) -> DataFrame:
        """The rows of a commit that have such a value."""
        return files_frame(self.spark, target.location, record.version, record.added).where(F.col(RESCUED).isNotNull())


def _replayed(commit: Committed) -> Replayed:
    """What a replay did that nobody settled, as its writer counted."""
    facts = commit.stamp.facts
    return Replayed(replay_id=int(facts["replay"]), replaced=int(facts["replaced"]), added=int(facts["added"]))


def _covered(one: ToWrite, count: TypeCount) -> tuple[list[str] | None, int]:
    """The variations that Spark's own reader brings into the layout, None where those are all; and how many events have others."""
    covered = [name for name in count.variations if name in one.variations and covers(one.type.layout, one.variations[name])]
    rest = count.rows - sum(count.variations[name] for name in covered)
    return (covered if rest else None), rest
