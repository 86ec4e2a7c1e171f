"""The database's own table, as commands are told where it is."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from lakechime_dagster.cli import parse
from lakechime_dagster.cli.output import note
from lakechime_dagster.errors import InvalidValueError, shown
from lakechime_dagster.settings import Settings

if TYPE_CHECKING:
    from lakechime_dagster.lake.change_tables import ChangeTable

SourceUrl = Annotated[
    str | None,
    typer.Option(
        "--source-url", envvar="LAKECHIME_SOURCE_URL", help="The database, such as mysql://reader@host/shop; else the monitor's. Only read."
    ),
]
SourceTable = Annotated[str | None, typer.Option("--source-table", metavar="SCHEMA.TABLE", help="The table there; else the monitor's.")]


def source_url(given: str | None, table: "ChangeTable", settings: Settings) -> str | None:
    """The database: the one that is given, or that a monitor compares the table with; none where the environment lacks it.

    Raises:
        LakeChimeError: One is given, and this deployment may ask none.
    """
    from lakechime_dagster.resources.following.source import QUERIES_OFF, check_source_queries
    from lakechime_dagster.sources.connection import dialect_of

    if given is not None:
        with parse.reading("--source-url"):
            dialect_of(given)
        check_source_queries(settings)
        return given
    if table.monitor is not None and not settings.may_ask_sources:
        note(QUERIES_OFF)
        return None
    try:
        return table.monitor.url(os.environ) if table.monitor is not None else None
    except InvalidValueError as error:
        note(f"the database is not asked: {error}")
        return None


def source_table(given: str | None, table: "ChangeTable") -> str | None:
    """The table there: the one that is given, or that a monitor compares the table with."""
    if given is not None and [bool(part) for part in given.split(".")] != [True, True]:
        raise parse.wrong("--source-table", f"{shown(given)} is no schema.table of the database, such as shop.orders")
    return given or (table.monitor.table if table.monitor is not None else None)
