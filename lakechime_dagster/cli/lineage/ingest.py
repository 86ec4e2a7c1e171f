"""`lakechime lineage ingest`: what others tell of their reads and writes, from a file or a pipe."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from lakechime_dagster.cli.context import declared_lake, open_platform
from lakechime_dagster.cli.options import Json
from lakechime_dagster.cli.output import count, note, print_json, say
from lakechime_dagster.errors import LakeChimeError, shown

MAX_TOLD = 20  # lines that were refused, and data sets outside, that are told for people
BOM = b"\xef\xbb\xbf"


def ingest(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="JSON lines, or - for standard input.")],
    way: Annotated[str, typer.Option("--way", help="By which name it is counted what came, and since when.")] = "file",
    as_json: Json = False,
) -> None:
    """Take JSON lines, each {producer, task, sql, dialect, …} or a run event of OpenLineage, as POST /lineage takes them.

    A line that cannot be read is told and loses no other; a repeat changes nothing. Exit code 1 if any was refused.
    """
    from lakechime_dagster.resources.lineage.ingest import lineage_ingest

    platform = open_platform()
    taken = lineage_ingest(platform, declared_lake(platform.settings)).take_lines(_lines(file), way)
    if as_json:
        refused = [{"line": one.line, "problem": one.problem} for one in taken.refused]
        print_json({**vars(taken), "outside": sorted(taken.outside), "refused": refused})
    else:
        say(
            f"{count(taken.documents, 'document')} taken, {taken.repeated:,} of them told nothing new;"
            f" {count(taken.records, 'write')} and {count(taken.reads, 'read')} recorded"
        )
        if taken.outside:
            some = sorted(taken.outside)[:MAX_TOLD]
            more = f", and {len(taken.outside) - MAX_TOLD:,} more" if len(taken.outside) > MAX_TOLD else ""
            note(
                f"not in the lake: {', '.join(shown(name)[1:-1] for name in some)}{more}; aliases of the lake say what else they are called"
            )
        for one in taken.refused[:MAX_TOLD]:
            note(f"line {one.line}: {one.problem}")
        if len(taken.refused) > MAX_TOLD:
            note(f"and {len(taken.refused) - MAX_TOLD:,} more lines were refused")
    if taken.refused:
        raise typer.Exit(1)


def _lines(file: str) -> Iterator[bytes]:
    """The lines of a file, or of standard input for `-`."""
    try:
        if file == "-":
            yield from _without_mark(sys.stdin.buffer)
        else:
            with Path(file).open("rb") as stream:
                yield from _without_mark(stream)
    except OSError as error:
        raise LakeChimeError(f"{'standard input' if file == '-' else shown(file)} cannot be read: {error.strerror}") from None


def _without_mark(lines: Iterator[bytes]) -> Iterator[bytes]:
    for number, line in enumerate(lines):
        yield line.removeprefix(BOM) if number == 0 else line  # a byte order mark, as Windows writes it
