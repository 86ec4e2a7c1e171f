"""`lakechime personal know`: the rows of people who ask, in files, and where they cannot be found."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakechime_dagster.cli.context import declared_lake, open_platform
from lakechime_dagster.cli.options import Json
from lakechime_dagster.cli.output import count, note, print_json, print_table, say

if TYPE_CHECKING:
    from lakechime_dagster.resources.personal.know import Known

To = Annotated[Path, typer.Option("--to", metavar="FOLDER", help="The folder of the rows: one that is not there yet, or is empty.")]


def know(to: To, as_json: Json = False) -> None:
    """Find all rows of subjects, who come by standard input, a line of JSON each: {"email": "…"}, by the categories of personal columns.

    Each table's rows become a file of JSON lines, with the number of the subject's line, in a folder for its owner alone. A row is
    found by a value as it was given, and by what the code makes of it, such as a hash. Where personal data is out of reach is told.
    """
    from lakechime_dagster.lineage.personal.subjects import read_subjects
    from lakechime_dagster.resources.personal.export import check_new, exporting
    from lakechime_dagster.resources.personal.know import know as known
    from lakechime_dagster.resources.personal.reached import PersonalData

    platform = open_platform()
    lake = declared_lake(platform.settings)
    check_new(to)
    if sys.stdin.isatty():
        note('a line of JSON for each subject, such as {"email": …}; Ctrl-D ends them')
    subjects = read_subjects(sys.stdin.buffer, set(PersonalData(platform, lake).tags.values()))
    with exporting(to) as export:
        found = known(lake, platform, subjects, export, note)
        export.summary(found.document())
    if as_json:
        print_json({"folder": str(to), **found.document()})
    else:
        _print(found, to)


def _print(found: "Known", to: Path) -> None:
    total = sum(one.rows for one in found.tables)
    say(f"{count(total, 'row')} of {count(found.subjects, 'subject')} in {to}")
    rows = [
        (one.table, f"{one.rows:,}", f"{one.subjects:,}", f"{one.unreadable:,}" if one.unreadable else "")
        for one in found.tables
        if one.is_there
    ]
    print_table(("table", "rows", "subjects", "rows that cannot be read"), rows, empty="no table that could hold them is there yet")
    for one in found.tables:
        if one.absent:
            say(f"{one.table} has no {', '.join(one.absent)}, where rows would be looked for")
    if found.not_reached:
        say("\nout of reach:")
        several = [
            (one.place.table, one.place.column or "(rows)", one.place.category, _who(one.lines, found.subjects), one.place.why)
            for one in found.not_reached
        ]
        print_table(("table", "column", "category", "subjects", "why"), several, empty="")


def _who(lines: tuple[int, ...], subjects: int) -> str:
    return "all" if len(lines) == subjects else f"{len(lines):,}"
