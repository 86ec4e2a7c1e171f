"""Which tables are to be computed again when values of columns change, and which are spared although they lie downstream.

What is hit is what `answers` says of the network, so that a backfill runs what `lakechime lineage impact` tells.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lakechime_dagster.lake.graph import topological
from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.graph.answers import Hit, hits, not_hit
from lakechime_dagster.lineage.graph.network import network_of
from lakechime_dagster.lineage.graph.reach import Certainty
from lakechime_dagster.lineage.record import Statement


@dataclass(frozen=True, kw_only=True)
class TableHit:
    """A table that is to be computed again.

    Attributes:
        inputs: The inputs by which it is hit; none for a table whose own columns were named.
        is_sure: Its lineage is known; one of which it is not is hit all the same.
        why: In words.
    """

    table: str
    inputs: tuple[str, ...] = ()
    is_sure: bool = True
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """The tables hit, inputs before their readers, and for each other table downstream why it is spared."""

    hits: Mapping[str, TableHit] = field(default_factory=dict)
    spared: Mapping[str, str] = field(default_factory=dict)


def rerun(
    graph: Mapping[str, Sequence[str]], statements: Iterable[Statement], columns: Collection[ColumnRef], *,
    planned: Iterable[Statement] = (), leave_out: Collection[str] = (),
) -> Rerun:  # fmt: skip
    """What follows from a change of columns, or of all of a table where a column is None.

    Args:
        graph: The inputs of each table; one without inputs is written elsewhere, and is not computed.
        statements: What runs told of how tables are written; of one of which nothing is known, its inputs may lead to all of it.
        columns: What changed; a column of a computed table is to be computed there first.
        planned: What is known of those of which no run told.
        leave_out: Tables that a person wants to leave as they are, so that nothing is hit through them.
    """
    declared = [*planned, *(Statement(target=table, inputs=tuple(inputs)) for table, inputs in graph.items() if inputs)]
    network = network_of(_but(statements, leave_out), _but(declared, leave_out)).having(columns)
    found = hits(network, columns)
    reached = {one.table: one for one in found.hits}
    changed = {ref.table for ref in columns}
    told: dict[str, TableHit] = {}
    for table in topological(graph):
        if table in changed and graph[table] and table not in leave_out:
            named = ", ".join(sorted(str(ref) for ref in columns if ref.table == table))
            told[table] = TableHit(table=table, why=f"{named} is computed here")
        elif table in reached and table not in changed:
            through = tuple(name for name in dict.fromkeys(graph[table]) if name in changed or name in told)
            hit = reached[table]
            told[table] = TableHit(table=table, inputs=through, is_sure=hit.certainty < Certainty.UNSURE, why=_why(hit))
    spared = {one.table: one.reason for one in not_hit(network, columns, found) if one.table in graph}
    return Rerun(hits=told, spared=spared | dict.fromkeys((name for name in leave_out if name in graph), "left out, as was asked"))


def _but(statements: Iterable[Statement], leave_out: Collection[str]) -> list[Statement]:
    return [one for one in statements if one.target not in leave_out]


def _why(hit: Hit) -> str:
    """The last step of the way by which a table is hit."""
    if not hit.path:
        return ""
    step = hit.path[-1]
    what = "which rows there are" if step.target.column is None else step.target.column
    doubt = "unsure: " if hit.certainty >= Certainty.UNSURE else ""
    return f"{doubt}{what} comes from {step.source} ({', '.join(step.kinds)})"
