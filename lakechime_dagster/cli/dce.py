"""`lakechime dce`: register data change events, list and follow them."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakechime_dagster.cli import common
from lakechime_dagster.cli.common import (
    MAX_LIMIT,
    Cluster,
    DryRun,
    Json,
    OptionsTable,
    TagPairs,
    answer,
    count,
    open_platform,
    print_json,
    print_table,
    say,
    when,
    would_be,
)
from lakechime_dagster.dce.events import (
    DataChangeEvent,
    EventQuery,
    Position,
    RegisteredEvent,
    Registration,
    Tags,
    from_json,
    to_json,
)
from lakechime_dagster.errors import InvalidValueError, LakeChimeError, shown
from lakechime_dagster.settings import load_settings

if TYPE_CHECKING:
    from lakechime_dagster.dce.store import DCEStore

app = typer.Typer(name="dce", help="Data change events: register, list and follow them.")

PARTITION_HELP = """A partition as a JSON array, a value per level, such as '["2013-01-01", 5]'."""
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
    "added_bytes": "--added-bytes",
}
TIME = "TIME"  # ISO 8601, UTC where it names no zone, or milliseconds since the epoch


@app.command()
def register(
    table: OptionsTable = None,
    table_format: Annotated[
        str | None, typer.Option("--format", help="DELTA (unless given), ICEBERG or HIVE.")
    ] = None,
    operation: Annotated[
        str | None, typer.Option("--operation", help="APPEND, DELETE or UPDATE (unless given).")
    ] = None,
    partition: Annotated[
        list[str] | None,
        typer.Option(
            "--partition", metavar="JSON", help=f"{PARTITION_HELP} Repeat it for an event each."
        ),
    ] = None,
    snapshot_id: Annotated[
        str | None,
        typer.Option("--snapshot-id", help="The commit: a Delta version, an Iceberg snapshot."),
    ] = None,
    prev_snapshot_id: Annotated[
        str | None, typer.Option("--prev-snapshot-id", help="The commit before it.")
    ] = None,
    snapshot_ts: Annotated[
        str | None, typer.Option("--snapshot-ts", metavar=TIME, help="When the commit was made.")
    ] = None,
    tag: TagPairs = None,
    cluster: Cluster = None,
    table_uid: Annotated[
        str | None,
        typer.Option(
            "--table-uid", help="Distinguishes the table from an earlier one of its name."
        ),
    ] = None,
    event_key: Annotated[
        str | None,
        typer.Option(
            "--event-key", help="Your own identity of the event: a repeat is a duplicate."
        ),
    ] = None,
    added_bytes: Annotated[
        int | None,
        typer.Option("--added-bytes", help="The size of the files that the commit added."),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file", metavar="PATH|-", help="JSON lines, an event each, in one transaction."
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Register the event that the options describe, or those of a file; a repeat is a duplicate.

    Without a snapshot it is a completeness marker: `--table T --partition JSON --tag
    complete=true`.
    """
    partitions = [common.partition("--partition", text) for text in partition or []]
    given = {
        "table": table,
        "table_format": table_format,
        "operation_type": operation,
        "snapshot_id": snapshot_id,
        "prev_snapshot_id": prev_snapshot_id,
        "snapshot_ts": common.optional_milliseconds("--snapshot-ts", snapshot_ts),
        "tags": common.tags("--tag", tag or []) or None,
        "cluster": cluster,
        "table_uid": table_uid,
        "event_key": event_key,
        "added_bytes": added_bytes,
    }
    wire = {name: value for name, value in given.items() if value is not None}
    if file is not None and (partitions or set(wire) - {"cluster"}):
        raise common.wrong(
            "--file", "takes no event options but --cluster: the file describes the events"
        )
    if file is None and table is None:
        raise common.wrong("--table", "name the table that changed, or a --file of events")
    if event_key is not None and len(partitions) > 1:
        raise common.wrong("--event-key", "identifies one event; give one --partition with it")
    default = {"cluster": load_settings().cluster if cluster is None else cluster}
    if file is None:
        with common.reading_fields(OPTIONS):
            events = [
                from_json(default | wire | {"partition": one}) for one in partitions or [None]
            ]
    else:
        events = list(_from_lines(_lines(file), default))
    _register(events, dry_run=dry_run, as_json=as_json)


@app.command("list")
def list_(
    table: OptionsTable = None,
    cluster: Cluster = None,
    partition: Annotated[
        str | None, typer.Option("--partition", metavar="JSON", help=PARTITION_HELP)
    ] = None,
    tag: TagPairs = None,
    since: Annotated[str | None, typer.Option(metavar=TIME, help="Registered at or after.")] = None,
    until: Annotated[str | None, typer.Option(metavar=TIME, help="Registered before.")] = None,
    after: Annotated[
        str | None, typer.Option(metavar="POSITION", help="After this event, in commit order.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, max=MAX_LIMIT, help="At most so many, oldest first.")
    ] = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 3 when there is none.")
    ] = False,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Print events as they are registered, from now or --after on."
        ),
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--for", min=0, metavar="SECONDS", help="Follow for so long; else until Ctrl-C."
        ),
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Print each event as a line of JSON.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List events in commit order, oldest first, or follow them; every given condition must hold,
    all tags on one event.
    """
    if partition is not None and table is None:
        raise common.wrong(
            "--partition", "needs --table: partitions are compared by the levels of their table"
        )
    if lines and as_json:
        raise common.wrong("--lines", "prints many documents, --json one; give either")
    if follow and (partition, since, until) != (None, None, None):
        raise common.wrong("--follow", "takes --table, --cluster, --tag and --after as conditions")
    tags, position = common.tags("--tag", tag or []), common.position("--after", after)
    store = open_platform().store
    if follow:
        events: list[RegisteredEvent] = []
        with suppress(KeyboardInterrupt):  # the way to end it
            for event in islice(
                _following(store, position or store.head(), seconds, table, cluster, Tags(tags)),
                limit,
            ):
                events.append(event)
                if lines:
                    print(json.dumps(to_json(event)), flush=True)
                elif not as_json:
                    say("  ".join(str(cell) for cell in _cells(event) if cell != ""))
    else:
        query = EventQuery(
            table=table,
            cluster=cluster,
            partition=common.partition("--partition", partition),
            tags=tags,
            since=common.optional_milliseconds("--since", since),
            until=common.optional_milliseconds("--until", until),
            after=position,
            limit=limit,
        )
        events = store.fetch(query)
        for event in events if lines else ():
            print(json.dumps(to_json(event)))
    if as_json:
        print_json({"events": [to_json(event) for event in events]})
    elif not (follow or lines):
        print_events(events)
    if exit_code and not events:
        raise typer.Exit(3)


def print_events(events: Sequence[RegisteredEvent], *, empty: str = "no such event") -> None:
    """Events as a table for people."""
    columns = ["position", "registered", "table", "partition", "operation", "snapshot", "tags"]
    print_table(columns, (_cells(event) for event in events), empty=empty)


def _register(events: Sequence[DataChangeEvent], *, dry_run: bool, as_json: bool) -> None:
    store = open_platform(dry_run=dry_run).store
    if dry_run:
        done = store.would_register(events)
        registered, duplicates = (
            [to_json(event.event) for event in done.registered],
            done.duplicates,
        )
    else:
        done = store.register(events) if events else Registration()
        registered, duplicates = [to_json(event) for event in done.registered], done.duplicates
    document = {"registered": registered, "duplicates": [to_json(event) for event in duplicates]}
    sentence = (
        f"{count(len(registered), 'event')} {would_be(dry_run, 'registered')}, "
        f"{count(len(duplicates), 'duplicate')}"
    )
    answer(as_json, document | ({"dry_run": True} if dry_run else {}), sentence)


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
        # a byte order mark, as Windows writes it
        line = text.removeprefix("\ufeff") if number == 1 else text
        if not line.strip():
            continue
        try:
            wire = json.loads(line)
        except (ValueError, RecursionError):
            raise InvalidValueError(
                f"line {number}", line.strip(), "is not JSON; give one object per line"
            ) from None
        try:
            yield from_json(default | wire if isinstance(wire, dict) else wire)
        except InvalidValueError as error:
            raise InvalidValueError(
                f"line {number}, {error.field}", error.value, error.remedy
            ) from None


def _following(
    store: "DCEStore",
    start: Position,
    seconds: float | None,
    table: str | None,
    cluster: str | None,
    tags: Tags,
) -> Iterator[RegisteredEvent]:
    """The events after a position that fit, as they are registered; polls twice a second."""
    end = None if seconds is None else time.monotonic() + seconds
    position = start
    while True:
        page = store.feed(position)
        for event in page.events:
            if (
                table in (None, event.event.table)
                and cluster in (None, event.event.cluster)
                and event.event.tags.carries(tags)
            ):
                yield event
        position = page.through
        if not page.events:
            if end is not None and time.monotonic() >= end:
                return
            time.sleep(POLL_SECONDS)


def _cells(event: RegisteredEvent) -> list[object]:
    inner = event.event
    snapshot = inner.snapshot_id or (
        "amends " + str(event.amends) if event.amends else "marker" if inner.is_marker else ""
    )
    tags = ", ".join(f"{key}={value}" for key, value in inner.tags.items())
    name = f"{inner.cluster}:{inner.table}" if inner.cluster else inner.table
    return [
        event.position,
        when(event.event_ts),
        name,
        shown_partition(inner.partition),
        inner.operation_type,
        snapshot,
        tags,
    ]


def shown_partition(partition: Sequence[object] | None) -> str:
    """A partition as a person reads it."""
    return "" if partition is None else json.dumps(list(partition), ensure_ascii=False)
