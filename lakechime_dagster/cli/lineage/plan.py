"""`lakechime lineage plan | check`: what the code says of each column before any run, as a file for git, and what a change of it does."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli.context import declared_lake, open_platform
from lakechime_dagster.cli.options import Json
from lakechime_dagster.cli.output import count, note, print_json, say
from lakechime_dagster.errors import InvalidValueError, NotFoundError
from lakechime_dagster.lineage.planned.findings import ORDER, Class

if TYPE_CHECKING:
    from lakechime_dagster.lake import Lake
    from lakechime_dagster.lineage.planned.findings import Finding
    from lakechime_dagster.lineage.planned.manifest import Manifest
    from lakechime_dagster.lineage.reads import Read
    from lakechime_dagster.resources.lineage.gate_readers import ReadFindings
    from lakechime_dagster.resources.platform import Platform

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
    from lakechime_dagster.lineage.planned.manifest import UNTIL_IT_RUNS
    from lakechime_dagster.resources.lineage.plan import planned_manifest

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
    from lakechime_dagster.lineage.planned.manifest import read_manifest

    known = [read_manifest(one) for one in dict.fromkeys((path, own)) if one.exists()]
    accepted = {key: why for one in known for key, why in one.accepted.items()}
    return replace(known[0], accepted=accepted) if known else None


def manifest_path() -> Path:
    """Where the manifest of the project is."""
    from lakechime_dagster.lineage.planned.manifest import FILE
    from lakechime_dagster.settings import project_folder

    return project_folder() / FILE


def check(
    against: Against, fail_on: FailOn = str(Class.BREAKS), accept: Accept = None, reason: Reason = None, live: Live = False,
    draft: Drafts = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Ask each function and query again and compare: what breaks, which rows and values change, of whom. Markdown, by owner.

    Columns of tables that others write are taken from the file, so that it runs where there are no tables and no store; with one it
    tells which dashboards, people and jobs elsewhere read what changes. What is accepted stands in the project's lineage.json, to be
    merged with the change, or in the file. The exit code is 1 when something that is not accepted is as bad as `--fail-on`.
    """
    from lakechime_dagster.lineage.planned.accepting import with_accepted
    from lakechime_dagster.lineage.planned.gate import compare
    from lakechime_dagster.lineage.planned.gate_report import markdown
    from lakechime_dagster.lineage.planned.manifest import read_manifest
    from lakechime_dagster.resources.lineage.gate_readers import ReadFindings, gate_readers
    from lakechime_dagster.resources.lineage.plan import planned_manifest
    from lakechime_dagster.resources.platform import open_platform_without_store

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
        "key": one.key, "kind": str(one.kind), "table": one.table, "column": one.column, "what": one.what, "owner": one.owner,
        "because": [str(ref) for ref in one.because], "accepted": one.accepted,
    }  # fmt: skip


def _reader(read: "Read") -> dict[str, Any]:
    who = read.consumer
    return {
        "consumer": who.kind.value, "namespace": who.namespace, "name": who.name, "owners": list(read.owners), "link": read.link,
        "last_read_ts": read.at_ms,
    }  # fmt: skip


def wakes_of(lake: "Lake") -> dict[str, str]:
    """By table what launches its runs."""
    from lakechime_dagster.assets.flows import flow_of

    return {table.name: flow_of(table).condition if table.trigger is not None else "a person" for table in lake.targets}


def remedies_of(lake: "Lake") -> dict[str, str]:
    """By table what makes the rows of older code anew, where that is not a backfill."""
    from lakechime_dagster.lake.tables import RefreshMode
    from lakechime_dagster.lineage.backfill.orders import refusal

    refused = {table.name: f"a backfill is refused, as it {reason}" for table in lake.targets if (reason := refusal(table))}
    full = [table.name for table in lake.computed if table.refresh is RefreshMode.FULL]
    return refused | dict.fromkeys(full, "its next run makes all of it anew")


def _draft(platform: "Platform", found: "tuple[Finding, ...]") -> None:
    """Keep a draft for each table that itself changes, for what was not found before, and say what became of it."""
    from lakechime_dagster.resources.notifications import draft_findings

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
    from lakechime_dagster.lineage.planned.manifest import read_manifest

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
