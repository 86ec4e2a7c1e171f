"""`lakechime cdc monitor` and `repair`: a table compared with the database that it follows, and rows of it put right."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from lakechime_dagster.cli import parse
from lakechime_dagster.cli.context import followed_table, open_platform
from lakechime_dagster.cli.options import DryRun, Json
from lakechime_dagster.cli.output import count, note, print_json, print_table, say
from lakechime_dagster.errors import LakeChimeError, shown

if TYPE_CHECKING:
    from lakechime_dagster.cdc.compare import Key, Monitored
    from lakechime_dagster.lake.change_tables import ChangeTable
    from lakechime_dagster.lake.monitors import Monitor
    from lakechime_dagster.resources.following.load import Repaired
    from lakechime_dagster.resources.platform import Platform

Name = Annotated[str, typer.Argument(metavar="TABLE", help="The table, as `lakechime cdc list` shows it.")]
Within = Annotated[
    float | None,
    typer.Option(min=0, metavar="SECONDS", help="How long a row that differs may be on its way; as declared unless given."),
]
MOST = 50  # keys that are shown


def monitor(name: Name, within: Within = None, as_json: Json = False) -> None:
    """Compare a table with the database that it follows, once, at a cut and while its lane goes on.

    The exit code is 1 when rows differ, or when it could not be known of all.
    """
    from lakechime_dagster.cdc.compare import document

    platform = open_platform()
    table = followed_table(name, platform.settings)
    found = _looked(platform, table, monitor_of(platform, table, within))
    if as_json:
        print_json(document(found, MOST))
    else:
        _print_found(found)
    if not found.is_same:
        raise typer.Exit(1)


def repair(
    name: Name,
    keys: Annotated[
        list[str] | None, typer.Option("--key", metavar="JSON", help="A key as the monitor shows it, such as '[1]'; may be repeated.")
    ] = None,
    from_monitor: Annotated[bool, typer.Option("--from-monitor", help="All keys that the monitor finds now.")] = False,
    within: Within = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Read keys again in the database, and tell what it says of them to the table of messages, from which the table takes it.

    The database is only read. A key that the lake has twice is not put right by messages.
    """
    from lakechime_dagster.cdc.compare import key_given, key_shown

    if bool(keys) == from_monitor:
        raise parse.wrong("--key", "give keys, or --from-monitor")
    platform = open_platform(dry_run=dry_run)
    table = followed_table(name, platform.settings)
    declared = monitor_of(platform, table, within)
    with parse.reading("--key"):
        wanted = [key_given(key, len(table.keys)) for key in keys or ()]
    twice: list[Key] = []
    if from_monitor:
        wanted, twice = _repairable(_looked(platform, table, declared))
    done = _repaired(platform, table, declared, wanted, dry_run) if wanted else None
    if as_json:
        document = {"rows": map(key_shown, done.rows), "deletions": map(key_shown, done.deletions)} if done else {}
        print_json({
            "table": name, "cut": done.cut if done else None, "rows": list(document.get("rows", [])),
            "deletions": list(document.get("deletions", [])), "twice": [key_shown(key) for key in twice],
            "version": done.version if done else None, "dry_run": dry_run,
        })  # fmt: skip
    else:
        _print_repaired(table, done, dry_run)
        for key in twice:
            say(f"{key_shown(key)} is there twice, which no message changes: `lakechime cdc rebuild {name}` makes the table anew")
    if twice:
        raise typer.Exit(1)


def monitor_of(platform: "Platform", table: "ChangeTable", within: float | None = None) -> "Monitor":
    """The monitor of a table whose database may be asked.

    Raises:
        LakeChimeError: it may not, or none is declared.
    """
    from lakechime_dagster.resources.following.source import check_source_queries

    check_source_queries(platform.settings)
    if table.monitor is None or not table.monitor.is_comparing:
        raise LakeChimeError(f"{table.name} declares no database to compare it with; declare change_table(…, monitor=Monitor(…))")
    return table.monitor if within is None else replace(table.monitor, within=dt.timedelta(seconds=within))


def _looked(platform: "Platform", table: "ChangeTable", declared: "Monitor") -> "Monitored":
    from lakechime_dagster.resources.following.compare import followed, monitored, opened_driver

    with opened_driver(platform, note) as driver:
        return monitored(driver.spark, followed(platform, table), declared)


def _repairable(found: "Monitored") -> tuple[list["Key"], list["Key"]]:
    """The keys that messages put right, and those that are there twice."""
    from lakechime_dagster.cdc.compare import Fault

    if found.is_truncated:
        raise LakeChimeError(f"{found.table} was truncated after the cut, so that nothing is known of its rows; ask again")
    keys = [key for key, fault in found.faults.items() if fault is not Fault.DUPLICATE]
    return keys, [key for key, fault in found.faults.items() if fault is Fault.DUPLICATE]


def _repaired(platform: "Platform", table: "ChangeTable", declared: "Monitor", keys: Sequence["Key"], dry_run: bool) -> "Repaired":
    from lakechime_dagster.resources.following.load import repair_declared

    return repair_declared(platform, table, declared, keys, dry_run=dry_run)


def _print_found(found: "Monitored") -> None:
    from lakechime_dagster.cdc.compare import key_shown

    say(f"{found.table} at version {found.version}, and the database at {found.cut}: {found.lake_rows:,} and {found.source_rows:,} rows")
    rows = [[key_shown(key), fault.value] for key, fault in list(found.faults.items())[:MOST]]
    print_table(["key", "is"], rows, empty="no row differs")
    if len(found.faults) > MOST:
        say(f"and {len(found.faults) - MOST:,} more")
    if found.faults and not found.is_passed:
        say("the lake has not read past the cut: what is missing may still be on its way")
    if found.left_out:
        say(f"{count(found.left_out, 'key')} left out: the lake is past the cut with them")
    if found.unresolved:
        say(f"{count(found.unresolved, 'range')} not compared: too much differs; repair, or rebuild, and ask again")
    if found.is_truncated:
        say("the table was truncated after the cut, so that nothing is known of its rows; ask again")
    for column, reason in found.unchecked.items():
        say(f"not compared: {shown(column)}, as {reason}")


def _print_repaired(table: "ChangeTable", done: "Repaired | None", dry_run: bool) -> None:
    if done is None:
        say(f"no row of {table.name} is to be put right")
        return
    rows, gone = count(len(done.rows), "row"), count(len(done.deletions), "deletion")
    where = f"version {done.version} of {table.bronze.name}" if done.version is not None else table.bronze.name
    say(f"{rows} and {gone} {'would be' if dry_run else 'were'} told to {where}, as the database has them at {done.cut}")
