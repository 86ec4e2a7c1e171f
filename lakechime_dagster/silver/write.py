"""Writes the events of one type to its table."""

import logging
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.errors import ConsumerConflictError, TableUnreadableError
from lakechime_dagster.silver.event import Variation
from lakechime_dagster.silver.results import RequestDone, TypeResult
from lakechime_dagster.silver.rows import JSON_OPTIONS, RESCUED, rows_of
from lakechime_dagster.silver.schema import KnownType
from lakechime_dagster.silver.shape import Rescue, covers
from lakechime_dagster.silver.slices import (
    NOTHING,
    Ahead,
    Slices,
    TypeCount,
    TypeTables,
    append,
    counted,
    of_types,
)
from lakechime_dagster.spark.driver import described, stack
from lakechime_dagster.spark.refresh import RowTarget
from lakechime_dagster.triggers.consumers import Committed

MAX_ROUNDS = 5  # in which others were first at one table

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ToWrite:
    """What a writer knows of its type: its schema, the variations with their kinds, and the events
    that were counted.

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
        """A type's rows in its table; an error becomes part of the result, and the type keeps its
        checkpoint.
        """
        try:
            with described():
                return self._appended(one)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other types go on
            return self.failed(one.type, error, one.count.rows)

    def failed(self, known: KnownType, error: Exception, left: int | None = None) -> TypeResult:
        """A type of which nothing was written, why, and how many rows are left behind its
        checkpoint.
        """
        return replace(
            self.begun(known),
            error=f"{type(error).__name__}: {error}".splitlines()[0],
            stack=stack(error),
            left=left,
        )

    def begun(self, known: KnownType, ahead: Ahead | None = None) -> TypeResult:
        """A type of which nothing is done yet, with the commits of other attempts that the store
        does not know.
        """
        start = self.slices.start(known.checkpoint)
        result = TypeResult(
            type=known.type,
            table=known.table,
            start=start,
            end=start,
            schema_version=known.schema_version,
        )
        return self._with_earlier(result, known, ahead)

    def _with_earlier(
        self, result: TypeResult, known: KnownType, ahead: Ahead | None
    ) -> TypeResult:
        target = self.tables.target(known)
        for commit in ahead.commits if ahead is not None else ():
            facts = commit.commit_metadata.facts  # as its writer counted the events
            rows, done = int(facts.get("rows", 0)), RequestDone.of(facts)
            if done is None:
                result = self._with(result, target, commit, rows, rows)
            else:
                written = int(facts.get("written", 0))
                result = replace(
                    result, commits=(*result.commits, commit), replayed=(*result.replayed, done)
                )
                result = _counted(result, rows, written)
        return result

    def _appended(self, one: ToWrite) -> TypeResult:
        known, count = one.type, one.count
        target, contract = self.tables.target(known), self.tables.job.group.contract_of(known.type)
        if known.checkpoint.commits and not target.log.exists():
            raise TableUnreadableError(
                f"{known.table} has events up to version {known.checkpoint.version} of "
                f"{self.slices.table}, and there is no {target.log.table_format.title()} table of "
                f"that name; put it back, or rebuild it: `lakechime schema replay "
                f"{shlex.quote(known.type)} --rebuild --reason …`"
            )
        result = replace(self.begun(known, one.ahead), columns_added=one.columns_added)
        for _ in range(MAX_ROUNDS):
            events = of_types(
                self.slices.rows(self.slices.start(known.checkpoint), one.end), [known.type]
            )
            covered, rest = covered_by(known, one.variations, count)
            rows = rows_of(events, known, contract, covered)
            held = append(
                target, rows, count.rows, self.tables.commit_metadata(known, one.end, count.rows)
            )
            if self.tables.is_own(held):
                return replace(self._with(result, target, held, count.rows, rest), end=one.end)
            ahead = self.tables.ahead(known)
            assert ahead is not None  # as it holds a commit
            if ahead.schema_version > known.schema_version:
                raise ConsumerConflictError(
                    f"{target.name} has a newer schema than was read; the next execution goes on "
                    f"behind it"
                )
            known, result = (
                replace(known, checkpoint=ahead.checkpoint),
                self._with_earlier(result, known, ahead),
            )
            count = self._left(known, one.end)
            if not count.rows:
                return replace(result, end=max(self.slices.start(known.checkpoint), one.end))
        raise RuntimeError(
            f"{MAX_ROUNDS} others were first at {target.name}; the next execution tries again"
        )

    def _left(self, known: KnownType, end: int) -> TypeCount:
        """The events between a type's checkpoint and the end; none where another attempt was
        further.
        """
        start = self.slices.start(known.checkpoint)
        return (
            NOTHING
            if start >= end
            else counted(of_types(self.slices.rows(start, end), [known.type])).get(
                known.type, NOTHING
            )
        )

    def _with(
        self, result: TypeResult, target: RowTarget, held: Committed, rows: int, rest: int
    ) -> TypeResult:
        """What a type's commits did, with one more, which brought so many events; `rest` of these
        went through our own reader, which alone rescues.
        """
        written = target.written(held).rows
        rescued, reasons = self._rescued(target, held) if rest else (0, Counter[Rescue]())
        result = replace(
            result,
            commits=(*result.commits, held),
            rescued=result.rescued + rescued,
            reasons=Counter(result.reasons) + reasons,
        )
        return _counted(result, rows, rows if written is None else written)

    def _rescued(self, target: RowTarget, held: Committed) -> tuple[int, Counter[Rescue]]:
        """How many rows of a commit that appended have a value that no column took, and how many of
        these values there are by reason; nothing where its files can be read no more.

        The rows are in the table by then, and a commit of another attempt may be counted late: that
        hinders no type.
        """
        codes = F.from_json(RESCUED, "array<struct<r:string>>", JSON_OPTIONS)
        count = None
        try:
            with described():
                count = target.known_in(held, RESCUED)
                if count == 0:
                    return 0, Counter()
                rows = target.added(self.spark, held).where(F.col(RESCUED).isNotNull())
                count = rows.count() if count is None else count
                reasons = rows.select(F.explode(codes).alias("code")).groupBy("code.r").count()
                return count, Counter({Rescue(row["r"]): row["count"] for row in reasons.collect()})
        except Exception as error:  # noqa: BLE001 - whatever it is, the rows are written
            _logger.warning(
                "%s: why values of version %s were rescued is not counted: %s",
                target.name,
                held.version,
                error,
            )
            return count or 0, Counter()


def _counted(result: TypeResult, rows: int, written: int) -> TypeResult:
    """With so many further events, of which so many have a row; the others are discarded."""
    return replace(
        result,
        rows=result.rows + rows,
        written=result.written + written,
        discarded=result.discarded + rows - written,
    )


def covered_by(
    known: KnownType, variations: Mapping[str, Variation], count: TypeCount
) -> tuple[list[str] | None, int]:
    """The variations that Spark's own reader brings into the schema, None where those are all; and
    how many events have others.
    """
    covered = [
        name
        for name in count.variations
        if name in variations and covers(known.schema, variations[name])
    ]
    rest = count.rows - sum(count.variations[name] for name in covered)
    return (covered if rest else None), rest
