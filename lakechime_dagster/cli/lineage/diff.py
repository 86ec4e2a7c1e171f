"""`lakechime lineage diff`: what was told of tables at one time and not at another."""

from typing import Annotated, Any

import typer

from lakechime_dagster.cli import parse
from lakechime_dagster.cli.context import open_platform
from lakechime_dagster.cli.options import Json
from lakechime_dagster.cli.output import print_json, print_table

Since = Annotated[
    str, typer.Option("--since", metavar="TIME", help="The earlier time: ISO 8601, UTC without a zone, or an age such as 30d.")
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="The later one; now unless given.")]
Tables = Annotated[list[str] | None, typer.Argument(metavar="[TABLE…]", help="Tables that are written; all unless given.")]


def diff(tables: Tables = None, since: Since = "1d", until: Until = None, as_json: Json = False) -> None:
    """Tell which sources of columns came and which went between two times."""
    from lakechime_dagster.lineage.graph.differences import differences
    from lakechime_dagster.store.lineage.standing import LineageStandings

    platform = open_platform()
    now = platform.store.now()
    earlier, later = parse.past_milliseconds("--since", since, now), until and parse.past_milliseconds("--until", until, now)
    known = LineageStandings(platform.store.engine)
    before, after = (
        [one.statement for one in (known.of_targets(tables, at) if tables else known.all(at))] for at in (earlier, later or None)
    )
    found = differences(before, after)
    if as_json:
        print_json({"since_ts": earlier, "until_ts": later, "targets": [_document(one) for one in found]})
        return
    rows = [
        (sign, told.target, told.kind, told.source)
        for one in found
        for sign, several in (("+", one.came), ("-", one.went))
        for told in several
    ]  # fmt: skip
    print_table(("", "column", "kind", "source"), rows, empty="nothing is told otherwise")


def _document(one: Any) -> dict[str, Any]:
    return {
        "target": one.target,
        **{
            name: [{"column": str(told.target), "kind": told.kind, "source": told.source and str(told.source)} for told in several]
            for name, several in (("came", one.came), ("went", one.went))
        },
    }
