"""`lakechime table`: the tables of the lake and of the store, and commits whose events are missing."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typing_extensions import assert_never

from lakechime_dagster.cli import parse
from lakechime_dagster.cli.context import declared_lake, open_platform
from lakechime_dagster.cli.options import Cluster, DryRun, Json
from lakechime_dagster.cli.output import count, note, one_line, print_facts, print_json, print_table, say, shown_fact
from lakechime_dagster.dce.event import TableFormat, to_json
from lakechime_dagster.dce.partition import PartitionLevels
from lakechime_dagster.errors import LakeChimeError, NotFoundError, TableAbsentError

if TYPE_CHECKING:
    from lakechime_dagster.capture.delta import DeltaLog
    from lakechime_dagster.dce.store import TableRecord
    from lakechime_dagster.lake.lake import Table
    from lakechime_dagster.resources.dropped import Dropped
    from lakechime_dagster.resources.platform import Platform

app = typer.Typer(name="table", help="Tables: list, show, reconcile with their logs.")

Name = Annotated[str, typer.Argument(metavar="TABLE", help="The table, as schema.table.")]


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the tables that the lake declares, those that events speak of, and those that were dropped."""
    platform = open_platform()
    ours = platform.settings.cluster
    declared = {(ours, table.name): table for table in _lake_or_none(platform)}
    records = {(record.cluster, record.name): record for record in platform.store.tables()}
    dropped = {(ours, name): one for name, one in _dropped(platform).items()}
    keys = sorted({*records, *declared, *dropped}, key=lambda key: key[::-1])
    documents = [_document(platform, key[1], key[0], declared.get(key), records.get(key), dropped.get(key)) for key in keys]
    if as_json:
        print_json({"tables": documents})
        return
    columns = ("name", "cluster", "role", "format", "levels", "events", "last_event_ts", "captured_up_to", "dropped_ts", "dropped_until")
    rows = [[shown_fact(column, document[column]) for column in columns] for document in documents]
    print_table([column.replace("_ts", "").replace("_", " ") for column in columns], rows, empty="no table")


@app.command()
def show(name: Name, cluster: Cluster = None, as_json: Json = False) -> None:
    """Show a table: its declaration, what the store knows, and what its log says."""
    platform = open_platform()
    cluster = platform.settings.cluster if cluster is None else cluster
    is_ours = cluster == platform.settings.cluster
    lake = _lake_or_none(platform) if is_ours else ()
    table = next((one for one in lake if one.name == name), None)
    record = platform.store.table(name, cluster)
    dropped = _dropped(platform).get(name) if is_ours else None
    if table is None and record is None and dropped is None:
        where = "" if is_ours else f" of cluster {cluster!r}"
        raise NotFoundError(
            f"the lake declares no table {name!r}{where}, and no event speaks of it; `lakechime table list` shows the tables"
        )
    document = _document(platform, name, cluster, table, record, dropped) | _declaration(table, lake)
    if is_ours and (table is None or table.format is TableFormat.DELTA):
        document |= _log_facts(platform.log(name, table.location if table else None))
    if as_json:
        print_json({"table": document})
    else:
        print_facts({column: shown_fact(column, value) for column, value in document.items() if value not in (None, "", [], {})})


@app.command()
def reconcile(
    names: Annotated[list[str] | None, typer.Argument(metavar="[TABLE]...", help="These tables; all declared ones unless given.")] = None,
    location: Annotated[str | None, typer.Option("--location", help="Where the one named table lies, if not where it is declared.")] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Register the commits of Delta tables that nobody has registered yet, by their own logs.

    A table that cannot be read hinders no other; the exit code is 1 then.
    """
    from lakechime_dagster.resources.reconcile import problem_of

    if location is not None and len(names or []) != 1:
        raise parse.wrong("--location", "needs exactly one table")
    platform = open_platform(dry_run=dry_run)
    logs = _logs(platform, names or [], location)
    results: list[dict[str, Any]] = []
    problems: list[dict[str, str]] = []
    for log, levels in logs:
        try:
            results.append(_reconciled(platform, log, levels, dry_run))
        except LakeChimeError as error:
            if names or not isinstance(error, TableAbsentError):
                problems.append({"table": log.table, "problem": one_line(problem_of(log, error))})
    if as_json:
        print_json({"tables": results, "dry_run": dry_run, "problems": problems})
    else:
        _print_reconciled(results, problems, dry_run)
    if problems:
        raise typer.Exit(1)


def _print_reconciled(results: list[dict[str, Any]], problems: list[dict[str, str]], dry_run: bool) -> None:
    for result in results:
        found = count(len(result["registered"]), "event")
        say(f"{result['table']}: {found} {'would be ' if dry_run else ''}registered; captured up to {result['captured_up_to']}")
    for problem in problems:
        note(f"error: {problem['problem']}")
    if not results and not problems:
        say("none of the declared tables is there yet")


def _lake_or_none(platform: "Platform") -> "tuple[Table, ...]":
    """The declared tables; a lake that cannot be loaded must not hide what the store knows."""
    try:
        return declared_lake(platform.settings).tables
    except LakeChimeError as error:
        note(f"warning: {one_line(str(error))}; showing what the store knows")
        return ()


def _dropped(platform: "Platform") -> "dict[str, Dropped]":
    """The tables that were dropped and may still be put back; not those that are there again."""
    from lakechime_dagster.resources.dropped import BESIDE, dropped_tables

    beside = tuple(suffix for suffix in BESIDE if suffix)
    found = dropped_tables(platform).items()
    return {name: one for name, one in found if not name.endswith(beside) and not Path(platform.location(name)).exists()}


def _document(
    platform: "Platform", name: str, cluster: str, table: "Table | None", record: "TableRecord | None", dropped: "Dropped | None"
) -> dict[str, Any]:
    is_away = table is None and cluster == platform.settings.cluster and not Path(platform.location(name)).exists()
    dropped_ts = record.dropped_ts if record is not None and is_away else None
    levels = table.levels if table else record.levels if record else None
    return {
        "name": name,
        "cluster": cluster,
        "role": "dropped" if table is None and (dropped or dropped_ts is not None) else _role(table),
        "format": str(table.format) if table else None,
        "levels": levels.as_dict() if levels else {},
        "events": record.events if record else 0,
        "last_event_ts": record.last_event_ts if record else None,
        "captured_up_to": record.seen if record else None,
        "table_uid": record.table_uid if record else None,
        "dropped_ts": dropped_ts,
        "dropped_until": dropped.until.isoformat() if dropped else None,
        "put_aside": str(dropped.folder) if dropped else None,
    }


def _role(table: "Table | None") -> str:
    from lakechime_dagster.lake.change_tables import BronzeTable, ChangeTable
    from lakechime_dagster.lake.events import EventTable
    from lakechime_dagster.lake.tables import LakeTable, SourceTable

    match table:
        case None:
            return "not declared"
        case SourceTable():
            return "source"
        case LakeTable():
            return "computed"
        case BronzeTable():
            return "messages"
        case ChangeTable():
            return "follows a database"
        case EventTable():
            return "events"
        case _:
            assert_never(table)


def _declaration(table: "Table | None", tables: "tuple[Table, ...]") -> dict[str, Any]:
    from lakechime_dagster.lake.change_tables import BronzeTable, ChangeTable
    from lakechime_dagster.lake.events import EventTable
    from lakechime_dagster.lake.tables import LakeTable, SourceTable

    if table is None:
        return {}
    readers = [one.name for one in tables if not isinstance(one, SourceTable) and table.name in one.inputs]
    facts: dict[str, Any] = {"description": table.description, "owner": table.owner, "readers": readers}
    if isinstance(table, BronzeTable):
        facts |= {"source": str(table.feed), "envelope": type(table.envelope).__name__, "keys": list(table.keys)}
    if isinstance(table, EventTable):
        facts |= {"inputs": list(table.inputs), "source": str(table.feed), "type_field": "$." + ".".join(table.type_field)}
    if isinstance(table, ChangeTable):
        facts |= {"inputs": list(table.inputs), "keys": list(table.keys), "source": str(table.bronze.feed)}
    if isinstance(table, LakeTable):
        trigger = str(table.trigger) if table.trigger else None
        facts |= {"inputs": list(table.inputs), "keys": list(table.keys), "refresh": table.refresh.value, "trigger": trigger}
    return facts


def _log_facts(log: "DeltaLog") -> dict[str, Any]:
    """What the log says; one that cannot be read must not hide what is declared and known."""
    version = None
    try:
        version = log.version if log.exists() else None
    except LakeChimeError as error:
        note(f"warning: {one_line(str(error))}")
    return {"location": log.shown_location, "version": version}


def _logs(platform: "Platform", names: list[str], location: str | None) -> "list[tuple[DeltaLog, PartitionLevels]]":
    """The logs to look at, with declared levels: of the named tables, or of all declared Delta tables."""
    if names:
        declared = {table.name: table for table in _lake_or_none(platform)}
        tables = {name: declared.get(name) for name in names}
        return [
            (
                platform.log_at(location, name) if location else platform.log(name, table.location if table else None),
                table.levels if table else PartitionLevels(),
            )
            for name, table in tables.items()
        ]
    tables = [table for table in declared_lake(platform.settings).tables if table.format is TableFormat.DELTA]
    return [(platform.log(table.name, table.location), table.levels) for table in tables]


def _reconciled(platform: "Platform", log: "DeltaLog", levels: PartitionLevels, dry_run: bool) -> dict[str, Any]:
    from lakechime_dagster.resources.reconcile import reconcile_table

    done = reconcile_table(platform, log, levels, dry_run=dry_run)
    return {
        "table": log.table,
        "registered": [to_json(event.event if dry_run else event) for event in done.registration.registered],
        "duplicates": [to_json(event) for event in done.registration.duplicates],
        "captured_up_to": done.seen.snapshot_id,
    }
