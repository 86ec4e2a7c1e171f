"""What lets a group or a stream run though nothing came: what people ask of it, and what its steps left."""

from collections.abc import Sequence
from dataclasses import replace

from lakechime_dagster.resources.draining import with_drain
from lakechime_dagster.resources.event_types import event_replays, event_types
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.store.ledger_rows import FlowRow
from lakechime_dagster.triggers.decision import Decision, Firing
from lakechime_dagster.triggers.flow import Flow
from lakechime_dagster.triggers.lanes import LaneState


def with_asked(platform: Platform, flow: Flow, row: FlowRow, decision: Decision) -> Decision:
    """A decision, where nothing new fires the flow also by what people want of a group or a stream, and what is to be tried again."""
    return _with_types(platform, flow, row, decision) if flow.has_types else with_drain(platform, flow, row, decision)


def _with_types(platform: Platform, flow: Flow, row: FlowRow, decision: Decision) -> Decision:
    """A group also fires for types that are to be replayed, or of which a step left events that are due, where nothing else wakes it.

    What is not due, or is done by a step that comes anyway, is told beside the decision.
    """
    due, later = _of_types(platform, flow)
    lane = platform.ledger.lanes(row).get("") if due and not decision.fires and row.paused_ts is None else None
    if lane is None or lane.state is not LaneState.ACTIVE or platform.ledger.open_executions(row):
        return replace(decision, reasons=(*decision.reasons, *due, *later))
    firing = Firing(reason=due[0], settled=lane.settled)
    return replace(decision, fires=True, reasons=(*due, *later), firings=(firing,))


def _of_types(platform: Platform, flow: Flow) -> tuple[list[str], list[str]]:
    """Why a group is to be run though no event came, and what waits for its time."""
    left = event_types(platform).left(flow.name)
    due = [
        sentence
        for has_failed, what in ((True, "failed and are tried again"), (False, "have events that a step left, which are due"))
        if (sentence := _sentence([one.type for one in left if one.is_due and one.has_failed is has_failed], what))
    ]
    failed = {one.type for one in left if one.has_failed}
    asked = sorted({*event_replays(platform).open(flow.name)} - failed)  # one that failed is replayed when it is tried again
    due += [sentence] if (sentence := _sentence(asked, "are to be replayed")) else []
    later = [
        sentence
        for has_failed, what in ((True, "failed and are tried again later"), (False, "have events that a step left for later"))
        if (sentence := _sentence([one.type for one in left if not one.is_due and one.has_failed is has_failed], what))
    ]
    return due, later


def _sentence(types: Sequence[str], what: str) -> str:
    return f"{len(types)} types {what}, such as {types[0]}" if types else ""
