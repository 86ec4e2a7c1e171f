"""Findings of a check that a person has accepted, by their keys: which are, and how long a manifest keeps that."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.planned.findings import GONE, Finding, mark_of, marks_in
from lakechime_dagster.lineage.planned.manifest import PlannedTable

Accepted = Mapping[str, str]  # why, by the key of a finding


def with_accepted(findings: Iterable[Finding], accepted: Accepted) -> tuple[Finding, ...]:
    """The findings in their order, those that are accepted with the reason."""
    return tuple(replace(one, accepted=accepted.get(one.key, "")) for one in findings)


def still_made(accepted: Accepted, tables: Iterable[PlannedTable]) -> Accepted:
    """Those of which the code of these tables still makes what was accepted.

    Any other is of a change that was taken back or followed by another one: were it kept, the same change would pass unseen when it
    comes again.
    """
    several = list(tables)
    marks = {mark for table in several for mark in _marks(table)}
    there = tuple(said for table in several for column in table.columns for said in _gone(ColumnRef(table.name, column.name)))
    return {key: why for key, why in accepted.items() if marks.issuperset(marks_in(key)) and not key.endswith(there)}


def _marks(table: PlannedTable) -> Iterator[str]:
    """All marks that a finding about the table can have."""
    yield from (table.rows, table.code or "", mark_of(dict(table.laid_out)), mark_of("; ".join(table.unknown)))
    for column in table.columns:
        yield from (column.digest, mark_of([column.type, column.digest]))


def _gone(ref: ColumnRef) -> tuple[str, str]:
    """How keys end that say of a column that it is gone."""
    return f": {ref}: {GONE}", f" {ref}, which {GONE}"
