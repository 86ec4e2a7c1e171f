"""`lakechime schema verify`: whether each event of a type is in its table once, with all that it says."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli.context import open_platform
from lakechime_dagster.cli.options import Json
from lakechime_dagster.cli.output import count, note, print_json, print_table, say
from lakechime_dagster.cli.schema.names import NO_STREAM, OfGroup, declared_groups, group_named, type_named
from lakechime_dagster.dce.text import printable
from lakechime_dagster.errors import NotFoundError

if TYPE_CHECKING:
    from lakechime_dagster.lake.events import EventGroup
    from lakechime_dagster.resources.platform import Platform
    from lakechime_dagster.schema.conservation import Verified

Name = Annotated[str | None, typer.Argument(metavar="[GROUP|TYPE]", help="A group, a type, or a type's table; all groups unless given.")]
Sample = Annotated[int, typer.Option("--sample", min=0, max=1_000_000, help="Rows of each type of which every value is looked at.")]
Values = Annotated[bool, typer.Option("--values", help="Show the values that are wrong too; THEY MAY BE PERSONAL DATA.")]
HEADS = ("type", "table", "events", "rows", "discarded", "looked into", "is")


def verify(
    name: Name = None, sample: Sample = 100, values: Values = False, group: OfGroup = None, as_json: Json = False
) -> None:  # fmt: skip
    """Compare the tables of types with the whole of their stream's table: no event lost, no row twice, none of no event, no value changed.

    Each event is looked for by its `_src`; the values of some rows of each type, others each time. It starts Spark and reads all;
    nothing is written, and steps may go on meanwhile. The exit code is 1 when something is wrong, or a type could not be looked at.
    """
    from lakechime_dagster.resources.streams.on_spark import verified

    platform = open_platform()
    found = [
        (one.name, each) for one, names in _wanted(platform, name, group)
        for each in verified(platform, one, note, names=names, sample=sample, seed=platform.store.now())
    ]  # fmt: skip
    if values:
        note("warning: values are shown as they came, and may be personal data")
    if as_json:
        print_json({"types": [document(of, one, with_values=values) for of, one in found]})
    else:
        _print([document(of, one, with_values=values) for of, one in found])
    if any(one.faults or one.unread for _, one in found):
        raise typer.Exit(1)


def document(group: str, one: "Verified", *, with_values: bool) -> dict[str, Any]:
    """What was found of a type, as JSON; values only where they are asked for."""
    examples = [
        {"fault": each.fault.value, "_src": each.source, "path": each.pointer} | ({"value": each.value} if with_values else {})
        for each in one.examples
    ]  # fmt: skip
    return {
        "group": group, "type": one.type, "table": one.table, "version": one.version, "place": one.place, "events": one.events,
        "rows": one.rows, "discarded": one.discarded, "gone": one.gone, "sampled": one.sampled,
        "faults": {fault.value: number for fault, number in one.faults.items()}, "examples": examples, "unread": one.unread,
    }  # fmt: skip


def _wanted(platform: "Platform", name: str | None, group: str | None) -> "list[tuple[EventGroup, list[str] | None]]":
    """The groups, each with those of its types that are asked for; None are all."""
    groups = declared_groups(platform.settings)
    if not groups:
        raise NotFoundError(NO_STREAM)
    if name is None:
        return [(one, None) for one in (groups if group is None else [group_named(group, platform.settings)])]
    if group is None and name in {one.name for one in groups}:
        return [(group_named(name, platform.settings), None)]
    one = type_named(platform, name, group)
    return [(one.group, [one.known.type])]


def _print(told: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        [one["type"], one["table"], one["events"], one["rows"], one["discarded"], one["sampled"], _is(one)] for one in told
    ]  # fmt: skip
    print_table([*HEADS], rows, empty="no type has a table yet")
    for one in told:
        if one["gone"]:
            say(f"{one['table']}: {count(one['gone'], 'row')} older than all that the stream's table still has")
        for each in one["examples"]:
            value = f" {printable(each['value'])}" if each.get("value") else ""
            say(f"{one['table']}: {each['fault']} {printable(each['_src'])} {printable(each['path'])}".rstrip() + value)


def _is(one: Mapping[str, Any]) -> str:
    if one["unread"]:
        return f"not looked at: {one['unread']}"
    return ", ".join(f"{number:,} {fault}" for fault, number in one["faults"].items()) or "whole"
