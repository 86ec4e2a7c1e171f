"""Options that several commands share."""

from typing import Annotated

import typer

MAX_LIMIT = 2**31 - 1  # of rows; what every database takes

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; it is kept with who and when.")]
Who = Annotated[str | None, typer.Option("--who", help="Who does it; the user of the operating system unless given.")]
Table = Annotated[str | None, typer.Option("--table", "-t", help="The table, as schema.table.")]
Cluster = Annotated[str | None, typer.Option("--cluster", help="The data platform, where there are several.")]
TagPairs = Annotated[list[str] | None, typer.Option("--tag", metavar="KEY=VALUE", help="A tag; may be repeated.")]
Module = Annotated[
    str | None,
    typer.Option("--module", "-m", envvar="LAKECHIME_MODULE", help="A Python module that declares the triggers, instead of the lake's."),
]
Since = Annotated[str | None, typer.Option("--since", help="Rows from this day or time on, by the time column; all unless given.")]
Until = Annotated[str | None, typer.Option("--until", help="Rows before this day or time.")]
TimeColumn = Annotated[str | None, typer.Option("--time-column", help="The column by which rows are of a day, if no partition tells.")]
