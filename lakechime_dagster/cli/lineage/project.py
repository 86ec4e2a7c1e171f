"""`lakechime lineage project`: the table `lakechime.lineage_flat`, brought to what is known now."""

from typing import Annotated

import typer

from lakechime_dagster.cli.context import declared_lake, open_platform
from lakechime_dagster.cli.options import MAX_LIMIT, Json
from lakechime_dagster.cli.output import count, note, print_json, say

Rebuild = Annotated[bool, typer.Option("--rebuild", help="Write it also where it tells all of it already.")]
ColumnRows = Annotated[int, typer.Option("--column-rows", min=0, max=MAX_LIMIT, help="At most so many pairs that begin with a column.")]


def project(rebuild: Rebuild = False, column_rows: ColumnRows = 2_000_000, as_json: Json = False) -> None:
    """Tell in the Delta table `lakechime.lineage_flat` which tables and columns lead to which, with layer and kind."""
    from lakechime_dagster.resources.lineage.flat import TABLE, flatten

    platform = open_platform()
    told = flatten(platform, declared_lake(platform.settings), column_rows=column_rows, anew=rebuild)
    if as_json:
        counts = {"tables": told.tables, "columns": told.columns, "refused": told.refusal} if told else {}
        print_json({"table": TABLE, "written": told is not None, **counts})
        return
    if told is None:
        say(f"{TABLE} tells already all that is known")
        return
    of_columns = "" if told.columns is None else f" and {count(told.columns, 'pair')} that begin with a column"
    say(f"{TABLE} tells {count(told.tables, 'pair')} of tables{of_columns}")
    if told.refusal:
        note(f"warning: {told.refusal}")
