"""`lakechime cdc types`: the types that a table declares whose messages bring none."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from lakechime_dagster.cli import parse
from lakechime_dagster.cli.cdc.source import SourceTable, SourceUrl, source_table, source_url
from lakechime_dagster.cli.context import followed_table
from lakechime_dagster.cli.options import Json
from lakechime_dagster.cli.output import note, one_line, print_json, say
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.settings import load_settings

if TYPE_CHECKING:
    from lakechime_dagster.lake.change_tables import ChangeTable

Name = Annotated[str, typer.Argument(metavar="TABLE", help="The table, as `lakechime cdc list` shows it.")]


def types(name: Name, url: SourceUrl = None, there: SourceTable = None, as_json: Json = False) -> None:
    """Write the types={…} of a table whose messages bring none, as the database has its columns now.

    The exit code is 1 when a column has no exact type.
    """
    from lakechime_dagster.resources.following.source import check_source_queries

    settings = load_settings()
    table = followed_table(name, settings)
    place = source_table(there, table)
    check_source_queries(settings)
    columns = _columns(table, source_url(url, table, settings), place)
    known = {column: ddl for column, (_, ddl) in columns.items() if ddl is not None}
    refused = {column: kind for column, (kind, ddl) in columns.items() if ddl is None}
    if as_json:
        print_json({"table": name, "source_table": place, "types": known, "refused": refused})
    else:
        _print(columns)
    if missing := [key for key in table.bronze.keys if key not in columns]:
        note(f"{place} has no column {', '.join(missing)} of the declared key; is it this table?")
    if refused:
        told = ", ".join(f"{column} ({one_line(kind)})" for column, kind in refused.items())
        note(f'no exact type for {told}: declare "string" to keep the text that the tool writes, or let the tool leave the column out')
        raise typer.Exit(1)


def _columns(table: "ChangeTable", url: str | None, place: str | None) -> Mapping[str, tuple[str, str | None]]:
    """Of each column its type in the database, and the lake's."""
    from lakechime_dagster.cdc.canonical import Dialect
    from lakechime_dagster.cdc.messages.source_types import lake_type
    from lakechime_dagster.lake.envelopes import Canal, Debezium, Maxwell
    from lakechime_dagster.sources.connection import connected
    from lakechime_dagster.sources.tables import column_types

    envelope = table.bronze.envelope
    if isinstance(envelope, Debezium):
        remedy = "set value.converter.schemas.enable=true in the connector, or declare ddl= of its source, or read_from= of its schema"
        raise LakeChimeError(f"{table.name} declares no types: messages of Debezium bring them; {remedy}")
    if url is None:
        raise parse.wrong("--source-url", "give the URL of the database, or declare change_table(…, monitor=Monitor(…))")
    if place is None:
        raise parse.wrong("--source-table", "give the table of the database, such as shop.orders")
    schema, _, name = place.partition(".")
    with connected(url) as (connection, dialect):
        if dialect is Dialect.POSTGRES and isinstance(envelope, Canal | Maxwell):
            raise parse.wrong("--source-url", f"{type(envelope).__name__} follows MySQL and MariaDB, and this is PostgreSQL")
        found = column_types(connection, schema, name)
    return {column: (kind, lake_type(dialect, kind)) for column, kind in found.items()}


def _print(columns: Mapping[str, tuple[str, str | None]]) -> None:
    say("types={")
    for column, (kind, ddl) in columns.items():
        written = json.dumps(column, ensure_ascii=False)
        say(f'    {written}: "{ddl}",' if ddl is not None else f"    # {written}: {one_line(kind)} has no exact type")
    say("},")
