"""Counting what came of the transactions of a table that follows a database; without a JVM."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import orjson
from sqlglot import exp

from lakechime_dagster.capture.rows import TABLE, column, known, since, texts
from lakechime_dagster.cdc.comparing.lost import Came, Counted, End, Lacking, Within, counted
from lakechime_dagster.cdc.messages.bronze import Kind
from lakechime_dagster.cdc.messages.record import Control
from lakechime_dagster.cdc.messages.transactions import END
from lakechime_dagster.cdc.order import REPAIRS
from lakechime_dagster.lake.monitors import Monitor
from lakechime_dagster.resources.following.followed import Followed
from lakechime_dagster.triggers.grid import DAY_MS

MOST_PLACED = 50  # lacking ones whose position is looked up
MOST_NAMED = 20  # sources by whose names ends are chosen before they are parsed
STREAMED = ("c", "u", "d", "t")


def transactions_counted(followed: Followed, monitor: Monitor, since_ms: int | None = None) -> Counted:
    """The transactions that ended since a time, or within a day, beside what came of their changes.

    What is asked grows with the messages of that time, not with the table. A transaction of which changes may be on their way is
    waited for as long as the monitor lets the table be behind.
    """
    now_ms = followed.platform.store.now()
    since_ms = now_ms - DAY_MS if since_ms is None else since_ms
    came = _came(followed, since_ms - DAY_MS)
    ends = _ends(followed, since_ms, came.sources)
    found = counted(ends, came, now_ms, round(monitor.limits.behind.total_seconds() * 1000))
    return replace(found, lacking=_placed(followed, found.lacking, since_ms - DAY_MS))


def _came(followed: Followed, since_ms: int) -> Came:
    """What came of changes since a time."""
    log, changes = followed.bronze.log, _since(since_ms, texts("kind", Kind.CHANGE.value))
    within = exp.select(column("source"), column("transaction"), _different().as_("n")).from_(TABLE)
    within = within.where(*changes, known("transaction")).group_by(column("source"), column("transaction"))
    outside = exp.select(column("source"), exp.Count(this=exp.Star()).as_("n")).from_(TABLE)
    is_streamed = texts("op", *STREAMED), column("snapshot").is_(exp.Null()), exp.not_(column("topic_id").like(f"{REPAIRS}%"))
    outside = outside.where(*changes, column("transaction").is_(exp.Null()), *is_streamed).group_by(column("source"))
    unreadable = followed.bronze.count(*_since(since_ms, texts("kind", Kind.UNREADABLE.value)))
    fed = log.fed(log.version) if log.exists() else None
    return Came(
        changes={Within(row["source"], row["transaction"]): row["n"] for row in followed.bronze.query(within)},
        outside={row["source"]: row["n"] for row in followed.bronze.query(outside)},
        newest=_newest(followed, changes), unreadable=unreadable, has_more=fed is not None and fed.has_more,
    )  # fmt: skip


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


def _newest(followed: Followed, changes: Sequence[exp.Condition]) -> dict[str, dict[tuple[str, int], int]]:
    """By source and partition when its newest change was written; a source of which none came is one that is remembered."""
    parts = [column(name) for name in ("source", "topic_id", "partition")]
    query = exp.select(*parts, exp.Max(this=column("timestamp")).as_("at")).from_(TABLE)
    query = query.where(*changes, known("transaction"), known("timestamp")).group_by(*parts)
    newest: dict[str, dict[tuple[str, int], int]] = {row.source: {} for row in followed.places()}
    for row in followed.bronze.query(query):
        newest.setdefault(row["source"], {})[row["topic_id"], row["partition"]] = _milliseconds(row["at"])
    return newest


def _ends(followed: Followed, since_ms: int, sources: Iterable[str]) -> list[End]:
    """The ends of transactions since a time that changed the sources; all of those of many sources."""
    tables = {".".join(source.split(".")[-2:]) for source in sources}
    counts = column("transaction_counts")
    named = [counts.like(f"%{orjson.dumps(table)[1:-1].decode()}%") for table in sorted(tables)] if len(tables) <= MOST_NAMED else []
    query = exp.select(*map(column, ("topic", "partition", "offset", "timestamp", "transaction", "transaction_counts"))).from_(TABLE)
    query = query.where(*_since(since_ms, texts("kind", Control.TRANSACTION.value), texts("op", END)))
    query = query.where(exp.or_(*named)) if named else query
    return [
        End((row["topic"], row["partition"], row["offset"]), _milliseconds(row["timestamp"]), row["transaction"],
            orjson.loads(row["transaction_counts"]))
        for row in followed.bronze.query(query)
    ]  # fmt: skip


def _placed(followed: Followed, lacking: Sequence[Lacking], since_ms: int) -> tuple[Lacking, ...]:
    """The same with the position of the first change of each that came."""
    first = {Within(one.source, one.end.transaction): (2**63,) for one in lacking[:MOST_PLACED] if one.found}
    if not first:
        return tuple(lacking)
    query = exp.select(*map(column, ("source", "transaction", "position"))).from_(TABLE)
    wanted = texts("transaction", *sorted({one.transaction for one in first})), known("position")
    for row in followed.bronze.query(query.where(*_since(since_ms, texts("kind", Kind.CHANGE.value)), *wanted)):
        within = Within(row["source"], row["transaction"])
        if within in first:
            first[within] = min(first[within], tuple(row["position"]))
    return tuple(replace(one, position=first.get(Within(one.source, one.end.transaction), ())) for one in lacking)


def _since(since_ms: int, *conditions: exp.Condition) -> list[exp.Condition]:
    return [*conditions, since("timestamp", since_ms)]


def _milliseconds(at: Any) -> int:
    return round(at.timestamp() * 1000)
