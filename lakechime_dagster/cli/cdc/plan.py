"""`lakechime cdc plan`: what a declaration makes, what its feed holds, what stands in the way, and the types that it must declare."""

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import parse
from lakechime_dagster.cli.context import flow_declared, followed_table, open_platform
from lakechime_dagster.cli.options import Json
from lakechime_dagster.cli.output import count, note, one_line, print_facts, print_json, print_table, say
from lakechime_dagster.errors import InvalidValueError, LakeChimeError, shown
from lakechime_dagster.settings import Settings, load_settings

if TYPE_CHECKING:
    from lakechime_dagster.capture.rows import DeltaRows
    from lakechime_dagster.lake.change_tables import ChangeTable
    from lakechime_dagster.resources.following.followed import Followed
    from lakechime_dagster.resources.following.plan import Plan


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


Name = Annotated[str, typer.Argument(metavar="TABLE", help="The table, as `lakechime cdc list` shows it.")]


def plan(
    name: Name,
    url: SourceUrl = None,
    there: SourceTable = None,
    of_types: Annotated[
        bool,
        typer.Option("--types", help="Only write the types={…} of a table whose messages have none, as the database has its columns."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Say what a table is made of, what waits in its feed, and how connector and database should be set up, with remedies.

    Up to 200 messages are looked at, of the bronze table or of the feed. The database is asked where its URL is given, or
    the table declares a monitor. With `--types` the exit code is 1 when a column has no exact type.
    """
    from lakechime_dagster.resources.following.followed import Followed
    from lakechime_dagster.resources.following.plan import plan_of

    if of_types:
        settings = load_settings()
        table = followed_table(name, settings)
        _types(table, url, source_table(there, table), settings, as_json=as_json)
        return
    platform = open_platform()
    table = followed_table(name, platform.settings)
    place = source_table(there, table)
    followed, flow = Followed(platform, table), flow_declared(table.bronze.name, None)
    planned = plan_of(followed, flow, source_url(url, table, platform.settings), place)
    document = _document(followed, planned)
    if as_json:
        print_json(document)
    else:
        _print(document)


def _document(followed: "Followed", planned: "Plan") -> dict[str, Any]:
    bronze, sample = followed.table.bronze, planned.sample
    tables = {"messages": followed.bronze, "rows": followed.target, "remembered": followed.state, "refused": followed.quarantine}
    return {
        "table": followed.table.name, "source": str(bronze.feed), "envelope": type(bronze.envelope).__name__, "keys": list(bronze.keys),
        "tables": [_table(role, rows) for role, rows in tables.items()],
        "feed": [vars(part) for part in planned.parts], "rest": planned.rest,
        "sample": {
            "of": "feed" if planned.is_of_feed else "bronze table", "messages": len(sample.messages), "kinds": sample.kinds,
            "sources": sample.sources, "connectors": sample.connectors, "columns": sample.columns,
        },
        "findings": [vars(one) | {"weight": one.weight.value} for one in planned.findings],
    }  # fmt: skip


def _table(role: str, rows: "DeltaRows") -> dict[str, Any]:
    return {"role": role, "name": rows.log.table, "location": rows.log.shown_location, "exists": rows.log.exists()}


def _print(document: Mapping[str, Any]) -> None:
    sample = document["sample"]
    print_facts({name: document[name] for name in ("table", "source", "envelope")} | {"keys": ", ".join(document["keys"])})
    say("")
    rows = [[one["role"], one["name"], one["location"], "yes" if one["exists"] else "not yet"] for one in document["tables"]]
    print_table(["holds", "table", "location", "is there"], rows, empty="")
    say("")
    print_table(
        ["feed", "ends at", "not read yet"], [[one["name"], one["end"], one["unread"]] for one in document["feed"]], empty="no feed"
    )
    if document["rest"]:
        say(document["rest"])
    kinds = ", ".join(f"{kind} {number}" for kind, number in sample["kinds"].items())
    say(f"\n{count(sample['messages'], 'message')} of the {sample['of']} looked at: {kinds or 'none'}")
    told = {"sources": ", ".join(sample["sources"]), "connectors": ", ".join(sample["connectors"])}
    told |= {"columns": ", ".join(f"{name} {ddl}" for name, ddl in sample["columns"].items())}
    print_facts({name: value for name, value in told.items() if value})
    say("")
    for one in document["findings"]:
        say(f"{one['weight']}, {one['about']}: {one_line(one['problem'])}\n    {one['remedy']}")
    if not document["findings"]:
        say("nothing stands in the way")


def _types(table: "ChangeTable", url: str | None, place: str | None, settings: Settings, *, as_json: bool) -> None:
    """Write the types={…} of a table; the exit code is 1 when a column has no exact one."""
    from lakechime_dagster.resources.following.source import check_source_queries

    check_source_queries(settings)
    columns = _columns(table, source_url(url, table, settings), place)
    known = {column: ddl for column, (_, ddl) in columns.items() if ddl is not None}
    refused = {column: kind for column, (kind, ddl) in columns.items() if ddl is None}
    if as_json:
        print_json({"table": table.name, "source_table": place, "types": known, "refused": refused})
    else:
        _print_types(columns)
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


def _print_types(columns: Mapping[str, tuple[str, str | None]]) -> None:
    say("types={")
    for column, (kind, ddl) in columns.items():
        written = json.dumps(column, ensure_ascii=False)
        say(f'    {written}: "{ddl}",' if ddl is not None else f"    # {written}: {one_line(kind)} has no exact type")
    say("},")
