"""`lakechime cdc compare`, `repair` and `load`."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import common
from lakechime_dagster.cli.common import DryRun, Json, count, followed_table, note, open_platform, print_json, print_table, say
from lakechime_dagster.errors import DeclarationError, LakeChimeError, shown
from lakechime_dagster.settings import in_project

if TYPE_CHECKING:
    from lakechime_dagster.cdc.compare import Key, Monitored
    from lakechime_dagster.cdc.load_service import Chunk, Repaired
    from lakechime_dagster.cdc.monitor import Counted, Lacking
    from lakechime_dagster.runtime.platform import Platform
    from lakechime_dagster.tables.cdc import ChangeTable
    from lakechime_dagster.tables.databases import Monitor, Snapshot


Name = Annotated[str, typer.Argument(metavar="TABLE", help="The table, as `lakechime cdc list` shows it.")]
Within = Annotated[
    float | None,
    typer.Option(min=0, metavar="SECONDS", help="How long a row that differs may be on its way; as declared unless given."),
]
MOST = 50  # keys that are shown


def compare(
    name: Name,
    within: Within = None,
    of_transactions: Annotated[
        bool,
        typer.Option("--transactions", help="Count the changes that arrived of each transaction instead; no database is asked."),
    ] = False,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Transactions that ended since then; by default within a day.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare a table with its database, once, at a consistent snapshot and while its runs go on.

    The exit code is 1 when rows differ, or changes are lost, or when it could not be known of all.
    """
    from lakechime_dagster.cdc.compare import document

    if since is not None and not of_transactions:
        raise common.wrong("--since", "is of transactions; give --transactions too")
    platform = open_platform()
    table = followed_table(name, platform.settings)
    if of_transactions:
        is_same = _compared_transactions(platform, table, common.optional_milliseconds("--since", since), as_json=as_json)
    else:
        found = _looked(platform, table, monitor_of(platform, table, within))
        is_same = found.is_same
        if as_json:
            print_json(document(found, MOST))
        else:
            _print_found(found)
    if not is_same:
        raise typer.Exit(1)


def repair(
    name: Name,
    keys: Annotated[
        list[str] | None,
        typer.Option(
            "--key", metavar="JSON", help="A key as `compare` shows it, such as '[1]'; may be repeated. Else all that differ now."
        ),
    ] = None,
    within: Within = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Repair rows that differ: read them again in the database, and append them to the bronze table, which the table's runs merge.

    Keys may be named more than once. The database is only read. A key that the lake has twice is not repaired so.
    """
    from lakechime_dagster.cdc.compare import key_given, key_shown

    platform = open_platform(dry_run=dry_run)
    table = followed_table(name, platform.settings)
    declared = monitor_of(platform, table, within)
    with common.reading("--key"):
        wanted = [key_given(key, len(table.keys)) for key in keys or ()]
    twice: list[Key] = []
    if not keys:
        wanted, twice = _repairable(_looked(platform, table, declared))
    done = _repaired(platform, table, declared, wanted, dry_run) if wanted else None
    if as_json:
        document = {"rows": map(key_shown, done.rows), "deletions": map(key_shown, done.deletions)} if done else {}
        print_json(
            {
                "table": name,
                "cut": done.cut if done else None,
                "rows": list(document.get("rows", [])),
                "deletions": list(document.get("deletions", [])),
                "twice": [key_shown(key) for key in twice],
                "version": done.version if done else None,
                "dry_run": dry_run,
            }
        )
    else:
        _print_repaired(table, done, dry_run)
        for key in twice:
            say(f"{key_shown(key)} is there twice, which a repair does not change: `lakechime cdc rebuild {name}` rebuilds the table")
    if twice:
        raise typer.Exit(1)


def monitor_of(platform: "Platform", table: "ChangeTable", within: float | None = None) -> "Monitor":
    """The monitor of a table whose database may be asked.

    Raises:
        LakeChimeError: it may not, or none is declared.
    """
    from lakechime_dagster.cdc.database import check_source_queries

    check_source_queries(platform.settings)
    if table.monitor is None or not table.monitor.is_comparing:
        raise LakeChimeError(f"{table.name} declares no database to compare it with; declare change_table(…, monitor=Monitor(…))")
    return table.monitor if within is None else replace(table.monitor, within=dt.timedelta(seconds=within))


def _looked(platform: "Platform", table: "ChangeTable", declared: "Monitor") -> "Monitored":
    from lakechime_dagster.cdc.compare_service import followed, monitored, opened_driver

    with opened_driver(platform, note) as driver:
        return monitored(driver.spark, followed(platform, table), declared)


def _repairable(found: "Monitored") -> tuple[list["Key"], list["Key"]]:
    """The keys that are repaired, and those that are there twice."""
    from lakechime_dagster.cdc.compare import Fault

    if found.is_truncated:
        raise LakeChimeError(f"{found.table} was truncated after the cut, so that nothing is known of its rows; ask again")
    keys = [key for key, fault in found.faults.items() if fault is not Fault.DUPLICATE]
    return keys, [key for key, fault in found.faults.items() if fault is Fault.DUPLICATE]


def _repaired(platform: "Platform", table: "ChangeTable", declared: "Monitor", keys: Sequence["Key"], dry_run: bool) -> "Repaired":
    from lakechime_dagster.cdc.load_service import repair_declared

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
        say(f"no row of {table.name} is to be repaired")
        return
    rows, gone = count(len(done.rows), "row"), count(len(done.deletions), "deletion")
    where = f"version {done.version} of {table.bronze.name}" if done.version is not None else table.bronze.name
    say(f"{rows} and {gone} {'would be' if dry_run else 'were'} appended to {where}, as the database has them at {done.cut}")


def _compared_transactions(platform: "Platform", table: "ChangeTable", since_ms: int | None, *, as_json: bool) -> bool:
    """Count the changes of each transaction that ended, and name those of which some are missing; whether none is."""
    from lakechime_dagster.cdc.monitor_service import transactions_counted
    from lakechime_dagster.cdc.service import Followed
    from lakechime_dagster.tables.databases import UNDECLARED

    if not table.bronze.feed.transactions:
        raise LakeChimeError(f"{table.name} declares no topic of transactions; declare transactions= of its source, as shop.transaction")
    found = transactions_counted(Followed(platform, table), table.monitor or UNDECLARED, since_ms)
    if as_json:
        print_json(_counted_document(table.name, found))
    else:
        _print_counted(found)
    return found.is_whole


def _counted_document(name: str, found: "Counted") -> dict[str, object]:
    return {
        "table": name,
        "transactions": found.transactions,
        "changes": found.changes,
        "on_their_way": found.on_their_way,
        "unreadable": found.unreadable,
        "problems": list(found.problems),
        "lacking": [_lacking_document(one) for one in found.lacking],
    }


def _lacking_document(one: "Lacking") -> dict[str, object]:
    topic, partition, offset = one.end.where
    return {
        "source": one.source,
        "transaction": one.end.transaction,
        "position": list(one.position),
        "expected": one.expected,
        "found": one.found,
        "sure": one.is_sure,
        "end": {"topic": topic, "partition": partition, "offset": offset},
    }


def _print_counted(found: "Counted") -> None:
    say(f"{count(found.transactions, 'transaction')} ended with {count(found.changes, 'change')} of the table")
    for one in found.lacking:
        say(str(one) if one.is_sure else f"{one}; they may be on their way, or unreadable")
    for problem in found.problems:
        say(problem)
    if found.on_their_way:
        say(f"{count(found.on_their_way, 'transaction')} wait for changes that may be on their way")
    if found.is_whole and not found.on_their_way:
        say("all of them came")


MOST_ROWS = 100_000  # rows of a chunk, whose messages are in memory


def load(
    name: Name,
    chunk: Annotated[int, typer.Option("--chunk", min=1, max=MOST_ROWS, metavar="ROWS", help="So many rows at once.")] = 10_000,
    from_: Annotated[
        Path | None, typer.Option("--from", metavar="PATH", help="A dump, as Parquet or JSON lines; else the declared history's.")
    ] = None,
    as_of: Annotated[
        str | None, typer.Option("--as-of", metavar="PLACE", help="The place of the database's log that the dump is the state of.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; else it is only said what would happen.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Load the rows of a dump into the bronze table, from which the table's runs merge them.

    For a connector that took no snapshot. The dump is the declared `history`, or the one that is given. No consumer stops.
    """
    from lakechime_dagster.cdc.load_service import history_loaded

    is_done = yes and not dry_run
    platform = open_platform(dry_run=not is_done)
    table = followed_table(name, platform.settings)
    chunks: list[Chunk] = []
    for one in history_loaded(platform, table, *_history(table, from_, as_of), chunk, dry_run=not is_done):
        chunks.append(one)
        if is_done:
            note(f"{count(one.total, 'row')} loaded, the last of them {_last_key(one)}")
    if not chunks:
        raise LakeChimeError(f"the dump has no row for {table.bronze.name}; name the dump of a table with rows")
    planned = "" if is_done else _planned(table, chunks[-1])
    if not (is_done or dry_run):
        raise LakeChimeError(f"{planned}; nothing was done: say --yes to do it")
    if as_json:
        print_json(_load_document(table, chunks, dry_run=dry_run))
    else:
        say(planned or _loaded_sentence(table, chunks))


def _history(table: "ChangeTable", path: Path | None, as_of: str | None) -> "tuple[Snapshot, Path]":
    """The dump to load and where it lies: the one that is given, from the current folder, else the declared one."""
    from lakechime_dagster.tables.databases import Snapshot

    if (path is None) != (as_of is None):
        raise common.wrong("--from", "a dump and the place that it is the state of belong together; give --from and --as-of")
    if path is None or as_of is None:
        if table.merge.history is None:
            remedy = "give --from and --as-of, declare CDCMerge(…, history=Snapshot(…)), or let the connector take an incremental snapshot"
            raise LakeChimeError(f"{table.name} declares no dump; {remedy}")
        return table.merge.history, in_project(table.merge.history.path)
    try:
        return Snapshot(str(path), as_of=as_of), path.expanduser().absolute()
    except DeclarationError as error:
        raise common.wrong({"path": "--from", "as_of": "--as-of"}[error.field], error.remedy) from None


def _last_key(chunk: "Chunk") -> str:
    from lakechime_dagster.cdc.compare import key_shown

    return key_shown(chunk.last)


def _planned(table: "ChangeTable", whole: "Chunk") -> str:
    return f"{count(whole.rows, 'row')}, the last of them {_last_key(whole)}, would be loaded into {table.bronze.name}"


def _loaded_sentence(table: "ChangeTable", chunks: list["Chunk"]) -> str:
    rows = chunks[-1].total
    compares = "" if table.monitor is None else f", and `lakechime cdc compare {table.name}` compares"
    loaded = f"{count(rows, 'row')} {'was' if rows == 1 else 'were'} loaded into {table.bronze.name} in {count(len(chunks), 'chunk')}"
    return f"{loaded}; its consumer takes them from there{compares}"


def _load_document(table: "ChangeTable", chunks: list["Chunk"], *, dry_run: bool) -> dict[str, Any]:
    shown = [{"cut": one.cut, "rows": one.rows, "last": _last_key(one), "version": one.version} for one in chunks]
    return {"table": table.name, "rows": chunks[-1].total, "chunks": shown, "dry_run": dry_run}
