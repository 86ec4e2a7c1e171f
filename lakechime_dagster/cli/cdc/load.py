"""`lakechime cdc load`: a whole table of a database, of whose rows no message told, told to the table that follows it."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import parse
from lakechime_dagster.cli.cdc.monitor import monitor_of
from lakechime_dagster.cli.context import followed_table, open_platform
from lakechime_dagster.cli.options import DryRun, Json
from lakechime_dagster.cli.output import count, note, print_json, say
from lakechime_dagster.errors import DeclarationError, LakeChimeError
from lakechime_dagster.settings import in_project

if TYPE_CHECKING:
    from lakechime_dagster.lake.change_tables import ChangeTable
    from lakechime_dagster.lake.snapshots import Snapshot
    from lakechime_dagster.resources.following.load import Chunk
    from lakechime_dagster.resources.platform import Platform

Name = Annotated[str, typer.Argument(metavar="TABLE", help="The table, as `lakechime cdc list` shows it.")]
MOST = 100_000  # rows of a chunk, whose messages are in memory


def load(
    name: Name,
    chunk: Annotated[int, typer.Option("--chunk", min=1, max=MOST, metavar="ROWS", help="So many rows at once.")] = 10_000,
    restart: Annotated[bool, typer.Option("--restart", help="From the first row, though a load that is not finished could go on.")] = False,
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
    """Tell all rows of the database's table to the table of messages, from which the table takes them.

    For a connector that took no snapshot. The rows are those of a dump where one is declared (`history`) or given, else the
    database is read in chunks. It is only read, no lane stops, and a load that was interrupted goes on after its last chunk.
    """
    is_done = yes and not dry_run
    platform = open_platform(dry_run=not is_done)
    table = followed_table(name, platform.settings)
    chunks: list[Chunk] = []
    for one in _loading(platform, table, _history(table, from_, as_of), chunk, restart=restart, dry_run=not is_done):
        chunks.append(one)
        if is_done:
            note(f"{count(one.total, 'row')} told, the last of them {_key(one)}")
    if not chunks:
        raise LakeChimeError(f"the dump has no row to tell to {table.bronze.name}; name the dump of a table with rows")
    planned = "" if is_done else _planned(table, chunks[-1])
    if not (is_done or dry_run):
        raise LakeChimeError(f"{planned}; nothing was done: say --yes to do it")
    if as_json:
        print_json(_document(table, chunks, dry_run=dry_run))
    else:
        say(planned or _done(table, chunks))


def _history(table: "ChangeTable", path: Path | None, as_of: str | None) -> "tuple[Snapshot, Path] | None":
    """The dump to load and where it lies: the one that is given, from the current folder, else the declared one; None of neither."""
    from lakechime_dagster.lake.snapshots import Snapshot

    if (path is None) != (as_of is None):
        raise parse.wrong("--from", "a dump and the place that it is the state of belong together; give --from and --as-of")
    if path is None or as_of is None:
        return None if table.merge.history is None else (table.merge.history, in_project(table.merge.history.path))
    try:
        return Snapshot(str(path), as_of=as_of), path.expanduser().absolute()
    except DeclarationError as error:
        raise parse.wrong({"path": "--from", "as_of": "--as-of"}[error.field], error.remedy) from None


def _loading(
    platform: "Platform", table: "ChangeTable", history: "tuple[Snapshot, Path] | None", size: int, *, restart: bool, dry_run: bool
) -> "Iterator[Chunk]":
    from lakechime_dagster.resources.following.dump import history_loaded
    from lakechime_dagster.resources.following.load import load_declared

    if history is not None:
        return history_loaded(platform, table, *history, size, restart=restart, dry_run=dry_run)
    return load_declared(platform, table, monitor_of(platform, table), size, restart=restart, dry_run=dry_run)


def _key(chunk: "Chunk") -> str | None:
    from lakechime_dagster.cdc.compare import key_shown

    return None if chunk.last is None else key_shown(chunk.last)


def _planned(table: "ChangeTable", first: "Chunk") -> str:
    before = first.total - first.rows
    goes_on = f" after the {count(before, 'row')} of load {first.load}, which is not finished" if before else ""
    more = "" if first.is_last else ", and all above, in chunks of as many"
    return f"{count(first.rows, 'row')}, the last of them {_key(first)}{more}, would be told to {table.bronze.name}{goes_on}"


def _done(table: "ChangeTable", chunks: list["Chunk"]) -> str:
    last = chunks[-1]
    rows = sum(one.rows for one in chunks)
    goes_on = f", {last.total:,} with those that this load told before" if last.total > rows else ""
    told = f"{count(rows, 'row')} {'was' if rows == 1 else 'were'} told to {table.bronze.name} in {count(len(chunks), 'chunk')}{goes_on}"
    compares = "" if table.monitor is None else f", and `lakechime cdc monitor {table.name}` compares"
    return f"{told}; its lane takes them from there{compares}"


def _document(table: "ChangeTable", chunks: list["Chunk"], *, dry_run: bool) -> dict[str, Any]:
    last = chunks[-1]
    told = [{"cut": one.cut, "rows": one.rows, "last": _key(one), "version": one.version} for one in chunks]
    return {
        "table": table.name, "load": last.load, "rows": sum(one.rows for one in chunks), "total": last.total, "is_last": last.is_last,
        "chunks": told, "dry_run": dry_run,
    }  # fmt: skip
