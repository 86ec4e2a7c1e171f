"""Changes by their numbers, and tables and columns by the names that people say."""

import difflib
from collections.abc import Collection
from typing import Annotated

import typer

from lakechime_dagster.errors import NotFoundError, shown
from lakechime_dagster.lineage.columns import ColumnRef

ChangeNumber = Annotated[
    int, typer.Argument(metavar="CHANGE", min=1, max=2**31 - 1, help="Its number, as `lakechime notice list` tells it.")
]


def ref_named(name: str, tables: Collection[str]) -> ColumnRef:
    """The table of this name, or the column of a table, as schema.table.column; `tables` are all that are known.

    Raises:
        NotFoundError: naming the table that is nearest.
    """
    if name in tables:
        return ColumnRef(name)
    of = max((table for table in tables if name.startswith(f"{table}.")), key=len, default=None)
    if of is not None and len(name) > len(of) + 1:
        return ColumnRef(of, name[len(of) + 1 :])
    near = difflib.get_close_matches(name, tables, n=1)
    remedy = f"did you mean {near[0]}?" if near else "name a table as schema.table, or a column as schema.table.column"
    raise NotFoundError(f"no table {shown(name)} is known; {remedy}")
