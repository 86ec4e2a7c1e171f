"""`lakechime lineage ingest | export`: what others tell of their reads and writes, and what is known here, for other programs."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakechime_dagster.cli import parse
from lakechime_dagster.cli.context import declared_lake, open_platform
from lakechime_dagster.cli.lineage.ask import At, asked
from lakechime_dagster.cli.options import MAX_LIMIT, Json
from lakechime_dagster.cli.output import count, note, print_json, say
from lakechime_dagster.compat import StrEnum
from lakechime_dagster.errors import LakeChimeError, NotFoundError, shown

if TYPE_CHECKING:
    from lakechime_dagster.resources.lineage.asked import AskedLineage

MAX_TOLD = 20  # lines that were refused, and data sets outside, that are told for people
MAX_ROWS_TOLD = 5  # rows that were refused, of each audit table
BOM = b"\xef\xbb\xbf"


class Form(StrEnum):
    """What is written."""

    OPENLINEAGE = "openlineage"
    MERMAID = "mermaid"
    TABLE = "table"


Table = Annotated[str | None, typer.Argument(metavar="[TABLE]", help="A table, with what is around it; all unless given.")]
As = Annotated[Form, typer.Option("--format", help="JobEvents of OpenLineage, a flowchart of Mermaid, or lakechime.lineage_flat.")]
Steps = Annotated[int, typer.Option("--depth", min=1, max=MAX_LIMIT, help="So many steps up and down from the table.")]
Rebuild = Annotated[bool, typer.Option("--rebuild", help="Write the flat table also where it tells all of it already.")]
ColumnRows = Annotated[
    int, typer.Option("--column-rows", min=0, max=MAX_LIMIT, help="In the flat table at most so many pairs that begin with a column.")
]
AuditTable = Annotated[str | None, typer.Option("--table", help="Read only this audit table.")]


def ingest(
    file: Annotated[str | None, typer.Argument(metavar="[FILE|-]", help="JSON lines, or - for standard input.")] = None,
    way: Annotated[str, typer.Option("--way", help="By which name it is counted what came, and since when.")] = "file",
    table: AuditTable = None,
    as_json: Json = False,
) -> None:
    """Take JSON lines, each {producer, task, sql, dialect, …} or a run event of OpenLineage, as POST /lineage takes them.

    Without a file it reads what came into the declared audit tables since the last time.
    A line that cannot be read is told and loses no other; a repeat changes nothing. Exit code 1 if any was refused.
    """
    from lakechime_dagster.resources.lineage.ingest import lineage_ingest

    if file is not None and table is not None:
        raise parse.wrong("--table", "give either a file or an audit table")
    if file is None:
        _read_logs(table, as_json)
        return
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


def _read_logs(table: str | None, as_json: bool) -> None:
    """What came into the declared audit tables since the last time: who read which columns, and what was written."""
    from lakechime_dagster.resources.lineage.ingest import lineage_ingest
    from lakechime_dagster.resources.lineage.query_logs import query_log_named, read_query_log

    platform = open_platform()
    lake = declared_lake(platform.settings)
    several = query_log_named(lake, table)
    ingest = lineage_ingest(platform, lake)
    found = {one.table: read_query_log(platform, lake, one, ingest) for one in several}
    if as_json:
        told = [
            {"table": name, "documents": one.documents, "records": one.records, "reads": one.reads, "outside": sorted(one.outside),
             "refused": [{"row": refused.line, "problem": refused.problem} for refused in one.refused]}
            for name, one in found.items()
        ]  # fmt: skip
        print_json({"logs": told})
        return
    if not found:
        say("no audit table is declared; write Lake(…, query_logs=[QueryLog(…)])")
    for name, one in found.items():
        taken = f"{count(one.documents, 'statement')} taken, {count(one.records, 'write')} and {count(one.reads, 'read')} recorded"
        say(f"{name}: {taken}, {len(one.refused):,} could not be read")
        for refused in one.refused[:MAX_ROWS_TOLD]:
            note(f"{name}, row {refused.line} of these: {refused.problem}")


def export(
    table: Table = None, form: As = Form.OPENLINEAGE, depth: Steps = 2, at: At = None, rebuild: Rebuild = False,
    column_rows: ColumnRows = 2_000_000, as_json: Json = False,
) -> None:  # fmt: skip
    """Write what runs told as events of OpenLineage, or what is known as a flowchart of Mermaid or as a Delta table.

    `--format table` writes `lakechime.lineage_flat`: which tables and columns lead to which, with layer and kind.
    """
    if form is Form.TABLE:
        if table is not None or at is not None:
            raise parse.wrong("--format", "the flat table is of all tables and of now; leave out TABLE and --at")
        _flatten(rebuild, column_rows, as_json)
        return
    lineage = asked(at)
    name = None if table is None else lineage.ref(table).table
    if form is Form.OPENLINEAGE:
        print_json({"events": lineage.job_events(name, depth)})
        return
    text = _mermaid(lineage, name, depth)
    if as_json:
        print_json({"mermaid": text})
    else:
        print(text, end="")


def _mermaid(lineage: "AskedLineage", table: str | None, depth: int) -> str:
    from lakechime_dagster.lineage.graph.mermaid import diagram
    from lakechime_dagster.lineage.graph.neighbourhood import everything

    if not lineage.network.tables:
        raise NotFoundError("no run has recorded lineage yet, and the lake declares no table: there is nothing to draw")
    if table is None:
        return diagram(everything(lineage.network))
    return diagram(lineage.around(table, up=depth, down=depth, limit=MAX_LIMIT))


def _flatten(rebuild: bool, column_rows: int, as_json: bool) -> None:
    from lakechime_dagster.resources.lineage.flat import TABLE, flatten

    platform = open_platform()
    told = flatten(platform, declared_lake(platform.settings), column_rows=column_rows, anew=rebuild)
    if as_json:
        counts = {"tables": told.tables, "columns": told.columns, "refused": told.refusal} if told else {}
        print_json({"table": TABLE, "written": told is not None, **counts})
        return
    if told is None:
        say(f"{TABLE} tells already all that is known")
        return
    of_columns = "" if told.columns is None else f" and {count(told.columns, 'pair')} that begin with a column"
    say(f"{TABLE} tells {count(told.tables, 'pair')} of tables{of_columns}")
    if told.refusal:
        note(f"warning: {told.refusal}")
