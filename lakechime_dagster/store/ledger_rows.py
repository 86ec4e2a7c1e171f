"""Rows of the ledger as values: flows, lanes, executions."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from lakechime_dagster.dce.position import Position
from lakechime_dagster.store import ledger_schema as schema
from lakechime_dagster.triggers.feeds import FeedLag
from lakechime_dagster.triggers.flow import Flow
from lakechime_dagster.triggers.lanes import Cause, Execution, ExecutionState, LaneId, LaneState, Place


@dataclass(frozen=True, kw_only=True)
class FlowRow:
    """A flow as the ledger keeps it.

    `ticked_ts` is when its sensor ticked, to the minute; `looked` the position up to which late changes were looked for.
    `cluster`, `is_partitioned` and `refires` are None for a flow that only an older program has activated.
    """

    flow_id: int
    deployment: str
    name: str
    description: str
    tables: tuple[str, ...]
    target: str | None
    job: str | None
    asset_keys: tuple[str, ...]
    activated_ts: int
    start: Place
    paused_ts: int | None
    paused_reason: str | None
    looked: Position
    ticked_ts: int | None = None
    cluster: str | None = None
    is_partitioned: bool | None = None
    refires: bool | None = None
    feed_lag: FeedLag | None = None

    def describes(self, flow: Flow) -> bool:
        """Whether the declaration is the one that the ledger knows."""
        known = (self.description, self.cluster, self.tables, self.target, self.job, self.asset_keys)
        return known == (flow.condition, flow.cluster, flow.pinned, flow.target, flow.job, flow.asset_keys)

    @property
    def blocked_sentence(self) -> str:
        return f"paused: {self.paused_reason}" if self.paused_ts is not None else ""


@dataclass(frozen=True, kw_only=True)
class LaneRow:
    """A lane as the ledger keeps it; `settled` steps so far, its next step is one more."""

    lane_id: int
    key: str
    state: LaneState
    state_reason: str
    settled: int
    place: Place
    fired: bool
    created_ts: int

    def blocked_sentence(self, flow: str) -> str:
        """Why the lane may not claim, with the remedy; empty when it may."""
        move = "seek" if self.place.feed is None else "resume"
        return blocked_sentence(f"{flow} {self.key}".strip(), flow, self.state, self.state_reason, move)


def blocked_sentence(lane: str, flow: str, state: LaneState, reason: str, move: str = "seek") -> str:
    """Why a lane in this state may not claim, with the remedy; empty when it may. `move` lets one go on that has no open step."""
    if state is LaneState.ACTIVE:
        return ""
    remedy = f"`lakechime execution retry` or `skip` goes on, where no step is open `lakechime trigger {move} {flow}`"
    if state is LaneState.STALE:
        remedy = f"`lakechime trigger seek {flow}` goes on, after `lakechime execution skip` where a step is open"
    return f"{lane} is {state.value}: {reason}; {remedy}"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One Dagster run at an execution; times in milliseconds. `outcome` is None while it may still work."""

    number: int
    run_id: str | None
    due_ts: int
    begun_ts: int | None
    ended_ts: int | None
    lease_until: int | None
    outcome: str | None
    error: str | None


IS_KNOWN = schema.flow.c.forgotten_ts.is_(None)
FLOWS = sa.select(schema.flow).where(IS_KNOWN)

EXECUTIONS = (
    sa.select(
        schema.execution,
        schema.lane.c.key,
        schema.flow.c.name.label("flow"),
        schema.flow.c.deployment,
        schema.attempt.c.run_id,
        schema.attempt.c.due_ts,
        schema.attempt.c.lease_until,
    )
    .join(schema.lane, schema.lane.c.lane_id == schema.execution.c.lane_id)
    .join(schema.flow, schema.flow.c.flow_id == schema.lane.c.flow_id)
    .join(
        schema.attempt,
        sa.and_(schema.attempt.c.execution_id == schema.execution.c.execution_id, schema.attempt.c.number == schema.execution.c.attempt),
    )
)


def flow_from(row: sa.Row[Any]) -> FlowRow:
    return FlowRow(
        flow_id=row.flow_id, deployment=row.deployment, name=row.name, description=row.description, tables=tuple(row.tables),
        target=row.target, job=row.job, asset_keys=tuple(row.asset_keys), activated_ts=row.activated_ts, start=Place.from_json(row.start),
        paused_ts=row.paused_ts, paused_reason=row.paused_reason, looked=Position(row.looked_tx, row.looked_seq), ticked_ts=row.ticked_ts,
        cluster=row.cluster, is_partitioned=row.is_partitioned, refires=row.refires,
        feed_lag=None if row.feed_lag is None else FeedLag.from_json(row.feed_lag),
    )  # fmt: skip


def lane_from(row: sa.Row[Any]) -> LaneRow:
    return LaneRow(
        lane_id=row.lane_id, key=row.key, state=LaneState(row.state), state_reason=row.state_reason, settled=row.settled,
        place=Place.from_json(row.place), fired=row.fired, created_ts=row.created_ts,
    )  # fmt: skip


def execution_from(row: sa.Row[Any]) -> Execution:
    return Execution(
        execution_id=row.execution_id, lane=LaneId(row.deployment, row.flow, row.key), step=row.step, state=ExecutionState(row.state),
        cause=Cause(row.cause), start=Place.from_json(row.start_place), end=Place.from_json(row.end_place), attempt=row.attempt,
        run_id=row.run_id, partition_key=row.partition_key, claimed_ts=row.claimed_ts, lease_until=row.lease_until,
        next_attempt_ts=row.due_ts, settled_ts=row.settled_ts, reason=row.reason, version=row.version, backfill=row.backfill or "",
        dagster_backfill=row.dagster_backfill or "",
    )  # fmt: skip


def attempt_from(row: sa.Row[Any]) -> Attempt:
    return Attempt(
        number=row.number, run_id=row.run_id, due_ts=row.due_ts, begun_ts=row.begun_ts, ended_ts=row.ended_ts,
        lease_until=row.lease_until, outcome=row.outcome, error=row.error,
    )  # fmt: skip
