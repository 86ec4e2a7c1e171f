"""What a change of the code does to each table and its readers: two manifests of one lake, compared. Nothing is run.

A table is looked at as its own code sees it: the new manifest was made by asking each function and query again over what its
inputs would be. So what breaks is found where it breaks, and what only changes in value is followed along the columns.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.planned.manifest import Manifest, PlannedColumn, PlannedTable
from lakechime_dagster.lineage.planned.types import fits, said


class Class(StrEnum):
    """What a finding is about, the worst first.

    BREAKS: does not resolve any more, or a column that is read is gone or has another type. ROWS: which rows there are, or how they
    are kept. VALUES: what a column holds. UNSURE: it may be any of these, but what is computed cannot be told. INFORMS: no reader
    need do anything.
    """

    BREAKS = "breaks"
    ROWS = "rows change"
    VALUES = "values change"
    UNSURE = "unsure"
    INFORMS = "informs"


ORDER = tuple(Class)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one change does to one table. `because` is the chain of columns or tables by which it is reached, first the change itself."""

    kind: Class
    table: str
    column: str | None
    what: str
    because: tuple[ColumnRef, ...] = ()
    owner: str = ""
    accepted: str = ""

    @property
    def key(self) -> str:
        """By which it is accepted: it is another one when anything of it is other."""
        where = self.table if self.column is None else f"{self.table}.{self.column}"
        return f"{self.kind}: {where}: {self.what}"

    @property
    def ref(self) -> ColumnRef:
        return ColumnRef(self.table, self.column)


def compare(before: Manifest, after: Manifest) -> tuple[Finding, ...]:
    """All findings, the worst first, those of a table together; what `before` has accepted is marked so."""
    own = [finding for name in after.tables for finding in _own_changes(before.tables.get(name), after.tables[name])]
    own += [_removed(before, name) for name in before.tables if name not in after.tables]
    found: dict[str, Finding] = {}
    for finding in (*own, *_followed(own, before, after)):
        found.setdefault(finding.key, finding)
    tables = {**before.tables, **after.tables}
    told = [_told(finding, tables, {**before.accepted, **after.accepted}) for finding in found.values()]
    return tuple(sorted(told, key=lambda one: (ORDER.index(one.kind), one.table, one.column or "", one.what)))


def _own_changes(before: PlannedTable | None, after: PlannedTable) -> Iterator[Finding]:
    """What differs in a table itself."""
    if before is None:
        yield Finding(kind=Class.INFORMS, table=after.name, column=None, what="is new")
        return
    if not after.columns and before.columns:
        yield from _lost(before, after)
        return
    yield from _columns_changed(before, after)
    if not after.is_computed:
        return
    if before.laid_out != after.laid_out:
        yield Finding(kind=Class.ROWS, table=after.name, column=None, what=_laid_out(before.laid_out, after.laid_out))
    if before.rows != after.rows and before.rows and after.rows:
        yield Finding(kind=Class.ROWS, table=after.name, column=None, what="other rows are chosen, joined or grouped")
    is_opaque = bool(after.unknown) or any(column.opaque for column in after.columns)
    if before.code != after.code and is_opaque:
        whole = [None] if after.unknown else []
        for column in (*whole, *(column.name for column in after.columns if column.opaque)):
            yield Finding(kind=Class.UNSURE, table=after.name, column=column, what="its code changed, and what it computes cannot be told")


def _lost(before: PlannedTable, after: PlannedTable) -> Iterator[Finding]:
    """A table whose columns are not known any more: it breaks, unless nobody knew before or it waits for another that does."""
    why = "; ".join(after.unknown)
    if after.is_computed and not why.startswith("not known until"):
        yield Finding(kind=Class.BREAKS, table=after.name, column=None, what=f"does not resolve: {why}")
    elif after.is_computed and before.columns:
        yield Finding(kind=Class.UNSURE, table=after.name, column=None, what=why)


def _columns_changed(before: PlannedTable, after: PlannedTable) -> Iterator[Finding]:
    for column in before.columns:
        now = after.by_name.get(column.name)
        if now is None:
            yield Finding(kind=Class.INFORMS, table=after.name, column=column.name, what="is gone")
            continue
        is_fitting = fits(column.type, now.type)
        if said(now.type) != said(column.type) or not is_fitting:
            kind = Class.INFORMS if is_fitting else Class.BREAKS
            yield Finding(kind=kind, table=after.name, column=column.name, what=f"is {said(now.type)}, was {said(column.type)}")
        if is_fitting and now.digest != column.digest and column.digest and not now.opaque:
            yield Finding(kind=Class.VALUES, table=after.name, column=column.name, what="is computed otherwise")
        elif is_fitting and (now.nullable, now.type) != (column.nullable, column.type) and said(now.type) == said(column.type):
            yield Finding(kind=Class.INFORMS, table=after.name, column=column.name, what=_nullability(column, now))
    for column in after.columns:
        if column.name not in before.by_name:
            yield Finding(kind=Class.INFORMS, table=after.name, column=column.name, what=f"is new, {said(column.type)}")
    kept = [column.name for column in after.columns if column.name in before.by_name]
    if kept != [column.name for column in before.columns if column.name in after.by_name]:
        yield Finding(kind=Class.INFORMS, table=after.name, column=None, what="has its columns in another order")


def _nullability(before: PlannedColumn, after: PlannedColumn) -> str:
    if before.nullable == after.nullable:
        return "has within what may be null, or never is, which was not so"
    return "may be null, which was not so" if after.nullable else "is never null, which was not so"


def _followed(own: Iterable[Finding], before: Manifest, after: Manifest) -> Iterator[Finding]:
    """What the changes of tables do to those that read them, along columns; the nearest way of each."""
    for change in own:
        if change.kind is Class.INFORMS and change.what != "is gone":
            continue
        kind = Class.VALUES if change.kind is Class.BREAKS else change.kind
        reached: dict[ColumnRef, tuple[ColumnRef, ...]] = {change.ref: (change.ref,)}
        waiting = [change.ref]
        while waiting:
            ref = waiting.pop(0)
            for reader, hit, is_row in _readings(before, after, ref):
                target = ColumnRef(reader.name, hit)
                if target in reached:
                    continue
                reached[target] = (*reached[ref], target)
                waiting.append(target)
                yield _hit(change, Class.ROWS if is_row and kind is not Class.UNSURE else kind, target, reached[target])


def _hit(change: Finding, kind: Class, target: ColumnRef, because: tuple[ColumnRef, ...]) -> Finding:
    what = f"reads {because[-2]}" if len(because) == 2 else f"reads {because[-2]}, which comes from {because[0]}"
    if change.what == "is gone":
        kind, what = (Class.BREAKS, f"reads {because[0]}, which is gone") if len(because) == 2 else (Class.UNSURE, what)
    return Finding(kind=kind, table=target.table, column=target.column, what=what, because=because)


def _readings(before: Manifest, after: Manifest, ref: ColumnRef) -> Iterator[tuple[PlannedTable, str | None, bool]]:
    """Who reads a column, or a table as a whole: the table, its column or None for its rows, and whether rows are meant."""
    for table in (after.tables.get(name) or before.tables[name] for name in dict.fromkeys((*after.tables, *before.tables))):
        if ref.table not in table.inputs or not table.is_computed:
            continue
        known = table if table.columns else before.tables.get(table.name, table)
        if ref.column is None:
            yield known, None, True
            continue
        if any(source.ref == ref for source in known.indirect):
            yield known, None, True
        for column in known.columns:
            if _reads(column, ref):
                yield known, column.name, False


def _reads(column: PlannedColumn, ref: ColumnRef) -> bool:
    return any(source.ref == ref for source in column.sources)


def _removed(before: Manifest, name: str) -> Finding:
    is_read = any(name in table.inputs for table in before.tables.values())
    return Finding(kind=Class.BREAKS if is_read else Class.INFORMS, table=name, column=None, what="is no table of the lake any more")


def _told(finding: Finding, tables: Mapping[str, PlannedTable], accepted: Mapping[str, str]) -> Finding:
    table = tables.get(finding.table)
    return Finding(
        kind=finding.kind, table=finding.table, column=finding.column, what=finding.what, because=finding.because,
        owner=table.owner if table is not None else "", accepted=accepted.get(finding.key, ""),
    )  # fmt: skip


def _laid_out(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    return "; ".join(f"{name}: {after.get(name, 'nothing')}, was {before.get(name, 'nothing')}" for name in changed)
