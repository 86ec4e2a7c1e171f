"""`lakechime table drop` and `dropped`: a table put aside whole, and what lies there until it is removed."""

import datetime as dt
from typing import TYPE_CHECKING, Annotated

import typer

from lakechime_dagster.cli import parse
from lakechime_dagster.cli.context import declared_lake, open_platform
from lakechime_dagster.cli.options import DryRun, Json, Reason, Who
from lakechime_dagster.cli.output import count, print_json, print_table, say
from lakechime_dagster.errors import LakeChimeError

if TYPE_CHECKING:
    from lakechime_dagster.lake import Lake
    from lakechime_dagster.resources.dropped import Dropped

MAX_DAYS = 3650
COLUMNS = ("folder", "until")


def drop(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="A table that the lake declares no more, as schema.table.")],
    reason: Reason,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; else it is only said what would happen.")] = False,
    keep_days: Annotated[int, typer.Option("--keep-days", min=0, max=MAX_DAYS, help="For so long its files can be put back.")] = 7,
    who: Who = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Drop a table: forget its lanes and put its folders aside, with its messages, state and quarantine.

    A later maintenance of any table removes them. Until then they are renamed back by hand.
    """
    from lakechime_dagster.lake.names import checked_table_name
    from lakechime_dagster.resources import dropped as dropping

    platform = open_platform(dry_run=dry_run)
    by = parse.by(who, reason)
    _check_declared(checked_table_name(name, "table"), declared_lake(platform.settings))
    what = dropping.to_drop(platform, name)
    sentence = f"{name}: {count(len(what.flows), 'trigger')} forgotten, {count(len(what.folders), 'folder')} put aside for {keep_days} days"
    if not (dry_run or yes):
        raise LakeChimeError(f"{sentence}: this is what would happen; nothing was done: say --yes to do it")
    aside = dropping.drop(platform, what, dt.timedelta(days=keep_days), by, dry_run=dry_run)
    if as_json:
        flows = [flow.name for flow in what.flows]
        print_json({"table": name, "triggers": flows, "folders": _documents(aside), "dry_run": dry_run})
        return
    say(f"{sentence}{'; nothing was done' if dry_run else ''}")
    _print(aside)


def dropped(as_json: Json = False) -> None:
    """List the folders that dropped tables left, and until when they stay."""
    from lakechime_dagster.resources import dropped as dropping

    aside = dropping.dropped(open_platform())
    if as_json:
        print_json({"folders": _documents(aside)})
    else:
        _print(aside)


def _check_declared(name: str, lake: "Lake") -> None:
    """Refuse what the lake has, or what holds a table that it has."""
    if name in {table.name for table in lake.tables}:
        raise LakeChimeError(f"{name} is declared here, so that its next run would make it anew; remove it from the code first")
    within = [table.name for table in lake.tables if table.name.startswith(f"{name}.")]
    if within:
        raise LakeChimeError(f"{within[0]} lies within the folder of {name}, and is declared here; drop that one first, or move it")


def _documents(aside: "list[Dropped]") -> list[dict[str, str]]:
    return [{"folder": str(one.folder), "until": one.until.isoformat()} for one in aside]


def _print(aside: "list[Dropped]") -> None:
    print_table(COLUMNS, [(one.folder, f"{one.until:%Y-%m-%d %H:%M} UTC") for one in aside], empty="nothing was dropped")
