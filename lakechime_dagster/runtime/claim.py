"""How a run gets its execution: the one it was launched for, else one that it adopts or claims."""

from dataclasses import replace

import dagster as dg

from lakechime_dagster.errors import LaneConflictError, NotFoundError
from lakechime_dagster.runtime.names import DAGSTER_BACKFILL_TAG, EXECUTION_TAG
from lakechime_dagster.runtime.platform import Platform, ask_target
from lakechime_dagster.runtime.resource import NothingNewError, RunContext, declared_flows, flow_named
from lakechime_dagster.runtime.sources import ask, hold
from lakechime_dagster.silver.requests import due_types, reprocess_firing
from lakechime_dagster.triggers.consumers import Cause, Execution, LaneId, LaneState
from lakechime_dagster.triggers.decision import Firing
from lakechime_dagster.triggers.registry import FlowRow, LaneRow
from lakechime_dagster.triggers.schedule import from_milliseconds
from lakechime_dagster.triggers.subscription import Flow
from lakechime_dagster.triggers.triggers import FireKey, PartitionTrigger

BY_HAND = "a person asked for it"


def begun(platform: Platform, context: RunContext, name: str | None, partition: str | None = None) -> tuple[Flow, Execution]:
    """The flow of a run and the execution that it may begin."""
    run = context.run
    execution_id = run.tags.get(EXECUTION_TAG)
    tagged = platform.ledger.execution(execution_id) if execution_id else None
    flow = flow_named(name) if name else _flow_of(context, tagged)
    chosen = partition or (context.partition_key if context.has_partition_key else None)
    backfill = run.tags.get(DAGSTER_BACKFILL_TAG)
    if tagged is not None and tagged.lane.flow == flow.name and tagged.partition_key == chosen:
        return flow, _begin(platform, flow, tagged, run.run_id, backfill)
    return flow, adopted(platform, flow, run.run_id, chosen, backfill)


def adopted(platform: Platform, flow: Flow, run_id: str, partition: str | None, backfill: str | None = None) -> Execution:
    """For a run without our tags: the lane's open execution that no live run is at, or a new claim.

    Raises:
        NothingNewError: when nothing came since the lane's place.
    """
    row = platform.evaluator.activate(flow)
    key = _fire_key(platform, flow, row, partition)
    target = platform.log(flow.target, flow.location) if flow.target else None
    lane_key = key.text if key else ""
    opened = next((execution for execution in platform.ledger.open_executions(row) if execution.lane.key == lane_key), None)
    if opened is not None:
        return _begin(platform, flow, opened, run_id, backfill)
    lanes = platform.ledger.lanes(row)
    if lane_key not in lanes:
        committed = ask_target(target)(LaneId(platform.ledger.deployment, flow.name, lane_key))
        lanes = {lane_key: platform.ledger.ensure_lane(row, lane_key, committed, key.atoms if key else ())}
    lane = lanes[lane_key]
    if blocked := lane.blocked_sentence(flow.name):
        raise LaneConflictError(blocked)
    firing = _wanted(platform, flow, row, lane, key)
    # a key whose partitions are not all there is done with what is, and still fires when they are
    is_complete = key is None or lane.fired or bool(platform.evaluator.ready(flow, row, [key]))
    claimed = platform.evaluator.claim(flow, row, firing, ask_target(target), cause=Cause.MANUAL, fired=is_complete)
    if claimed is None:
        raise LaneConflictError(
            f"another run claimed {flow.name} {lane_key}".strip() + " at the same moment; look at its run, or launch again"
        )
    return platform.ledger.begin(claimed.execution_id, run_id, backfill)


def _wanted(platform: Platform, flow: Flow, row: FlowRow, lane: LaneRow, key: FireKey | None) -> Firing:
    """What a person wants, where there is something to do: what came, or else a request to reprocess."""
    try:
        return _fed(platform, flow, row) if flow.feed is not None else _woken(platform, flow, row, lane, key)
    except NothingNewError:
        firing = reprocess_firing(platform, flow, row)
        if firing is None:
            raise
        return replace(firing, reason=f"{BY_HAND}; {firing.reason}")


def _woken(platform: Platform, flow: Flow, row: FlowRow, lane: LaneRow, key: FireKey | None) -> Firing:
    """What a person wants, where an event or a snapshot came since the lane's place, or a backfill ordered it."""
    orders = platform.evaluator.orders(row, lane.key)
    if orders.held_back:
        raise LaneConflictError(f"{flow.name} {lane.key}".strip() + f" waits: {orders.held_back}")
    if orders.ids and (key is None or lane.fired):
        return Firing(key=lane.key, fire_key=key, reason=f"{BY_HAND}; {orders.sentence}")
    end = platform.evaluator.end_of(flow, row, lane)
    has_new_snapshot = end.sources != lane.place.sources or (end.sources and not lane.settled)
    is_asked = flow.has_types and bool(due_types(platform, flow, lane))
    if not has_new_snapshot and not is_asked and not platform.evaluator.waits(flow, row, lane, key):
        raise NothingNewError(
            f"nothing came for {flow.name} {lane.key}".strip() + f" since step {lane.settled}; its place is {lane.place.position}"
        )
    return Firing(key=lane.key, fire_key=key, reason=BY_HAND)


def _fed(platform: Platform, flow: Flow, row: FlowRow) -> Firing:
    """The same where the flow's feed holds more, whatever the pace at which it is asked."""
    asked = ask(platform, flow, row)
    hold(platform, row, asked)
    if asked.held:
        raise LaneConflictError(f"{flow.name} is HELD: {asked.held}")
    if not asked.decision.fires:
        raise NothingNewError(f"{flow.name}: {asked.decision.sentence}")
    (firing,) = asked.decision.firings
    return replace(firing, reason=f"{BY_HAND}; {firing.reason}")


def _begin(platform: Platform, flow: Flow, execution: Execution, run_id: str, backfill: str | None) -> Execution:
    """Begin an execution, unless its target says that the step is committed already."""
    if execution.settled_ts is not None:
        raise NothingNewError(
            f"step {execution.step} of {flow.name} is settled; `lakechime trigger seek {flow.name}` replays from an earlier position"
        )
    target = platform.log(flow.target, flow.location) if flow.target else None
    if platform.settle_if_committed(target, execution) is not None:
        raise NothingNewError(f"step {execution.step} of {flow.name} was committed by an earlier attempt; it is settled now")
    return platform.ledger.begin(execution.execution_id, run_id, backfill)


def _flow_of(context: RunContext, tagged: Execution | None) -> Flow:
    """The flow of a run: by its execution, else by the asset or job that it runs."""
    flows, keys = declared_flows(), _asset_names(context)
    mine = [flow for flow in flows.values() if keys & set(flow.asset_keys) or (flow.job is not None and flow.job == context.job_name)]
    if tagged is not None and tagged.lane.flow in flows and (not mine or any(flow.name == tagged.lane.flow for flow in mine)):
        return flows[tagged.lane.flow]
    if len(mine) == 1:
        return mine[0]
    names = ", ".join(sorted(flow.name for flow in mine)) or "none"
    raise NotFoundError(f"this run belongs to no single flow (candidates: {names}); name it: lakechime.execution(context, flow=…)")


def _asset_names(context: RunContext) -> set[str]:
    if not isinstance(context, dg.AssetExecutionContext):
        return set()
    return {key.to_user_string() for key in context.selected_asset_keys}


def _fire_key(platform: Platform, flow: Flow, row: FlowRow, partition: str | None) -> FireKey | None:
    """The fire key that a Dagster partition stands for; of several the one that is open, else the first for which something waits."""
    if not isinstance(flow.trigger, PartitionTrigger):
        return None
    grid = flow.trigger.keys(from_milliseconds(platform.store.now()))
    keys = [key for key in grid if flow.dagster_key(key) == partition]
    if not keys:
        ends = [flow.dagster_key(key) or key.text for key in (*grid[:1], *grid[-1:])]
        there = f"it has {' to '.join(ends)}" if ends else f"its first is at {flow.trigger.every.first}"
        raise NotFoundError(f"{flow.name} has no grid point for partition {partition!r} up to now; {there}")
    if len(keys) == 1:
        return keys[0]
    lanes = platform.ledger.lanes(row)
    free = [key for key in keys if key.text not in lanes or lanes[key.text].state is LaneState.ACTIVE] or keys
    leases = {execution.lane.key: execution.lease_until or 0 for execution in platform.ledger.open_executions(row)}
    opened = sorted((key for key in free if key.text in leases), key=lambda key: leases[key.text])  # at which no run lives first
    return next(iter(opened or platform.evaluator.ready(flow, row, free)), free[-1])
