"""`lakechime lineage logs`: what audit tables tell since the last time."""

from typing import Annotated

import typer

from lakechime_dagster.cli.context import declared_lake, open_platform
from lakechime_dagster.cli.options import Json
from lakechime_dagster.cli.output import count, note, print_json, say

MAX_TOLD = 5  # rows that were refused, of each table


def logs(
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="One declared audit table; all unless given.")] = None,
    as_json: Json = False,
) -> None:
    """Read what came into the declared audit tables since the last time: who read which columns, and what was written."""
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
        for refused in one.refused[:MAX_TOLD]:
            note(f"{name}, row {refused.line} of these: {refused.problem}")
