"""`lakechime schema hint`, `allow`, `replay`, `rebuild`, `retry`: what people decide of a type, each kept with who and why."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import parse
from lakechime_dagster.cli.context import open_platform
from lakechime_dagster.cli.options import DryRun, Json, Reason, Who
from lakechime_dagster.cli.output import count, note, print_json, say
from lakechime_dagster.cli.schema.drain import drain
from lakechime_dagster.cli.schema.names import OfGroup, TypeName, declared_groups, type_named
from lakechime_dagster.dce.text import printable
from lakechime_dagster.errors import DeclarationError, NotFoundError

if TYPE_CHECKING:
    from lakechime_dagster.resources.platform import Platform
    from lakechime_dagster.resources.streams.grouped import GroupedType
    from lakechime_dagster.resources.streams.replaying import WouldRebuild, WouldReplay
    from lakechime_dagster.store.interventions import By

Path = Annotated[str, typer.Argument(metavar="PATH", help="A field, such as /price or /items[]/price, as `schema show` lists them.")]
Says = Annotated[str, typer.Argument(metavar="KIND", help="bool, long, bigint, double, string, json, ignore; or - for what is declared.")]
What = Annotated[str, typer.Option("--what", metavar="tables|columns|kinds|all", help="What may come from now on.")]
Whole = Annotated[bool, typer.Option("--whole", help="All its events, be they known to be right or not; brings back deleted rows.")]
TypeOrStream = Annotated[str, typer.Argument(metavar="TYPE", help="The type as its events spell it, or its table; or a stream's name.")]
Quarantine = Annotated[bool, typer.Option("--quarantine", help="What the stream of this name refused, in place of a type's events.")]
Cancel = Annotated[bool, typer.Option("--cancel", help="End the one that waits for a step, without doing it.")]
DECLARED = "-"
ALL = "all"


def hint(
    name: TypeName, path: Path, says: Says, reason: Reason, who: Who = None, group: OfGroup = None, dry_run: DryRun = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Say how a field is kept that has no column yet; it holds beside what is declared, from the next step on.

    A column that is there stays as it is. `lakechime schema replay` brings earlier events along.
    """
    from lakechime_dagster.lake.contracts import Hint
    from lakechime_dagster.resources.streams.event_types import event_hints

    platform = open_platform(dry_run=dry_run)
    by = parse.by(who, reason)
    one = type_named(platform, name, group)
    hints = event_hints(platform)
    if says == DECLARED:
        hints.end(one.group.name, one.known.type, path, dry_run=dry_run)
    else:
        try:
            said = Hint(type=one.known.type, of=path, says=says)
        except DeclarationError as error:
            raise parse.wrong({"of": "PATH", "says": "KIND"}[error.field], error.remedy) from None
        if not path.startswith("/"):
            raise parse.wrong("PATH", f"{printable(path)} is no path; write such as /price or /items[]/price")
        if not dry_run:
            hints.say(one.group.name, said, by)
    kept = None if says == DECLARED else says
    told = {"group": one.group.name, "type": one.known.type, "path": path, "says": kept, "dry_run": dry_run}
    what = "as it is declared" if says == DECLARED else says
    _told(
        told,
        f"{printable(path)} of {printable(one.known.type)} {_is(dry_run)} kept {what} from the next step on; {_replay_by(one)}",
        as_json,
    )


def allow(
    name: TypeName, reason: Reason, what: What = ALL, who: Who = None, group: OfGroup = None, dry_run: DryRun = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Let a type have what is refused: a table, also beyond its group's max_types, new columns, siblings for new kinds.

    It holds from the next step on, for all paths of the type, whatever its contract says of them.
    """
    from lakechime_dagster.lake.contracts import MODES, Hint, Mode
    from lakechime_dagster.resources.streams.event_types import event_hints

    if what not in (*MODES, ALL):
        raise parse.wrong("--what", f"{printable(what)} is none of {', '.join((*MODES, ALL))}")
    platform = open_platform(dry_run=dry_run)
    by = parse.by(who, reason)
    one = type_named(platform, name, group)
    several = MODES if what == ALL else (what,)
    for each in () if dry_run else several:
        event_hints(platform).say(one.group.name, Hint(type=one.known.type, of=each, says=Mode.EVOLVE), by)
    told = {"group": one.group.name, "type": one.known.type, "allowed": list(several), "dry_run": dry_run}
    may = "might" if dry_run else "may"
    sentence = f"{printable(one.known.type)} {may} have new {', '.join(several)} from the next step on; {_replay_by(one)}"
    _told(told, sentence, as_json)


def replay(
    name: TypeOrStream, reason: Reason, whole: Whole = False, quarantine: Quarantine = False, cancel: Cancel = False, who: Who = None,
    group: OfGroup = None, dry_run: DryRun = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Read a type's earlier events again, and put right the rows that would be others by now; the group's next step does it.

    That step comes by itself. Rows that are as they should be are not touched, and nothing is deleted. With --quarantine it is
    what a stream refused: the events among it by today's declaration come into the stream's table, each once, with the stream's
    next step. A dry run computes what would change, which starts Spark.
    """
    from lakechime_dagster.resources.streams.event_types import event_replays
    from lakechime_dagster.resources.streams.replaying import would_replay

    platform = open_platform(dry_run=dry_run)
    by = parse.by(who, reason)
    if quarantine:
        if whole or group is not None:
            raise parse.wrong("--quarantine", "is of a whole stream; leave --whole and --group out")
        drain(platform, name, by, cancel=cancel, dry_run=dry_run, as_json=as_json)
        return
    one = type_named(platform, name, group)
    told: dict[str, Any] = {"group": one.group.name, "type": one.known.type, "whole": whole, "dry_run": dry_run}
    replays = event_replays(platform)
    if cancel:
        _told(*_cancelled(platform, one, by, told), as_json)
        return
    if dry_run:
        _check_table(one)
        would = would_replay(platform, one.group, one.known, note, is_whole=whole)
        gained = [{"name": column, "holds": holds} for column, holds in would.gained]
        _told({**told, "replaced": would.replaced, "added": would.added, "gained": gained}, _would(one, would), as_json)
        return
    (asked,) = replays.ask(one.group.name, [one.known.type], by, is_whole=whole)
    sentence = f"replay {asked.replay.replay_id} of {printable(one.known.type)} is done by the next step of {one.group.name}, {_when(one)}"
    _told({**told, "replay": asked.replay.replay_id}, sentence, as_json)


def rebuild(
    name: TypeName, reason: Reason, cancel: Cancel = False, who: Who = None, group: OfGroup = None, dry_run: DryRun = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Make a type's table anew from the stream's table: its columns and all its rows, in one commit that replaces what is there.

    Readers compute anew what they made of it. The group's next step does it, which comes by itself. Columns are then as if all
    events had come at once, and rows of events that the stream's table has no more are gone. A dry run computes what would change,
    which starts Spark.
    """
    from lakechime_dagster.resources.streams.event_types import event_replays
    from lakechime_dagster.resources.streams.replaying import would_rebuild
    from lakechime_dagster.resources.streams.streamed import Streamed

    platform = open_platform(dry_run=dry_run)
    by = parse.by(who, reason)
    one = type_named(platform, name, group)
    told: dict[str, Any] = {"group": one.group.name, "type": one.known.type, "dry_run": dry_run}
    if cancel:
        _told(*_cancelled(platform, one, by, told), as_json)
        return
    if dry_run:
        _check_table(one, may_have=bool(one.known.layout_version))
        newest = Streamed(platform, one.group.stream.table).newest()
        if newest is None:
            raise NotFoundError(f"{one.group.stream.table.name} is not there, so that there is nothing to make a table from")
        would = would_rebuild(platform, one.group, one.known, newest, note)
        columns = {name: [{"name": column, "holds": holds} for column, holds in getattr(would, name)] for name in ("gained", "lost")}
        counts = {"replaced": would.replaced, "added": would.added, "removed": would.removed, "same": would.is_same}
        _told({**told, **counts, **columns}, _would_be(one, would), as_json)
        return
    (asked,) = event_replays(platform).ask(one.group.name, [one.known.type], by, is_rebuild=True)
    sentence = f"rebuild {asked.replay.replay_id} of {printable(one.known.type)} is done by the next step of {one.group.name}, {_when(one)}"
    _told({**told, "rebuild": asked.replay.replay_id}, sentence, as_json)


def retry(
    name: Annotated[str, typer.Argument(metavar="GROUP_OR_TYPE", help="A group, all of whose failed types are tried, or one type.")],
    group: OfGroup = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Try types that failed again now, as after a repair, and not when their pause is over; the group's next step does it.

    Without it a type is tried again 10 s, 1, 5 and then 15 minutes after it failed.
    """
    from lakechime_dagster.resources.streams.event_types import event_types
    from lakechime_dagster.resources.streams.grouped import Fares, types_of

    platform = open_platform(dry_run=dry_run)
    groups = {each.name: each for each in declared_groups(platform.settings)}
    several = types_of(platform, groups[name]) if group is None and name in groups else [type_named(platform, name, group)]
    failed = [one for one in several if one.fares is Fares.FAILED]
    if not failed:
        raise NotFoundError(f"no type of {printable(name)} failed, so that there is nothing to try again; see `lakechime schema list`")
    owner, types = failed[0].group.name, [one.known.type for one in failed]
    if not dry_run:
        types = event_types(platform).retry(owner, types)
    named = ", ".join(map(printable, types))
    sentence = f"{named} {_is(dry_run)} tried again by the next step of {owner}, which its sensor launches"
    _told({"group": owner, "types": types, "dry_run": dry_run}, sentence, as_json)


def _cancelled(platform: "Platform", one: "GroupedType", by: "By", told: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """What is told of the replay or rebuild that was open, which ends here."""
    from lakechime_dagster.resources.streams.event_types import event_replays

    dry_run, replays = bool(told["dry_run"]), event_replays(platform)
    opened = replays.open(one.group.name).get(one.known.type)
    number = replays.cancel(one.group.name, one.known.type, by, dry_run=dry_run)
    what = "rebuild" if opened is not None and opened.is_rebuild else "replay"
    return {**told, "cancelled": number}, f"{what} {number} of {printable(one.known.type)} {_is(dry_run)} cancelled"


def _check_table(one: "GroupedType", *, may_have: bool = False) -> None:
    if not one.known.place.commits and not may_have:
        raise NotFoundError(f"{printable(one.known.type)} has no table, so that there is nothing to replay into")


def _would_be(one: "GroupedType", would: "WouldRebuild") -> str:
    if would.is_same:
        return f"{one.table} would stay as it is"
    columns = [*(f"\n+ {name} {holds}" for name, holds in would.gained), *(f"\n- {name} {holds}" for name, holds in would.lost)]
    counts = f"{count(would.replaced, 'row')} of {one.table} would be replaced, {would.added:,} added, {would.removed:,} removed"
    return counts + "".join(columns)


def _would(one: "GroupedType", would: "WouldReplay") -> str:
    columns = "".join(f"\n+ {name} {holds}" for name, holds in would.gained)
    return f"{count(would.replaced, 'row')} of {one.table} would be replaced, {would.added:,} added{columns}"


def _when(one: "GroupedType") -> str:
    return f"which its sensor launches; `lakechime schema show {printable(one.table)}` tells what came of it"


def _is(dry_run: bool) -> str:
    return "would be" if dry_run else "is"


def _replay_by(one: "GroupedType") -> str:
    return f"earlier events stay as they are until `lakechime schema replay {printable(one.table)} --reason …`"


def _told(document: dict[str, Any], sentence: str, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        say(sentence)
