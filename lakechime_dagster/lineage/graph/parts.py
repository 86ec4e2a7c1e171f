"""How a data set, or a column of one, takes part in a statement, in small numbers."""

from enum import IntFlag

from lakechime_dagster.lineage.columns import ColumnRef, Kind
from lakechime_dagster.lineage.record import Statement


class Part(IntFlag):
    """DIRECT: values of it come in. INDIRECT: values of it decide. UNSURE: either may be, since something could not be told.

    One that is read and has none of them decides only by how many rows it has. DECLARED is one that was declared, and no run told of.
    """

    DIRECT = 1
    INDIRECT = 2
    UNSURE = 4
    DECLARED = 8


def is_unsure(statement: Statement) -> bool:
    """Whether something of a statement could not be told."""
    return bool(statement.unknown) or any(column.opaque for column in statement.columns)


def parts_of(statement: Statement) -> dict[str, Part]:
    """The data sets that a statement reads, whether it names them as inputs or by their columns alone, by name."""
    beginning = Part.UNSURE if is_unsure(statement) else Part(0)
    found: dict[str, Part] = dict.fromkeys(statement.inputs, beginning)
    for source in statement.sources:
        part = Part.DIRECT if source.kind.is_direct else Part.INDIRECT
        found[source.ref.table] = found.get(source.ref.table, beginning) | part
    return dict(sorted(found.items()))


def edges_of(statement: Statement) -> set[tuple[ColumnRef, ColumnRef, int]]:
    """Each source with the column that it takes part in, or with the target where it is told for all of it, and its code."""
    edges = {(source.ref, ColumnRef(statement.target), code_of(source.kind, source.is_masking)) for source in statement.indirect}
    for column in statement.columns:
        target = ColumnRef(statement.target, column.column)
        edges |= {(source.ref, target, code_of(source.kind, source.is_masking)) for source in column.sources}
    return edges


_KINDS = (
    Kind.IDENTITY, Kind.TRANSFORMATION, Kind.AGGREGATION, Kind.JOIN, Kind.GROUP_BY, Kind.FILTER, Kind.SORT, Kind.WINDOW,
    Kind.CONDITIONAL, Kind.DRIVER,
)  # fmt: skip


def code_of(kind: Kind, is_masking: bool = False) -> int:
    """The number by which stores and graphs keep a kind; the one of a masking source is negative. Never renumbered."""
    code = _KINDS.index(kind) + 1
    return -code if is_masking else code


def kind_of(code: int) -> Kind:
    """The kind that has a number."""
    return _KINDS[abs(code) - 1]
