"""Explains why a trigger fires or not, now or at a past time."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace

from lakechime_dagster.dce.contract import EventQuery
from lakechime_dagster.dce.events import Position, RegisteredEvent
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.runtime.sources import ask
from lakechime_dagster.silver.requests import with_asked
from lakechime_dagster.triggers.conditions import Atom
from lakechime_dagster.triggers.decision import Decision
from lakechime_dagster.triggers.registry import FlowRow
from lakechime_dagster.triggers.schedule import from_milliseconds
from lakechime_dagster.triggers.subscription import Flow
from lakechime_dagster.triggers.triggers import FireKey, PartitionTrigger

MOST_EVENTS = 1_000  # of an explanation, oldest first
SILENT_MS = 180_000  # ticks are noted once a minute
NOT_ACTIVE = "not active yet: its sensor has not ticked in this deployment"


def explain(platform: Platform, flow: Flow, at_ms: int | None = None) -> Decision:
    """The decision with its events; nothing is written.

    Of a snapshot trigger: the matching events that wait. Of a partition trigger: those in the partitions of the keys
    that fire, else of the oldest key that is missing something.
    """
    known = platform.ledger.flow(flow.name)
    row = known or inactive(platform, flow)
    decision = _decided(platform, flow, row, at_ms)
    decision = with_asked(platform, flow, row, decision) if at_ms is None else decision
    reasons = decision.reasons if known else (*decision.reasons, NOT_ACTIVE)
    if at_ms is None and (silence := _silence(row, platform.store.now())):
        reasons = (*reasons, silence)
    lanes = platform.evaluator.lanes(row, at_ms)
    if isinstance(flow.trigger, PartitionTrigger):
        fired = {key for key, lane in lanes.items() if lane.fired}
        keys = [firing.fire_key for firing in decision.firings if firing.fire_key]
        found = _of_keys(platform, flow, keys or _oldest_missing(platform, flow.trigger, fired, at_ms), decision.through)
    else:
        place = lanes[""].place.position if "" in lanes else row.start.position
        found = _of_tables(platform, flow, place, decision.through)
    events = tuple(sorted(itertools.islice(found, MOST_EVENTS), key=lambda event: event.position))
    return replace(decision, reasons=reasons, events=events)


def _decided(platform: Platform, flow: Flow, row: FlowRow, at_ms: int | None) -> Decision:
    if flow.feed is None:
        return platform.evaluator.evaluate(flow, row, at_ms=at_ms)
    if at_ms is None:
        return ask(platform, flow, row).decision
    return Decision(trigger=flow.name, fires=False, reasons=(f"what {flow.feed} held then is not kept; ask without a time",))


def _silence(row: FlowRow, now: int) -> str:
    """A sentence when the flow's sensor has not ticked for minutes, though it did before."""
    if row.ticked_ts is None or now - row.ticked_ts < SILENT_MS:
        return ""
    return (
        f"its sensor has not ticked since {from_milliseconds(row.ticked_ts):%Y-%m-%d %H:%M}Z: it is stopped in Dagster, or no daemon runs"
    )


def inactive(platform: Platform, flow: Flow) -> FlowRow:
    """The row that a flow would get, were it activated now."""
    return FlowRow(
        flow_id=0,
        deployment=platform.ledger.deployment,
        name=flow.name,
        description=flow.condition,
        tables=flow.pinned,
        target=flow.target,
        job=flow.job,
        asset_keys=flow.asset_keys,
        activated_ts=platform.store.now(),
        start=platform.evaluator.start_of(flow),
        paused_ts=None,
        paused_reason=None,
        looked=Position.ORIGIN,
    )


def _of_tables(platform: Platform, flow: Flow, after: Position, through: Position) -> Iterator[RegisteredEvent]:
    for table in flow.trigger.tables:
        query = EventQuery(
            table=table, cluster=flow.cluster, tags=flow.trigger.tags, only_new=True, after=after, through=through, limit=MOST_EVENTS
        )
        yield from platform.store.fetch(query)


def _oldest_missing(platform: Platform, trigger: PartitionTrigger, fired: set[str], at_ms: int | None) -> list[FireKey]:
    now = platform.store.now() if at_ms is None else at_ms
    return [key for key in trigger.keys(from_milliseconds(now)) if key.text not in fired][:1]


def _of_keys(platform: Platform, flow: Flow, keys: list[FireKey], through: Position) -> Iterator[RegisteredEvent]:
    for atom in dict.fromkeys(atom for key in keys for atom in key.atoms):
        query = EventQuery(table=atom.table, cluster=atom.cluster, partition=_partition(atom), tags=flow.trigger.tags, through=through)
        yield from platform.store.fetch(query)


def _partition(atom: Atom) -> tuple[object, ...]:
    return tuple(json.loads(atom.canonical))
