"""Which column or data set a person means by a text, and what is near to a text that means none."""

import difflib
from collections.abc import Callable, Iterable

from lakechime_dagster.errors import NotFoundError, shown
from lakechime_dagster.lineage.columns import ColumnRef

NEAR = 3  # names that an error proposes


def meant(text: str, tables: Iterable[str], columns_of: Callable[[str], Iterable[str]]) -> ColumnRef:
    """A data set by its name, or a column by that of its data set, a dot and its own; letter case counts where it tells them apart.

    Raises:
        NotFoundError: naming what is nearest.
    """
    known = set(tables)
    if text in known:
        return ColumnRef(text)
    dots = [at for at, character in enumerate(text) if character == "."]
    for at in reversed(dots):  # names of columns may have dots too; the longest data set is meant
        if text[:at] in known:
            return _column(text[:at], text[at + 1 :], list(columns_of(text[:at])))
    alike = _alike(text, known)
    if alike is not None:
        return ColumnRef(alike)
    for at in reversed(dots):
        if (alike := _alike(text[:at], known)) is not None:
            return _column(alike, text[at + 1 :], list(columns_of(alike)))
    if not known:
        raise NotFoundError(f"no data set {shown(text)}: no run has recorded lineage yet, and the lake declares no table")
    near = _near(text, known) or _near(text.rpartition(".")[0], known)
    remedy = f"did you mean {' or '.join(near)}?" if near else "`lakechime lineage export` shows those that are known"
    raise NotFoundError(f"lineage knows no data set {shown(text)}; {remedy}")


def _column(table: str, column: str, columns: list[str]) -> ColumnRef:
    found = column if column in columns else _alike(column, columns)
    if found is not None:
        return ColumnRef(table, found)
    if near := _near(column, columns):
        remedy = f"did you mean {' or '.join(near)}?"
    else:
        remedy = f"it has {', '.join(sorted(columns)[:20])}" if columns else "no column of it is known yet"
    raise NotFoundError(f"{table} has no column {shown(column)} that is known; {remedy}")


def _alike(text: str, names: Iterable[str]) -> str | None:
    """The only name that is the same but for its letter case."""
    found = {name for name in names if name.casefold() == text.casefold()}
    return found.pop() if len(found) == 1 else None


def _near(text: str, names: Iterable[str]) -> list[str]:
    by_lower = {name.lower(): name for name in names}
    return [by_lower[near] for near in difflib.get_close_matches(text.lower(), by_lower, n=NEAR)]
