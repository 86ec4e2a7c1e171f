"""`lakechime personal`: personal data."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import common
from lakechime_dagster.cli.common import (
    MAX_LIMIT,
    Json,
    Who,
    answer,
    count,
    declared_lake,
    note,
    open_lineage,
    open_platform,
    print_documents,
    print_json,
    record,
    say,
)
from lakechime_dagster.errors import shown
from lakechime_dagster.tables.options import column_of

if TYPE_CHECKING:
    from lakechime_dagster.governance.data import PersonalData, Proposal
    from lakechime_dagster.governance.tags import Leak, Tagged
    from lakechime_dagster.lineage.service import AskedLineage

NOT = "not"

app = typer.Typer(
    name="personal",
    help="Personal data: show where it is, decide on columns, answer access requests.",
)
To = Annotated[
    Path,
    typer.Option("--to", metavar="FOLDER", help="The folder for the rows: a new or empty one."),
]
OneTable = Annotated[str, typer.Argument(metavar="TABLE", help="A table, as schema.table.")]


@app.command()
def show(
    table: Annotated[
        str | None,
        typer.Argument(metavar="[TABLE]", help="A table, as schema.table; all unless given."),
    ] = None,
    is_scan: Annotated[
        bool,
        typer.Option(
            "--scan",
            help=(
                "Propose columns of the table by their names and by values of some rows, which are "
                "not shown."
            ),
        ),
    ] = False,
    sample: Annotated[
        int, typer.Option("--sample", min=1, max=MAX_LIMIT, help="How many rows a scan reads.")
    ] = 1_000,
    as_json: Json = False,
) -> None:
    """Show the columns that hold personal data, or may, how that is known, and what is wrong; with
    `--scan` propose further ones.
    """
    lineage, data = _opened()
    if is_scan:
        if table is None:
            raise common.wrong("--scan", "name the table")
        _scan(data, table, sample, as_json)
        return
    name = None if table is None else lineage.ref(table).table
    found = data.found(lineage.network, None if name is None else [name])
    problems = [_problem(one) for one in data.leaks(found)]
    cleared = [
        one
        for one in data.decided.values()
        if one.category is None and name in (None, one.ref.table)
    ]
    if as_json:
        not_personal = [
            record(one, "who reason", column=str(one.ref), decided_ts=one.decided_ms)
            for one in cleared
        ]
        print_json(
            {
                "columns": [_document(data, one) for one in found],
                "problems": problems,
                "not_personal": not_personal,
            }
        )
        return
    rows = [
        _document(data, one)
        | {"column": one.ref.column or "(rows)", "known_by": _known_by(data, one)}
        for one in found
    ]
    empty = (
        "no column is declared or decided to be personal"
        if not data.tags
        else "no personal column is known to lead to it"
    )
    print_documents(rows, "table column category how known_by", empty=empty)
    for one in cleared:
        say(
            f"not personal: {one.ref}, as {one.who} "
            f"decided{f': {one.reason}' if one.reason else ''}"
        )
    if problems:
        say(f"\n{count(len(problems), 'problem')}:")
    for problem in problems:
        say(f"  {problem['column']} ({problem['category']}): {problem['remedy']}")
    if data.tags and lineage.since_ms is None:
        note(
            "no run has recorded lineage yet: columns that are computed from personal ones are "
            "unknown"
        )


def _opened() -> "tuple[AskedLineage, PersonalData]":
    from lakechime_dagster.governance.data import PersonalData

    lineage = open_lineage()
    return lineage, PersonalData(lineage.platform, lineage.lake)


def _scan(data: "PersonalData", table: str, sample: int, as_json: bool) -> None:
    from lakechime_dagster.governance.data import scan_table

    found = scan_table(data, table, sample)
    if as_json:
        print_json({"table": table, **record(found, "rows left_out proposals")})
        return
    rows = [
        record(one, "column category by_name", valid_values=_share(one)) for one in found.proposals
    ]
    print_documents(
        rows, "column category by_name valid_values", empty="no further column looks personal"
    )
    say(
        f"\n{count(found.rows, 'row')} of {table} "
        f"read{f'; {found.left_out} paths were left out' if found.left_out else ''}."
    )
    if found.proposals:
        first = found.proposals[0]
        say(
            f"Decide on each: `lakechime personal decide {table} '{first.column}' "
            f"{first.category}`, or `not`."
        )


@app.command()
def decide(
    table: OneTable,
    column: Annotated[
        str,
        typer.Argument(
            metavar="COLUMN", help="A column, or a path into one such as payload:$.user.email."
        ),
    ],
    category: Annotated[
        str,
        typer.Argument(
            metavar="CATEGORY", help="A word such as email, or not where it is nothing personal."
        ),
    ],
    reason: Annotated[
        str, typer.Option("--reason", help="Why; it is kept with who and when.")
    ] = "",
    who: Who = None,
    as_json: Json = False,
) -> None:
    """Decide that a column holds personal data of a category, or none; it is not proposed again,
    and holds until decided otherwise.
    """
    from lakechime_dagster.lineage.columns import ColumnRef

    lineage, data = _opened()
    lake = lineage.lake
    name = lineage.ref(table)
    if name.column is not None:
        raise common.wrong(
            "TABLE",
            f"{shown(table)} is a column; write the table and the column apart: {name.table} "
            f"{name.column}",
        )
    ref, of = (
        ColumnRef(name.table, _column(lineage, name.table, column)),
        None if category == NOT else category,
    )
    by = common.by(who, reason or (f"it is {category}" if of else "it is nothing personal"))
    data.decide(ref, of, by)
    sentence = f"{ref} {'is ' + of if of else 'holds nothing personal'}, as {by.who} decided."
    answer(
        as_json, {"column": str(ref), "category": of, "who": by.who, "reason": by.reason}, sentence
    )
    if as_json:
        return
    levels = {
        level.lower() for one in lake.tables if one.name == ref.table for level in one.levels.names
    }
    if of and str(ref.column).lower() in levels:
        say(
            f"It is a partition level of {ref.table}, whose values are in names of folders: "
            f"partition by a hash or a mask of it."
        )
    elif of and any(one.name == ref.table for one in lake.targets):
        tag = f'asset=Asset(columns={{"{ref.column}": personal("{of}")}})'
        say(f"To keep its bounds out of the log of {ref.table}, declare {tag}, too.")


@app.command()
def request(to: To, as_json: Json = False) -> None:
    """Answer an access request: find all rows of subjects, given on standard input, a line of JSON
    each, as {"email": "…"}.

    Keys are categories of personal columns. The rows of each table become a file of JSON lines in a
    folder for its owner alone. Columns with personal data in which subjects cannot be found are
    listed.
    """
    from lakechime_dagster.governance.data import PersonalData
    from lakechime_dagster.governance.requests import answer, check_new, exporting, read_subjects

    platform = open_platform()
    lake = declared_lake(platform.settings)
    check_new(to)
    if sys.stdin.isatty():
        note('a line of JSON for each subject, such as {"email": …}; Ctrl-D ends them')
    subjects = read_subjects(sys.stdin.buffer, set(PersonalData(platform, lake).tags.values()))
    with exporting(to) as export:
        found = answer(lake, platform, subjects, export, note)
        export.summary(found.document())
    if as_json:
        print_json({"folder": str(to), **found.document()})
        return
    say(
        f"{count(sum(one.rows for one in found.tables), 'row')} of "
        f"{count(found.subjects, 'subject')} in {to}"
    )
    print_documents(
        found.tables,
        "table rows subjects unreadable",
        empty="no table that could hold them exists yet",
    )
    if found.out_of_reach:
        say("\nout of reach:")
        rows = [
            record(
                one,
                "table category why",
                column=one.column or "(rows)",
                subjects="all" if len(lines) == found.subjects else len(lines),
            )
            for one, lines in found.out_of_reach.items()
        ]
        print_documents(rows, "table column category subjects why")


def _column(lineage: "AskedLineage", table: str, text: str) -> str:
    """A column as its table names it, or a path into one; as written where the table's columns are
    unknown.

    Raises:
        NotFoundError: naming what is nearest.
    """
    known = {name.lower(): name for name in lineage.columns(table)}
    for whole in (text, column_of(text)):
        if whole.lower() in known:
            return known[whole.lower()] + text.removeprefix(whole)
    return text if not known else str(lineage.ref(f"{table}.{column_of(text)}").column)


def _document(data: "PersonalData", one: "Tagged") -> dict[str, Any]:
    decision = data.decided.get(one.path[0])
    origin = {
        "declared": one.is_source and decision is None,
        "decided_by": decision.who if one.is_source and decision else None,
    }
    return {
        **record(one.ref, "table column"),
        "category": one.category,
        "how": one.reach.word,
        **origin,
        "path": [*map(str, one.path)],
    }


def _share(one: "Proposal") -> str:
    if not one.values:
        return "no value"
    return f"{one.valid:,} of {one.values:,} ({one.share:.0%})"


def _problem(leak: "Leak") -> dict[str, Any]:
    one = leak.tagged
    return record(
        leak,
        "remedy",
        column=str(one.ref),
        category=one.category,
        public=leak.is_public,
        level=leak.is_level,
    )


def _known_by(data: "PersonalData", one: "Tagged") -> str:
    if not one.is_source:
        return " → ".join(str(ref) for ref in one.path[:-1])
    decision = data.decided.get(one.ref)
    return "its declaration" if decision is None else f"a decision of {decision.who}"
