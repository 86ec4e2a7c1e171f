"""`lakechime schema producers`: who sends events, what was rescued of them, what each brought, and what is withheld of whom."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli.context import open_platform
from lakechime_dagster.cli.options import MAX_LIMIT, Json
from lakechime_dagster.cli.output import count, print_facts, print_json, print_table, say
from lakechime_dagster.cli.schema.names import NO_STREAM, OfGroup, declared_groups, group_named, type_named

if TYPE_CHECKING:
    from lakechime_dagster.lake.events import EventGroup
    from lakechime_dagster.resources.platform import Platform
    from lakechime_dagster.resources.streams.grouped import GroupedType
    from lakechime_dagster.store.types.producers import Producer

UNTOLD = "(none)"  # whose events tell no producer
HEADS = ("group", "producer", "events", "rescued", "variations", "columns", "conflicts", "reasons")

OfType = Annotated[str | None, typer.Argument(metavar="[TYPE]", help="Those of this type, or of its table; of all in sum unless given.")]


def producers(
    name: OfType = None, group: OfGroup = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_LIMIT, help="At most so many, the busiest first.")] = 20,
    as_json: Json = False,
) -> None:  # fmt: skip
    """List who sends events: events and rescued rows of settled steps, and the variations, columns and conflicts each brought first.

    Of a type its columns are told that are withheld, as those who send them have brought as many as they may.
    """
    platform = open_platform()
    if name is not None:
        one = type_named(platform, name, group)
        told = _of_type(platform, one)
        _print_or_json(told, limit, as_json=as_json, groups=[one.group])
        return
    groups = declared_groups(platform.settings) if group is None else [group_named(group, platform.settings)]
    documents = [document for each in groups for document in _documents(platform, each)]
    several = sorted(documents, key=lambda one: (-one["events"], one["group"], one["producer"]))
    _print_or_json({"producers": several}, limit, as_json=as_json, groups=groups)


def _of_type(platform: "Platform", one: "GroupedType") -> dict[str, Any]:
    from lakechime_dagster.resources.streams.event_types import event_hints

    hinted = one.group.with_hints(event_hints(platform).holding(one.group.name))
    withheld = [{"path": path, "kind": kind.value, "producer": who} for (path, kind), who in sorted(one.known.withheld.items())]
    return {
        "group": one.group.name, "type": one.known.type, "cap": hinted.cap_of(one.known.type),
        "producers": _documents(platform, one.group, one.known.type), "withheld": withheld,
    }  # fmt: skip


def _documents(platform: "Platform", group: "EventGroup", type_name: str | None = None) -> list[dict[str, Any]]:
    from lakechime_dagster.resources.streams.event_types import event_types
    from lakechime_dagster.store.types.producers import producers as kept

    return [_document(one) for one in kept(event_types(platform), group.name, type_name)]


def _document(one: "Producer") -> dict[str, Any]:
    return {
        "group": one.group, "producer": one.producer, "events": one.events, "rescued": one.rescued, "variations": one.variations,
        "columns": one.columns, "conflicts": one.conflicts, "reasons": dict(one.reasons),
    }  # fmt: skip


def _print_or_json(told: dict[str, Any], limit: int, *, as_json: bool, groups: "list[EventGroup]") -> None:
    hidden = len(told["producers"]) - limit
    told = {**told, "producers": told["producers"][:limit]}
    if as_json:
        print_json(told)
        return
    if "type" in told:
        cap = "any number of" if told["cap"] is None else f"{told['cap']:,}"
        print_facts({"type": told["type"], "group": told["group"], "cap": f"{cap} columns a producer"})
        say("")
    print_table([*HEADS], [_row(one) for one in told["producers"]], empty=_nobody(groups))
    if hidden > 0:
        say(f"{count(hidden, 'other')} not shown; --limit shows more")
    if told.get("withheld"):
        say("\nwithheld, as those who send them have brought as many columns as they may:")
        rows = [[one["path"], one["kind"], one["producer"] or UNTOLD] for one in told["withheld"]]
        print_table(["path", "kind", "sent by"], rows, empty="")


def _row(one: dict[str, Any]) -> list[Any]:
    reasons = ", ".join(f"{reason} {values:,}" for reason, values in one["reasons"].items())
    counts = [f"{one[name]:,}" for name in HEADS[2:-1]]
    return [one["group"], one["producer"] or UNTOLD, *counts, reasons]


def _nobody(groups: "list[EventGroup]") -> str:
    """Why no producer is told."""
    if not groups:
        return NO_STREAM
    silent = sorted({one.stream.name for one in groups if not one.tells_producers})
    if len(silent) == len({one.stream.name for one in groups}):
        return f'{", ".join(silent)} tells no producer; add producer_field="$.…" to its event_stream(…)'
    return "no step has been settled since producers are counted"
