"""What a statement says of a result that must stay as it was, row by row, when columns elsewhere
hold something else.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.lineage.columns import Source, Statement

Column = tuple[str, str]
Columns = frozenset[Column]
Result = Sequence[Sequence[object]]
"""The values of each row, as text, by the checkpoint of their column."""


class LeftOut(NamedTuple):
    """A source that is not reported: of a result's column by its checkpoint, or of its rows."""

    of: str
    source: Column

    def __repr__(self) -> str:
        return f"{self.of} by {'.'.join(self.source)}"


class Way(StrEnum):
    """What a perturbed column holds: values of other rows with gaps between them, or all of its
    values the other way round.
    """

    EMPTIED = "emptied"
    REVERSED = "reversed"


@dataclass(frozen=True)
class World:
    """In which these columns hold something else."""

    perturbed: Columns
    way: Way


AS_IT_WAS = World(frozenset(), Way.REVERSED)


@dataclass(frozen=True)
class Reported:
    """By the checkpoint of a result's column what it is instructed to come from, and what is instructed to
    decide on rows.
    """

    columns: tuple[Columns, ...]
    rows: Columns

    @staticmethod
    def of_query(statement: Statement) -> "Reported":
        """Its columns in their order."""
        return Reported(
            tuple(_columns(one.sources) for one in statement.columns), _columns(statement.indirect)
        )

    @staticmethod
    def of_write(
        statement: Statement, names: Iterable[str], kept: Mapping[str, Columns]
    ) -> "Reported":
        """The target's columns with these names, of which one that is kept comes from these."""
        known = {one.column: _columns(one.sources) for one in statement.columns}
        columns = tuple(
            known.get(name, frozenset()) | kept.get(name, frozenset()) for name in names
        )
        return Reported(columns, _columns(statement.indirect))

    @property
    def sources(self) -> Columns:
        return self.rows.union(*self.columns)

    def staying(self, perturbed: Columns) -> tuple[int, ...] | None:
        """The columns of which each row has what it had, however these hold something else; None
        where rows come and go.
        """
        if self.rows & perturbed:
            return None
        return tuple(
            checkpoint for checkpoint, sources in enumerate(self.columns) if not sources & perturbed
        )

    def poorer(self) -> Iterator[tuple[LeftOut, "Reported"]]:
        """The same without one source of one column, or of the rows."""
        for source in sorted(self.rows):
            yield LeftOut("rows", source), replace(self, rows=self.rows - {source})
        for checkpoint, sources in enumerate(self.columns):
            for source in sorted(sources - self.rows):
                columns = (
                    *self.columns[:checkpoint],
                    sources - {source},
                    *self.columns[checkpoint + 1 :],
                )
                yield LeftOut(str(checkpoint), source), replace(self, columns=columns)


def worlds(reported: Reported, every: Columns) -> tuple[World, ...]:
    """As it was; each source emptied by itself; and for each column all emptied at once that it is
    not instructed to come from.
    """
    free = {every - reported.rows - sources for sources in reported.columns} | {
        every - reported.sources
    }
    emptied = {frozenset({source}) for source in reported.sources} | free - {frozenset()}
    return (AS_IT_WAS, *(World(columns, Way.EMPTIED) for columns in sorted(emptied, key=sorted)))


def turned_round(sources: Iterable[Column]) -> tuple[World, ...]:
    """Each of these by itself, the other way round."""
    return tuple(World(frozenset({source}), Way.REVERSED) for source in sorted({*sources}))


def moved(reported: Reported, results: Mapping[World, Result]) -> list[World]:
    """The worlds in which something is not as it is instructed to stay."""
    before = results[AS_IT_WAS]
    return [
        world
        for world, after in results.items()
        if not _stays(reported.staying(world.perturbed), before, after)
    ]


def unseen(reported: Reported, results: Mapping[World, Result]) -> set[LeftOut]:
    """The sources that nobody would miss here, were they not reported."""
    return {left_out for left_out, poorer in reported.poorer() if not moved(poorer, results)}


def _stays(checkpoints: tuple[int, ...] | None, before: Result, after: Result) -> bool:
    return checkpoints is None or _at(checkpoints, before) == _at(checkpoints, after)


def _at(checkpoints: tuple[int, ...], rows: Result) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row[checkpoint] for checkpoint in checkpoints) for row in rows)


def _columns(sources: Iterable[Source]) -> Columns:
    return frozenset(
        (one.ref.table, one.ref.column) for one in sources if one.ref.column is not None
    )
