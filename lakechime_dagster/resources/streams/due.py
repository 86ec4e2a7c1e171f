"""What lets a group or a stream run though nothing arrived: what people ask of it, and what its executions left."""

from collections.abc import Sequence
from dataclasses import replace

from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.resources.streams.event_types import event_patterns, event_replays, event_types
from lakechime_dagster.store.ledger_rows import FlowRow, LaneRow
from lakechime_dagster.store.types.decisions import Reprocesses
from lakechime_dagster.store.types.repository import LeftType
from lakechime_dagster.triggers.decision import Decision, Firing
from lakechime_dagster.triggers.flow import Flow
from lakechime_dagster.triggers.grid import from_milliseconds
from lakechime_dagster.triggers.lanes import LaneState


def event_reprocesses(platform: Platform) -> Reprocesses:
    """The requests to reprocess of streams in this deployment."""
    return Reprocesses(platform.store.engine, platform.ledger.deployment)


def with_reprocess(platform: Platform, flow: Flow, row: FlowRow, decision: Decision) -> Decision:
    """A stream also fires for what it refused, where somebody wants that looked at again and nothing else wakes it.

    A request to reprocess that is open all the same is told beside the decision.
    """
    firing = reprocess_firing(platform, flow, row)
    if firing is None:
        return decision
    if decision.fires or row.paused_ts is not None or platform.ledger.open_executions(row):
        return replace(decision, reasons=(*decision.reasons, firing.reason))
    return replace(decision, fires=True, reasons=(firing.reason,), firings=(firing,))


def reprocess_firing(platform: Platform, flow: Flow, row: FlowRow) -> Firing | None:
    """What lets a stream do what is asked to be reprocessed, and read nothing; None where none is, or its lane waits for a person."""
    number = event_reprocesses(platform).open(flow.name) if flow.is_stream else None
    lane = platform.ledger.lanes(row).get("") if number is not None else None
    if lane is None or lane.state is not LaneState.ACTIVE:
        return None
    reason = f"reprocessing {number}: what was refused is looked at again"
    return Firing(reason=reason, settled=lane.settled, feed=lane.place.feed, has_more=lane.place.has_more)


MOST_OF_ERROR = 200  # characters
UNREAD = "the groups of its stream share the types by other patterns: those that nobody has read are looked for"


def with_asked(platform: Platform, flow: Flow, row: FlowRow, decision: Decision) -> Decision:
    """A decision, where nothing new fires the flow also by what people want of a group or a stream, and what is to be tried again."""
    return _with_types(platform, flow, row, decision) if flow.has_types else with_reprocess(platform, flow, row, decision)


def _with_types(platform: Platform, flow: Flow, row: FlowRow, decision: Decision) -> Decision:
    """A group also fires for types that are to be replayed, or of which events are due that a step left, where nothing else wakes it.

    What is not due, or is done by a step that comes anyway, is told beside the decision.
    """
    lane, left = platform.ledger.lanes(row).get(""), event_types(platform).left(flow.name)
    due, later = _due(platform, flow, lane, left), _later(left)
    is_free = lane is not None and lane.state is LaneState.ACTIVE and row.paused_ts is None
    if lane is None or not due or not is_free or decision.fires or platform.ledger.open_executions(row):
        return replace(decision, reasons=(*decision.reasons, *due, *later))
    return replace(decision, fires=True, reasons=(*due, *later), firings=(Firing(reason=due[0], settled=lane.settled),))


def due_types(platform: Platform, flow: Flow, lane: LaneRow) -> list[str]:
    """Why a group is to be run though no event came, in sentences; none where it is not."""
    return _due(platform, flow, lane, event_types(platform).left(flow.name))


def _due(platform: Platform, flow: Flow, lane: LaneRow | None, left: Sequence[LeftType]) -> list[str]:
    failed = {one.type for one in left if one.has_failed}
    asked = sorted({*event_replays(platform).open(flow.name)} - failed)  # one that failed is replayed when it is tried again
    return [
        *_told("failed and tried again", [one.type for one in left if one.is_due and one.has_failed]),
        *_told("left by a step, and due", [one.type for one in left if one.is_due and not one.has_failed]),
        *_told("to be replayed", asked),
        *([UNREAD] if lane is not None and _has_unread(platform, flow, lane) else ()),
    ]


def _later(left: Sequence[LeftType]) -> list[str]:
    """The types of which a step left events whose time has not come: of the first that failed until when, and why."""
    failed = [one for one in left if one.has_failed and not one.is_due]
    others = _told("left by a step for later", [one.type for one in left if not one.has_failed and not one.is_due])
    return [f"{told}{_until(failed[0])}" for told in _told("failed and tried again later", [one.type for one in failed])] + others


def _until(one: LeftType) -> str:
    first = one.error.partition("\n")[0]
    return f", not before {from_milliseconds(one.due_ts):%Y-%m-%d %H:%M:%S}Z: {first[:MOST_OF_ERROR]}"


def _has_unread(platform: Platform, flow: Flow, lane: LaneRow) -> bool:
    """Whether by new patterns it may have types that nobody has read, in versions of the stream's table that it has read."""
    has_read = any(place.snapshot_id is not None for place in lane.place.sources.values())
    return has_read and event_patterns(platform).are_other(flow.name, flow.patterns)


def _told(what: str, types: Sequence[str]) -> list[str]:
    """What becomes of types, in a sentence; none where there are none."""
    several = f"{len(types)} types, such as " if len(types) > 1 else ""
    return [f"{what}: {several}{types[0]}"] if types else []
