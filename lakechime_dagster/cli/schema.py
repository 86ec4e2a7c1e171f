"""`lakechime schema`: event streams, the types of their events, and what was refused."""

import difflib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import common
from lakechime_dagster.cli.common import (
    MAX_LIMIT,
    DryRun,
    Json,
    Reason,
    Who,
    answer,
    count,
    declared_lake,
    note,
    one_line,
    open_platform,
    print_documents,
    print_facts,
    print_json,
    print_table,
    say,
    when,
    would,
)
from lakechime_dagster.dce.partitions import printable
from lakechime_dagster.errors import DeclarationError, LakeChimeError, NotFoundError, shown
from lakechime_dagster.settings import Settings

if TYPE_CHECKING:
    from lakechime_dagster.runtime.platform import Platform
    from lakechime_dagster.silver.requests import GroupedType
    from lakechime_dagster.silver.results import Verified
    from lakechime_dagster.silver.schema import Column, TypeCheckpoint
    from lakechime_dagster.silver.service import Streamed
    from lakechime_dagster.tables.events import EventGroup, EventStream
    from lakechime_dagster.triggers.interventions import By

app = typer.Typer(name="schema", help="Event streams: show their types and what was refused, decide, replay, verify.")

TypeName = Annotated[str, typer.Argument(metavar="TYPE", help="The type as its events spell it, or its table.")]
OfGroup = Annotated[str | None, typer.Option("--group", metavar="GROUP", help="The type's group, where several have it.")]
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
    """The type of that name, or of the table of that name.

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
        where = f"event group {group} has no" if group is not None else "no event group has an"
        names = sorted({one.known.type for one in several})
        raise NotFoundError(f"{where} event of type {shown(name)}; {remedy(name, names)}")
    return found[0]


def remedy(name: str, names: Collection[str]) -> str:
    """What a person meant, or may name."""
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"did you mean {printable(near[0])}?"
    told = ", ".join(printable(one) for one in sorted(names)[:MAX_NAMED]) or "none"
    return f"there are {told}" if len(names) <= MAX_NAMED else f"there are {len(names):,}, such as {told}; see `lakechime schema show`"


_WHY = {
    "frozen": 'its contract forbids new tables: Contract(tables="freeze")',
    "type_cap": "the group has max_types tables; `lakechime schema decide TYPE tables evolve` adds one for this type",
}  # why a type waits, by the code of the reason
INDENT = "  "
MAX_PAST = 10  # of the schema versions, replays and breaking changes of a type, that people are shown


@app.command()
def show(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A group lists its types; a type, or its table, is shown; all unless given.")
    ] = None,
    group: OfGroup = None,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Show what a stream, or the stream of a group, refused; IT MAY HOLD PERSONAL DATA.")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Show a real payload of each variation; IT MAY HOLD PERSONAL DATA.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=MAX_LIMIT, help="At most so many variations or refused rows.")] = 20,
    as_json: Json = False,
) -> None:
    """List the types of events with their tables and progress, show one, or show what a stream refused.

    A type is shown with its columns, what was observed, its variations without values, decisions, replays and breaking changes.
    """
    platform = open_platform()
    if quarantine:
        if name is None:
            raise common.wrong("--quarantine", "name a stream or a group")
        _show_quarantine(platform, name, limit, as_json)
    elif name is None or (group is None and name in {one.name for one in declared_groups(platform.settings)}):
        _list(platform, name or group, as_json)
    else:
        _show_type(platform, type_named(platform, name, group), limit, as_json, is_raw=raw)


def _list(platform: "Platform", group: str | None, as_json: bool) -> None:
    """Types; `written` and `rescued` are numbers of rows, and a rescued row is written too."""
    from lakechime_dagster.silver.requests import types_of
    from lakechime_dagster.silver.service import Streamed

    groups = declared_groups(platform.settings) if group is None else [group_named(group, platform.settings)]
    tables = {each.stream.table.name: each.stream.table for each in groups}
    newest = {each: newest_of(Streamed(platform, table)) for each, table in tables.items()}
    documents = [document(one, newest.get(each.stream.table.name)) for each in groups for one in types_of(platform, each)]
    failed = {each.name: each.problem for each in groups if each.problem}
    if as_json:
        print_json({"types": documents} | ({"failed_groups": failed} if failed else {}))
        return
    for name, problem in failed.items():
        say(f"group {name} failed, and its events wait in the stream's table: {problem}")
    rows = [one | {"state": state_shown(one)} for one in documents]
    empty = f"no event was read yet for {', '.join(one.name for one in groups)}" if groups else NO_STREAM
    print_documents(rows, "group type table schema_version columns checkpoint behind written rescued state", empty=empty)


def _show_type(platform: "Platform", one: "GroupedType", limit: int, as_json: bool, *, is_raw: bool) -> None:
    from lakechime_dagster.silver.requests import event_types
    from lakechime_dagster.silver.service import Streamed

    stream = Streamed(platform, one.group.stream.table)
    kept = event_types(platform).shapes(one.group.name, one.known.type)
    variations = [{fact: row[fact] for fact in row if fact != "type_id"} for row in kept[:limit]]
    if is_raw:
        note("warning: payloads are shown as they were received, and may hold personal data")
        payloads = stream.payloads([row["source"] for row in variations])
        variations = [row | {"payload": payloads.get(row["source"])} for row in variations]
    facts = document(one, newest_of(stream)) | {
        "schema": one.known.schema.to_json(),
        "observed": _observed(one),
        "variations_kept": len(kept),
        "variations": variations,
        "contract": _contract(platform, one),
        "hints": _hints(platform, one),
        "replays": _replays(platform, one),
        "breaking": _breaking(platform, one),
        "schemas": _schemas(platform, one),
    }
    if as_json:
        print_json(facts)
        return
    _print_type(one, facts)
    _print_decided(facts)
    _print_variations(facts, stream.table.name, is_raw=is_raw)


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
        "schema_version": known.schema_version,
        "columns": known.schema.leaves,
        "checkpoint": known.checkpoint.version if known.checkpoint.version >= 0 else None,
        "newest": newest.version if newest else None,
        "behind": one.behind(newest) if newest else None,
        "written": known.written,
        "rescued": known.rescued,
        "discarded": known.discarded,
        "waiting": known.pending,
        "state": one.state.value,
        "reason": one.reason,
        "left": one.left,
        "failures": known.failures,
        "due_ts": known.due_ts or None,
    }


def state_shown(told: Mapping[str, Any]) -> str:
    """The state of a type, and why, for people."""
    if told["left"]:
        waiting = f", {count(told['waiting'], 'row')} waiting" if told["waiting"] else ""
        return f"{told['state']}: {told['left']}{waiting}"
    return f"{told['state']}: {why(told['reason'])}" if told["reason"] else told["state"]


def why(reason: str) -> str:
    """A reason for people; some are recorded as a code."""
    return _WHY.get(reason, one_line(reason))


def tree(columns: "tuple[Column, ...]", level: int = 0) -> Iterator[tuple[str, str, str, str]]:
    """Columns, each followed by those within it: name, what it holds, the field if it has another name, and of what it is a variant."""
    from lakechime_dagster.tables.events import column_of

    for one in columns:
        holds, inner = _holds(one)
        field = json.dumps(one.field, ensure_ascii=False) if one.field != one.name else ""
        yield INDENT * level + one.name, holds, field, column_of(one.field) if one.is_variant else ""
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
    """The contract of the type: what is declared, with the decisions of people."""
    from lakechime_dagster.silver.requests import event_hints

    return one.group.with_hints(event_hints(platform).holding(one.group.name)).contract_of(one.known.type).to_json()


def _schemas(platform: "Platform", one: "GroupedType") -> list[dict[str, Any]]:
    """The schema versions, the newest first: what each gained, or lost by a rebuild, when and by whom."""
    from lakechime_dagster.silver.requests import event_types

    return [
        {"version": each.version, "made_ts": each.made_ts, "actor": each.actor, "decision": each.decision}
        for each in reversed(event_types(platform).history(one.group.name, one.known.type))
    ]


def _breaking(platform: "Platform", one: "GroupedType") -> list[dict[str, Any]]:
    """The breaking changes, the newest first."""
    from lakechime_dagster.silver.requests import event_breaks

    return [
        {
            "path": each.breaking.path,
            "kind": each.breaking.kind,
            "how": each.breaking.how.value,
            "producer": each.breaking.producer,
            "schema": each.schema_version,
            "made_ts": each.made_ts,
        }
        for each in reversed(event_breaks(platform).of(one.group.name, one.known.type))
    ]


def _hints(platform: "Platform", one: "GroupedType") -> list[dict[str, Any]]:
    """The decisions about the type that hold."""
    from lakechime_dagster.silver.requests import event_hints

    said = event_hints(platform).said(one.group.name, one.known.type)
    return [
        {"of": each.hint.of, "says": each.hint.says, "who": each.who, "reason": each.reason, "made_ts": each.made_ts}
        for each in said
        if each.ended_ts is None
    ]


def _replays(platform: "Platform", one: "GroupedType") -> list[dict[str, Any]]:
    """The requested replays, the newest first."""
    from lakechime_dagster.silver.requests import event_replays

    asked = event_replays(platform).of(one.group.name, one.known.type)
    return [
        {
            "replay": each.replay.replay_id,
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


def _ended(request: Mapping[str, Any], rows: str) -> str:
    if request["done_ts"] is None:
        return "waiting"
    return when(request["done_ts"]) if request[rows] is not None else "cancelled"


def _kind(replay: Mapping[str, Any]) -> str:
    return "rebuild" if replay["rebuild"] else "replay"


def _print_decided(told: Mapping[str, Any]) -> None:
    """The rules of the contract that are not the default, decisions, breaking changes, schema versions and replays, where there are any."""
    replays = [one | {"kind": _kind(one), "done": _ended(one, "replaced")} for one in told["replays"]]
    sections = (
        ("contract", [{"of": of, "rule": rule} for of, rule in contract_shown(told["contract"])], "of rule"),
        ("breaking changes", told["breaking"], "made_ts path kind how producer schema"),
        ("schema versions", told["schemas"], "version made_ts actor decision"),
        ("decisions", told["hints"], "of says who made_ts reason"),
        ("replays", replays, "replay kind asked_ts who reason done replaced added removed"),
    )
    for title, several, facts in sections:
        if several:
            say(f"\n{title}:")
            print_documents(several[:MAX_PAST], facts)


def contract_shown(contract: Mapping[str, Any]) -> list[list[str]]:
    """The rules of a contract that are not the default: of what, and the rule."""
    modes = [[of, contract[of]] for of in ("tables", "columns", "kinds") if contract[of] != "evolve"]
    numbers = [["numbers", "double first"]] if contract["double first"] else []
    return [*modes, *numbers, *([path, pin] for path, pin in contract["pins"].items())]


def _print_type(one: "GroupedType", told: Mapping[str, Any]) -> None:
    table = one.group.stream.table.name
    checkpoint = f"nothing of {table} was read yet" if told["checkpoint"] is None else f"version {told['checkpoint']} of {table}"
    checkpoint += f", {count(told['behind'], 'version')} behind" if told["behind"] else ""
    print_facts(
        {
            "type": told["type"],
            "group": told["group"],
            "table": told["table"],
            "schema version": told["schema_version"],
            "checkpoint": checkpoint,
            "rows": f"{told['written']:,} written, {told['rescued']:,} of them with rescued data",
            "state": state_shown(told),
        }
    )
    say("\ncolumns:")
    print_table(["column", "holds", "field", "variant of"], tree(one.known.schema.columns), empty="none")
    say("\nobserved, with the versions in which the first and the last kind were seen first:")
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


def _show_quarantine(platform: "Platform", name: str, limit: int, as_json: bool) -> None:
    """Refused rows by reason, and the newest ones, cut at 200 characters; of a group also the types that wait or failed."""
    from lakechime_dagster.silver.requests import TypeState, types_of
    from lakechime_dagster.silver.service import Streamed

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
        told |= {"group": name, "types": [document(one, newest) for one in types_of(platform, group) if one.state is not TypeState.OK]}
    if as_json:
        print_json(told)
    else:
        _print_quarantine(told)


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


def _print_quarantine(told: dict[str, Any]) -> None:
    reasons = [{"reason": reason, "rows": rows} for reason, rows in told["reasons"].items()]
    print_documents(reasons, "reason rows", empty=f"{told['table']} has refused nothing")
    if told["refused"]:
        say("\nnewest first:")
    for row in told["refused"]:
        say(f"{printable(row['_src'])} {row['reason']}, ingested {row['_ingested_at']}")
        say(INDENT + printable(row["payload"]))
    if told["total"] > len(told["refused"]):
        say(f"{count(told['total'] - len(told['refused']), 'older one')} not shown; --limit shows more")
    if told["reprocessing"]:
        say("\nreprocessing:")
        several = [one | {"done": _ended(one, "rows")} for one in told["reprocessing"][:MAX_PAST]]
        print_documents(several, "number asked_ts who reason done rows")
    if "types" in told:
        say(f"\ntypes of {told['group']} that wait or failed:")
        print_documents([one | {"state": state_shown(one)} for one in told["types"]], "type table waiting due_ts state", empty="none")


def _reprocesses_of(platform: "Platform", table: str) -> list[dict[str, Any]]:
    """The requests to reprocess the quarantine of a stream, the newest first."""
    from lakechime_dagster.silver.requests import event_reprocesses

    facts = ("who", "reason", "asked_ts", "done_ts", "rows")
    several = reversed(event_reprocesses(platform).of(table))
    return [{"number": one.reprocess_id} | {fact: getattr(one, fact) for fact in facts} for one in several]


What = Annotated[str, typer.Argument(metavar="PATH|tables|columns|kinds|all", help="A field, such as /price; or what may change.")]
Kind = Annotated[str, typer.Argument(metavar="KIND", help="Such as double; or evolve, freeze, …; or - for what is declared.")]
Rebuild = Annotated[bool, typer.Option("--rebuild", help="Rebuild the table, columns and rows, in one commit that replaces it.")]
Cancel = Annotated[bool, typer.Option("--cancel", help="Cancel the request that waits.")]
DECLARED = "-"
ALL = "all"


@app.command()
def decide(
    name: TypeName,
    what: What,
    kind: Kind,
    reason: Reason,
    who: Who = None,
    group: OfGroup = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Decide how a field without a column is stored, or how a type may change; it overrides the declaration from the next execution on.

    Of a PATH the kind is bool, long, bigint, double, string, json or ignore. Of tables, columns, kinds, or all of these, it is a mode
    of a contract, such as evolve or freeze: evolve gives a type its table beyond max_types too. Existing columns stay as they are;
    `lakechime schema replay` applies it to earlier events.
    """
    from lakechime_dagster.silver.requests import event_hints
    from lakechime_dagster.tables.events import MODES, Hint

    platform = open_platform(dry_run=dry_run)
    by = common.by(who, reason)
    one = type_named(platform, name, group)
    hints, several = event_hints(platform), MODES if what == ALL else (what,)
    try:
        said = [] if kind == DECLARED else [Hint(type=one.known.type, of=each, says=kind) for each in several]
    except DeclarationError as error:
        raise common.wrong("PATH" if error.field == "of" else "KIND", error.remedy) from None
    for each in several if kind == DECLARED else ():
        hints.end(one.group.name, one.known.type, each, dry_run=dry_run)
    for each in () if dry_run else said:
        hints.say(one.group.name, each, by)
    told = {
        "group": one.group.name,
        "type": one.known.type,
        "of": list(several),
        "says": None if kind == DECLARED else kind,
        "dry_run": dry_run,
    }
    kept = "as it is declared" if kind == DECLARED else kind
    what_of = f"{printable(', '.join(several))} of {printable(one.known.type)}"
    answer(as_json, told, f"{what_of} {would(dry_run)} {kept} from the next execution on; {_replay_by(one)}")


@app.command()
def replay(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A type as its events spell it, or its table; with --quarantine a stream, with --failed also a group."
        ),
    ],
    reason: Reason,
    rebuild: Rebuild = False,
    quarantine: Annotated[bool, typer.Option("--quarantine", help="Reprocess what a stream refused.")] = False,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only try what failed again now, as after a repair, before its pause ends.")
    ] = False,
    cancel: Cancel = False,
    who: Who = None,
    group: OfGroup = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Read earlier events of a type again, and repair the rows that they would have now, or reprocess what a stream refused.

    The next execution of the group or stream does it. Correct rows are not changed, missing rows are added, and nothing is deleted.
    `--rebuild` computes the table again from the stream's table in one commit that replaces it; rows whose events the
    stream no longer has are lost. A dry run computes what would change, which starts Spark. Without `--failed` a type that
    failed is tried again after 10 s, 1, 5 and then 15 minutes.
    """
    from lakechime_dagster.silver.requests import event_replays

    if sum((quarantine, rebuild, failed)) > 1:
        raise common.wrong("--quarantine, --rebuild, --failed", "are different requests; give one of them")
    if failed and cancel:
        raise common.wrong("--failed", "cannot be cancelled: the next execution does it; leave --cancel out")
    platform = open_platform(dry_run=dry_run)
    by = common.by(who, reason)
    if quarantine:
        _reprocess(platform, name, by, cancel=cancel, dry_run=dry_run, as_json=as_json)
        return
    if failed:
        _retry(platform, name, group, dry_run=dry_run, as_json=as_json)
        return
    one = type_named(platform, name, group)
    told: dict[str, Any] = {"group": one.group.name, "type": one.known.type, "rebuild": rebuild, "dry_run": dry_run}
    replays = event_replays(platform)
    if cancel:
        number = replays.cancel(one.group.name, one.known.type, by, dry_run=dry_run)
        answer(as_json, {**told, "cancelled": number}, f"replay {number} of {printable(one.known.type)} {would(dry_run)} cancelled")
        return
    if dry_run:
        answer(as_json, *(_would_rebuild if rebuild else _would_replay)(platform, one, told))
        return
    (asked,) = replays.ask(one.group.name, [one.known.type], by, is_rebuild=rebuild)
    done = f"which its sensor launches; `lakechime schema show {printable(one.table)}` shows the result"
    what = "rebuild" if rebuild else "replay"
    sentence = f"{what} {asked.replay.replay_id} of {printable(one.known.type)} is done by the next execution of {one.group.name}, {done}"
    answer(as_json, {**told, "replay": asked.replay.replay_id}, sentence)


def _retry(platform: "Platform", name: str, group: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Let the next execution try the failed types of a group, or one failed type, which is launched at once."""
    from lakechime_dagster.silver.requests import TypeState, event_types, types_of

    groups = {each.name: each for each in declared_groups(platform.settings)}
    several = types_of(platform, groups[name]) if group is None and name in groups else [type_named(platform, name, group)]
    failed = [one for one in several if one.state is TypeState.FAILED]
    if not failed:
        raise NotFoundError(f"no type of {printable(name)} failed, so that there is nothing to try again; see `lakechime schema show`")
    owner, types = failed[0].group.name, [one.known.type for one in failed]
    if not dry_run:
        types = event_types(platform).retry(owner, types)
    sentence = f"{', '.join(map(printable, types))} {would(dry_run)} tried by the next execution of {owner}, which its sensor launches"
    answer(as_json, {"group": owner, "types": types, "dry_run": dry_run}, sentence)


def _reprocess(platform: "Platform", name: str, by: "By", *, cancel: bool, dry_run: bool, as_json: bool) -> None:
    """Request that the refused rows of a stream are parsed again; those that are events now are added to its table, once."""
    from lakechime_dagster.silver.requests import event_reprocesses
    from lakechime_dagster.silver.service import would_reprocess

    stream = stream_named(name, platform.settings)
    table, reprocesses = stream.table, event_reprocesses(platform)
    told: dict[str, Any] = {"stream": stream.name, "table": table.name, "dry_run": dry_run}
    if cancel:
        number = reprocesses.cancel(table.name, by, dry_run=dry_run)
        answer(as_json, {**told, "cancelled": number}, f"reprocessing {number} of {stream.name} {would(dry_run)} cancelled")
    elif dry_run:
        found = would_reprocess(platform, table, note)
        kinds = [{"reason": reason, "type": kind, "rows": rows} for reason, kind, rows in found.kinds]
        answer(as_json, {**told, "rows": found.rows, "kinds": kinds}, f"{count(found.rows, 'row')} of {table.name} would be reprocessed")
        if kinds and not as_json:
            print_documents(kinds, "reason type rows")
    else:
        asked = reprocesses.ask(table.name, by)
        done = f"which its sensor launches; `lakechime schema show {stream.name} --quarantine` shows the result"
        sentence = f"reprocessing {asked.reprocess_id} of {stream.name} is done by the next execution of {table.name}, {done}"
        answer(as_json, {**told, "reprocessing": asked.reprocess_id}, sentence)


def _would_replay(platform: "Platform", one: "GroupedType", told: dict[str, Any]) -> tuple[dict[str, Any], str]:
    from lakechime_dagster.silver.service import would_replay

    if not one.known.checkpoint.commits:
        raise NotFoundError(f"{printable(one.known.type)} has no table, so that there is nothing to replay into")
    found = would_replay(platform, one.group, one.known, note)
    document = {**told, "replaced": found.replaced, "added": found.added, "gained": _columns(found.gained)}
    gained = "".join(f"\n+ {name} {holds}" for name, holds in found.gained)
    return document, f"{count(found.replaced, 'row')} of {one.table} would be replaced, {found.added:,} added{gained}"


def _would_rebuild(platform: "Platform", one: "GroupedType", told: dict[str, Any]) -> tuple[dict[str, Any], str]:
    from lakechime_dagster.silver.service import Streamed, would_rebuild

    if not one.known.schema_version:
        raise NotFoundError(f"{printable(one.known.type)} has no table, so that there is nothing to rebuild")
    newest = Streamed(platform, one.group.stream.table).newest()
    if newest is None:
        raise NotFoundError(f"{one.group.stream.table.name} does not exist, so that there is nothing to make a table from")
    found = would_rebuild(platform, one.group, one.known, newest, note)
    counts = {"replaced": found.replaced, "added": found.added, "removed": found.removed, "same": found.is_same}
    document = {**told, **counts, "gained": _columns(found.gained), "lost": _columns(found.lost)}
    if found.is_same:
        return document, f"{one.table} would stay as it is"
    columns = [*(f"\n+ {name} {holds}" for name, holds in found.gained), *(f"\n- {name} {holds}" for name, holds in found.lost)]
    rows = f"{count(found.replaced, 'row')} of {one.table} would be replaced, {found.added:,} added, {found.removed:,} removed"
    return document, rows + "".join(columns)


def _columns(several: "Iterable[tuple[str, str]]") -> list[dict[str, str]]:
    return [{"name": name, "holds": holds} for name, holds in several]


def _replay_by(one: "GroupedType") -> str:
    return f"earlier events stay as they are until `lakechime schema replay {printable(one.table)} --reason …`"


OfName = Annotated[str | None, typer.Argument(metavar="[GROUP|TYPE]", help="A group, a type, or a type's table; all groups unless given.")]
Sample = Annotated[int, typer.Option("--sample", min=0, max=1_000_000, help="Rows of each type whose values are compared.")]
Values = Annotated[bool, typer.Option("--values", help="Show wrong values; THEY MAY BE PERSONAL DATA.")]


@app.command()
def verify(name: OfName = None, sample: Sample = 100, values: Values = False, group: OfGroup = None, as_json: Json = False) -> None:
    """Compare the tables of types with their stream's table: no event lost, no row twice or without event, no value changed.

    Events are compared by their `_src`, and values in a new sample of rows of each type. It starts Spark and reads everything;
    nothing is written, and runs continue. The exit code is 1 when something is wrong, or a type could not be read.
    """
    from lakechime_dagster.silver.service import verified

    platform = open_platform()
    found = [
        (one.name, each)
        for one, names in _wanted(platform, name, group)
        for each in verified(platform, one, note, names=names, sample=sample, seed=platform.store.now())
    ]
    if values:
        note("warning: values are shown as they were received, and may be personal data")
    if as_json:
        print_json({"types": [_verified_document(of, one, with_values=values) for of, one in found]})
    else:
        _print_verified([_verified_document(of, one, with_values=values) for of, one in found])
    if any(one.faults or one.unread for _, one in found):
        raise typer.Exit(1)


def _verified_document(group: str, one: "Verified", *, with_values: bool) -> dict[str, Any]:
    """The result for a type, as JSON; with values only on request."""
    examples = [
        {"fault": each.fault.value, "_src": each.source, "path": each.pointer} | ({"value": each.value} if with_values else {})
        for each in one.examples
    ]
    return {
        "group": group,
        "type": one.type,
        "table": one.table,
        "version": one.version,
        "checkpoint": one.checkpoint,
        "events": one.events,
        "rows": one.rows,
        "discarded": one.discarded,
        "gone": one.gone,
        "sampled": one.sampled,
        "faults": {fault.value: number for fault, number in one.faults.items()},
        "examples": examples,
        "unread": one.unread,
    }


def _wanted(platform: "Platform", name: str | None, group: str | None) -> "list[tuple[EventGroup, list[str] | None]]":
    """The groups, each with the types to verify; None are all."""
    groups = declared_groups(platform.settings)
    if not groups:
        raise NotFoundError(NO_STREAM)
    if name is None:
        return [(one, None) for one in (groups if group is None else [group_named(group, platform.settings)])]
    if group is None and name in {one.name for one in groups}:
        return [(group_named(name, platform.settings), None)]
    one = type_named(platform, name, group)
    return [(one.group, [one.known.type])]


def _print_verified(told: Sequence[Mapping[str, Any]]) -> None:
    rows = [{**one, "is": _verify_is(one)} for one in told]
    print_documents(rows, "type table events rows discarded sampled is", empty="no type has a table yet")
    for one in told:
        if one["gone"]:
            say(f"{one['table']}: {count(one['gone'], 'row')} older than all events in the stream's table")
        for each in one["examples"]:
            value = f" {printable(each['value'])}" if each.get("value") else ""
            say(f"{one['table']}: {each['fault']} {printable(each['_src'])} {printable(each['path'])}".rstrip() + value)


def _verify_is(one: Mapping[str, Any]) -> str:
    if one["unread"]:
        return f"not read: {one['unread']}"
    return ", ".join(f"{number:,} {fault}" for fault, number in one["faults"].items()) or "whole"
