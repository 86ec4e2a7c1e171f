"""The groups of events that the lake declares, and the types that came to them, by the names that a person gives."""

import difflib
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer

from lakechime_dagster.cli import parse
from lakechime_dagster.cli.context import declared_lake
from lakechime_dagster.dce.text import printable
from lakechime_dagster.errors import NotFoundError, shown
from lakechime_dagster.settings import Settings

if TYPE_CHECKING:
    from lakechime_dagster.lake.events import EventGroup, EventStream
    from lakechime_dagster.resources.platform import Platform
    from lakechime_dagster.resources.streams.event_types import GroupedType

TypeName = Annotated[str, typer.Argument(metavar="TYPE", help="The type as its events spell it, or its table.")]
OfGroup = Annotated[str | None, typer.Option("--group", metavar="GROUP", help="The type's group, where several have had it.")]
NO_STREAM = (
    'the lake declares no stream of events; add event_stream("game", source=JsonLines("in")) to its list, '
    "and an event_group(…) where types belong together"
)
MAX_NAMED = 10  # of names in a message


def declared_groups(settings: Settings) -> "list[EventGroup]":
    """The groups of the lake's streams, by name."""
    return sorted(declared_lake(settings).groups, key=lambda group: group.name)


def group_named(name: str, settings: Settings) -> "EventGroup":
    """The group of that name.

    Raises:
        NotFoundError: naming the one that is nearest, or those that are there.
    """
    groups = {group.name: group for group in declared_groups(settings)}
    if name not in groups:
        raise NotFoundError(f"the lake declares no event group {shown(name)}; {remedy(name, groups)}" if groups else NO_STREAM)
    return groups[name]


def stream_named(name: str, settings: Settings) -> "EventStream":
    """The stream of that name.

    Raises:
        NotFoundError: naming the one that is nearest, or those that are there.
    """
    streams = {group.stream.name: group.stream for group in declared_groups(settings)}
    if name not in streams:
        raise NotFoundError(f"the lake declares no stream {shown(name)} of events; {remedy(name, streams)}" if streams else NO_STREAM)
    return streams[name]


def type_named(platform: "Platform", name: str, group: str | None) -> "GroupedType":
    """The type of that name, or whose table is of that name.

    Raises:
        NotFoundError: naming the one that is nearest, or those that are there.
        BadParameter: several groups have had it, and none is named.
    """
    from lakechime_dagster.resources.streams.event_types import types_of

    groups = declared_groups(platform.settings) if group is None else [group_named(group, platform.settings)]
    if not groups:
        raise NotFoundError(NO_STREAM)
    several = [one for each in groups for one in types_of(platform, each)]
    found = [one for one in several if one.known.type == name] or [one for one in several if one.table == name]
    if len(found) > 1:
        having = " and ".join(one.group.name for one in found)
        raise parse.wrong("--group", f"{shown(name)} is a type of {having}; say which")
    if not found:
        where = f"event group {group}" if group is not None else "any event group"
        names = sorted({one.known.type for one in several})
        raise NotFoundError(f"no event of type {shown(name)} has come to {where}; {remedy(name, names)}")
    return found[0]


def remedy(name: str, names: Collection[str]) -> str:
    """What a person meant, or may name."""
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"did you mean {printable(near[0])}?"
    told = ", ".join(printable(one) for one in sorted(names)[:MAX_NAMED]) or "none"
    return f"there are {told}" if len(names) <= MAX_NAMED else f"there are {len(names):,}, such as {told}; see `lakechime schema list`"
