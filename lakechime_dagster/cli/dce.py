"""`lakechime dce`: register data change events, and read them."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from lakechime_dagster.cli import common
from lakechime_dagster.cli.common import (
    MAX_LIMIT,
    Cluster,
    DryRun,
    Json,
    OptionsTable,
    TagPairs,
    count,
    open_platform,
    print_json,
    print_table,
    say,
    when,
)
from lakechime_dagster.dce.contract import EventQuery, Registration
from lakechime_dagster.dce.events import DataChangeEvent, Position, RegisteredEvent, Tags, from_json, to_json
from lakechime_dagster.errors import InvalidValueError, LakeChimeError, shown
from lakechime_dagster.settings import load_settings

app = typer.Typer(name="dce", help="Data change events: register, list, follow.")

PARTITION_HELP = """The partition as a JSON array, a value per level, such as '["2013-01-01", 5]'."""
POLL_SECONDS = 0.5
OPTIONS = {  # of the fields of an event
    "table": "--table",
    "table_format": "--format",
    "operation_type": "--operation",
    "partition": "--partition",
    "snapshot_id": "--snapshot-id",
    "prev_snapshot_id": "--prev-snapshot-id",
    "snapshot_ts": "--snapshot-ts",
    "tags": "--tag",
    "cluster": "--cluster",
    "table_uid": "--table-uid",
    "event_key": "--event-key",
}
TIME = "TIME"  # ISO 8601, UTC where it names no zone, or milliseconds since the epoch


@app.command()
def register(
    table: OptionsTable = None,
    table_format: Annotated[str | None, typer.Option("--format", help="DELTA (unless given), ICEBERG or HIVE.")] = None,
    operation: Annotated[str | None, typer.Option("--operation", help="APPEND, DELETE or UPDATE (unless given).")] = None,
    partition: Annotated[str | None, typer.Option("--partition", metavar="JSON", help=PARTITION_HELP)] = None,
    snapshot_id: Annotated[str | None, typer.Option("--snapshot-id", help="The commit: a Delta version, an Iceberg snapshot.")] = None,
    prev_snapshot_id: Annotated[str | None, typer.Option("--prev-snapshot-id", help="The commit before it.")] = None,
    snapshot_ts: Annotated[str | None, typer.Option("--snapshot-ts", metavar=TIME, help="When the commit was made.")] = None,
    tag: TagPairs = None,
    cluster: Cluster = None,
    table_uid: Annotated[str | None, typer.Option("--table-uid", help="Tells the table from an earlier one of its name.")] = None,
    event_key: Annotated[str | None, typer.Option("--event-key", help="Your own identity of the event: again, it is a duplicate.")] = None,
    file: Annotated[str | None, typer.Option("--file", metavar="PATH|-", help="JSON lines, an event each, in one transaction.")] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Register the event that the options describe, or those of a file; a repeat is a duplicate."""
    given = {
        "table": table,
        "table_format": table_format,
        "operation_type": operation,
        "partition": common.partition("--partition", partition),
        "snapshot_id": snapshot_id,
        "prev_snapshot_id": prev_snapshot_id,
        "snapshot_ts": common.optional_milliseconds("--snapshot-ts", snapshot_ts),
        "tags": common.tags("--tag", tag or []) or None,
        "cluster": cluster,
        "table_uid": table_uid,
        "event_key": event_key,
    }
    wire = {name: value for name, value in given.items() if value is not None}
    if file is not None and set(wire) - {"cluster"}:
        raise common.wrong("--file", "takes no event options but --cluster: the file describes the events")
    if file is None and table is None:
        raise common.wrong("--table", "name the table that changed, or a --file of events")
    default = {"cluster": load_settings().cluster if cluster is None else cluster}
    if file is None:
        with common.reading_fields(OPTIONS):
            events = [from_json(default | wire)]
    else:
        events = list(_from_lines(_lines(file), default))
    _register(events, dry_run=dry_run, as_json=as_json)


@app.command("list")
def list_(
    table: OptionsTable = None,
    cluster: Cluster = None,
    partition: Annotated[str | None, typer.Option("--partition", metavar="JSON", help=PARTITION_HELP)] = None,
    tag: TagPairs = None,
    since: Annotated[str | None, typer.Option(metavar=TIME, help="Registered at or after.")] = None,
    until: Annotated[str | None, typer.Option(metavar=TIME, help="Registered before.")] = None,
    after: Annotated[str | None, typer.Option(metavar="POSITION", help="After this event, in commit order.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, max=MAX_LIMIT, help="At most so many, oldest first.")] = None,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 3 when there is none.")] = False,
    as_json: Json = False,
) -> None:
    """List events in commit order, oldest first; every given condition must hold, all tags on one event."""
    if partition is not None and table is None:
        raise common.wrong("--partition", "needs --table: partitions are compared by the levels of their table")
    query = EventQuery(
        table=table,
        cluster=cluster,
        partition=common.partition("--partition", partition),
        tags=common.tags("--tag", tag or []),
        since=common.optional_milliseconds("--since", since),
        until=common.optional_milliseconds("--until", until),
        after=common.position("--after", after),
        limit=limit,
    )
    events = open_platform().store.fetch(query)
    if as_json:
        print_json(events_document(events))
    else:
        print_events(events)
    if exit_code and not events:
        raise typer.Exit(3)


@app.command()
def tail(
    table: OptionsTable = None,
    cluster: Cluster = None,
    tag: TagPairs = None,
    after: Annotated[str | None, typer.Option(metavar="POSITION", help="Begin after this event instead of now.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, max=MAX_LIMIT, help="End after so many events.")] = None,
    seconds: Annotated[float | None, typer.Option("--for", min=0, metavar="SECONDS", help="End after this time.")] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Print each event as a line of JSON as it comes.")] = False,
    as_json: Json = False,
) -> None:
    """Follow events as they are registered, until Ctrl-C, --limit or --for; --json prints its document at the end."""
    if lines and as_json:
        raise common.wrong("--lines", "prints many documents, --json one; give either")
    wanted = Tags(common.tags("--tag", tag or []))
    store = open_platform().store
    start = common.position("--after", after) or store.head()
    collected: list[RegisteredEvent] = []
    try:
        for event in _following(store, start, seconds):
            fits = table in (None, event.event.table) and cluster in (None, event.event.cluster) and event.event.tags.carries(wanted)
            if not fits:
                continue
            collected.append(event)
            if lines:
                print(json.dumps(to_json(event)), flush=True)
            elif not as_json:
                say(_line(event))
            if limit is not None and len(collected) >= limit:
                break
    except KeyboardInterrupt:
        pass  # the way to end it
    if as_json:
        print_json(events_document(collected))


@app.command()
def complete(
    table: Annotated[str, typer.Argument(help="The table, as schema.table.")],
    partition: Annotated[list[str] | None, typer.Option("--partition", metavar="JSON", help=f"{PARTITION_HELP} May be repeated.")] = None,
    tag: TagPairs = None,
    cluster: Cluster = None,
    event_key: Annotated[str | None, typer.Option("--event-key", help="Your own identity of the statement, for one partition.")] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """State that partitions of a table are complete: a mark with complete=true, all in one transaction."""
    partitions = [common.partition("--partition", text) for text in partition or []] or [None]
    if event_key is not None and len(partitions) > 1:
        raise common.wrong("--event-key", "identifies one event; give one --partition with it")
    stated = {"complete": "true"} | common.tags("--tag", tag or [])
    if stated["complete"] != "true":
        raise common.wrong(
            "--tag", f"complete={stated['complete']}: this command states complete=true; `lakechime dce register` states anything else"
        )
    platform = load_settings().cluster if cluster is None else cluster
    with common.reading_fields(OPTIONS | {"table": "TABLE"}):
        tags = Tags(stated)
        marks = [DataChangeEvent(table=table, partition=value, tags=tags, cluster=platform, event_key=event_key) for value in partitions]
    _register(marks, dry_run=dry_run, as_json=as_json)


def events_document(events: Sequence[RegisteredEvent]) -> dict[str, Any]:
    """The JSON of a list of events."""
    return {"events": [to_json(event) for event in events]}


def print_events(events: Sequence[RegisteredEvent], *, empty: str = "no such event") -> None:
    """Events as a table for people."""
    columns = ["position", "registered", "table", "partition", "operation", "snapshot", "tags"]
    print_table(columns, (_cells(event) for event in events), empty=empty)


def _register(events: Sequence[DataChangeEvent], *, dry_run: bool, as_json: bool) -> None:
    if dry_run:
        would = open_platform(dry_run=True).store.would_register(events)
        if as_json:
            registered = [to_json(event.event) for event in would.registered]
            print_json({"dry_run": True, "registered": registered, "duplicates": [to_json(event) for event in would.duplicates]})
        else:
            told = f"{count(len(would.registered), 'event')} would be registered, {count(len(would.duplicates), 'duplicate')}"
            say(f"{told}; nothing was done")
        return
    done = open_platform().store.register(events) if events else Registration()
    if as_json:
        registered, duplicates = ([to_json(event) for event in some] for some in (done.registered, done.duplicates))
        print_json({"registered": registered, "duplicates": duplicates})
        return
    say(f"{count(len(done.registered), 'event')} registered, {count(len(done.duplicates), 'duplicate')}")
    if done.registered:
        print_events(done.registered)


def _lines(file: str) -> Iterator[str]:
    """The lines of a file, or of standard input for `-`."""
    name = "standard input" if file == "-" else shown(file)
    try:
        if file == "-":
            yield from sys.stdin
        else:
            with Path(file).open(encoding="utf-8") as stream:
                yield from stream
    except OSError as error:
        raise LakeChimeError(f"{name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise LakeChimeError(f"{name} is not UTF-8 text; give JSON lines") from None


def _from_lines(lines: Iterator[str], default: dict[str, Any]) -> Iterator[DataChangeEvent]:
    for number, text in enumerate(lines, 1):
        line = text.removeprefix("\ufeff") if number == 1 else text  # a byte order mark, as Windows writes it
        if not line.strip():
            continue
        try:
            wire = json.loads(line)
        except (ValueError, RecursionError):
            raise InvalidValueError(f"line {number}", line.strip(), "is not JSON; give one object per line") from None
        try:
            yield from_json(default | wire if isinstance(wire, dict) else wire)
        except InvalidValueError as error:
            raise InvalidValueError(f"line {number}, {error.field}", error.value, error.remedy) from None


def _following(store: Any, start: Position, seconds: float | None) -> Iterator[RegisteredEvent]:
    """The feed from a position on; asks again twice a second."""
    end = None if seconds is None else time.monotonic() + seconds
    position = start
    while True:
        page = store.feed(position)
        yield from page.events
        position = page.through
        if not page.events:
            if end is not None and time.monotonic() >= end:
                return
            time.sleep(POLL_SECONDS)


def _cells(event: RegisteredEvent) -> list[object]:
    inner = event.event
    snapshot = inner.snapshot_id or ("amends " + str(event.amends) if event.amends else "mark" if inner.is_mark else "")
    tags = ", ".join(f"{key}={value}" for key, value in inner.tags.items())
    name = f"{inner.cluster}:{inner.table}" if inner.cluster else inner.table
    return [event.position, when(event.event_ts), name, shown_partition(inner.partition), inner.operation_type, snapshot, tags]


def _line(event: RegisteredEvent) -> str:
    return "  ".join(str(cell) for cell in _cells(event) if cell != "")


def shown_partition(partition: Sequence[object] | None) -> str:
    """A partition as a person reads it."""
    return "" if partition is None else json.dumps(list(partition), ensure_ascii=False)
