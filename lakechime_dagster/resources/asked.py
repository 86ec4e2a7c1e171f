"""What lets a group or a stream run though nothing came: what people ask of it, and what its steps left."""

from collections.abc import Sequence
from dataclasses import replace

from lakechime_dagster.resources.draining import with_drain
from lakechime_dagster.resources.event_types import event_patterns, event_replays, event_types
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.store.event_types import LeftType
from lakechime_dagster.store.ledger_rows import FlowRow, LaneRow
from lakechime_dagster.triggers.decision import Decision, Firing
from lakechime_dagster.triggers.flow import Flow
from lakechime_dagster.triggers.grid import from_milliseconds
from lakechime_dagster.triggers.lanes import LaneState

MOST_OF_ERROR = 200  # characters
UNREAD = "the groups of its stream share the types by other patterns: those that nobody has read are looked for"


def with_asked(platform: Platform, flow: Flow, row: FlowRow, decision: Decision) -> Decision:
    """A decision, where nothing new fires the flow also by what people want of a group or a stream, and what is to be tried again."""
    return _with_types(platform, flow, row, decision) if flow.has_types else with_drain(platform, flow, row, decision)


def _with_types(platform: Platform, flow: Flow, row: FlowRow, decision: Decision) -> Decision:
    """A group also fires for types that are to be replayed, or of which events are due that a step left, where nothing else wakes it.

    What is not due, or is done by a step that comes anyway, is told beside the decision.
    """
    lane = platform.ledger.lanes(row).get("")
    due, later = due_types(platform, flow, lane), _waiting(platform, flow, is_due=False)
    is_free = lane is not None and lane.state is LaneState.ACTIVE and row.paused_ts is None and not platform.ledger.open_executions(row)
    if not due or decision.fires or lane is None or not is_free:
        return replace(decision, reasons=(*decision.reasons, *due, *later))
    return replace(decision, fires=True, reasons=(*due, *later), firings=(Firing(reason=due[0], settled=lane.settled),))


def due_types(platform: Platform, flow: Flow, lane: LaneRow | None) -> list[str]:
    """Why a group is to be run though no event came, in sentences; none where it is not."""
    failed = {one.type for one in event_types(platform).left(flow.name) if one.has_failed}
    asked = sorted({*event_replays(platform).open(flow.name)} - failed)  # one that failed is replayed when it is tried again
    due = [*_waiting(platform, flow, is_due=True), *_sentences(asked, "are to be replayed")]
    return [*due, UNREAD] if lane is not None and _has_unread(platform, flow, lane) else due


def _waiting(platform: Platform, flow: Flow, *, is_due: bool) -> list[str]:
    """The types of which a step left events, because they failed or for another reason, whose time has come or not."""
    left = [one for one in event_types(platform).left(flow.name) if one.is_due is is_due]
    failed = "failed and are tried again" if is_due else "failed and are tried again later"
    first = None if is_due else next((one for one in left if one.has_failed), None)
    others = "have events that a step left, which are due" if is_due else "have events that a step left for later"
    told = ((True, failed), (False, others))
    sentences = [
        sentence for has_failed, what in told
        for sentence in _sentences([one.type for one in left if one.has_failed is has_failed], what)
    ]  # fmt: skip
    return sentences if first is None else [f"{sentences[0]}{_until(first)}", *sentences[1:]]


def _until(one: LeftType) -> str:
    """When a type that failed is tried again, and why it failed."""
    return f", not before {from_milliseconds(one.due_ts):%Y-%m-%d %H:%M:%S}Z: {one.error.partition(chr(10))[0][:MOST_OF_ERROR]}"


def _has_unread(platform: Platform, flow: Flow, lane: LaneRow) -> bool:
    """Whether by new patterns it may have types that nobody has read, in versions of the stream's table that it has read."""
    has_read = any(place.snapshot_id is not None for place in lane.place.sources.values())
    return has_read and event_patterns(platform).are_other(flow.name, dict(flow.patterns))


def _sentences(types: Sequence[str], what: str) -> list[str]:
    return [f"{len(types)} types {what}, such as {types[0]}"] if types else []
