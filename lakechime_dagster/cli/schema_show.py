"""`lakechime schema show` and `quarantine`."""

import difflib
import json
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import common
from lakechime_dagster.cli.common import (
    MAX_LIMIT,
    Json,
    count,
    declared_lake,
    note,
    one_line,
    open_platform,
    print_facts,
    print_json,
    print_table,
    say,
    when,
)
from lakechime_dagster.dce.partitions import printable
from lakechime_dagster.errors import LakeChimeError, NotFoundError, shown
from lakechime_dagster.settings import Settings

if TYPE_CHECKING:
    from lakechime_dagster.runtime.platform import Platform
    from lakechime_dagster.silver.requests import GroupedType
    from lakechime_dagster.silver.schema import Column, TypeCheckpoint
    from lakechime_dagster.silver.service import Streamed
    from lakechime_dagster.silver.store import AskedReprocess
    from lakechime_dagster.tables.events import EventGroup, EventStream


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
    from lakechime_dagster.silver.requests import types_of

    groups = declared_groups(platform.settings) if group is None else [group_named(group, platform.settings)]
    if not groups:
        raise NotFoundError(NO_STREAM)
    several = [one for each in groups for one in types_of(platform, each)]
    found = [one for one in several if one.known.type == name] or [one for one in several if one.table == name]
    if len(found) > 1:
        having = " and ".join(one.group.name for one in found)
        raise common.wrong("--group", f"{shown(name)} is a type of {having}; say which")
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
    return f"there are {told}" if len(names) <= MAX_NAMED else f"there are {len(names):,}, such as {told}; see `lakechime schema show`"


_WHY = {
    "frozen": 'its contract lets no table be made: Contract(tables="freeze")',
    "type_cap": "the group has as many tables as its max_types lets it; `lakechime schema decide TYPE tables evolve` lets this one in",
}  # why a type waits, in the words of a step and in those of a declaration
INDENT = "  "
MAX_LAYOUTS = 10  # of a type, the newest ones, that people are shown
MAX_BREAKS = 20  # of a type, the newest ones, that people are shown
MAX_REPLAYS = 10  # of a type, the newest ones, that people are shown


def show(
    name: TypeName,
    group: OfGroup = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Show the first real payload of each variation too; IT MAY HOLD PERSONAL DATA.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=MAX_LIMIT, help="At most so many variations, the first ones first.")] = 20,
    as_json: Json = False,
) -> None:
    """Show a type: the columns of its newest layout, what was observed of it, and the shape of each variation without its values."""
    from lakechime_dagster.silver.requests import event_types
    from lakechime_dagster.silver.service import Streamed

    platform = open_platform()
    one = type_named(platform, name, group)
    stream = Streamed(platform, one.group.stream.table)
    kept = event_types(platform).shapes(one.group.name, one.known.type)
    variations = [{fact: row[fact] for fact in row if fact != "type_id"} for row in kept[:limit]]
    if raw:
        note("warning: payloads are shown as they came, and may hold personal data")
        payloads = stream.payloads([row["source"] for row in variations])
        variations = [row | {"payload": payloads.get(row["source"])} for row in variations]
    told = document(one, newest_of(stream)) | {
        "layout": one.known.layout.to_json(),
        "observed": _observed(one),
        "variations_kept": len(kept),
        "variations": variations,
        "contract": _contract(platform, one),
        "hints": _hints(platform, one),
        "replays": _replays(platform, one),
        "breaking": _breaking(platform, one),
        "layouts": _layouts(platform, one),
    }
    if as_json:
        print_json(told)
        return
    _print_type(one, told)
    _print_decided(told)
    _print_variations(told, stream.table.name, is_raw=raw)


def newest_of(stream: "Streamed") -> "TypeCheckpoint | None":
    """Where a stream's table ends; one that cannot be read must not hide what the store knows."""
    try:
        return stream.newest()
    except LakeChimeError as error:
        note(f"warning: {one_line(str(error))}")
        return None


def document(one: "GroupedType", newest: "TypeCheckpoint | None") -> dict[str, Any]:
    """A type as JSON; `newest` is where its stream's table ends, if that is known."""
    known = one.known
    return {
        "group": one.group.name,
        "type": known.type,
        "table": one.table,
        "layout_version": known.layout_version,
        "columns": known.layout.leaves,
        "checkpoint": known.checkpoint.version if known.checkpoint.version >= 0 else None,
        "newest": newest.version if newest else None,
        "behind": one.behind(newest) if newest else None,
        "written": known.written,
        "rescued": known.rescued,
        "discarded": known.discarded,
        "waiting": known.pending,
        "state": one.fares.value,
        "reason": one.reason,
        "left": one.left,
        "failures": known.failures,
        "due_ts": known.due_ts or None,
    }


def state_shown(told: Mapping[str, Any]) -> str:
    """How a type fares, and why, for people."""
    if told["left"]:
        waiting = f", {count(told['waiting'], 'row')} waiting" if told["waiting"] else ""
        return f"{told['state']}: {told['left']}{waiting}"
    return f"{told['state']}: {why(told['reason'])}" if told["reason"] else told["state"]


def why(reason: str) -> str:
    """A reason in the words of declarations where it is of those that steps tell by a word."""
    return _WHY.get(reason, one_line(reason))


def tree(columns: "tuple[Column, ...]", level: int = 0) -> Iterator[tuple[str, str, str, str]]:
    """Columns with those within them below: name, what it holds, the field where it is spelled otherwise, and of what it is a sibling."""
    from lakechime_dagster.tables.events import column_of

    for one in columns:
        holds, inner = _holds(one)
        field = json.dumps(one.field, ensure_ascii=False) if one.field != one.name else ""
        yield INDENT * level + one.name, holds, field, column_of(one.field) if one.is_sibling else ""
        yield from tree(inner, level + 1)


def _holds(column: "Column") -> "tuple[str, tuple[Column, ...]]":
    """What a column holds, through arrays down to their elements, and the fields of these."""
    if column.element is None:
        return column.holds.value, column.fields
    holds, inner = _holds(column.element)
    return f"{column.holds.value} of {holds}", inner


def _observed(one: "GroupedType") -> list[dict[str, Any]]:
    paths = sorted(one.known.observed.paths.items())
    return [{"path": path, "kinds": sorted(seen.kinds), "first": seen.first, "last": seen.last} for path, seen in paths if path]


def _contract(platform: "Platform", one: "GroupedType") -> dict[str, Any]:
    """What holds of the type: what is declared, with what people said beside it."""
    from lakechime_dagster.silver.requests import event_hints

    return one.group.with_hints(event_hints(platform).holding(one.group.name)).contract_of(one.known.type).to_json()


def _layouts(platform: "Platform", one: "GroupedType") -> list[dict[str, Any]]:
    """The layouts, the newest first: what each gained, or lost by a rebuild, when and by whom."""
    from lakechime_dagster.silver.requests import event_types

    return [
        {"version": each.version, "made_ts": each.made_ts, "actor": each.actor, "decision": each.decision}
        for each in reversed(event_types(platform).history(one.group.name, one.known.type))
    ]


def _breaking(platform: "Platform", one: "GroupedType") -> list[dict[str, Any]]:
    """The changes that broke something, the newest first."""
    from lakechime_dagster.silver.requests import event_breaks

    return [
        {
            "path": each.breaking.path,
            "kind": each.breaking.kind,
            "how": each.breaking.how.value,
            "producer": each.breaking.producer,
            "layout": each.layout_version,
            "made_ts": each.made_ts,
        }
        for each in reversed(event_breaks(platform).of(one.group.name, one.known.type))
    ]


def _hints(platform: "Platform", one: "GroupedType") -> list[dict[str, Any]]:
    """What people said of the type beside what is declared, and still holds."""
    from lakechime_dagster.silver.requests import event_hints

    said = event_hints(platform).said(one.group.name, one.known.type)
    return [
        {"of": each.hint.of, "says": each.hint.says, "who": each.who, "reason": each.reason, "made_ts": each.made_ts}
        for each in said
        if each.ended_ts is None
    ]


def _replays(platform: "Platform", one: "GroupedType") -> list[dict[str, Any]]:
    """The replays that people asked for, the newest first."""
    from lakechime_dagster.silver.requests import event_replays

    asked = event_replays(platform).of(one.group.name, one.known.type)
    return [
        {
            "replay": each.replay.replay_id,
            "whole": each.replay.is_whole,
            "rebuild": each.replay.is_rebuild,
            "who": each.who,
            "reason": each.reason,
            "asked_ts": each.asked_ts,
            "done_ts": each.done_ts,
            "replaced": each.done.replaced if each.done else None,
            "added": each.done.added if each.done else None,
            "removed": each.done.removed if each.done else None,
        }
        for each in reversed(asked)
    ]


def _ended(replay: Mapping[str, Any]) -> str:
    if replay["done_ts"] is None:
        return "waits"
    return when(replay["done_ts"]) if replay["replaced"] is not None else "cancelled"


def _kind(replay: Mapping[str, Any]) -> str:
    return "rebuild" if replay["rebuild"] else "whole" if replay["whole"] else ""


def _print_decided(told: Mapping[str, Any]) -> None:
    """What a contract says that is not as ever, what broke something, and what people decided; nothing where they did not."""
    rules = contract_shown(told["contract"])
    if rules:
        say("\ncontract:")
        print_table(["of", "says"], rules, empty="")
    if told["breaking"]:
        say("\nbreaking changes:")
        rows = [
            [when(one["made_ts"]), one["path"], one["kind"], one["how"], one["producer"], one["layout"]]
            for one in told["breaking"][:MAX_BREAKS]
        ]
        print_table(["made", "path", "kind", "how", "producer", "layout"], rows, empty="")
    if told["layouts"]:
        say("\nlayouts:")
        rows = [[each["version"], when(each["made_ts"]), each["actor"], each["decision"]] for each in told["layouts"][:MAX_LAYOUTS]]
        print_table(["layout", "made", "by", "decision"], rows, empty="")
    if told["hints"]:
        say("\nsaid beside what is declared:")
        rows = [[one["of"], one["says"], one["who"], when(one["made_ts"]), one["reason"]] for one in told["hints"]]
        print_table(["of", "says", "by", "since", "because"], rows, empty="")
    if told["replays"]:
        say("\nreplays:")
        rows = [
            [
                one["replay"],
                _kind(one),
                when(one["asked_ts"]),
                one["who"],
                one["reason"],
                _ended(one),
                one["replaced"],
                one["added"],
                one["removed"],
            ]
            for one in told["replays"][:MAX_REPLAYS]
        ]
        print_table(["replay", "kind", "asked", "by", "because", "done", "replaced", "added", "removed"], rows, empty="")


def contract_shown(contract: Mapping[str, Any]) -> list[list[str]]:
    """What a contract says that is not as ever: what it is said of, and what."""
    modes = [[of, contract[of]] for of in ("tables", "columns", "kinds") if contract[of] != "evolve"]
    excluded = [["excluded", ", ".join(contract["excluded"])]] if "excluded" in contract else []
    rules = [[path, ", ".join(f"{of} {says}" for of, says in rule.items())] for path, rule in contract.get("paths", {}).items()]
    numbers = [["numbers", "double first"]] if contract["double first"] else []
    return [*modes, *excluded, *numbers, *rules, *([path, pin] for path, pin in contract["pins"].items())]


def _print_type(one: "GroupedType", told: Mapping[str, Any]) -> None:
    table = one.group.stream.table.name
    checkpoint = f"nothing of {table} was read yet" if told["checkpoint"] is None else f"version {told['checkpoint']} of {table}"
    checkpoint += f", {count(told['behind'], 'version')} behind" if told["behind"] else ""
    print_facts(
        {
            "type": told["type"],
            "group": told["group"],
            "table": told["table"],
            "layout": told["layout_version"],
            "checkpoint": checkpoint,
            "rows": f"{told['written']:,} written, {told['rescued']:,} of them with something rescued",
            "state": state_shown(told),
        }
    )
    say("\ncolumns:")
    print_table(["column", "holds", "field", "sibling of"], tree(one.known.layout.columns), empty="none")
    say("\nobserved, with the versions in which the first and the last kind came first:")
    rows = [[row["path"], ", ".join(row["kinds"]), row["first"], row["last"]] for row in told["observed"]]
    print_table(["path", "kinds", "first", "last"], rows, empty="nothing")


def _print_variations(told: Mapping[str, Any], table: str, *, is_raw: bool) -> None:
    say(f"\n{count(told['variations_kept'], 'variation')} kept, by an event of each without its values:")
    for row in told["variations"]:
        say(f"{row['typed_hash']} first {printable(row['source'])} in version {row['position']}, {when(row['first_ts'])}")
        say(INDENT + printable(row["shape"]))
        if is_raw:
            payload = row["payload"]
            say(INDENT + (f"its payload is no longer in {table}" if payload is None else printable(payload)))
    hidden = told["variations_kept"] - len(told["variations"])
    if hidden:
        say(f"{count(hidden, 'later one')} not shown; --limit shows more")


MAX_REPROCESSES = 10  # in a table that people read
Name = Annotated[str, typer.Argument(metavar="STREAM_OR_GROUP", help="A stream, or a group, whose types that wait are shown too.")]


def quarantine(
    name: Name,
    limit: Annotated[int, typer.Option(min=1, max=MAX_LIMIT, help="At most so many refused rows, newest first.")] = 20,
    as_json: Json = False,
) -> None:
    """Show what a stream refused: how many rows by reason, and the newest ones; of a group the types that wait or failed, too.

    A refused row has no type, so that it is of no group; one that was reprocessed is refused no more. Payloads are shown as they came,
    cut at 200 characters, and may hold personal data.
    """
    from lakechime_dagster.silver.requests import Fares, types_of
    from lakechime_dagster.silver.service import Streamed

    platform = open_platform()
    group, stream = _named(name, platform.settings)
    streamed = Streamed(platform, stream.table)
    reasons = streamed.refused_by_reason()
    refused = [row | {column: _time(row[column]) for column in ("_ingested_at", "sent_at")} for row in streamed.refused(limit)]
    told: dict[str, Any] = {
        "stream": stream.name,
        "table": stream.table.name,
        "total": sum(reasons.values()),
        "reasons": reasons,
        "refused": refused,
        "reprocessing": _reprocesses_of(platform, stream.table.name),
    }
    if group is not None:
        newest = newest_of(streamed)
        told |= {"group": name, "types": [document(one, newest) for one in types_of(platform, group) if one.fares is not Fares.OK]}
    if as_json:
        print_json(told)
    else:
        _print(told)


def _named(name: str, settings: Settings) -> "tuple[EventGroup | None, EventStream]":
    """The group of that name with its stream, or the stream."""
    groups = {group.name: group for group in declared_groups(settings)}
    streams = {group.stream.name: group.stream for group in groups.values()}
    if name in groups:
        return groups[name], groups[name].stream
    if name not in streams:
        wrong = f"the lake declares no stream and no group {shown(name)} of events; {remedy(name, {*groups, *streams})}"
        raise NotFoundError(wrong if groups else NO_STREAM)
    return None, streams[name]


def _time(moment: Any) -> str | None:
    return None if moment is None else moment.isoformat()


def _print(told: dict[str, Any]) -> None:
    print_table(
        ["reason", "rows"],
        [[reason, f"{rows:,}"] for reason, rows in told["reasons"].items()],
        empty=f"{told['table']} has refused nothing",
    )
    if told["refused"]:
        say("\nnewest first:")
    for row in told["refused"]:
        say(f"{printable(row['_src'])} {row['reason']}, ingested {row['_ingested_at']}")
        say(INDENT + printable(row["payload"]))
    if told["total"] > len(told["refused"]):
        say(f"{count(told['total'] - len(told['refused']), 'older one')} not shown; --limit shows more")
    if told["reprocessing"]:
        _print_reprocesses(told["reprocessing"])
    if "types" in told:
        say(f"\ntypes of {told['group']} that wait or failed:")
        rows = [[one["type"], one["table"], one["waiting"], when(one["due_ts"]), state_shown(one)] for one in told["types"]]
        print_table(["type", "table", "rows waiting", "tried again", "state"], rows, empty="none")


def _reprocesses_of(platform: "Platform", table: str) -> list[dict[str, Any]]:
    """What people asked to be reprocessed of a stream, the newest first."""
    from lakechime_dagster.silver.requests import event_reprocesses

    return [_document(one) for one in reversed(event_reprocesses(platform).of(table))]


def _print_reprocesses(reprocesses: list[dict[str, Any]]) -> None:
    """The newest of them as a table."""
    say("\nreprocessing:")
    rows = [
        [
            one["number"],
            when(one["asked_ts"]),
            one["who"],
            one["reason"],
            _quarantine_ended(one),
            "" if one["rows"] is None else one["rows"],
        ]
        for one in reprocesses[:MAX_REPROCESSES]
    ]
    print_table(["number", "asked", "by", "because", "done", "rows"], rows, empty="")


def _document(one: "AskedReprocess") -> dict[str, Any]:
    asked = {"number": one.reprocess_id, "who": one.who, "reason": one.reason, "asked_ts": one.asked_ts}
    return {**asked, "done_ts": one.done_ts, "rows": one.rows}


def _quarantine_ended(one: dict[str, Any]) -> str:
    if one["done_ts"] is None:
        return "waits"
    return when(one["done_ts"]) if one["rows"] is not None else "cancelled"
