"""`lakechime cdc plan`: what a declaration makes, what its feed holds, and what stands in the way."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli.cdc.source import SourceTable, SourceUrl, source_table, source_url
from lakechime_dagster.cli.context import flow_declared, followed_table, open_platform
from lakechime_dagster.cli.options import Json
from lakechime_dagster.cli.output import count, one_line, print_facts, print_json, print_table, say

if TYPE_CHECKING:
    from lakechime_dagster.capture.rows import DeltaRows
    from lakechime_dagster.resources.following.followed import Followed
    from lakechime_dagster.resources.following.plan import Plan

Name = Annotated[str, typer.Argument(metavar="TABLE", help="The table, as `lakechime cdc list` shows it.")]


def plan(name: Name, url: SourceUrl = None, there: SourceTable = None, as_json: Json = False) -> None:
    """Say what a table is made of, what waits in its feed, and how connector and database should be set up, with remedies.

    Up to 200 messages are looked at, of the bronze table or of the feed. The database is asked where its URL is given, or
    the table declares a monitor.
    """
    from lakechime_dagster.resources.following.followed import Followed
    from lakechime_dagster.resources.following.plan import plan_of

    platform = open_platform()
    table = followed_table(name, platform.settings)
    place = source_table(there, table)
    followed, flow = Followed(platform, table), flow_declared(table.bronze.name, None)
    planned = plan_of(followed, flow, source_url(url, table, platform.settings), place)
    document = _document(followed, planned)
    if as_json:
        print_json(document)
    else:
        _print(document)


def _document(followed: "Followed", planned: "Plan") -> dict[str, Any]:
    bronze, sample = followed.table.bronze, planned.sample
    tables = {"messages": followed.bronze, "rows": followed.target, "remembered": followed.state, "refused": followed.quarantine}
    return {
        "table": followed.table.name, "source": str(bronze.feed), "envelope": type(bronze.envelope).__name__, "keys": list(bronze.keys),
        "tables": [_table(role, rows) for role, rows in tables.items()],
        "feed": [vars(part) for part in planned.parts], "rest": planned.rest,
        "sample": {
            "of": "feed" if planned.is_of_feed else "bronze table", "messages": len(sample.messages), "kinds": sample.kinds,
            "sources": sample.sources, "connectors": sample.connectors, "columns": sample.columns,
        },
        "findings": [vars(one) | {"weight": one.weight.value} for one in planned.findings],
    }  # fmt: skip


def _table(role: str, rows: "DeltaRows") -> dict[str, Any]:
    return {"role": role, "name": rows.log.table, "location": rows.log.shown_location, "exists": rows.log.exists()}


def _print(document: Mapping[str, Any]) -> None:
    sample = document["sample"]
    print_facts({name: document[name] for name in ("table", "source", "envelope")} | {"keys": ", ".join(document["keys"])})
    say("")
    rows = [[one["role"], one["name"], one["location"], "yes" if one["exists"] else "not yet"] for one in document["tables"]]
    print_table(["holds", "table", "location", "is there"], rows, empty="")
    say("")
    print_table(
        ["feed", "ends at", "not read yet"], [[one["name"], one["end"], one["unread"]] for one in document["feed"]], empty="no feed"
    )
    if document["rest"]:
        say(document["rest"])
    kinds = ", ".join(f"{kind} {number}" for kind, number in sample["kinds"].items())
    say(f"\n{count(sample['messages'], 'message')} of the {sample['of']} looked at: {kinds or 'none'}")
    told = {"sources": ", ".join(sample["sources"]), "connectors": ", ".join(sample["connectors"])}
    told |= {"columns": ", ".join(f"{name} {ddl}" for name, ddl in sample["columns"].items())}
    print_facts({name: value for name, value in told.items() if value})
    say("")
    for one in document["findings"]:
        say(f"{one['weight']}, {one['about']}: {one_line(one['problem'])}\n    {one['remedy']}")
    if not document["findings"]:
        say("nothing stands in the way")
