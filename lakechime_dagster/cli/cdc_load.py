"""`lakechime cdc load`: a whole table of a database, of whose rows no message told, told to the table that follows it."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli.cdc_monitor import monitor_of
from lakechime_dagster.cli.context import followed_table, open_platform
from lakechime_dagster.cli.options import DryRun, Json
from lakechime_dagster.cli.output import count, note, print_json, say
from lakechime_dagster.errors import LakeChimeError

if TYPE_CHECKING:
    from lakechime_dagster.lake.change_tables import ChangeTable
    from lakechime_dagster.resources.load import Chunk

Name = Annotated[str, typer.Argument(metavar="TABLE", help="The table, as `lakechime cdc list` shows it.")]
MOST = 100_000  # rows of a chunk, whose messages are in memory


def load(
    name: Name,
    chunk: Annotated[int, typer.Option("--chunk", min=1, max=MOST, metavar="ROWS", help="So many rows at once.")] = 10_000,
    restart: Annotated[bool, typer.Option("--restart", help="From the first row, though a load that is not finished could go on.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; else it is only said what would happen.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Read the database's whole table in chunks, and tell its rows to the table of messages, from which the table takes them.

    For a connector that took no snapshot. The database is only read, no lane stops, and a load that was interrupted goes on
    above its last chunk.
    """
    from lakechime_dagster.resources.load import load_declared

    is_done = yes and not dry_run
    platform = open_platform(dry_run=not is_done)
    table = followed_table(name, platform.settings)
    chunks: list[Chunk] = []
    for one in load_declared(platform, table, monitor_of(platform, table), chunk, restart=restart, dry_run=not is_done):
        chunks.append(one)
        if is_done:
            note(f"{count(one.total, 'row')} told, the last of them {_key(one)}")
    planned = "" if is_done else _planned(table, chunks[-1])
    if not (is_done or dry_run):
        raise LakeChimeError(f"{planned}; nothing was done: say --yes to do it")
    if as_json:
        print_json(_document(table, chunks, dry_run=dry_run))
    else:
        say(planned or _done(table, chunks))


def _key(chunk: "Chunk") -> str | None:
    from lakechime_dagster.cdc.monitored import key_shown

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
    return (
        f"{count(rows, 'row')} were told to {table.bronze.name} in {count(len(chunks), 'chunk')}{goes_on}; its lane takes them from there, "
        f"and `lakechime cdc monitor {table.name}` compares"
    )


def _document(table: "ChangeTable", chunks: list["Chunk"], *, dry_run: bool) -> dict[str, Any]:
    last = chunks[-1]
    told = [{"cut": one.cut, "rows": one.rows, "last": _key(one), "version": one.version} for one in chunks]
    return {
        "table": table.name, "load": last.load, "rows": sum(one.rows for one in chunks), "total": last.total, "is_last": last.is_last,
        "chunks": told, "dry_run": dry_run,
    }  # fmt: skip
