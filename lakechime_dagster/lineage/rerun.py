"""Which tables are to be computed again when values of columns change, and which are spared although they lie downstream."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lakechime_dagster.lake.graph import topological
from lakechime_dagster.lineage.columns import ColumnRef, Source
from lakechime_dagster.lineage.record import Statement

Changed = Mapping[str, frozenset[str] | None]


@dataclass(frozen=True, kw_only=True)
class TableHit:
    """A table that is to be computed again.

    Attributes:
        columns: Those of it that may change; None where all may, and rows may come and go, or where it is not known.
        inputs: The inputs by which it is hit; none for a table whose own columns were named.
        is_sure: Its lineage is known; one of which it is not is hit all the same.
        why: In words.
    """

    table: str
    columns: frozenset[str] | None
    inputs: tuple[str, ...] = ()
    is_sure: bool = True
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """The tables hit, inputs before their readers, and for each other table downstream why it is spared."""

    hits: Mapping[str, TableHit] = field(default_factory=dict)
    spared: Mapping[str, str] = field(default_factory=dict)


def rerun(
    graph: Mapping[str, Sequence[str]], statements: Mapping[str, Sequence[Statement]], columns: Iterable[ColumnRef],
    leave_out: Collection[str] = (),
) -> Rerun:  # fmt: skip
    """What follows from a change of columns, or of all of a table where a column is None.

    Args:
        graph: The inputs of each table; one without inputs is written elsewhere, and is not computed.
        statements: What is recorded of how each table is written; none for one of which nothing is known.
        columns: What changed; a column of a computed table is to be computed there first.
        leave_out: Tables that a person wants to leave as they are.
    """
    changed = _of(columns)
    hits: dict[str, TableHit] = {}
    spared: dict[str, str] = {}
    reached = set(changed)
    for table in topological(graph):
        inputs = graph[table]
        if table in changed and inputs and table not in leave_out:
            hits[table] = TableHit(table=table, columns=changed[table], why=f"{_names(table, changed[table])} is computed here")
            continue
        if table in changed or not reached.intersection(inputs):
            continue
        reached.add(table)
        through = tuple(name for name in dict.fromkeys(inputs) if name in changed)
        if table in leave_out:
            spared[table] = "left out, as was asked"
        elif not through:
            spared[table] = "no input of it is hit"
        elif (hit := _hit(table, through, statements.get(table, ()), changed)) is None:
            read = ", ".join(_names(name, changed[name]) for name in through)
            spared[table] = f"reads nothing of {read}"
        else:
            hits[table] = hit
            changed[table] = hit.columns
    return Rerun(hits=hits, spared=spared)


def _of(columns: Iterable[ColumnRef]) -> dict[str, frozenset[str] | None]:
    changed: dict[str, frozenset[str] | None] = {}
    for ref in columns:
        before = changed.get(ref.table, frozenset[str]())
        changed[ref.table] = None if ref.column is None or before is None else before | {ref.column.lower()}
    return changed


def _hit(table: str, through: tuple[str, ...], statements: Sequence[Statement], changed: Changed) -> TableHit | None:
    """How a table is hit by inputs that changed; None where what is recorded of it says that it is not."""
    if not statements:
        return TableHit(table=table, columns=None, inputs=through, is_sure=False, why="unsure: no run has told yet what it reads")
    unknown = [reason for one in statements for reason in one.unknown]
    if unknown:
        return TableHit(table=table, columns=None, inputs=through, is_sure=False, why=f"unsure: {unknown[0]}")
    rows = [source for one in statements for source in one.indirect if _is_changed(source, changed)]
    columns = {one.column.lower(): one for statement in statements for one in statement.columns}
    read = [(name, source) for name, one in columns.items() for source in one.sources if _is_changed(source, changed)]
    opaque = [(name, one.opaque[0]) for name, one in columns.items() if one.opaque]
    if rows:
        return TableHit(table=table, columns=None, inputs=through, why=f"{rows[0].ref} decides by {rows[0].kind} which rows there are")
    if not read and not opaque:
        return None
    names = frozenset(name for name, _ in (*read, *opaque))
    if read:
        name, source = read[0]
        return TableHit(table=table, columns=names, inputs=through, why=f"{name} is made of {source.ref} ({source.kind})")
    name, reason = opaque[0]
    return TableHit(table=table, columns=names, inputs=through, is_sure=False, why=f"unsure: what {name} is made of is not known, {reason}")


def _is_changed(source: Source, changed: Changed) -> bool:
    if source.ref.table not in changed:
        return False
    columns = changed[source.ref.table]
    return columns is None or source.ref.column is None or source.ref.column.lower() in columns


def _names(table: str, columns: frozenset[str] | None) -> str:
    if columns is None:
        return table
    first = sorted(columns)
    return ", ".join(f"{table}.{name}" for name in first[:3]) + (f" and {len(first) - 3} more" if len(first) > 3 else "")
