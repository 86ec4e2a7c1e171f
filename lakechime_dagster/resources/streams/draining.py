"""Drains of streams: those that are asked for, and how they let a stream's next step come."""

from dataclasses import replace

from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.store.ledger_rows import FlowRow
from lakechime_dagster.store.types.drains import Drains
from lakechime_dagster.triggers.decision import Decision, Firing
from lakechime_dagster.triggers.flow import Flow
from lakechime_dagster.triggers.lanes import LaneState


def event_drains(platform: Platform) -> Drains:
    """The drains of streams in this deployment."""
    return Drains(platform.store.engine, platform.ledger.deployment)


def with_drain(platform: Platform, flow: Flow, row: FlowRow, decision: Decision) -> Decision:
    """A stream also fires for what it refused, where somebody wants that looked at again and nothing else wakes it.

    A drain that is open all the same is told beside the decision.
    """
    firing = drain_firing(platform, flow, row)
    if firing is None:
        return decision
    if decision.fires or row.paused_ts is not None or platform.ledger.open_executions(row):
        return replace(decision, reasons=(*decision.reasons, firing.reason))
    return replace(decision, fires=True, reasons=(firing.reason,), firings=(firing,))


def drain_firing(platform: Platform, flow: Flow, row: FlowRow) -> Firing | None:
    """What lets a stream do the drain that is open, and read nothing; None where none is, or its lane waits for a person."""
    number = event_drains(platform).open(flow.name) if flow.is_stream else None
    lane = platform.ledger.lanes(row).get("") if number is not None else None
    if lane is None or lane.state is not LaneState.ACTIVE:
        return None
    reason = f"drain {number}: what was refused is looked at again"
    return Firing(reason=reason, settled=lane.settled, feed=lane.place.feed, has_more=lane.place.has_more)
