"""`lakechime lineage`: column lineage."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import common
from lakechime_dagster.cli.common import (
    MAX_LIMIT,
    Json,
    answer,
    count,
    declared_lake,
    note,
    open_lineage,
    open_platform,
    print_documents,
    print_json,
    print_table,
    record,
    say,
    when,
)
from lakechime_dagster.compat import StrEnum
from lakechime_dagster.errors import InvalidValueError, LakeChimeError, NotFoundError, shown
from lakechime_dagster.lineage.check import ORDER, Class

if TYPE_CHECKING:
    from lakechime_dagster.lineage.answers import (
        AffectedConsumer,
        PathEdge,
        ReachedTable,
        ReachedTables,
    )
    from lakechime_dagster.lineage.check import Finding
    from lakechime_dagster.lineage.columns import ColumnRef, Consumer
    from lakechime_dagster.lineage.graph import TableFacts
    from lakechime_dagster.lineage.manifest import Manifest
    from lakechime_dagster.lineage.network import Certainty
    from lakechime_dagster.lineage.plan import ReadFindings
    from lakechime_dagster.lineage.recording import Taken
    from lakechime_dagster.lineage.service import AskedLineage
    from lakechime_dagster.tables.lake import Lake

app = typer.Typer(
    name="lineage",
    help=(
        "Column lineage: what columns are computed from, whom a change affects; plan it before any "
        "run."
    ),
)


class KindName(StrEnum):
    """How surely something is affected, as an option names it."""

    DIRECT = "direct"
    INDIRECT = "indirect"
    UNSURE = "unsure"


Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A table, or a column as schema.table.column.")
]
Names = Annotated[
    list[str], typer.Argument(metavar="NAME…", help="Tables, or columns as schema.table.column.")
]
Depth = Annotated[
    int | None, typer.Option("--depth", min=1, max=MAX_LIMIT, help="At most so many edges.")
]
OfKind = Annotated[
    KindName | None,
    typer.Option(
        "--kind",
        help=(
            "Only what values are computed from (direct), what only filters or joins (indirect), "
            "or what is unsure."
        ),
    ),
]
Limit = Annotated[
    int,
    typer.Option(
        "--limit", min=1, max=MAX_LIMIT, help="At most so many tables, the nearest ones first."
    ),
]


@app.command()
def upstream(
    name: Name,
    source: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="NAME", help="Only the shortest path from this table or column."
        ),
    ] = None,
    depth: Depth = None,
    kind: OfKind = None,
    limit: Limit = 100,
    as_json: Json = False,
) -> None:
    """Show what a table or column is computed from, with the path; `impact` shows what is computed
    from it.
    """
    lineage = open_lineage()
    ref = lineage.ref(name)
    if source is not None:
        _path(lineage, lineage.ref(source), ref, kind or KindName.UNSURE, as_json)
        return
    found = lineage.reached([ref], upstream=True, depth=depth, kind=_certainty(kind), limit=limit)
    unknown = lineage.unknown([ref], upstream=True)
    if as_json:
        print_json(_document(lineage, [ref], found, unknown))
        return
    empty = (
        "nothing more is known"
        if unknown
        else f"{ref} is computed from nothing: its values are constants"
    )
    _print_tables(lineage, found, empty if kind is None else f"nothing of kind {kind.value}")
    _print_unknown(unknown)


def _path(
    lineage: "AskedLineage", start: "ColumnRef", end: "ColumnRef", kind: KindName, as_json: bool
) -> None:
    """The shortest path from one table or column to another, by nothing less sure than the kind."""
    from lakechime_dagster.lineage.network import Certainty

    if start.table == end.table:
        raise common.wrong("--from", f"{start} is of the same table; name another one")
    found = lineage.path(start, end, Certainty[kind.name])
    if found is None:
        raise NotFoundError(f"no path leads from {start} to {end}, as far as is known")
    if as_json:
        print_json({"from": str(start), "to": str(end), "path": _edges(found)})
    else:
        print_table(
            ("from", "by", "to"),
            [(edge.source, ", ".join(edge.kinds), edge.target) for edge in found],
            empty="",
        )


@app.command()
def impact(
    names: Names,
    depth: Depth = None,
    kind: OfKind = None,
    limit: Limit = 100,
    as_json: Json = False,
) -> None:
    """Show what is computed from tables or columns, who reads that, and which tables further down
    are unaffected, and why.

    `--depth 1` shows the direct readers; `lakechime backfill run --dry-run` shows which of their
    partitions are affected.
    """
    lineage = open_lineage()
    refs = [lineage.ref(name) for name in names]
    found = lineage.reached(refs)
    unaffected = lineage.unaffected(refs, found)
    before = found if depth is None else lineage.reached(refs, depth=depth - 1)
    consumers = [
        one
        for one in lineage.consumers(refs, before)
        if kind is None or one.certainty is _certainty(kind)
    ]
    if depth is not None or kind is not None:
        found = lineage.reached(refs, depth=depth, kind=_certainty(kind))
    found = replace(found, tables=found.tables[:limit], more=len(found.tables[limit:]))
    unknown = lineage.unknown(refs)
    if as_json:
        ways = [
            {"by": one.name, "since_ts": one.since_ms, "last_ts": one.last_ms}
            for one in lineage.read_ways
        ]
        more = {
            "consumers": [_consumer(lineage, one) for one in consumers],
            "unaffected": unaffected,
            "reads_recorded_by": ways,
        }
        print_json(_document(lineage, refs, found, unknown) | more)
        return
    since_shown = when(lineage.since_ms) or "ever"
    _print_tables(
        lineage,
        found,
        f"nothing reads {', '.join(map(str, refs))}, as far as runs recorded since {since_shown}",
    )
    _print_consumers(lineage, consumers)
    if unaffected:
        say(
            f"\n{count(len(unaffected), 'table')} further down "
            f"{'is' if len(unaffected) == 1 else 'are'} unaffected:"
        )
        print_documents(unaffected, "table reason")
    _print_unknown(unknown)
    for way in lineage.read_ways:
        say(
            f"Reads of other programs are recorded by {way.name} since {when(way.since_ms)}, last "
            f"{when(way.last_ms)}."
        )


def _certainty(kind: KindName | None) -> "Certainty | None":
    from lakechime_dagster.lineage.network import Certainty

    return None if kind is None else Certainty[kind.name]


def _document(
    lineage: "AskedLineage",
    refs: "Sequence[ColumnRef]",
    found: "ReachedTables",
    unknown: tuple[str, ...],
) -> dict[str, Any]:
    facts = lineage.facts(one.table for one in found.tables)
    tables = [_table(lineage, one, facts[one.table]) for one in found.tables]
    return {
        "of": [*map(str, refs)],
        "recorded_since_ts": lineage.since_ms,
        "unknown": unknown,
        "tables": tables,
        "more": found.more,
    }


def _table(lineage: "AskedLineage", one: "ReachedTable", facts: "TableFacts") -> dict[str, Any]:
    """A table that was reached, as JSON."""
    return record(one, "table layer") | {
        "kind": one.certainty.name.lower(),
        "rows": None if one.rows is None else one.rows.name.lower(),
        "columns": [
            {"name": each.name, "kind": each.certainty.name.lower(), "layer": each.layer}
            for each in one.columns
        ],
        "path": _edges(one.path),
        **record(
            facts,
            "owners jobs",
            links=dict(facts.links),
            last_seen_ts=facts.last_ms,
            stale=lineage.is_stale(facts),
        ),
    }


def _edges(path: "Iterable[PathEdge]") -> list[dict[str, Any]]:
    return [
        {"source": str(edge.source), "kinds": edge.kinds, "target": str(edge.target)}
        for edge in path
    ]


def _print_tables(lineage: "AskedLineage", found: "ReachedTables", empty: str) -> None:
    """The tables that were reached, and how many were left out."""
    facts = lineage.facts(one.table for one in found.tables)
    rows = [
        record(
            one,
            "layer table",
            kind=one.certainty.name.lower(),
            columns=common.first([each.name for each in one.columns], 4) or "(rows)",
            owners=facts[one.table].owners,
            last_seen=when(facts[one.table].last_ms)
            + " (stale)" * lineage.is_stale(facts[one.table]),
            by_way_of=" → ".join(dict.fromkeys(edge.target.table for edge in one.path[:-1])),
        )
        for one in found.tables
    ]
    print_documents(rows, "layer table kind columns owners last_seen by_way_of", empty=empty)
    if found.more:
        say(f"… and {count(found.more, 'more table')}; --limit shows them")


def _consumer(lineage: "AskedLineage", one: "AffectedConsumer") -> dict[str, Any]:
    """A reader that writes nothing, as JSON."""
    facts = {
        "kind": one.certainty.name.lower(),
        "columns": [*map(str, one.refs)],
        "last_read_ts": one.last_ms,
    }
    return (
        _who(one.consumer)
        | facts
        | record(one, "owners link", active=one.is_active(lineage.now_ms))
    )


def _who(one: "Consumer") -> dict[str, Any]:
    return {"consumer": one.kind, "namespace": one.namespace, "name": one.name}


def _print_consumers(lineage: "AskedLineage", several: "Sequence[AffectedConsumer]") -> None:
    """Readers that write nothing, or that such readers are unknown."""
    if several:
        say(
            f"\n{count(len(several), 'reader')} that {'writes' if len(several) == 1 else 'write'} "
            f"nothing:"
        )
        rows = [_consumer(lineage, one) for one in several]
        shown = [one | {"columns": common.first(one["columns"], 4)} for one in rows]
        print_documents(shown, "consumer name kind columns owners last_read_ts active link")
    elif not lineage.read_ways:
        note("readers outside this lake are unknown: no audit log is configured")


def _print_unknown(reasons: Iterable[str]) -> None:
    """Why there may be more than is shown."""
    for reason in reasons:
        note(f"unknown: {reason}")


MAX_SHOWN = 20  # refused lines, and data sets outside the lake, that people are shown
BOM = b"\xef\xbb\xbf"


class Form(StrEnum):
    """What is written."""

    OPENLINEAGE = "openlineage"
    TABLE = "table"


Table = Annotated[
    str | None,
    typer.Argument(metavar="[TABLE]", help="A table, with what is around it; all unless given."),
]
As = Annotated[
    Form, typer.Option("--format", help="JobEvents of OpenLineage, or lakechime.lineage_flat.")
]
Radius = Annotated[
    int,
    typer.Option("--depth", min=1, max=MAX_LIMIT, help="So many edges up and down from the table."),
]
ColumnRows = Annotated[
    int,
    typer.Option(
        "--column-rows",
        min=0,
        max=MAX_LIMIT,
        help="In the flat table at most so many pairs that begin with a column.",
    ),
]
AuditTable = Annotated[str | None, typer.Option("--table", help="Read only this audit table.")]


@app.command()
def ingest(
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE|-]", help="JSON lines, or - for standard input.")
    ] = None,
    way: Annotated[
        str,
        typer.Option(
            "--way", help="The name of this way of recording, of which documents are counted."
        ),
    ] = "file",
    table: AuditTable = None,
    as_json: Json = False,
) -> None:
    """Record JSON lines, each {producer, task, sql, dialect, …} or a run event of OpenLineage, as
    POST /lineage does.

    Without a file, new rows of the declared audit tables are read. A line that cannot be read is
    reported and does not stop the others; a repeat changes nothing. The exit code is 1 when a line
    or row was refused.
    """
    from lakechime_dagster.lineage.ingest import LineageIngest

    if file is not None and table is not None:
        raise common.wrong("--table", "give either a file or an audit table")
    if file is None:
        _read_logs(table, as_json)
        return
    platform = open_platform()
    taken = LineageIngest(platform, declared_lake(platform.settings)).take_lines(_lines(file), way)
    if as_json:
        print_json(_taken(taken))
    else:
        _print_taken(file, "line", taken)
    if taken.refused:
        raise typer.Exit(1)


def _taken(taken: "Taken") -> dict[str, Any]:
    return vars(taken) | {
        "refused": [{"number": one.line, "problem": one.problem} for one in taken.refused]
    }


def _print_taken(name: str, noun: str, taken: "Taken") -> None:
    recorded = f"{count(taken.records, 'write')} and {count(taken.reads, 'read')} recorded"
    say(
        f"{name}: {count(taken.documents, 'document')} read, {taken.repeated:,} without anything "
        f"new; {recorded}"
    )
    if taken.outside:
        names = [shown(one)[1:-1] for one in taken.outside]
        note(
            f"not in the lake: {common.first(names, MAX_SHOWN)}; declare aliases for other names "
            f"of tables"
        )
    for one in taken.refused[:MAX_SHOWN]:
        note(f"{name}, {noun} {one.line}: {one.problem}")
    if len(taken.refused) > MAX_SHOWN:
        note(f"{name}: {len(taken.refused) - MAX_SHOWN:,} more {noun}s were refused")


def _lines(file: str) -> Iterator[bytes]:
    """The lines of a file, or of standard input for `-`."""
    try:
        if file == "-":
            yield from _without_mark(sys.stdin.buffer)
        else:
            with Path(file).open("rb") as stream:
                yield from _without_mark(stream)
    except OSError as error:
        raise LakeChimeError(
            f"{'standard input' if file == '-' else shown(file)} cannot be read: {error.strerror}"
        ) from None


def _without_mark(lines: Iterator[bytes]) -> Iterator[bytes]:
    for number, line in enumerate(lines):
        # a byte order mark, as Windows writes it
        yield (line.removeprefix(BOM) if number == 0 else line)


def _read_logs(table: str | None, as_json: bool) -> None:
    """Read the new rows of the declared audit tables: who read which columns, and what was
    written.
    """
    from lakechime_dagster.lineage.ingest import LineageIngest, query_log_named

    platform = open_platform()
    lake = declared_lake(platform.settings)
    several, ingest = query_log_named(lake, table), LineageIngest(platform, lake)
    found = {one.table: ingest.take_log(one) for one in several}
    if as_json:
        print_json({"logs": [{"table": name, **_taken(one)} for name, one in found.items()]})
    elif not found:
        say("no audit table is declared; write Lake(…, query_logs=[QueryLog(…)])")
    for name, one in () if as_json else found.items():
        _print_taken(name, "row", one)
    if any(one.refused for one in found.values()):
        raise typer.Exit(1)


@app.command()
def export(
    table: Table = None,
    form: As = Form.OPENLINEAGE,
    depth: Radius = 2,
    column_rows: ColumnRows = 2_000_000,
    as_json: Json = False,
) -> None:
    """Write what runs recorded as events of OpenLineage, or what is known as a Delta table.

    `--format table` writes `lakechime.lineage_flat`: which tables and columns lead to which, with
    layer and kind.
    """
    if form is Form.TABLE:
        if table is not None:
            raise common.wrong("--format", "the flat table is of all tables; leave out TABLE")
        _flatten(column_rows, as_json)
        return
    lineage = open_lineage()
    name = None if table is None else lineage.ref(table).table
    print_json({"events": lineage.job_events(name, depth)})


def _flatten(column_rows: int, as_json: bool) -> None:
    from lakechime_dagster.lineage.flat import TABLE, flatten

    platform = open_platform()
    flat = flatten(platform, declared_lake(platform.settings), column_rows=column_rows)
    if as_json:
        counts = (
            {"tables": flat.tables, "columns": flat.columns, "refused": flat.refusal}
            if flat
            else {}
        )
        print_json({"table": TABLE, "written": flat is not None, **counts})
        return
    if flat is None:
        say(f"{TABLE} is up to date")
        return
    of_columns = (
        ""
        if flat.columns is None
        else f" and {count(flat.columns, 'pair')} that begin with a column"
    )
    say(f"{TABLE} holds {count(flat.tables, 'pair')} of tables{of_columns}")
    if flat.refusal:
        note(f"warning: {flat.refusal}")


Out = Annotated[
    Path | None,
    typer.Option(
        "--out", help="The file to write; lineage.json beside workspace.yaml unless given."
    ),
]
OnlyCheck = Annotated[
    bool,
    typer.Option(
        "--check", help="Write nothing; exit with 1 when the file is not what the code says."
    ),
]
Against = Annotated[
    Path | None,
    typer.Option(
        "--against",
        help="Write nothing; compare with this manifest, such as of the main branch, as Markdown.",
    ),
]
FailOn = Annotated[
    str,
    typer.Option(
        "--fail-on", help=f"The least finding that fails: {', '.join(ORDER)}, or `nothing`."
    ),
]
Accept = Annotated[
    str | None,
    typer.Option(
        "--accept", help="Accept, in lineage.json, the finding of this key, which --json shows."
    ),
]
Reason = Annotated[
    str | None, typer.Option("--reason", help="Why it is accepted; --accept needs it.")
]
NOTHING = "nothing"


@app.command()
def plan(
    out: Out = None,
    check: OnlyCheck = False,
    against: Against = None,
    fail_on: FailOn = str(Class.BREAKS),
    accept: Accept = None,
    reason: Reason = None,
    as_json: Json = False,
) -> None:
    """Run each function and query over empty inputs, and write what they compute to a file:
    schemas, column lineage, digests.

    Equal code gives the same file, byte for byte, while the tables of other programs have the same
    columns; columns of tables that do not exist are read from the file. What fails over no rows,
    needs a run's context or acts on rows is recorded as unknown.

    `--against` compares with another manifest: what breaks, which rows and values change, of which
    owner, and who reads that. It needs no tables, and no store. The exit code is 1 when a finding
    that is not accepted in lineage.json is as bad as `--fail-on`.
    """
    if against is not None:
        if out is not None or check:
            raise common.wrong("--against", "writes and checks no file; leave out --out, --check")
        _compare(against, fail_on, accept, reason, as_json)
        return
    if accept is not None:
        raise common.wrong("--accept", "is of a comparison; give --against")
    _plan(out, check, as_json)


def _plan(out: Path | None, check: bool, as_json: bool) -> None:
    from lakechime_dagster.lineage.manifest import UNTIL_IT_RUNS
    from lakechime_dagster.lineage.plan import planned_manifest

    platform, path = open_platform(), out or _manifest_path()
    made = planned_manifest(
        declared_lake(platform.settings), platform, note, _before(path, _manifest_path())
    )
    text = made.to_json()
    unknown = [
        (name, why)
        for name, table in made.tables.items()
        for why in table.unknown
        if table.is_computed or why.startswith(UNTIL_IT_RUNS)
    ]
    computed = [table for table in made.tables.values() if table.is_computed]
    columns = sum(len(table.columns) for table in computed)
    is_current = path.exists() and path.read_text(encoding="utf-8") == text
    if not check:
        path.write_text(text, encoding="utf-8")
    document = {
        "file": path,
        "was_current": is_current,
        "written": not check,
        "tables": len(computed),
        "columns": columns,
    }
    sentence = (
        f"{path}: {count(columns, 'column')} of {count(len(computed), 'computed table')}, "
        f"{len(unknown)} unknown"
    )
    if check:
        sentence = f"{path} {'is' if is_current else 'is not'} what the code says"
    for name, why in () if as_json else unknown:
        note(f"{name}: {why}")
    answer(
        as_json,
        document | {"unknown": [{"table": name, "reason": why} for name, why in unknown]},
        sentence,
    )
    if check and not is_current:
        raise typer.Exit(1)


def _before(path: Path, own: Path) -> "Manifest | None":
    """The file as it is, or else the project's own, with what is accepted in either."""
    from lakechime_dagster.lineage.manifest import read_manifest

    known = [read_manifest(one) for one in dict.fromkeys((path, own)) if one.exists()]
    accepted = {key: why for one in known for key, why in one.accepted.items()}
    return replace(known[0], accepted=accepted) if known else None


def _manifest_path() -> Path:
    """Where the manifest of the project is."""
    from lakechime_dagster.lineage.manifest import FILE
    from lakechime_dagster.settings import project_folder

    return project_folder() / FILE


def _compare(
    against: Path, fail_on: str, accept: str | None, reason: str | None, as_json: bool
) -> None:
    """What the code would change of another manifest."""
    from lakechime_dagster.lineage.check import compare, markdown, with_accepted
    from lakechime_dagster.lineage.manifest import read_manifest
    from lakechime_dagster.lineage.plan import ReadFindings, gate_readers, planned_manifest
    from lakechime_dagster.runtime.platform import open_platform_without_store

    worst = _checked(fail_on)
    before, own = read_manifest(against), _manifest_path()
    accepted = read_manifest(own).accepted if own.exists() else {}
    merged = {} if own.exists() and own.samefile(against) else before.accepted
    accepted = dict(accepted.items() - merged.items())  # what is merged is accepted no more
    platform, why_not = open_platform_without_store()
    lake = declared_lake(platform.settings)
    after = planned_manifest(lake, platform, note, before, only_manifest=True)
    compared = compare(before, after)
    read = (
        ReadFindings(findings=compared, not_known=why_not)
        if why_not
        else gate_readers(platform, lake, compared)
    )
    found, readers = with_accepted(read.findings, accepted), read.readers
    if accept is not None:
        if reason == merged.get(accept):
            why = "is that of the other manifest, which is accepted no more; say why again"
            raise common.wrong("--reason", why)
        _accept(own, read, accept, reason, as_json)
        return
    if as_json:
        findings = [_finding(one, readers.get(one.key, ())) for one in found]
        print_json({"findings": findings, "readers_unknown": read.not_known or None})
    else:
        say(
            markdown(
                found, _wakes(lake), _remedies(lake), readers=readers, not_known=read.not_known
            ).rstrip("\n")
        )
    if worst is not None and any(
        ORDER.index(one.kind) <= ORDER.index(worst) and not one.accepted for one in found
    ):
        raise typer.Exit(1)


def _finding(one: "Finding", readers: "Iterable[AffectedConsumer]") -> dict[str, Any]:
    several = [
        _who(each.consumer) | record(each, "owners link", last_read_ts=each.last_ms)
        for each in readers
    ]
    return record(
        one,
        "key kind table column what owner accepted",
        because=[*map(str, one.because)],
        readers=several,
    )


def _wakes(lake: "Lake") -> dict[str, str]:
    """By table what launches its runs."""
    from lakechime_dagster.assets.subscriptions import subscription_of

    return {
        table.name: subscription_of(table).condition if table.trigger is not None else "a person"
        for table in lake.targets
    }


def _remedies(lake: "Lake") -> dict[str, str]:
    """By table what recomputes the rows of older code, where that is not a backfill."""
    from lakechime_dagster.lineage.backfill import refusal
    from lakechime_dagster.tables.tables import RefreshMode

    refused = {
        table.name: f"a backfill is refused, as it {reason}"
        for table in lake.targets
        if (reason := refusal(table))
    }
    full = [table.name for table in lake.computed if table.refresh is RefreshMode.FULL]
    return refused | dict.fromkeys(full, "its next run recomputes all of it")


def _checked(fail_on: str) -> Class | None:
    if fail_on == NOTHING:
        return None
    try:
        return Class(fail_on)
    except ValueError:
        raise InvalidValueError(
            "--fail-on", fail_on, f"write one of {', '.join(ORDER)}, or {NOTHING}"
        ) from None


def _accept(path: Path, read: "ReadFindings", key: str, reason: str | None, as_json: bool) -> None:
    """Keep that a finding is accepted, and forget those that are no longer found."""
    from lakechime_dagster.lineage.manifest import read_manifest

    keys = {one.key for one in read.findings}
    if key not in keys:
        raise NotFoundError(f"there is no finding {key!r}; see the keys with --json")
    if not (reason or "").strip():
        raise InvalidValueError("--reason", reason or "", "say why the finding is accepted")
    if not path.exists():
        raise NotFoundError(
            f"there is no {path} to keep it in; write it with `lakechime lineage plan`"
        )
    own = read_manifest(path)
    found = {_without_kind(one) for one in keys}
    kept = {known: why for known, why in own.accepted.items() if _without_kind(known) in found}
    path.write_text(replace(own, accepted={**kept, key: str(reason)}).to_json(), encoding="utf-8")
    answer(as_json, {"accepted": key, "file": path}, f"accepted in {path}: {key}")


def _without_kind(key: str) -> str:
    return key.partition(": ")[2]
