"""`lakechime schema project`: the tables that show what is known of a stream's types, brought up to date or made anew."""

from typing import Annotated

import typer

from lakechime_dagster.cli.context import open_platform
from lakechime_dagster.cli.options import Json
from lakechime_dagster.cli.output import count, print_json, say
from lakechime_dagster.cli.schema.names import NO_STREAM, declared_groups, remedy
from lakechime_dagster.errors import NotFoundError, shown

Stream = Annotated[str, typer.Argument(metavar="STREAM", help="A stream of events of the lake.")]
Rebuild = Annotated[bool, typer.Option("--rebuild", help="Put all that the store knows in place of what is there.")]


def project(name: Stream, rebuild: Rebuild = False, as_json: Json = False) -> None:
    """Tell what is known of a stream's types in `<stream>.schemas` and `<stream>.variations`, as steps do that learnt something."""
    from lakechime_dagster.resources.streams import projecting

    platform = open_platform()
    groups = declared_groups(platform.settings)
    streams = {group.stream.name: group.stream for group in groups}
    if name not in streams:
        raise NotFoundError(f"the lake declares no stream {shown(name)}; {remedy(name, streams)}" if streams else NO_STREAM)
    told = projecting.project(platform, streams[name], groups, anew=rebuild)
    tables = {streams[name].schemas.name: told.layouts, streams[name].variations.name: told.variations}
    if as_json:
        print_json({"stream": name, "rebuilt": rebuild, "told": tables})
        return
    for table, rows in tables.items():
        say(f"{table}: {count(rows, 'row')} {'in place of what was there' if rebuild else 'added'}")
