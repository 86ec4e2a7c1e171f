"""`lakechime lineage`: column lineage."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import common, lineage_ask
from lakechime_dagster.cli.common import MAX_LIMIT, Json, count, declared_lake, note, open_platform, print_json, say
from lakechime_dagster.cli.lineage_ask import asked
from lakechime_dagster.compat import StrEnum
from lakechime_dagster.errors import InvalidValueError, LakeChimeError, NotFoundError, shown
from lakechime_dagster.lineage.check import ORDER, Class

if TYPE_CHECKING:
    from lakechime_dagster.lineage.check import Finding
    from lakechime_dagster.lineage.columns import Read
    from lakechime_dagster.lineage.manifest import Manifest
    from lakechime_dagster.lineage.plan import ReadFindings
    from lakechime_dagster.runtime.platform import Platform
    from lakechime_dagster.tables.lake import Lake


MAX_TOLD = 20  # lines that were refused, and data sets outside, that are told for people
MAX_ROWS_TOLD = 5  # rows that were refused, of each audit table
BOM = b"\xef\xbb\xbf"


class Form(StrEnum):
    """What is written."""

    OPENLINEAGE = "openlineage"
    TABLE = "table"


Table = Annotated[str | None, typer.Argument(metavar="[TABLE]", help="A table, with what is around it; all unless given.")]
As = Annotated[Form, typer.Option("--format", help="JobEvents of OpenLineage, or lakechime.lineage_flat.")]
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
    from lakechime_dagster.lineage.ingest import lineage_ingest

    if file is not None and table is not None:
        raise common.wrong("--table", "give either a file or an audit table")
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
    from lakechime_dagster.lineage.ingest import lineage_ingest, query_log_named, read_query_log

    platform = open_platform()
    lake = declared_lake(platform.settings)
    several = query_log_named(lake, table)
    ingest = lineage_ingest(platform, lake)
    found = {one.table: read_query_log(platform, lake, one, ingest) for one in several}
    if as_json:
        told = [
            {
                "table": name,
                "documents": one.documents,
                "records": one.records,
                "reads": one.reads,
                "outside": sorted(one.outside),
                "refused": [{"row": refused.line, "problem": refused.problem} for refused in one.refused],
            }
            for name, one in found.items()
        ]
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
    table: Table = None,
    form: As = Form.OPENLINEAGE,
    depth: Steps = 2,
    rebuild: Rebuild = False,
    column_rows: ColumnRows = 2_000_000,
    as_json: Json = False,
) -> None:
    """Write what runs recorded as events of OpenLineage, or what is known as a Delta table.

    `--format table` writes `lakechime.lineage_flat`: which tables and columns lead to which, with layer and kind.
    """
    if form is Form.TABLE:
        if table is not None:
            raise common.wrong("--format", "the flat table is of all tables; leave out TABLE")
        _flatten(rebuild, column_rows, as_json)
        return
    lineage = asked()
    name = None if table is None else lineage.ref(table).table
    print_json({"events": lineage.job_events(name, depth)})


def _flatten(rebuild: bool, column_rows: int, as_json: bool) -> None:
    from lakechime_dagster.lineage.flat import TABLE, flatten

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


Out = Annotated[Path | None, typer.Option("--out", help="The file to write; lineage.json beside workspace.yaml unless given.")]
OnlyCheck = Annotated[bool, typer.Option("--check", help="Write nothing; exit with 1 when the file is not what the code says.")]
Against = Annotated[Path, typer.Option("--against", help="The manifest of the code as it was, such as of the main branch.")]
FailOn = Annotated[str, typer.Option("--fail-on", help=f"The least that fails: {', '.join(ORDER)}, or `nothing`.")]
Accept = Annotated[str | None, typer.Option("--accept", help="Accept, in lineage.json, the finding of a key that --json tells.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why it is accepted; --accept needs it.")]
Live = Annotated[bool, typer.Option("--live", help="Take the columns of sources from the tables that are there, not from the file.")]
Drafts = Annotated[bool, typer.Option("--draft", help="Draft a notification for each table whose change affects others.")]
NOTHING = "nothing"


def plan(out: Out = None, check: OnlyCheck = False, as_json: Json = False) -> None:
    """Run each function and query over empty inputs, and write down what they compute: schemas, column lineage, digests.

    Equal code gives the same file, byte for byte, as long as the tables that others write have the same columns; of tables that are
    not there, the columns are taken from the file. What breaks over no rows, wants a run's context, writes or acts on rows is
    said as not known. What was accepted by `lakechime lineage check` stays as long as the code makes it.
    """
    from lakechime_dagster.lineage.manifest import UNTIL_IT_RUNS
    from lakechime_dagster.lineage.plan import planned_manifest

    platform, path = open_platform(), out or manifest_path()
    before = _before(path, manifest_path())
    made = planned_manifest(declared_lake(platform.settings), platform, note, before)
    text = made.to_json()
    all_unknown = [(name, table.is_computed, why) for name, table in made.tables.items() for why in table.unknown]
    unknown = [(name, why) for name, is_computed, why in all_unknown if is_computed or why.startswith(UNTIL_IT_RUNS)]
    computed = [table for table in made.tables.values() if table.is_computed]
    is_current = path.exists() and path.read_text(encoding="utf-8") == text
    if not check:
        path.write_text(text, encoding="utf-8")
    columns = sum(len(table.columns) for table in computed)
    if as_json:
        told = {"tables": len(computed), "columns": columns, "not_known": [{"table": name, "reason": why} for name, why in unknown]}
        print_json({"file": str(path), "was_current": is_current, "written": not check, **told})
        if check and not is_current:
            raise typer.Exit(1)
        return
    for name, why in unknown:
        note(f"{name}: {why}")
    if check:
        if not is_current:
            say(f"{path} is not what the code says; write it with `lakechime lineage plan`")
            raise typer.Exit(1)
        say(f"{path} is what the code says")
        return
    say(f"{path}: {count(columns, 'column')} of {count(len(computed), 'computed table')}, {len(unknown)} not known")


def _before(path: Path, own: Path) -> "Manifest | None":
    """The file as it is, or else the project's own, with what is accepted in either."""
    from lakechime_dagster.lineage.manifest import read_manifest

    known = [read_manifest(one) for one in dict.fromkeys((path, own)) if one.exists()]
    accepted = {key: why for one in known for key, why in one.accepted.items()}
    return replace(known[0], accepted=accepted) if known else None


def manifest_path() -> Path:
    """Where the manifest of the project is."""
    from lakechime_dagster.lineage.manifest import FILE
    from lakechime_dagster.settings import project_folder

    return project_folder() / FILE


def check(
    against: Against,
    fail_on: FailOn = str(Class.BREAKS),
    accept: Accept = None,
    reason: Reason = None,
    live: Live = False,
    draft: Drafts = False,
    as_json: Json = False,
) -> None:
    """Ask each function and query again and compare: what breaks, which rows and values change, of whom. Markdown, by owner.

    Columns of tables that others write are taken from the file, so that it runs where there are no tables and no store; with one it
    tells which dashboards, people and jobs elsewhere read what changes. What is accepted stands in the project's lineage.json, to be
    merged with the change, or in the file. The exit code is 1 when something that is not accepted is as bad as `--fail-on`.
    """
    from lakechime_dagster.lineage.check import compare, markdown, with_accepted
    from lakechime_dagster.lineage.manifest import read_manifest
    from lakechime_dagster.lineage.plan import ReadFindings, gate_readers, planned_manifest
    from lakechime_dagster.runtime.platform import open_platform_without_store

    worst = _checked(fail_on)
    before, own = read_manifest(against), manifest_path()
    accepted = read_manifest(own).accepted if own.exists() else {}
    platform, why_not = (open_platform(), "") if draft else open_platform_without_store()
    lake = declared_lake(platform.settings)
    after = planned_manifest(lake, platform, note, before, only_manifest=not live)
    compared = compare(before, after)
    read = ReadFindings(findings=compared, not_known=why_not) if why_not else gate_readers(platform, lake, compared)
    found, readers = with_accepted(read.findings, {**before.accepted, **accepted}), read.readers
    if accept is not None:
        _accept(own, read, accept, reason)
        return
    if draft:
        _draft(platform, found)
    if as_json:
        told = [document(one) | {"readers": [_reader(each) for each in readers.get(one.key, ())]} for one in found]
        print_json({"findings": told, "readers_not_known": read.not_known or None})
    else:
        say(markdown(found, wakes_of(lake), remedies_of(lake), readers=readers, not_known=read.not_known).rstrip("\n"))
    if worst is not None and any(ORDER.index(one.kind) <= ORDER.index(worst) and not one.accepted for one in found):
        raise typer.Exit(1)


def document(one: "Finding") -> dict[str, Any]:
    """A finding, as JSON."""
    return {
        "key": one.key,
        "kind": str(one.kind),
        "table": one.table,
        "column": one.column,
        "what": one.what,
        "owner": one.owner,
        "because": [str(ref) for ref in one.because],
        "accepted": one.accepted,
    }


def _reader(read: "Read") -> dict[str, Any]:
    who = read.consumer
    return {
        "consumer": who.kind.value,
        "namespace": who.namespace,
        "name": who.name,
        "owners": list(read.owners),
        "link": read.link,
        "last_read_ts": read.at_ms,
    }


def wakes_of(lake: "Lake") -> dict[str, str]:
    """By table what launches its runs."""
    from lakechime_dagster.assets.jobs import subscription_of

    return {table.name: subscription_of(table).condition if table.trigger is not None else "a person" for table in lake.targets}


def remedies_of(lake: "Lake") -> dict[str, str]:
    """By table what makes the rows of older code anew, where that is not a backfill."""
    from lakechime_dagster.lineage.backfill import refusal
    from lakechime_dagster.tables.tables import RefreshMode

    refused = {table.name: f"a backfill is refused, as it {reason}" for table in lake.targets if (reason := refusal(table))}
    full = [table.name for table in lake.computed if table.refresh is RefreshMode.FULL]
    return refused | dict.fromkeys(full, "its next run makes all of it anew")


def _draft(platform: "Platform", found: "tuple[Finding, ...]") -> None:
    """Keep a draft for each table that itself changes, for what was not found before, and say what became of it."""
    from lakechime_dagster.governance.notifications import draft_findings

    for table, kept, is_new in draft_findings(platform, found):
        what = "drafted" if is_new else f"{kept.state} already"
        note(f"change {kept.change_id} is {what} for {table}; see `lakechime notification list {kept.change_id}`")


def _checked(fail_on: str) -> Class | None:
    if fail_on == NOTHING:
        return None
    try:
        return Class(fail_on)
    except ValueError:
        raise InvalidValueError("--fail-on", fail_on, f"write one of {', '.join(ORDER)}, or {NOTHING}") from None


def _accept(path: Path, read: "ReadFindings", key: str, reason: str | None) -> None:
    """Write it down; what was accepted and is found no more goes, whatever it is for those who read, who are not known everywhere."""
    from lakechime_dagster.lineage.manifest import read_manifest

    keys = {one.key for one in read.findings}
    if key not in keys:
        raise NotFoundError(f"there is no finding {key!r}; see the keys with --json")
    if not (reason or "").strip():
        raise InvalidValueError("--reason", reason or "", "say why the finding is accepted")
    if not path.exists():
        raise NotFoundError(f"there is no {path} to keep it in; write it with `lakechime lineage plan`")
    own = read_manifest(path)
    found = {_without_kind(one) for one in keys}
    kept = {known: why for known, why in own.accepted.items() if _without_kind(known) in found}
    path.write_text(replace(own, accepted={**kept, key: str(reason)}).to_json(), encoding="utf-8")
    say(f"accepted in {path}: {key}")


def _without_kind(key: str) -> str:
    return key.partition(": ")[2]


app = typer.Typer(name="lineage", help="Column lineage: where columns come from and who reads them; plan it before any run.")
for command in (
    lineage_ask.upstream,
    lineage_ask.downstream,
    lineage_ask.path,
    lineage_ask.impact,
    lineage_ask.readers,
    plan,
    check,
    ingest,
    export,
):
    app.command()(command)


@app.callback()
def lineage() -> None:
    """Column lineage: where columns come from and who reads them; plan it before any run."""
