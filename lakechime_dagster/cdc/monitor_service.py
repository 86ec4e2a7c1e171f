"""Measures delay and loss of a CDC table, without a JVM."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import orjson
from sqlglot import exp

from lakechime_dagster.cdc.change import REPAIRS
from lakechime_dagster.cdc.monitor import Came, Consumer, Counted, End, KeepingUp, Lacking, Parsed, Within, counted
from lakechime_dagster.cdc.record import END, Control, Kind
from lakechime_dagster.cdc.service import Replica
from lakechime_dagster.errors import MessagesUnreadableError
from lakechime_dagster.formats.delta_rows import TABLE, column, known, since, texts
from lakechime_dagster.settings import in_project
from lakechime_dagster.sources.source import open_source
from lakechime_dagster.tables.databases import Monitor, tells_position
from lakechime_dagster.triggers.consumers import spans_between
from lakechime_dagster.triggers.schedule import DAY_MS

_HEARTBEATS = "heartbeat."  # what stands before the name of the server in the topic of its heartbeats


def keeping_up(replica: Replica) -> KeepingUp:
    """What can be measured of a table now; no database is asked."""
    now_ms = replica.platform.store.now()
    problems: list[str] = []
    unread = _unread(replica, problems)
    return KeepingUp(
        table=replica.table.name,
        now_ms=now_ms,
        consumers=_consumers(replica, bool(unread)),
        unread=unread,
        parsed=_parsed(replica, now_ms),
        problems=tuple(problems),
        waiting=replica.waiting(),
        quarantined=replica.quarantine.count(),
    )


def _parsed(replica: Replica, now_ms: int) -> dict[str, Parsed]:
    """The newest times of each source: by what is remembered, and the messages of the last day."""
    in_table: dict[str, int] = {}
    for row in replica.places():
        if row.ts_ms is not None:
            in_table[row.source] = max(row.ts_ms, in_table.get(row.source, 0))
    newest = exp.select(column("source"), exp.Max(this=column("ts_ms")).as_("at")).from_(TABLE)
    is_recent = exp.GTE(this=column("ts_ms"), expression=exp.Literal.number(now_ms - DAY_MS))
    newest = newest.where(texts("kind", Kind.CHANGE.value), is_recent).group_by(column("source"))
    recent = {row["source"]: row["at"] for row in replica.bronze.query(newest)}
    beats = _heartbeats(replica, now_ms - DAY_MS)
    return {
        source: Parsed(
            in_messages=recent.get(source, in_table.get(source)),
            in_table=in_table.get(source),
            heartbeat=max((at for server, at in beats.items() if source.startswith(f"{server}.")), default=None),
        )
        for source in sorted({*recent, *in_table})
    }


def _heartbeats(replica: Replica, since_ms: int) -> dict[str, int]:
    """When the last heartbeat of each server came, of those since a time."""
    newest = exp.select(column("topic"), column("source"), exp.Max(this=column("timestamp")).as_("at")).from_(TABLE)
    newest = newest.where(texts("kind", Control.HEARTBEAT.value), since("timestamp", since_ms))
    rows = replica.bronze.query(newest.group_by(column("topic"), column("source")))
    found: dict[str, int] = {}
    for row in rows:
        server = row["source"] or row["topic"].rpartition(_HEARTBEATS)[2]
        found[server] = max(round(row["at"].timestamp() * 1000), found.get(server, 0))
    return found


def _unread(replica: Replica, problems: list[str]) -> dict[str, int]:
    """What the source holds and was not read."""
    bronze = replica.table.bronze
    consumer = replica.consumer(bronze.name)
    place = consumer.checkpoint.offsets if consumer is not None else None
    try:
        poll = open_source(bronze.source, in_project, os.environ, is_ordered_by_position=tells_position(bronze.envelope)).poll(place)
    except MessagesUnreadableError as error:
        problems.append(str(error))
        return {}
    problems += poll.problems
    return {name: stop - start for name, (start, stop) in spans_between(place, poll.end)}


def _consumers(replica: Replica, is_unread: bool) -> tuple[Consumer, ...]:
    """How the table of messages goes on, and the table."""
    bronze = replica.table.bronze
    messages, consumer = replica.bronze.log, replica.consumer(replica.table.name)
    read = consumer.checkpoint.sources.get(bronze.name) if consumer is not None else None
    newest = messages.version if messages.exists() else None
    waits = newest is not None and (read is None or read.snapshot_id != str(newest))
    return tuple(_consumer(replica, name, is_waiting) for name, is_waiting in ((bronze.name, is_unread), (replica.table.name, waits)))


def _consumer(replica: Replica, name: str, waits: bool) -> Consumer:
    ledger = replica.platform.ledger
    row, consumer = ledger.subscription(name), replica.consumer(name)
    if row is None:
        return Consumer(name=name, waits=waits)
    opened = [one.claimed_ts for one in ledger.open_executions(row)]
    blocked = row.blocked_sentence and f"{name} is {row.blocked_sentence}"
    return Consumer(
        name=name,
        waits=waits,
        blocked=blocked or (consumer.blocked_sentence(name) if consumer is not None else ""),
        open_ms=min(opened, default=None),
        ticked_ms=row.ticked_ts,
    )


MOST_PLACED = 50  # lacking ones whose position is looked up
MOST_NAMED = 20  # sources by whose names ends are chosen before they are parsed
STREAMED = ("c", "u", "d", "t")


def transactions_counted(replica: Replica, monitor: Monitor, since_ms: int | None = None) -> Counted:
    """The transactions that ended since a time, or within a day, beside what came of their changes.

    What is asked grows with the messages of that time, not with the table. A transaction of which changes may be on their way is
    waited for as long as the monitor lets the table be behind.
    """
    now_ms = replica.platform.store.now()
    since_ms = now_ms - DAY_MS if since_ms is None else since_ms
    came = _came(replica, since_ms - DAY_MS)
    ends = _ends(replica, since_ms, came.sources)
    found = counted(ends, came, now_ms, round(monitor.limits.behind.total_seconds() * 1000))
    return replace(found, lacking=_placed(replica, found.lacking, since_ms - DAY_MS))


def _came(replica: Replica, since_ms: int) -> Came:
    """What came of changes since a time."""
    log, changes = replica.bronze.log, _since(since_ms, texts("kind", Kind.CHANGE.value))
    within = exp.select(column("source"), column("transaction"), _different().as_("n")).from_(TABLE)
    within = within.where(*changes, known("transaction")).group_by(column("source"), column("transaction"))
    outside = exp.select(column("source"), exp.Count(this=exp.Star()).as_("n")).from_(TABLE)
    is_streamed = texts("op", *STREAMED), column("snapshot").is_(exp.Null()), exp.not_(column("topic_id").like(f"{REPAIRS}%"))
    outside = outside.where(*changes, column("transaction").is_(exp.Null()), *is_streamed).group_by(column("source"))
    unreadable = replica.bronze.count(*_since(since_ms, texts("kind", Kind.UNREADABLE.value)))
    fed = log.fed(log.version) if log.exists() else None
    return Came(
        changes={Within(row["source"], row["transaction"]): row["n"] for row in replica.bronze.query(within)},
        outside={row["source"]: row["n"] for row in replica.bronze.query(outside)},
        newest=_newest(replica, changes),
        unreadable=unreadable,
        has_more=fed is not None and fed.has_more,
    )


def _different() -> exp.Count:
    """How many different changes there are: one that comes again has its place in the log, and may have another in its transaction.

    Where messages tell no place in the log, that in the transaction is all there is.
    """
    of_log = exp.func("array_to_string", column("position"), exp.Literal.string(","))
    of_transaction = exp.Cast(this=column("transaction_order"), to=exp.DataType.build("text"))
    place = exp.Coalesce(this=of_log, expressions=[of_transaction])
    key = exp.Coalesce(this=column("row_key"), expressions=[exp.Literal.string("")])  # a truncation has none
    parts: tuple[exp.Condition, ...] = column("op"), place, key
    return exp.Count(this=exp.Distinct(expressions=[reduce(_joined, parts)]))


def _joined(left: exp.Condition, right: exp.Condition) -> exp.Condition:
    return exp.DPipe(this=exp.DPipe(this=left, expression=exp.Literal.string(" ")), expression=right)


def _newest(replica: Replica, changes: Sequence[exp.Condition]) -> dict[str, dict[tuple[str, int], int]]:
    """By source and partition when its newest change was written; a source of which none came is one that is remembered."""
    parts = [column(name) for name in ("source", "topic_id", "partition")]
    query = exp.select(*parts, exp.Max(this=column("timestamp")).as_("at")).from_(TABLE)
    query = query.where(*changes, known("transaction"), known("timestamp")).group_by(*parts)
    newest: dict[str, dict[tuple[str, int], int]] = {row.source: {} for row in replica.places()}
    for row in replica.bronze.query(query):
        newest.setdefault(row["source"], {})[row["topic_id"], row["partition"]] = _milliseconds(row["at"])
    return newest


def _ends(replica: Replica, since_ms: int, sources: Iterable[str]) -> list[End]:
    """The ends of transactions since a time that changed the sources; all of those of many sources."""
    tables = {".".join(source.split(".")[-2:]) for source in sources}
    counts = column("transaction_counts")
    named = [counts.like(f"%{orjson.dumps(table)[1:-1].decode()}%") for table in sorted(tables)] if len(tables) <= MOST_NAMED else []
    query = exp.select(*map(column, ("topic", "partition", "offset", "timestamp", "transaction", "transaction_counts"))).from_(TABLE)
    query = query.where(*_since(since_ms, texts("kind", Control.TRANSACTION.value), texts("op", END)))
    query = query.where(exp.or_(*named)) if named else query
    return [
        End(
            (row["topic"], row["partition"], row["offset"]),
            _milliseconds(row["timestamp"]),
            row["transaction"],
            orjson.loads(row["transaction_counts"]),
        )
        for row in replica.bronze.query(query)
    ]


def _placed(replica: Replica, lacking: Sequence[Lacking], since_ms: int) -> tuple[Lacking, ...]:
    """The same with the position of the first change of each that came."""
    first = {Within(one.source, one.end.transaction): (2**63,) for one in lacking[:MOST_PLACED] if one.found}
    if not first:
        return tuple(lacking)
    query = exp.select(*map(column, ("source", "transaction", "position"))).from_(TABLE)
    wanted = texts("transaction", *sorted({one.transaction for one in first})), known("position")
    for row in replica.bronze.query(query.where(*_since(since_ms, texts("kind", Kind.CHANGE.value)), *wanted)):
        within = Within(row["source"], row["transaction"])
        if within in first:
            first[within] = min(first[within], tuple(row["position"]))
    return tuple(replace(one, position=first.get(Within(one.source, one.end.transaction), ())) for one in lacking)


def _since(since_ms: int, *conditions: exp.Condition) -> list[exp.Condition]:
    return [*conditions, since("timestamp", since_ms)]


def _milliseconds(at: Any) -> int:
    return round(at.timestamp() * 1000)
