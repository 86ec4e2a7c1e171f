"""What a statement says of a result that must stay as it was, row by row, when columns elsewhere hold something else."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lakechime_dagster.lineage.columns import Source
from lakechime_dagster.lineage.record import Statement

Column = tuple[str, str]
Columns = frozenset[Column]
Rows = Sequence[Sequence[object]]
"""A result: the values of each row, as text or numbers, by the place of their column."""


@dataclass(frozen=True)
class Told:
    """By the place of a result's column what it is told to come from, and what is told to decide on rows."""

    columns: tuple[Columns, ...]
    rows: Columns

    @staticmethod
    def of(statement: Statement, names: Iterable[str] | None = None, kept: Mapping[str, Columns] | None = None) -> "Told":
        """Of a query its columns in their order; of a write those with these names, of which one that is kept comes from these."""
        if names is None:
            return Told(tuple(_columns(one.sources) for one in statement.columns), _columns(statement.indirect))
        known = {one.column: _columns(one.sources) for one in statement.columns}
        kept = kept or {}
        return Told(tuple(known.get(name, frozenset()) | kept.get(name, frozenset()) for name in names), _columns(statement.indirect))

    @property
    def sources(self) -> Columns:
        return self.rows.union(*self.columns)

    def staying(self, perturbed: Columns) -> tuple[int, ...] | None:
        """The columns of which each row has what it had, however these hold something else; None where rows come and go."""
        if self.rows & perturbed:
            return None
        return tuple(place for place, sources in enumerate(self.columns) if not sources & perturbed)

    def poorer(self) -> Iterator[tuple[str, "Told"]]:
        """The same without one source of one column, or of the rows: what says so, and what is left."""
        for source in sorted(self.rows):
            yield f"rows by {'.'.join(source)}", replace(self, rows=self.rows - {source})
        for place, sources in enumerate(self.columns):
            for source in sorted(sources - self.rows):
                columns = (*self.columns[:place], sources - {source}, *self.columns[place + 1 :])
                yield f"{place} by {'.'.join(source)}", replace(self, columns=columns)


def perturbations(told: Told, every: Columns) -> tuple[Columns, ...]:
    """Nothing, each source by itself, and for each column all at once that it is not told to come from."""
    alone = [frozenset({source}) for source in told.sources]
    free = {every - told.rows - sources for sources in told.columns} | {every - told.sources}
    return (frozenset(), *sorted((one for one in {*alone, *free} if one), key=sorted))


def moved(told: Told, results: Mapping[Columns, Rows]) -> list[Columns]:
    """The perturbations after which something is not as it is told to stay; the result under nothing perturbed is what it was."""
    return [columns for columns, rows in results.items() if not _stays(told.staying(columns), results[frozenset()], rows)]


def unseen(told: Told, results: Mapping[Columns, Rows]) -> list[str]:
    """The sources that nobody would miss here, were they not told."""
    return [left_out for left_out, poorer in told.poorer() if not moved(poorer, results)]


def _stays(places: tuple[int, ...] | None, before: Rows, after: Rows) -> bool:
    return places is None or _at(places, before) == _at(places, after)


def _at(places: tuple[int, ...], rows: Rows) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row[place] for place in places) for row in rows)


def _columns(sources: Iterable[Source]) -> Columns:
    return frozenset((one.ref.table, one.ref.column) for one in sources if one.ref.column is not None)
