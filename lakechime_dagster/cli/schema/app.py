"""`lakechime schema`: the types of events that came, the columns that each got, and what was refused."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import parse
from lakechime_dagster.cli.context import open_platform
from lakechime_dagster.cli.options import Json
from lakechime_dagster.cli.output import print_json, print_table, say, when
from lakechime_dagster.cli.schema import decide, producers, project, quarantine, verify
from lakechime_dagster.cli.schema import show as schema_show
from lakechime_dagster.cli.schema.names import NO_STREAM, OfGroup, TypeName, declared_groups, group_named, type_named
from lakechime_dagster.dce.text import printable
from lakechime_dagster.errors import NotFoundError

if TYPE_CHECKING:
    from lakechime_dagster.lake.events import EventGroup
    from lakechime_dagster.resources.platform import Platform
    from lakechime_dagster.resources.streams.grouped import GroupedType
    from lakechime_dagster.schema.repository import TypePlace
    from lakechime_dagster.store.types.repository import LayoutVersion

app = typer.Typer(name="schema", help="Types of JSON events: list, show their columns, their history, what was refused.")
app.command("show")(schema_show.show)
app.command("quarantine")(quarantine.quarantine)
app.command("verify")(verify.verify)
app.command("producers")(producers.producers)
app.command("project")(project.project)
for command in (decide.hint, decide.allow, decide.replay, decide.rebuild, decide.retry):
    app.command()(command)

LISTED = ("group", "type", "table", "layout_version", "columns", "place", "behind", "written", "rescued")
HEADS = [*(name.replace("_version", "") for name in LISTED), "state"]


@app.command("list")
def list_(
    group: Annotated[str | None, typer.Argument(metavar="[GROUP]", help="Types of this group; of all unless given.")] = None,
    as_json: Json = False,
) -> None:
    """List the types that came: their tables, up to which version of the stream's table these are written, and how they fare.

    `written` and `rescued` are rows in sum; a rescued one is written too, with what no column takes in `_rescued`.
    """
    from lakechime_dagster.resources.streams.grouped import types_of

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


@app.command()
def history(name: TypeName, group: OfGroup = None, as_json: Json = False) -> None:
    """Show the layouts of a type: when each was made, by whom, and what it gained."""
    platform = open_platform()
    one = type_named(platform, name, group)
    versions = _versions(platform, one)
    if as_json:
        told = [{"version": each.version, "made_ts": each.made_ts, "actor": each.actor, "decision": each.decision} for each in versions]
        print_json({"group": one.group.name, "type": one.known.type, "versions": told})
        return
    rows = [[each.version, when(each.made_ts), each.actor, each.decision] for each in versions]
    print_table(["layout", "made", "by", "decision"], rows, empty=_has_none(one))


@app.command()
def diff(
    name: TypeName,
    before: Annotated[int | None, typer.Argument(metavar="[FROM]", min=0, help="A layout; the one before TO unless given.")] = None,
    after: Annotated[int | None, typer.Argument(metavar="[TO]", min=1, help="A later one; the newest unless given.")] = None,
    group: OfGroup = None,
    as_json: Json = False,
) -> None:
    """Show the columns that a type gained between two layouts, one a line, and those that a rebuild took away; layout 0 has none."""
    from lakechime_dagster.schema.layout import Layout
    from lakechime_dagster.schema.learning import gained

    platform = open_platform()
    one = type_named(platform, name, group)
    layouts = {0: Layout()} | {each.version: each.layout for each in _versions(platform, one)}
    newest = max(layouts)
    end = newest if after is None else after
    start = end - 1 if before is None else before
    if not newest:
        raise NotFoundError(_has_none(one))
    for asked in (start, end):
        if asked not in layouts:
            raise NotFoundError(f"{printable(one.known.type)} has no layout {asked}; the newest is {newest}")
    if start > end:
        raise parse.wrong("[FROM]", f"layout {start} came after layout {end}; name the earlier one first")
    added, lost = gained(layouts[start], layouts[end]), gained(layouts[end], layouts[start])
    if as_json:
        columns = [{"name": column, "holds": holds} for column, holds in added]
        gone = [{"name": column, "holds": holds} for column, holds in lost]
        print_json({"group": one.group.name, "type": one.known.type, "from": start, "to": end, "gained": columns, "lost": gone})
        return
    for column, holds in added:
        say(f"+ {column} {holds}")
    for column, holds in lost:
        say(f"- {column} {holds}")
    if not added and not lost:
        say(f"layout {end} has no column that layout {start} has not")


def _newest(platform: "Platform", groups: "Iterable[EventGroup]") -> "dict[str, TypePlace | None]":
    """Where each stream's table ends, by its name."""
    from lakechime_dagster.resources.streams.streamed import Streamed

    tables = {group.stream.table.name: group.stream.table for group in groups}
    return {name: schema_show.newest_of(Streamed(platform, table)) for name, table in tables.items()}


def _versions(platform: "Platform", one: "GroupedType") -> "list[LayoutVersion]":
    from lakechime_dagster.resources.streams.event_types import event_types

    return event_types(platform).history(one.group.name, one.known.type)


def _has_none(one: "GroupedType") -> str:
    return f"{printable(one.known.type)} has no columns yet; it {one.fares.value}: {schema_show.why(one.reason)}"


def _cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else f"{value:,}"
