"""`lakechime schema decide`, `replay`, `reprocess`, `retry` and `verify`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import common
from lakechime_dagster.cli.common import DryRun, Json, Reason, Who, count, note, open_platform, print_json, print_table, say
from lakechime_dagster.cli.schema_show import NO_STREAM, OfGroup, TypeName, declared_groups, group_named, stream_named, type_named
from lakechime_dagster.dce.partitions import printable
from lakechime_dagster.errors import DeclarationError, NotFoundError

if TYPE_CHECKING:
    from lakechime_dagster.runtime.platform import Platform
    from lakechime_dagster.silver.requests import GroupedType
    from lakechime_dagster.silver.results import Verified
    from lakechime_dagster.tables.events import EventGroup


What = Annotated[str, typer.Argument(metavar="PATH|tables|columns|kinds|all", help="A field, such as /price; or what may change.")]
Kind = Annotated[str, typer.Argument(metavar="KIND", help="Such as double; or evolve, freeze, …; or - for what is declared.")]
Whole = Annotated[bool, typer.Option("--whole", help="All its events, known to be right or not; brings back deleted rows.")]
Rebuild = Annotated[bool, typer.Option("--rebuild", help="Make the table anew, columns and rows, in one commit that replaces it.")]
Stream = Annotated[str, typer.Argument(metavar="STREAM", help="A stream of events of the lake.")]
Cancel = Annotated[bool, typer.Option("--cancel", help="End the one that waits, without doing it.")]
DECLARED = "-"
ALL = "all"


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
    """Decide how a field without a column is kept, or what may change of a type; it replaces what is declared, from the next execution on.

    Of a PATH the kind is bool, long, bigint, double, string, json or ignore. Of tables, columns, kinds, or all of these, it is what a
    contract has, such as evolve or freeze: evolve gives a type its table beyond max_types too. A column that exists stays as it is;
    `lakechime schema replay` brings earlier events along.
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
    _told(told, f"{what_of} {_is(dry_run)} {kept} from the next execution on; {_replay_by(one)}", as_json)


def replay(
    name: TypeName,
    reason: Reason,
    whole: Whole = False,
    rebuild: Rebuild = False,
    cancel: Cancel = False,
    who: Who = None,
    group: OfGroup = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Read a type's earlier events again, and repair the rows that would be others by now; the group's next execution does it.

    Rows that are as they should be are not touched, and nothing is deleted. With --rebuild the table is made anew from the stream's
    table: its columns, as if all events had arrived at once, and all its rows, in one commit that replaces what is there; rows of
    events that the stream's table holds no more are gone. A dry run computes what would change, which starts Spark.
    """
    from lakechime_dagster.silver.requests import event_replays

    if whole and rebuild:
        raise common.wrong("--rebuild", "reads all events anyway; leave --whole out")
    platform = open_platform(dry_run=dry_run)
    by = common.by(who, reason)
    one = type_named(platform, name, group)
    told: dict[str, Any] = {"group": one.group.name, "type": one.known.type, "whole": whole, "rebuild": rebuild, "dry_run": dry_run}
    replays = event_replays(platform)
    if cancel:
        number = replays.cancel(one.group.name, one.known.type, by, dry_run=dry_run)
        _told({**told, "cancelled": number}, f"replay {number} of {printable(one.known.type)} {_is(dry_run)} cancelled", as_json)
        return
    if dry_run:
        _told(*(_would_rebuild if rebuild else _would_replay)(platform, one, told), as_json)
        return
    (asked,) = replays.ask(one.group.name, [one.known.type], by, is_whole=whole, is_rebuild=rebuild)
    done = f"which its sensor launches; `lakechime schema show {printable(one.table)}` shows the result"
    what = "rebuild" if rebuild else "replay"
    sentence = f"{what} {asked.replay.replay_id} of {printable(one.known.type)} is done by the next execution of {one.group.name}, {done}"
    _told({**told, "replay": asked.replay.replay_id}, sentence, as_json)


def reprocess(
    name: Stream,
    reason: Reason,
    cancel: Cancel = False,
    who: Who = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Look at what a stream refused again: what is an event by today's declaration is added to the stream's table, once.

    The stream's next execution does it. A dry run counts the rows, which starts Spark.
    """
    from lakechime_dagster.silver.dry_run import would_reprocess
    from lakechime_dagster.silver.requests import event_reprocesses

    platform = open_platform(dry_run=dry_run)
    by = common.by(who, reason)
    stream = stream_named(name, platform.settings)
    table, reprocesses = stream.table, event_reprocesses(platform)
    told: dict[str, Any] = {"stream": stream.name, "table": table.name, "dry_run": dry_run}
    if cancel:
        number = reprocesses.cancel(table.name, by, dry_run=dry_run)
        _told({**told, "cancelled": number}, f"reprocessing {number} of {stream.name} {_is(dry_run)} cancelled", as_json)
    elif dry_run:
        would = would_reprocess(platform, table, note)
        kinds = [{"reason": reason, "type": kind, "rows": rows} for reason, kind, rows in would.kinds]
        _told({**told, "rows": would.rows, "kinds": kinds}, f"{count(would.rows, 'row')} of {table.name} would be reprocessed", as_json)
        if kinds and not as_json:
            print_table(["refused for", "type by now", "rows"], [[*map(str, one.values())] for one in kinds], empty="")
    else:
        asked = reprocesses.ask(table.name, by)
        done = f"which its sensor launches; `lakechime schema show {stream.name} --quarantine` shows the result"
        sentence = f"reprocessing {asked.reprocess_id} of {stream.name} is done by the next execution of {table.name}, {done}"
        _told({**told, "reprocessing": asked.reprocess_id}, sentence, as_json)


def _would_replay(platform: "Platform", one: "GroupedType", told: dict[str, Any]) -> tuple[dict[str, Any], str]:
    from lakechime_dagster.silver.dry_run import would_replay

    if not one.known.checkpoint.commits:
        raise NotFoundError(f"{printable(one.known.type)} has no table, so that there is nothing to replay into")
    would = would_replay(platform, one.group, one.known, note, is_whole=told["whole"])
    document = {**told, "replaced": would.replaced, "added": would.added, "gained": _columns(would.gained)}
    gained = "".join(f"\n+ {name} {holds}" for name, holds in would.gained)
    return document, f"{count(would.replaced, 'row')} of {one.table} would be replaced, {would.added:,} added{gained}"


def _would_rebuild(platform: "Platform", one: "GroupedType", told: dict[str, Any]) -> tuple[dict[str, Any], str]:
    from lakechime_dagster.silver.dry_run import would_rebuild
    from lakechime_dagster.silver.service import Streamed

    if not one.known.layout_version:
        raise NotFoundError(f"{printable(one.known.type)} has no table, so that there is nothing to rebuild")
    newest = Streamed(platform, one.group.stream.table).newest()
    if newest is None:
        raise NotFoundError(f"{one.group.stream.table.name} does not exist, so that there is nothing to make a table from")
    would = would_rebuild(platform, one.group, one.known, newest, note)
    counts = {"replaced": would.replaced, "added": would.added, "removed": would.removed, "same": would.is_same}
    document = {**told, **counts, "gained": _columns(would.gained), "lost": _columns(would.lost)}
    if would.is_same:
        return document, f"{one.table} would stay as it is"
    columns = [*(f"\n+ {name} {holds}" for name, holds in would.gained), *(f"\n- {name} {holds}" for name, holds in would.lost)]
    rows = f"{count(would.replaced, 'row')} of {one.table} would be replaced, {would.added:,} added, {would.removed:,} removed"
    return document, rows + "".join(columns)


def _columns(several: "Iterable[tuple[str, str]]") -> list[dict[str, str]]:
    return [{"name": name, "holds": holds} for name, holds in several]


def _is(dry_run: bool) -> str:
    return "would be" if dry_run else "is"


def _replay_by(one: "GroupedType") -> str:
    return f"earlier events stay as they are until `lakechime schema replay {printable(one.table)} --reason …`"


def _told(document: dict[str, Any], sentence: str, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        say(sentence)


Name = Annotated[str | None, typer.Argument(metavar="[GROUP|TYPE]", help="A group, a type, or a type's table; all groups unless given.")]
Sample = Annotated[int, typer.Option("--sample", min=0, max=1_000_000, help="Rows of each type of which every value is looked at.")]
Values = Annotated[bool, typer.Option("--values", help="Show the values that are wrong too; THEY MAY BE PERSONAL DATA.")]
HEADS = ("type", "table", "events", "rows", "discarded", "looked into", "is")


def verify(name: Name = None, sample: Sample = 100, values: Values = False, group: OfGroup = None, as_json: Json = False) -> None:
    """Compare the tables of types with the whole of their stream's table: no event lost, no row twice, none of no event, no value changed.

    Each event is looked for by its `_src`; the values of some rows of each type, others each time. It starts Spark and reads all;
    nothing is written, and steps may go on meanwhile. The exit code is 1 when something is wrong, or a type could not be looked at.
    """
    from lakechime_dagster.silver.dry_run import verified

    platform = open_platform()
    found = [
        (one.name, each)
        for one, names in _wanted(platform, name, group)
        for each in verified(platform, one, note, names=names, sample=sample, seed=platform.store.now())
    ]
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
    rows = [[one["type"], one["table"], one["events"], one["rows"], one["discarded"], one["sampled"], _verify_is(one)] for one in told]
    print_table([*HEADS], rows, empty="no type has a table yet")
    for one in told:
        if one["gone"]:
            say(f"{one['table']}: {count(one['gone'], 'row')} older than all that the stream's table still has")
        for each in one["examples"]:
            value = f" {printable(each['value'])}" if each.get("value") else ""
            say(f"{one['table']}: {each['fault']} {printable(each['_src'])} {printable(each['path'])}".rstrip() + value)


def _verify_is(one: Mapping[str, Any]) -> str:
    if one["unread"]:
        return f"not looked at: {one['unread']}"
    return ", ".join(f"{number:,} {fault}" for fault, number in one["faults"].items()) or "whole"
