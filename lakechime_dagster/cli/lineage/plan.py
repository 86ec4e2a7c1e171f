"""`lakechime lineage plan`: what the code says of each column, before any run, as a file for git."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakechime_dagster.cli.context import declared_lake, open_platform
from lakechime_dagster.cli.options import Json
from lakechime_dagster.cli.output import count, note, print_json, say

if TYPE_CHECKING:
    from lakechime_dagster.lineage.planned.manifest import Manifest

Out = Annotated[Path | None, typer.Option("--out", help="The file to write; lineage.json beside workspace.yaml unless given.")]
Check = Annotated[bool, typer.Option("--check", help="Write nothing; exit with 1 when the file is not what the code says.")]


def plan(out: Out = None, check: Check = False, as_json: Json = False) -> None:
    """Run each function and query over empty inputs, and write down what they compute: schemas, column lineage, digests.

    Equal code gives the same file, byte for byte, as long as the tables that others write have the same columns; of tables that are
    not there, the columns are taken from the file. What breaks over no rows, wants a run's context, writes or acts on rows is
    said as not known. What was accepted of the gate stays as long as the code makes it.
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
