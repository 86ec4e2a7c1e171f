"""Measures delay and loss of a CDC table, without a JVM."""

import os
from collections.abc import Iterable
from typing import Any

import orjson

from lakechime_dagster.cdc.change import REPAIRS
from lakechime_dagster.cdc.monitor import (
    Arrived,
    Consumer,
    Counted,
    End,
    KeepingUp,
    SourceTimes,
    Within,
    counted,
)
from lakechime_dagster.cdc.service import Replica
from lakechime_dagster.errors import MessagesUnreadableError
from lakechime_dagster.settings import in_project
from lakechime_dagster.sources.source import open_source
from lakechime_dagster.tables.databases import Monitor, has_positions
from lakechime_dagster.triggers.consumers import spans_between
from lakechime_dagster.triggers.schedule import DAY_MS, from_milliseconds

_HEARTBEATS = "heartbeat."  # precedes the name of the server in the topic of its heartbeats
_SINCE = """ "timestamp" >= arrow_cast(:since, 'Timestamp(Microsecond, Some("UTC"))') """
_NEWEST = (
    "SELECT source, max(ts_ms) AS at FROM t WHERE kind = 'change' AND ts_ms >= :since GROUP BY "
    "source"
)
_NEWEST_HEARTBEATS = f"""
    SELECT topic, source, max("timestamp") AS at
    FROM t WHERE kind = 'heartbeat' AND {_SINCE} GROUP BY topic, source
"""
# a change that arrives again has its position in the log, and may have another one in its
# transaction; without a position that is all
_CHANGES_OF_TRANSACTIONS = f"""
    SELECT source, "transaction", count(DISTINCT
        op || ' ' || coalesce(array_to_string(position, ','), cast(transaction_order AS text))
        || ' ' || coalesce(row_key, '')) AS n
    FROM t WHERE kind = 'change' AND "transaction" IS NOT NULL AND {_SINCE}
    GROUP BY source, "transaction"
"""
_CHANGES_OF_NONE = f"""
    SELECT source, count(*) AS n FROM t
    WHERE kind = 'change' AND "transaction" IS NULL AND op IN ('c', 'u', 'd', 't') AND snapshot IS NULL
        AND topic_id NOT LIKE '{REPAIRS}%' AND {_SINCE}
    GROUP BY source"""
_NEWEST_OF_PARTITIONS = f"""
    SELECT source, topic_id, "partition", max("timestamp") AS at FROM t
    WHERE kind = 'change' AND "transaction" IS NOT NULL AND {_SINCE} GROUP BY source, topic_id, "partition"
"""
_ENDS = f"""
    SELECT topic, "partition", "offset", "timestamp", "transaction", transaction_counts FROM t
    WHERE kind = 'transaction' AND op = 'END' AND {_SINCE}"""


def keeping_up(replica: Replica) -> KeepingUp:
    """What can be measured of a table now; no database is queried."""
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


def _parsed(replica: Replica, now_ms: int) -> dict[str, SourceTimes]:
    """The newest times of each source: by what is recorded in the state, and by the messages of the
    last day.
    """
    in_table: dict[str, int] = {}
    for row in replica.positions():
        if row.ts_ms is not None:
            in_table[row.source] = max(row.ts_ms, in_table.get(row.source, 0))
    recent = {
        row["source"]: row["at"] for row in replica.bronze.query(_NEWEST, since=now_ms - DAY_MS)
    }
    beats: dict[str, int] = {}
    for row in replica.bronze.query(_NEWEST_HEARTBEATS, since=_text(now_ms - DAY_MS)):
        server = row["source"] or row["topic"].rpartition(_HEARTBEATS)[2]
        beats[server] = max(_milliseconds(row["at"]), beats.get(server, 0))
    return {
        source: SourceTimes(
            in_messages=recent.get(source, in_table.get(source)),
            in_table=in_table.get(source),
            heartbeat=max(
                (at for server, at in beats.items() if source.startswith(f"{server}.")),
                default=None,
            ),
        )
        for source in sorted({*recent, *in_table})
    }


def _unread(replica: Replica, problems: list[str]) -> dict[str, int]:
    """What the source holds and was not read."""
    bronze = replica.table.bronze
    consumer = replica.consumer(bronze.name)
    offsets = consumer.checkpoint.offsets if consumer is not None else None
    try:
        polled = open_source(
            bronze.source,
            in_project,
            os.environ,
            is_ordered_by_position=has_positions(bronze.envelope),
        ).poll(offsets)
    except MessagesUnreadableError as error:
        problems.append(str(error))
        return {}
    problems += polled.problems
    return {name: stop - start for name, (start, stop) in spans_between(offsets, polled.end)}


def _consumers(replica: Replica, is_unread: bool) -> tuple[Consumer, ...]:
    """How the table of messages goes on, and the table."""
    bronze = replica.table.bronze
    messages, consumer = replica.bronze.log, replica.consumer(replica.table.name)
    read = consumer.checkpoint.sources.get(bronze.name) if consumer is not None else None
    newest = messages.version if messages.exists() else None
    waits = newest is not None and (read is None or read.snapshot_id != str(newest))
    return tuple(
        _consumer(replica, name, is_waiting)
        for name, is_waiting in ((bronze.name, is_unread), (replica.table.name, waits))
    )


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


MOST_NAMED = 20  # tables by whose names ends are selected before they are parsed


def transactions_counted(replica: Replica, monitor: Monitor) -> Counted:
    """The transactions that ended within a day, with the changes of theirs that arrived.

    The cost grows with the messages of that day, not with the table. A transaction whose changes
    may be on their way is waited for as long as the monitor lets the table be behind.
    """
    now_ms = replica.platform.store.now()
    since_ms = now_ms - DAY_MS
    arrived = _arrived(replica, since_ms - DAY_MS)
    ends = _ends(replica, since_ms, arrived.sources)
    return counted(ends, arrived, now_ms, round(monitor.limits.behind.total_seconds() * 1000))


def _arrived(replica: Replica, since_ms: int) -> Arrived:
    """The changes that arrived since a time."""
    bronze, since = replica.bronze, _text(since_ms)
    fed = bronze.log.fed(bronze.log.version) if bronze.log.exists() else None
    # also of those without a change
    newest: dict[str, dict[tuple[str, int], int]] = {row.source: {} for row in replica.positions()}
    for row in bronze.query(_NEWEST_OF_PARTITIONS, since=since):
        if row["at"] is not None:
            newest.setdefault(row["source"], {})[row["topic_id"], row["partition"]] = _milliseconds(
                row["at"]
            )
    return Arrived(
        changes={
            Within(row["source"], row["transaction"]): row["n"]
            for row in bronze.query(_CHANGES_OF_TRANSACTIONS, since=since)
        },
        outside={row["source"]: row["n"] for row in bronze.query(_CHANGES_OF_NONE, since=since)},
        newest=newest,
        unreadable=bronze.count(f"kind = 'unreadable' AND {_SINCE}", since=since),
        has_more=fed is not None and fed.has_more,
    )


def _ends(replica: Replica, since_ms: int, sources: Iterable[str]) -> list[End]:
    """The ends of transactions since a time that changed the sources; all ends where the sources
    are many.
    """
    tables = sorted({".".join(source.split(".")[-2:]) for source in sources})
    patterns = {
        f"p{number}": f"%{orjson.dumps(table)[1:-1].decode()}%"
        for number, table in enumerate(tables)
    }
    if len(tables) > MOST_NAMED:
        patterns = {}
    named = " OR ".join(f"transaction_counts LIKE :{name}" for name in patterns)
    rows = replica.bronze.query(
        f"{_ENDS} AND ({named})" if named else _ENDS, since=_text(since_ms), **patterns
    )
    return [
        End(
            (row["topic"], row["partition"], row["offset"]),
            _milliseconds(row["timestamp"]),
            row["transaction"],
            orjson.loads(row["transaction_counts"]),
        )
        for row in rows
    ]


def _text(milliseconds: int) -> str:
    return from_milliseconds(milliseconds).isoformat()


def _milliseconds(at: Any) -> int:
    return round(at.timestamp() * 1000)
