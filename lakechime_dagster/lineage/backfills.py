"""A backfill from what a person requests."""

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from lakechime_dagster.compat import datetime_of_iso
from lakechime_dagster.dce.partitions import PartitionLevels, canonical_partition
from lakechime_dagster.errors import InvalidValueError, LakeChimeError, NotFoundError
from lakechime_dagster.lineage.backfill import (
    ConsumerFact,
    HitPartitions,
    RequestPlan,
    Rerun,
    SubscriptionFacts,
    TableHit,
    Window,
    plan_requests,
    rerun,
    time_level,
    untouched,
)
from lakechime_dagster.lineage.columns import ColumnRef, Statement
from lakechime_dagster.lineage.service import is_of_subscription, planned_statements
from lakechime_dagster.lineage.store import LineageStandings
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.tables import LakeTable, RefreshMode, code_digest
from lakechime_dagster.triggers.backfills import Backfills
from lakechime_dagster.triggers.interventions import By
from lakechime_dagster.triggers.schedule import from_milliseconds
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import PartitionTrigger

AHEAD = dt.timedelta(days=7)  # keys of the time to come that wait for what a backfill requests of their inputs
MAX_AHEAD = 1_000


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a person asks for: columns that changed, or tables to be computed again; some to be left as they are; days."""

    columns: tuple[ColumnRef, ...] = ()
    tables: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()
    window: Window = field(default_factory=Window)

    def to_json(self) -> dict[str, Any]:
        return {
            "columns": [str(ref) for ref in self.columns],
            "tables": list(self.tables),
            "except": list(self.leave_out),
            "since": self.window.since,
            "until": self.window.until,
            "time_column": self.window.column,
        }


@dataclass(frozen=True, kw_only=True)
class BackfillPlan:
    """What is asked for, what follows from it, and `everything`: what it would be to run all that lies downstream."""

    asked: Asked
    found: Rerun
    requests: RequestPlan
    everything: RequestPlan


def plan(platform: Platform, lake: Lake, subscriptions: Mapping[str, Subscription], asked: Asked) -> BackfillPlan:
    """What a backfill would run; nothing is written.

    Raises:
        InvalidValueError: nothing is asked for, or it is not known by which column rows are of a day.
    """
    if not asked.columns and not asked.tables:
        raise InvalidValueError("columns", "none", "say which columns changed, or which tables are to be computed again")
    asked = replace(asked, window=with_time_column(lake, asked))
    refs = asked.columns or tuple(ColumnRef(name) for name in asked.tables)
    found = _chosen(lake, asked) if asked.tables else readers_hit(platform, lake, asked)
    facts = cache(lambda table: _facts(platform, subscriptions[table]))
    everything = rerun(lake.graph(), (), refs)
    return BackfillPlan(
        asked=asked,
        found=found,
        requests=plan_requests(lake, found, facts, asked.window),
        everything=plan_requests(lake, everything, facts, asked.window),
    )


def run(platform: Platform, planned: BackfillPlan, by: By, *, max_in_flight: int) -> str:
    """Write the requests of a plan, and give the id of the backfill; the sensors launch its runs.

    Raises:
        LakeChimeError: a table that is hit cannot be ordered.
        NotFoundError: there is nothing to run.
    """
    if planned.requests.refused:
        table, reason = next(iter(planned.requests.refused.items()))
        raise LakeChimeError(f"{table} {reason}; nothing was ordered")
    if not planned.requests.requests:
        raise NotFoundError("nothing is to be run; `lakechime backfill run --dry-run` says why")
    return Backfills(platform.ledger).request(
        (*planned.requests.requests, *planned.requests.later), planned.asked.to_json(), by, max_in_flight=max_in_flight
    )


def _chosen(lake: Lake, asked: Asked) -> Rerun:
    """The tables that a person chose, each after those of its inputs that were chosen too."""
    chosen = [name for name in asked.tables if name not in asked.leave_out]
    graph = lake.graph()
    hits = {
        name: TableHit(table=name, inputs=tuple(one for one in graph[name] if one in chosen), why="chosen")
        for name in graph
        if name in chosen and graph[name]
    }
    return Rerun(hits=hits, spared={name: "left out, as was asked" for name in asked.leave_out if name in asked.tables})


def with_time_column(lake: Lake, asked: Asked) -> Window:
    """The window with the column by which rows are of a day: that of the first table upstream that is partitioned by time."""
    window = asked.window
    if window.column is not None or not window.is_bounded:
        return window
    graph = lake.graph()
    queue = [*(ref.table for ref in asked.columns), *asked.tables]
    for table in queue:  # which grows meanwhile
        if (name := time_level(lake.levels.get(table, PartitionLevels()))) is not None:
            return replace(window, column=name)
        queue += [one for one in graph.get(table, ()) if one not in queue]
    remedy = "no table upstream is partitioned by a date or time; give --time-column, or leave out --since and --until"
    raise InvalidValueError("time column", "none", remedy)


def readers_hit(platform: Platform, lake: Lake, asked: Asked) -> Rerun:
    """The tables that the columns of a question hit, with what is known of their code of now."""
    planned = planned_statements(lake).values()
    return rerun(lake.graph(), _statements(platform, lake), asked.columns, planned=planned, leave_out=asked.leave_out)


def _statements(platform: Platform, lake: Lake) -> list[Statement]:
    """What runs told of how tables are written, and of those that older code wrote last what the manifest plans by the code of now.

    Where it plans nothing, the table may read all that it is declared to read, as the code of now may read other columns. So may
    one of which no subscription of the lake has told, whatever others told that write it too.
    """
    tables, found, planned = {table.name: table for table in lake.computed}, [], planned_statements(lake)
    standings = LineageStandings(platform.store.engine).all()
    own = {one.statement.target for one in standings if is_of_subscription(platform, lake, one)}
    for name in {one.statement.target for one in standings} & tables.keys() - own:
        found.append(
            planned.get(name) or Statement(target=name, inputs=tables[name].inputs, unknown=("no run of its subscription told yet",))
        )
    for standing in standings:
        table = tables.get(standing.statement.target)
        is_older = table is not None and is_of_subscription(platform, lake, standing) and standing.code not in (None, code_digest(table))
        if table is not None and is_older:
            found.append(planned.get(table.name) or _of_older_code(table))
        found.append(standing.statement)  # also of older code, whose rows are there
    return found


def _of_older_code(table: LakeTable) -> Statement:
    return Statement(target=table.name, inputs=table.inputs, unknown=("its code is another than the one that told last",))


def _facts(platform: Platform, subscription: Subscription) -> SubscriptionFacts:
    row = platform.ledger.subscription(subscription.name)
    consumers = platform.ledger.consumers(row) if row is not None else {}
    facts = {
        key: ConsumerFact(
            has_run=consumer.fired if subscription.is_partitioned else consumer.completed > 0,
            blocked=(row.blocked_sentence if row is not None else "") or consumer.blocked_sentence(subscription.name),
        )
        for key, consumer in consumers.items()
    }
    if not isinstance(subscription.trigger, PartitionTrigger):
        return SubscriptionFacts(subscription=subscription, consumers=facts)
    now = from_milliseconds(platform.store.now())
    keys = subscription.trigger.keys(now)
    upcoming = subscription.trigger.keys(now + AHEAD)[len(keys) :][:MAX_AHEAD]
    pending = [key for key in keys if not facts.get(key.text, ConsumerFact(has_run=False)).has_run]
    ready = platform.evaluator.ready(subscription, row, pending) if row is not None else []
    return SubscriptionFacts(
        subscription=subscription, consumers=facts, keys=keys, upcoming=upcoming, ready=frozenset(key.text for key in ready)
    )


@dataclass(frozen=True, kw_only=True)
class ReaderPartitions:
    """Of one reader what is hit.

    Attributes:
        hit: Partitions, or keys where these stand for none, oldest first; None for a table that has none that is declared.
        others: How many there are that are not hit.
        what: Which rows, or why none, in words.
    """

    hit: tuple[str, ...] | None = None
    others: int = 0
    what: str = ""

    @property
    def is_hit(self) -> bool:
        return self.hit != ()


def partitions_hit(
    platform: Platform, lake: Lake, subscriptions: Mapping[str, Subscription], asked: Asked, partitions: Sequence[Sequence[object]] = ()
) -> dict[str, ReaderPartitions]:
    """By reader, inputs first, what of it is hit by a change of columns in a window, or in partitions of the tables that changed.

    Raises:
        InvalidValueError: a partition that the tables cannot have, or no column by which rows are of a day.
    """
    changed = {ref.table: lake.levels.get(ref.table, PartitionLevels()) for ref in asked.columns}
    known = {table: _canonical(table, levels, partitions) for table, levels in changed.items()} if partitions else {}
    window = _around(known, changed) if partitions else with_time_column(lake, asked)
    at = HitPartitions(window, lake.levels, known)
    now = from_milliseconds(platform.store.now())
    found: dict[str, ReaderPartitions] = {}
    for table, hit in readers_hit(platform, lake, asked).hits.items():
        declared = lake.table(table)
        subscription = subscriptions.get(table)
        if at.is_untouched(table, hit.inputs):
            found[table] = ReaderPartitions(hit=(), what=untouched(hit.inputs))
        elif subscription is not None and isinstance(subscription.trigger, PartitionTrigger):
            found[table] = _of_keys(at, table, subscription, hit.inputs, now)
        else:
            is_whole = isinstance(declared, LakeTable) and declared.refresh is RefreshMode.FULL
            found[table] = ReaderPartitions(what="all of it" if is_whole else window.describe())
    return found


def _of_keys(at: HitPartitions, table: str, subscription: Subscription, inputs: Sequence[str], now: dt.datetime) -> ReaderPartitions:
    assert isinstance(subscription.trigger, PartitionTrigger)
    keys = subscription.trigger.keys(now)
    nothing = f"none of its {len(keys)} partitions reads what changed of {', '.join(inputs) or table}"
    hit = tuple(subscription.dagster_key(key) or key.text for key in at.keys(table, subscription, inputs, keys))
    return ReaderPartitions(hit=hit, others=len(keys) - len(hit), what="" if hit else nothing)


def _canonical(table: str, levels: PartitionLevels, partitions: Sequence[Sequence[object]]) -> frozenset[str]:
    if not levels:
        raise InvalidValueError("partition", list(partitions[0]), f"{table} is declared without partitions; give --since and --until")
    return frozenset(canonical_partition(one, levels) for one in partitions)  # pyright: ignore[reportArgumentType]


def _around(known: Mapping[str, frozenset[str]], changed: Mapping[str, PartitionLevels]) -> Window:
    """The days from the first of the partitions to the last, by which readers without declared partitions are told; all without a day."""
    days: list[dt.date] = []
    column: str | None = None
    for table, levels in changed.items():
        if (name := time_level(levels)) is None:
            return Window()
        column = column or name
        at = levels.names.index(name)
        days += [datetime_of_iso(str(json.loads(one)[at])).date() for one in known[table]]
    return Window(since=min(days).isoformat(), until=(max(days) + dt.timedelta(days=1)).isoformat(), column=column)
