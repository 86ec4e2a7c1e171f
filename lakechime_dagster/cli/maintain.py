"""`lakechime table maintain`: what is to be done to a table's files and why, and doing it."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli.context import declared_lake, open_platform
from lakechime_dagster.cli.options import DryRun, Json
from lakechime_dagster.cli.output import note, one_line, print_json, print_table, say
from lakechime_dagster.errors import NotFoundError

if TYPE_CHECKING:
    from lakechime_dagster.lake.events import EventGroup
    from lakechime_dagster.lake.lake import Lake, Target
    from lakechime_dagster.lake.maintenance_plan import Action, Plan, Refused
    from lakechime_dagster.resources.maintenance import Kept, Looked
    from lakechime_dagster.resources.platform import Platform

COLUMNS = ("table", "what", "partition", "files", "bytes", "why")


def maintain(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="A table that the lake writes, as schema.table, or an event group.")],
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Compact, purge and vacuum a table, as far as its lanes and its budget allow.

    One that follows a database is kept with what is beside it; of an event group, the tables of all its types share one budget.
    Folders of dropped tables whose time is over are removed, whichever table is named.
    """
    from lakechime_dagster.resources.dropped import expired, remove_expired

    platform = open_platform(dry_run=dry_run)
    lake = declared_lake(platform.settings)
    if dry_run:
        documents = [_planned(one.plan, one.plan.refused) for one in _looked(platform, lake, name)]
    else:
        documents = [_planned(one.before.plan, one.refused) | _done(one) for one in _kept(platform, lake, name)]
    removed = [str(one.folder) for one in (expired(platform) if dry_run else remove_expired(platform))]
    if as_json:
        print_json({"tables": documents, "dropped_removed": removed, "dry_run": dry_run})
        return
    rows = [_row(document, action) for document in documents for action in (*document["actions"], *document["refused"])]
    print_table(COLUMNS, rows, empty="nothing is to be done" if documents else f"{name} is not there yet")
    for document in [] if dry_run else documents:
        say(
            f"{document['table']}: {document['files_before']:,} files before, {document['files_after']:,} after;"
            f" {document['bytes_rewritten']:,} bytes rewritten, {document['bytes_freed']:,} freed in {document['seconds']} s"
        )
    for folder in removed:
        say(f"{folder} {'would be' if dry_run else 'was'} removed: its table was dropped, and its time is over")


def _looked(platform: "Platform", lake: "Lake", name: str) -> "list[Looked]":
    from lakechime_dagster.resources.maintenance import look
    from lakechime_dagster.resources.streams.group_maintenance import look_at_group

    if groups := _groups(lake, name):
        return [one for group in groups for one in look_at_group(platform, lake, group, _only(group, name))]
    return [one for table in _tables(lake, name) for one in look(platform, lake, table)]


def _kept(platform: "Platform", lake: "Lake", name: str) -> "list[Kept]":
    from lakechime_dagster.resources.maintenance import keep
    from lakechime_dagster.resources.streams.group_maintenance import keep_group

    if groups := _groups(lake, name):
        return [one for group in groups for one in keep_group(platform, lake, group, note, _only(group, name))]
    return [one for table in _tables(lake, name) for one in keep(platform, lake, table, note)]


def _groups(lake: "Lake", name: str) -> "list[EventGroup]":
    """The group of that name, or those that may write the table of that name; none where it is another table's."""
    named = [group for group in lake.groups if group.name == name]
    schema, dot, _ = name.partition(".")
    return named or [group for group in lake.groups if dot and group.name == schema]


def _only(group: "EventGroup", name: str) -> list[str]:
    """The table to which a look is confined; none where the group itself is named."""
    return [] if name == group.name else [name]


def _tables(lake: "Lake", name: str) -> "list[Target]":
    """The table, and that of the messages of one that follows a database."""
    from lakechime_dagster.lake.change_tables import ChangeTable
    from lakechime_dagster.lake.tables import SourceTable

    table = lake.table(name)
    if isinstance(table, SourceTable):
        raise NotFoundError(f"{name} is written elsewhere, which is where its files are kept; name one of this lake's own tables")
    return [table.bronze, table] if isinstance(table, ChangeTable) else [table]


def _planned(plan: "Plan", refused: "tuple[Refused, ...]") -> dict[str, Any]:
    not_done = [_action(one.action) | {"refused": one_line(one.why)} for one in refused]
    actions = [_action(action) for action in plan.actions]
    return {"table": plan.table, "actions": actions, "refused": not_done, "bytes_to_rewrite": plan.rewrites}


def _action(action: "Action") -> dict[str, Any]:
    return {
        "what": action.kind.value, "partition": list(action.partition) if action.partition is not None else None, "files": action.files,
        "bytes": action.bytes, "score": round(action.score, 3), "properties": dict(action.properties), "reason": one_line(action.reason),
    }  # fmt: skip


def _done(kept: "Kept") -> dict[str, Any]:
    return {
        "files_before": len(kept.before.files.live),
        "files_after": len(kept.after.live),
        "bytes_rewritten": kept.maintained.total("rewritten"),
        "bytes_freed": kept.maintained.total("freed"),
        "seconds": round(kept.seconds, 1),
    }


def _row(document: dict[str, Any], action: dict[str, Any]) -> list[object]:
    partition = ", ".join(map(str, action["partition"] or ()))
    what = f"not: {action['what']}" if "refused" in action else action["what"]
    why = f"{action['reason']}; {action['refused']}" if "refused" in action else action["reason"]
    return [document["table"], what, partition, f"{action['files']:,}", f"{action['bytes']:,}", why]
