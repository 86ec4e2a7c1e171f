"""`lakechime schema`: types of events."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import schema_actions, schema_show
from lakechime_dagster.cli.common import Json, open_platform, print_json, print_table, say
from lakechime_dagster.cli.schema_show import NO_STREAM, declared_groups, group_named

if TYPE_CHECKING:
    from lakechime_dagster.runtime.platform import Platform
    from lakechime_dagster.silver.schema import TypeCheckpoint
    from lakechime_dagster.tables.events import EventGroup


app = typer.Typer(name="schema", help="Types of JSON events: list, show their columns, their history, what was refused.")
app.command("show")(schema_show.show)
app.command("quarantine")(schema_show.quarantine)
app.command("verify")(schema_actions.verify)
for command in (schema_actions.decide, schema_actions.replay, schema_actions.reprocess):
    app.command()(command)

LISTED = ("group", "type", "table", "layout_version", "columns", "checkpoint", "behind", "written", "rescued")
HEADS = [*(name.replace("_version", "") for name in LISTED), "state"]


@app.command("list")
def list_(
    group: Annotated[str | None, typer.Argument(metavar="[GROUP]", help="Types of this group; of all unless given.")] = None,
    as_json: Json = False,
) -> None:
    """List the types that came: their tables, up to which version of the stream's table these are written, and how they fare.

    `written` and `rescued` are rows in sum; a rescued one is written too, with what no column takes in `_rescued`.
    """
    from lakechime_dagster.silver.requests import types_of

    platform = open_platform()
    groups = declared_groups(platform.settings) if group is None else [group_named(group, platform.settings)]
    newest = _newest(platform, groups)
    documents = [schema_show.document(one, newest.get(each.stream.table.name)) for each in groups for one in types_of(platform, each)]
    failed = {each.name: each.problem for each in groups if each.problem}
    if as_json:
        print_json({"types": documents} | ({"failed_groups": failed} if failed else {}))
        return
    for name, problem in failed.items():
        say(f"group {name} failed, and its events wait in the stream's table: {problem}")
    rows = [[*map(_cell, map(one.get, LISTED)), schema_show.state_shown(one)] for one in documents]
    print_table(HEADS, rows, empty=f"no event has come yet to {', '.join(one.name for one in groups)}" if groups else NO_STREAM)


def _newest(platform: "Platform", groups: "Iterable[EventGroup]") -> "dict[str, TypeCheckpoint | None]":
    """Where each stream's table ends, by its name."""
    from lakechime_dagster.silver.service import Streamed

    tables = {group.stream.table.name: group.stream.table for group in groups}
    return {name: schema_show.newest_of(Streamed(platform, table)) for name, table in tables.items()}


def _cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else f"{value:,}"
