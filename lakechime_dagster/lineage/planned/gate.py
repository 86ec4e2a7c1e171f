"""What a change of the code does to each table and its readers: two manifests of one lake, compared. Nothing is run.

A table is looked at as its own code sees it: the new manifest was made by asking each function and query again over what its
inputs would be. So what breaks is found where it breaks, and what only changes in value is followed along the columns.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from lakechime_dagster.lineage.planned.findings import GONE, NO_TABLE, Class, Finding, mark_of, sorted_findings
from lakechime_dagster.lineage.planned.gate_followed import followed
from lakechime_dagster.lineage.planned.manifest import Manifest, PlannedColumn, PlannedTable
from lakechime_dagster.lineage.planned.types import fits, said


def compare(before: Manifest, after: Manifest) -> tuple[Finding, ...]:
    """All findings, the worst first, those of a table together."""
    own = [finding for name in after.tables for finding in _own_changes(before.tables.get(name), after.tables[name])]
    own += [_removed(before, name) for name in before.tables if name not in after.tables]
    tables = {**before.tables, **after.tables}
    found = _once([*own, *followed(own, before, after)])
    return sorted_findings(replace(one, owner=tables[one.table].owner) for one in found)


def _once(several: Iterable[Finding]) -> Iterable[Finding]:
    """Each once, with the marks of all changes by which it is found."""
    found: dict[str, Finding] = {}
    for one in several:
        plain = replace(one, marks=()).key
        known = found.setdefault(plain, one)
        found[plain] = replace(known, marks=tuple(sorted({*known.marks, *one.marks})))
    return found.values()


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
        what, marks = _laid_out(before.laid_out, after.laid_out), (mark_of(dict(after.laid_out)),)
        yield Finding(kind=Class.ROWS, table=after.name, column=None, what=what, marks=marks)
    if before.rows != after.rows and before.rows and after.rows:
        yield Finding(kind=Class.ROWS, table=after.name, column=None, what="other rows are chosen, joined or grouped", marks=(after.rows,))
    if before.code != after.code:
        yield from _cannot_be_told(before, after)


def _cannot_be_told(before: PlannedTable, after: PlannedTable) -> Iterator[Finding]:
    """What of a table whose code changed is not known, now or before."""
    whole = [None] if after.statement.not_known or before.statement.not_known else []
    for column in (*whole, *(column.name for column in after.columns if column.lineage.not_known)):
        what = "its code changed, and what it computes cannot be told"
        yield Finding(kind=Class.UNSURE, table=after.name, column=column, what=what, marks=(after.code,) if after.code else ())


def _lost(before: PlannedTable, after: PlannedTable) -> Iterator[Finding]:
    """A table whose columns are not known any more: it breaks, unless nobody knew before or it waits for another that does."""
    why = "; ".join(after.unknown)
    if after.is_computed and not why.startswith("not known until"):
        yield Finding(kind=Class.BREAKS, table=after.name, column=None, what=f"does not resolve: {why}", marks=(mark_of(why),))
    elif after.is_computed and before.columns:
        yield Finding(kind=Class.UNSURE, table=after.name, column=None, what=why, marks=(mark_of(why),))


def _columns_changed(before: PlannedTable, after: PlannedTable) -> Iterator[Finding]:
    for column in before.columns:
        now = after.by_name.get(column.name)
        if now is None:
            yield Finding(kind=Class.INFORMS, table=after.name, column=column.name, what=GONE)
            continue
        is_fitting = fits(column.type, now.type)
        what = f"is {said(now.type)}, was {said(column.type)}"
        if not is_fitting:
            yield Finding(kind=Class.BREAKS, table=after.name, column=column.name, what=what, marks=(mark_of([now.type, now.digest]),))
        elif said(now.type) != said(column.type):
            yield Finding(kind=Class.INFORMS, table=after.name, column=column.name, what=what)
        if is_fitting and now.digest != column.digest and column.digest and not now.lineage.not_known:
            yield Finding(kind=Class.VALUES, table=after.name, column=column.name, what="is computed otherwise", marks=(now.digest,))
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


def _removed(before: Manifest, name: str) -> Finding:
    is_read = any(name in table.inputs for table in before.tables.values())
    return Finding(kind=Class.BREAKS if is_read else Class.INFORMS, table=name, column=None, what=NO_TABLE)


def _laid_out(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    return "; ".join(f"{name}: {after.get(name, 'nothing')}, was {before.get(name, 'nothing')}" for name in changed)
