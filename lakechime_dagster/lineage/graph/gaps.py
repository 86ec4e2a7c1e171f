"""What is not known of where a data set and its columns come from, with the reason: another answer than "nothing"."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.graph.facts import TableFacts
from lakechime_dagster.lineage.record import Statement


class GapKind(StrEnum):
    """How much of a data set is not known; one that others write, of which nobody tells, ends what can be known."""

    WHOLE = "not known"
    PART = "not known in part"
    ELSEWHERE = "written elsewhere"


@dataclass(frozen=True)
class Gap:
    """That more may lead to a data set than is known, and why."""

    kind: GapKind
    reasons: tuple[str, ...]


def gap_of(table: str, told: Sequence[Statement], facts: TableFacts, planned: Statement | None) -> Gap | None:
    """The gap of a data set, by what holds of its writes, or else by what is planned; None where all is known."""
    reasons = tuple(dict.fromkeys(gaps(ColumnRef(table), told, facts, planned)))
    if not reasons:
        return None
    known = told or ([] if planned is None else [planned])
    if not known:
        return Gap(GapKind.ELSEWHERE if facts.is_source else GapKind.WHOLE, reasons)
    is_some_known = any(not column.not_known for statement in known for column in statement.columns)
    return Gap(GapKind.PART if is_some_known else GapKind.WHOLE, reasons)


def gaps(ref: ColumnRef, told: Sequence[Statement], facts: TableFacts, planned: Statement | None) -> Iterator[str]:
    """Why more may lead to a data set or a column."""
    if not told and planned is not None:
        yield f"no run that wrote {ref.table} has recorded lineage yet: only what is planned is known"
        told = (planned,)
    if not told:
        if facts.is_source:
            yield f"{ref.table} is written elsewhere, and nobody has told from what"
        elif facts.is_declared:
            yield f"no run that wrote {ref.table} has recorded lineage yet: only its declared reads are known"
        else:
            yield f"no run that wrote {ref.table} has recorded lineage"
        return
    for statement in told:
        yield from (f"{ref.table}: {reason}" for reason in statement.not_known)
        for column in statement.columns:
            if ref.column in (None, column.column):
                yield from (f"{ref.table}.{column.column}: {reason}" for reason in column.not_known)
    assigned = {column.column for one in told for column in one.columns}
    if ref.column is not None and ref.column not in assigned:
        yield f"no recorded run has assigned {ref}"
