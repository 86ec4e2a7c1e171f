"""`lakechime schema quarantine`: the events of a stream that no type could be told of, and the types of a group that have no rows."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli.context import open_platform
from lakechime_dagster.cli.options import MAX_LIMIT, Json
from lakechime_dagster.cli.output import count, print_json, print_table, say, when
from lakechime_dagster.cli.schema.names import NO_STREAM, declared_groups, remedy
from lakechime_dagster.cli.schema.show import INDENT, document, newest_of, state_shown
from lakechime_dagster.dce.text import printable
from lakechime_dagster.errors import NotFoundError, shown
from lakechime_dagster.settings import Settings

if TYPE_CHECKING:
    from lakechime_dagster.lake.events import EventGroup, EventStream
    from lakechime_dagster.resources.platform import Platform
    from lakechime_dagster.store.types.decisions import AskedReprocess

MAX_REPROCESSES = 10  # in a table that people read
Name = Annotated[str, typer.Argument(metavar="STREAM_OR_GROUP", help="A stream, or a group, whose types that wait are shown too.")]


def quarantine(
    name: Name,
    limit: Annotated[int, typer.Option(min=1, max=MAX_LIMIT, help="At most so many refused rows, newest first.")] = 20,
    as_json: Json = False,
) -> None:
    """Show what a stream refused: how many rows by reason, and the newest ones; of a group the types that wait or failed, too.

    A refused row has no type, so that it is of no group; one that was reprocessed is refused no more. Payloads are shown as they came,
    cut at 200 characters, and may hold personal data.
    """
    from lakechime_dagster.resources.streams.event_types import Fares, types_of
    from lakechime_dagster.resources.streams.streamed import Streamed

    platform = open_platform()
    group, stream = _named(name, platform.settings)
    streamed = Streamed(platform, stream.table)
    reasons = streamed.refused_by_reason()
    refused = [row | {column: _time(row[column]) for column in ("_ingested_at", "sent_at")} for row in streamed.refused(limit)]
    told: dict[str, Any] = {
        "stream": stream.name, "table": stream.table.name, "total": sum(reasons.values()), "reasons": reasons, "refused": refused,
        "reprocessing": _reprocesses_of(platform, stream.table.name),
    }  # fmt: skip
    if group is not None:
        newest = newest_of(streamed)
        told |= {"group": name, "types": [document(one, newest) for one in types_of(platform, group) if one.fares is not Fares.OK]}
    if as_json:
        print_json(told)
    else:
        _print(told)


def _named(name: str, settings: Settings) -> "tuple[EventGroup | None, EventStream]":
    """The group of that name with its stream, or the stream."""
    groups = {group.name: group for group in declared_groups(settings)}
    streams = {group.stream.name: group.stream for group in groups.values()}
    if name in groups:
        return groups[name], groups[name].stream
    if name not in streams:
        wrong = f"the lake declares no stream and no group {shown(name)} of events; {remedy(name, {*groups, *streams})}"
        raise NotFoundError(wrong if groups else NO_STREAM)
    return None, streams[name]


def _time(moment: Any) -> str | None:
    return None if moment is None else moment.isoformat()


def _print(told: dict[str, Any]) -> None:
    print_table(["reason", "rows"], [[reason, f"{rows:,}"] for reason, rows in told["reasons"].items()],
                empty=f"{told['table']} has refused nothing")  # fmt: skip
    if told["refused"]:
        say("\nnewest first:")
    for row in told["refused"]:
        say(f"{printable(row['_src'])} {row['reason']}, ingested {row['_ingested_at']}")
        say(INDENT + printable(row["payload"]))
    if told["total"] > len(told["refused"]):
        say(f"{count(told['total'] - len(told['refused']), 'older one')} not shown; --limit shows more")
    if told["reprocessing"]:
        _print_reprocesses(told["reprocessing"])
    if "types" in told:
        say(f"\ntypes of {told['group']} that wait or failed:")
        rows = [[one["type"], one["table"], one["waiting"], when(one["due_ts"]), state_shown(one)] for one in told["types"]]
        print_table(["type", "table", "rows waiting", "tried again", "state"], rows, empty="none")


def _reprocesses_of(platform: "Platform", table: str) -> list[dict[str, Any]]:
    """What people asked to be reprocessed of a stream, the newest first."""
    from lakechime_dagster.resources.streams.due import event_reprocesses

    return [_document(one) for one in reversed(event_reprocesses(platform).of(table))]


def _print_reprocesses(reprocesses: list[dict[str, Any]]) -> None:
    """The newest of them as a table."""
    say("\nreprocessing:")
    rows = [
        [one["number"], when(one["asked_ts"]), one["who"], one["reason"], _ended(one), "" if one["rows"] is None else one["rows"]]
        for one in reprocesses[:MAX_REPROCESSES]
    ]
    print_table(["number", "asked", "by", "because", "done", "rows"], rows, empty="")


def _document(one: "AskedReprocess") -> dict[str, Any]:
    asked = {"number": one.reprocess_id, "who": one.who, "reason": one.reason, "asked_ts": one.asked_ts}
    return {**asked, "done_ts": one.done_ts, "rows": one.rows}


def _ended(one: dict[str, Any]) -> str:
    if one["done_ts"] is None:
        return "waits"
    return when(one["done_ts"]) if one["rows"] is not None else "cancelled"
