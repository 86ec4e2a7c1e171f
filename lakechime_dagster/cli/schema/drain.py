"""`lakechime schema replay --quarantine`: that what a stream refused is looked at again."""

from typing import TYPE_CHECKING, Any

from lakechime_dagster.cli.output import count, note, print_json, print_table, say, when
from lakechime_dagster.cli.schema.names import stream_named

if TYPE_CHECKING:
    from lakechime_dagster.resources.platform import Platform
    from lakechime_dagster.store.interventions import By
    from lakechime_dagster.store.types.drains import AskedDrain

MAX_DRAINS = 10  # in a table that people read


def drain(platform: "Platform", name: str, by: "By", *, cancel: bool, dry_run: bool, as_json: bool) -> None:
    """Ask for a drain of a stream, or end the one that waits, or tell what one would bring."""
    from lakechime_dagster.resources.streams.draining import event_drains
    from lakechime_dagster.resources.streams.replaying import would_drain

    stream = stream_named(name, platform.settings)
    table, drains = stream.table, event_drains(platform)
    told: dict[str, Any] = {"stream": stream.name, "table": table.name, "dry_run": dry_run}
    if cancel:
        number = drains.cancel(table.name, by, dry_run=dry_run)
        told |= {"cancelled": number}
        sentence = f"drain {number} of {stream.name} {'would be' if dry_run else 'is'} cancelled"
    elif dry_run:
        would = would_drain(platform, table, note)
        told |= {"rows": would.rows, "kinds": [{"reason": reason, "type": kind, "rows": rows} for reason, kind, rows in would.kinds]}
        sentence = f"{count(would.rows, 'row')} of {table.name} would be drained"
    else:
        asked = drains.ask(table.name, by)
        told |= {"drain": asked.drain_id}
        done = "which its sensor launches; `lakechime schema quarantine " + f"{stream.name}` tells what came of it"
        sentence = f"drain {asked.drain_id} of {stream.name} is done by the next step of {table.name}, {done}"
    if as_json:
        print_json(told)
        return
    say(sentence)
    if told.get("kinds"):
        rows = [[one["reason"], one["type"], f"{one['rows']:,}"] for one in told["kinds"]]
        print_table(["refused for", "type by now", "rows"], rows, empty="")


def drains_of(platform: "Platform", table: str) -> list[dict[str, Any]]:
    """The drains of a stream that people asked for, the newest first."""
    from lakechime_dagster.resources.streams.draining import event_drains

    return [_document(one) for one in reversed(event_drains(platform).of(table))]


def print_drains(drains: list[dict[str, Any]]) -> None:
    """The newest of them as a table."""
    say("\ndrains:")
    rows = [
        [one["drain"], when(one["asked_ts"]), one["who"], one["reason"], _ended(one), "" if one["rows"] is None else one["rows"]]
        for one in drains[:MAX_DRAINS]
    ]
    print_table(["drain", "asked", "by", "because", "done", "rows"], rows, empty="")


def _document(one: "AskedDrain") -> dict[str, Any]:
    return {
        "drain": one.drain_id, "who": one.who, "reason": one.reason, "asked_ts": one.asked_ts, "done_ts": one.done_ts, "rows": one.rows,
    }  # fmt: skip


def _ended(one: dict[str, Any]) -> str:
    if one["done_ts"] is None:
        return "waits for a step"
    return when(one["done_ts"]) if one["rows"] is not None else "cancelled"
