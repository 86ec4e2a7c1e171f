"""`lakechime table`: the tables of the lake."""

import datetime as dt
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import common
from lakechime_dagster.cli.common import (
    Cluster,
    DryRun,
    Json,
    Reason,
    Result,
    Who,
    Yes,
    answer,
    count,
    declared_lake,
    lake_or_empty,
    note,
    one_line,
    open_platform,
    print_documents,
    print_facts,
    print_json,
    print_list,
    record,
    say,
    would_be,
)
from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.events import to_json
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.errors import LakeChimeError, NotFoundError, TableAbsentError

if TYPE_CHECKING:
    from lakechime_dagster.formats.changes import ChangeLog
    from lakechime_dagster.runtime.maintenance import Kept
    from lakechime_dagster.runtime.platform import Platform
    from lakechime_dagster.tables.events import EventGroup
    from lakechime_dagster.tables.lake import Lake, Table, Target
    from lakechime_dagster.tables.maintenance import Action, Plan, Refused


app = typer.Typer(
    name="table", help="Tables: show, reconcile with their logs, maintain, migrate, drop."
)


class MigrateTo(StrEnum):
    """The formats that a table is migrated to."""

    ICEBERG = "iceberg"
    DELTA = "delta"


class MigrateFrom(StrEnum):
    """The formats of both sides of a migration."""

    HIVE = "hive"
    ICEBERG = "iceberg"
    DELTA = "delta"


LISTED = (
    "name cluster role format levels events last_event_ts captured_by captured_up_to lag_commits "
    "lag_seconds dropped_ts dropped_until"
)


@app.command()
def show(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[TABLE]", help="Show this table, as schema.table; else list all."),
    ] = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """List the tables that are declared, recorded or dropped, or show one: its declaration, its
    events, and its log.

    Capture is behind the log by `lag_commits`, of which the oldest was made `lag_seconds` ago; both
    are empty while capture has not begun, and of a Hive table.
    """
    from lakechime_dagster.runtime.table_summaries import table_summaries
    from lakechime_dagster.silver.requests import type_tables

    platform = open_platform()
    ours = platform.settings.cluster
    lake = lake_or_empty(platform.settings)
    wanted = ours if name is not None and cluster is None else cluster
    documents = table_summaries(
        platform, lake, type_tables(platform, lake), name=name, cluster=wanted
    )
    for one in documents:
        if one["problem"]:
            note(f"warning: {one['problem']}")
    if name is None:
        print_list(as_json, "tables", documents, LISTED, empty="no table")
        return
    if not documents:
        where = "" if cluster in (None, ours) else f" of cluster {cluster!r}"
        raise NotFoundError(
            f"no table {name!r}{where} is declared, and no event is recorded of it; `lakechime "
            f"table show` lists the tables"
        )
    table = next((one for one in lake.tables if wanted == ours and one.name == name), None)
    document = documents[0] | _declaration(table, lake.tables)
    if as_json:
        print_json({"table": document})
    else:
        print_facts(document)


@app.command()
def reconcile(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TABLE]...", help="These tables; all declared ones unless given."),
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Register the changes of Delta, Iceberg and Hive tables that are not in the store.

    A table that cannot be read does not stop the others; the exit code is 1 then.
    """
    from lakechime_dagster.runtime.reconcile import problem_of

    platform = open_platform(dry_run=dry_run)
    results: list[dict[str, Any]] = []
    problems: list[dict[str, str]] = []
    logs = _logs(platform, names or [])
    for log, levels in logs:
        try:
            results.append(_reconciled(platform, log, levels, dry_run))
        except LakeChimeError as error:
            if names or not isinstance(error, TableAbsentError):
                problems.append(
                    {"table": log.table, "problem": one_line(problem_of(log.table, error))}
                )
    registered = would_be(dry_run, "registered")
    lines = [
        f"{one['table']}: {count(len(one['registered']), 'event')} {registered}; captured up to "
        f"{one['captured_up_to']}"
        for one in results
    ]
    is_absent = logs and not (results or problems)
    nothing = ["none of the declared tables exists yet"] if is_absent else []
    answer(as_json, {"tables": results, "dry_run": dry_run, "problems": problems}, *lines, *nothing)
    for problem in () if as_json else problems:
        note(f"error: {problem['problem']}")
    if problems:
        raise typer.Exit(1)


def _declaration(table: "Table | None", tables: "tuple[Table, ...]") -> dict[str, Any]:
    from lakechime_dagster.tables.cdc import BronzeTable, CDCTable
    from lakechime_dagster.tables.events import EventTable
    from lakechime_dagster.tables.tables import LakeTable, SourceTable

    if table is None:
        return {}
    readers = [
        one.name for one in tables if not isinstance(one, SourceTable) and table.name in one.inputs
    ]
    facts = record(table, "description owner", readers=readers)
    if isinstance(table, BronzeTable):
        facts |= record(
            table, "keys", source=str(table.source), envelope=type(table.envelope).__name__
        )
    if isinstance(table, EventTable):
        facts |= record(
            table, "inputs", source=str(table.source), type_field="$." + ".".join(table.type_field)
        )
    if isinstance(table, CDCTable):
        facts |= record(table, "inputs keys", source=str(table.bronze.source))
    if isinstance(table, LakeTable):
        facts |= record(table, "inputs keys refresh", trigger=table.trigger and str(table.trigger))
    return facts


def _logs(platform: "Platform", names: list[str]) -> "list[tuple[ChangeLog, PartitionLevels]]":
    """The logs to look at, with declared levels: of the named tables, or of all declared tables of
    which a log is read.
    """
    declared = {
        table.name: table
        for table in (lake_or_empty if names else declared_lake)(platform.settings).tables
    }
    captured = platform.store.captured()
    logs: list[tuple[ChangeLog, PartitionLevels]] = []
    for name in names or declared:
        table = declared.get(name)
        if table is None:
            logs.append((platform.recorded_log(name), PartitionLevels()))
            continue
        found = platform.change_logs(
            name,
            table.format,
            table.location,
            table.levels,
            known=captured.get((platform.settings.cluster, name)),
            lists_all=True,
        )
        logs += [(log, table.levels) for log in found]
        if not found:
            note(f"{name}: changes of Hive tables are captured when LAKECHIME_METASTORE is set")
    return logs


@app.command()
def migrate(
    name: Annotated[
        str, typer.Argument(metavar="TABLE", help="A source table of the lake, as schema.table.")
    ],
    to: Annotated[
        MigrateTo | None,
        typer.Option("--to", help="The format that it gets; of an open migration it is known."),
    ] = None,
    switch: Annotated[
        bool, typer.Option("--switch", help="Let its name stand for the new table.")
    ] = False,
    back: Annotated[
        bool, typer.Option("--back", help="Let its name stand for the old table again.")
    ] = False,
    finish: Annotated[
        bool,
        typer.Option(
            "--finish", help="End it; the other table is no longer looked at. With --back: give up."
        ),
    ] = False,
    take: Annotated[
        MigrateFrom | None,
        typer.Option("--take", help="From where to take partitions that were written on both."),
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Move a table that other programs write to another format; its consumers notice nothing.

    Each call copies the partitions that changed on either side to the other, and says where the
    migration stands. Until `--finish` writers may write either table, and `--back` is possible.
    """
    from lakechime_dagster.dce.events import TableFormat
    from lakechime_dagster.runtime.migration import Move
    from lakechime_dagster.tables.tables import SourceTable

    platform = open_platform(dry_run=dry_run)
    lake = declared_lake(platform.settings)
    table = lake.table(name)
    if not isinstance(table, SourceTable):
        raise LakeChimeError(
            f"{name} is written by the lake itself; declare its storage in another format, and "
            f"compute it again"
        )
    if switch and back:
        raise LakeChimeError("--switch and --back are two ways; give one of them")
    move = Move(platform, lake, table, note)
    migration = move.migration
    is_step = switch or back or finish
    if migration is None and (is_step or to is None):
        raise LakeChimeError(f"{name} is not being migrated; say to which format, --to iceberg")
    target = TableFormat(to.upper()) if to is not None else migration and migration.to_format
    assert target is not None
    if not dry_run:
        migration = move.begin(target)
        if switch or back or not finish:
            side = migration.from_format if back else migration.to_format
            taken = TableFormat(take.upper()) if take is not None else None
            move.run(side if switch or back else None, taken)
        if finish:
            move.finish(gives_up=back)
    document: dict[str, Any] = {**move.plan(target), "dry_run": dry_run}
    answer(as_json, document, f"{name}: {_stands(document)}", *document["hindrances"])
    if not as_json:
        print_documents(document["consumers"], "consumer key read_through reads_now waiting_events")


def _stands(document: dict[str, Any]) -> str:
    """Where a migration stands, in a sentence."""
    to, name = document["to"], document["table"]
    left = "; ".join(f"{what} of {side}" for side, what in document["to_copy"].items())
    rest = f"; to copy: {left}" if left else ""
    return {
        "not begun": f"not begun; `lakechime table migrate {name} --to {to}` begins",
        "begun": f"begun; its first copy to {to} has not ended",
        "copied": f"copied to {to}{rest}; --switch lets the name stand for that",
        "switched": f"its name stands for {to}{rest}; --finish ends the migration, --back reverts it",
        "done": f"it is a table of {to}; declare it so",
    }[document["state"]]


def _reconciled(
    platform: "Platform", log: "ChangeLog", levels: PartitionLevels, dry_run: bool
) -> dict[str, Any]:
    from lakechime_dagster.runtime.reconcile import reconcile_table

    done = reconcile_table(platform, log, levels, dry_run=dry_run)
    return {
        "table": log.table,
        "registered": [
            to_json(event.event if dry_run else event) for event in done.registration.registered
        ],
        "duplicates": [to_json(event) for event in done.registration.duplicates],
        "captured_up_to": done.seen.snapshot_id,
    }


MAX_DAYS = 3650


@app.command()
def drop(
    name: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", help="A table that is no longer declared, as schema.table."
        ),
    ],
    reason: Reason,
    yes: Yes = False,
    keep_days: Annotated[
        int,
        typer.Option(
            "--keep-days", min=0, max=MAX_DAYS, help="For so long its files can be restored."
        ),
    ] = 7,
    who: Who = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Drop a table: forget its consumers, take it out of its catalog and rename its folders, with
    its messages, state and quarantine.

    A later maintenance of any table removes the folders. Until then they can be renamed back by
    hand.
    """
    from lakechime_dagster.runtime import maintenance
    from lakechime_dagster.tables.names import checked_table_name

    platform = open_platform(dry_run=dry_run)
    by = common.by(who, reason)
    _check_not_in_use(platform, checked_table_name(name, "table"), declared_lake(platform.settings))
    what = maintenance.to_drop(platform, name)
    sentence = (
        f"{name}: {count(len(what.subscriptions), 'trigger')} forgotten, "
        f"{count(len(what.folders), 'folder')} kept for {keep_days} days"
    )
    catalog = None if what.entry is None else what.entry.shown_location
    if catalog is not None:
        sentence += f", taken out of the catalog {catalog}"
    common.confirm(sentence, yes=yes, dry_run=dry_run)
    aside = maintenance.drop(platform, what, dt.timedelta(days=keep_days), by, dry_run=dry_run)
    document = {
        "table": name,
        "triggers": [one.name for one in what.subscriptions],
        "folders": aside,
        "catalog": catalog,
        "dry_run": dry_run,
    }
    answer(as_json, document, f"{sentence}{'; nothing was done' if dry_run else ''}")
    if not as_json:
        print_documents(aside, "folder until")


def _check_not_in_use(platform: "Platform", name: str, lake: "Lake") -> None:
    """Refuse what the lake has, or what holds a table that it has."""
    from lakechime_dagster.silver.requests import type_tables

    types = type_tables(platform, lake)
    if name in types:
        raise LakeChimeError(
            f"{name} holds a type of event group {types[name]}, which continues from its "
            f"checkpoint, so that its earlier events would be lost; remove the stream from the code "
            f"first, or compute the table again by `lakechime schema replay {name} --rebuild`"
        )
    if name in {table.name for table in lake.tables}:
        raise LakeChimeError(
            f"{name} is declared here, so that its next run would create it again; remove it from "
            f"the code first"
        )
    within = [table.name for table in lake.tables if table.name.startswith(f"{name}.")]
    if within:
        raise LakeChimeError(
            f"{within[0]} lies within the folder of {name}, and is declared here; drop that one "
            f"first, or move it"
        )


@app.command()
def maintain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            help="A table that the lake writes, as schema.table, or an event group.",
        ),
    ],
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Compact, purge and vacuum a table, as far as its consumers and its budget allow.

    A CDC table is maintained with its bronze, state and quarantine tables; the tables of an event
    group share one budget. Folders of dropped tables are removed when their time is over, whichever
    table is named.
    """
    from lakechime_dagster.runtime.maintenance import expired, remove_expired
    from lakechime_dagster.silver.maintenance import keep, look

    platform = open_platform(dry_run=dry_run)
    lake = declared_lake(platform.settings)
    if dry_run:
        documents = [
            _planned(one.plan, one.plan.refused) for one in _each(look, platform, lake, name)
        ]
    else:
        documents = [
            _planned(one.before.plan, one.refused) | _done(one)
            for one in _each(partial(keep, log=note), platform, lake, name)
        ]
    removed = [
        str(one.folder) for one in (expired(platform) if dry_run else remove_expired(platform))
    ]
    if as_json:
        print_json({"tables": documents, "dropped_removed": removed, "dry_run": dry_run})
        return
    rows = [
        _row(document, action)
        for document in documents
        for action in (*document["actions"], *document["refused"])
    ]
    print_documents(
        rows,
        "table what partition files bytes why",
        empty="nothing is to be done" if documents else f"{name} does not exist yet",
    )
    for document in [] if dry_run else documents:
        say(
            f"{document['table']}: {document['files_before']:,} files before, "
            f"{document['files_after']:,} after;"
            f" {document['bytes_rewritten']:,} bytes rewritten, {document['bytes_freed']:,} freed "
            f"in {document['seconds']} s"
        )
    for folder in removed:
        say(
            f"{folder} {'would be' if dry_run else 'was'} removed: its table was dropped, and its "
            f"time is over"
        )


def _each(
    act: Callable[..., list[Result]], platform: "Platform", lake: "Lake", name: str
) -> list[Result]:
    """What `look` or `keep` returns for the tables that a name means."""
    if groups := _groups(lake, name):
        return [
            one
            for group in groups
            for one in act(platform, lake, group, tables=[] if name == group.name else [name])
        ]
    return [one for table in _tables(lake, name) for one in act(platform, lake, table)]


def _groups(lake: "Lake", name: str) -> "list[EventGroup]":
    """The group of that name, or those that may write the table of that name; none where it is
    another table's.
    """
    named = [group for group in lake.groups if group.name == name]
    schema, dot, _ = name.partition(".")
    return named or [group for group in lake.groups if dot and group.name == schema]


def _tables(lake: "Lake", name: str) -> "list[Target]":
    """The table, and the bronze table of a CDC table."""
    from lakechime_dagster.tables.cdc import CDCTable
    from lakechime_dagster.tables.tables import SourceTable

    table = lake.table(name)
    if isinstance(table, SourceTable):
        raise NotFoundError(
            f"{name} is written by other programs, which maintain its files; name one of this "
            f"lake's own tables"
        )
    return [table.bronze, table] if isinstance(table, CDCTable) else [table]


def _planned(plan: "Plan", refused: "tuple[Refused, ...]") -> dict[str, Any]:
    not_done = [_action(one.action) | {"refused": one_line(one.why)} for one in refused]
    actions = [_action(action) for action in plan.actions]
    return {
        "table": plan.table,
        "actions": actions,
        "refused": not_done,
        "bytes_to_rewrite": plan.rewrites,
    }


def _action(action: "Action") -> dict[str, Any]:
    facts = record(action, "partition files bytes properties", score=round(action.score, 3))
    return {"what": action.kind, **facts, "reason": one_line(action.reason)}


def _done(kept: "Kept") -> dict[str, Any]:
    return {
        "files_before": len(kept.before.files.live),
        "files_after": len(kept.after.live),
        "bytes_rewritten": kept.maintained.total("rewritten"),
        "bytes_freed": kept.maintained.total("freed"),
        "seconds": round(kept.seconds, 1),
    }


def _row(document: dict[str, Any], action: dict[str, Any]) -> dict[str, Any]:
    refused = action.get("refused")
    what = f"not: {action['what']}" if refused else action["what"]
    return action | {
        "table": document["table"],
        "what": what,
        "why": f"{action['reason']}; {refused}" if refused else action["reason"],
    }
