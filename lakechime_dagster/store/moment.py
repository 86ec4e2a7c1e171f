"""Flows and their lanes as they stand now, or as they stood at a past time.

The past is what the ledger keeps of then, and today's rows with what came since undone.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import sqlalchemy as sa
from sqlalchemy import Connection

from lakechime_dagster.dce.position import Position
from lakechime_dagster.store import ledger_schema as schema
from lakechime_dagster.store.dialect import among, now_ms
from lakechime_dagster.store.events import head_within
from lakechime_dagster.store.evidence import head_at
from lakechime_dagster.store.interventions import Action
from lakechime_dagster.store.ledger import HELD, MAX_ATTEMPTS
from lakechime_dagster.store.ledger_rows import EXECUTIONS, Attempt, FlowRow, LaneRow, attempt_from, execution_from, lane_from
from lakechime_dagster.store.orders import lane_orders
from lakechime_dagster.store.registry import lanes_of
from lakechime_dagster.triggers.decision import LaneView
from lakechime_dagster.triggers.lanes import Execution, ExecutionState, LaneState, Place
from lakechime_dagster.triggers.orders import NO_ORDERS, LaneOrders


@dataclass(frozen=True)
class Moment:
    """The time and head of the store, and a flow as it stands at both."""

    flow: str
    now: int  # milliseconds
    through: Position
    lanes: Mapping[str, LaneRow]
    opened: Mapping[str, Execution]  # by lane
    blocked: str  # why the flow may not fire at all
    orders: Mapping[str, LaneOrders] = field(default_factory=dict)  # by lane

    @property
    def views(self) -> dict[str, LaneView]:
        """What a decision needs of each lane: its place, and whether it is open or may not claim."""
        return {
            key: LaneView(
                place=lane.place,
                settled=lane.settled,
                open=_open_sentence(self.opened[key]) if key in self.opened else "",
                blocked=lane.blocked_sentence(self.flow),
                orders=self.orders.get(key, NO_ORDERS),
            )
            for key, lane in self.lanes.items()
        }


def present(connection: Connection, rows: Sequence[FlowRow]) -> dict[str, Moment]:
    """Flows as they stand now, by the clock of the store."""
    now, through = now_ms(connection), head_within(connection)
    names = {row.flow_id: row.name for row in rows}
    ids = list(names)
    lanes: dict[str, dict[str, LaneRow]] = {row.name: {} for row in rows}
    for lane in connection.execute(sa.select(schema.lane).where(among(connection, schema.lane.c.flow_id, ids))):
        lanes[names[lane.flow_id]][lane.key] = lane_from(lane)
    opened: dict[str, dict[str, Execution]] = {row.name: {} for row in rows}
    is_open = schema.execution.c.state == ExecutionState.OPEN.value
    for execution in map(execution_from, connection.execute(EXECUTIONS.where(among(connection, schema.lane.c.flow_id, ids), is_open))):
        opened[execution.lane.flow][execution.lane.key] = execution
    orders: dict[str, dict[str, LaneOrders]] = {row.name: {} for row in rows}
    for (flow_id, key), order in lane_orders(connection, ids).items():
        orders[names[flow_id]][key] = order
    return {
        row.name: Moment(
            flow=row.name,
            now=now,
            through=through,
            lanes=lanes[row.name],
            opened=opened[row.name],
            blocked=row.blocked_sentence,
            orders=orders[row.name],
        )
        for row in rows
    }


def past(connection: Connection, row: FlowRow, at_ms: int) -> Moment:
    """A past time in milliseconds, as far as it is kept."""
    return Moment(
        flow=row.name, now=at_ms, through=head_at(connection, at_ms), lanes=lanes_at(connection, row, at_ms),
        opened=_open_at(connection, row, at_ms), blocked=_paused_at(connection, row, at_ms),
    )  # fmt: skip


def _open_sentence(execution: Execution) -> str:
    who = f"run {execution.run_id}" if execution.run_id else "a run that has not begun"
    key = f" for {execution.lane.key}" if execution.lane.key else ""
    return f"step {execution.step}{key} is with {who} (attempt {execution.attempt})"


@dataclass(frozen=True)
class _Move:
    """A lane went from one place to another, by settling a step or by a person."""

    ts: int
    key: str
    before: Place
    after: Place


def _paused_at(connection: Connection, row: FlowRow, at_ms: int) -> str:
    """A sentence when the flow was paused then."""
    query = (
        sa.select(schema.intervention.c.action, schema.intervention.c.reason)
        .where(
            schema.intervention.c.flow_id == row.flow_id,
            schema.intervention.c.ts <= at_ms,
            schema.intervention.c.action.in_([Action.PAUSE.value, Action.RESUME.value]),
        )
        .order_by(schema.intervention.c.intervention_id.desc())
        .limit(1)
    )
    newest = connection.execute(query).one_or_none()
    return f"paused: {newest.reason}" if newest is not None and newest.action == Action.PAUSE.value else ""


def _open_at(connection: Connection, row: FlowRow, at_ms: int) -> dict[str, Execution]:
    """The executions that were open then, by lane, each with the attempt and the run of then."""
    return {execution.lane.key: _as_of(execution, attempt, at_ms) for execution, attempt in _attempted(connection, row, at_ms)}


def lanes_at(connection: Connection, row: FlowRow, at_ms: int) -> dict[str, LaneRow]:
    """The lanes that were there then: their places, whether they had fired, and their states as far as that is kept."""
    attempted = {execution.lane.key: (execution, attempt) for execution, attempt in _attempted(connection, row, at_ms)}
    settlings = list(_settlings(connection, row))
    moves = sorted([*settlings, *_seeks(connection, row)], key=lambda move: move.ts)
    steps = Counter(move.key for move in settlings)
    claims = _last_claims(connection, row, at_ms)
    lanes: dict[str, LaneRow] = {}
    for key, lane in lanes_of(connection, row.flow_id).items():
        if lane.created_ts > at_ms:
            continue
        own = [move for move in moves if move.key == key]
        place = next((move.before for move in own if move.ts > at_ms), lane.place)
        put_back = max((move.ts for move in own if move.ts <= at_ms and move.after.position < move.before.position), default=-1)
        # one rebuilt from its target has settled steps that the ledger lost: it had fired when it was made
        fired_ts = claims.get(key, lane.created_ts if lane.settled > steps[key] else -1)
        state, reason = _state_at(lane, *attempted.get(key, (None, None)), at_ms)
        lanes[key] = replace(lane, place=place, fired=fired_ts > put_back, state=state, state_reason=reason)
    return lanes


def _state_at(lane: LaneRow, execution: Execution | None, attempt: Attempt | None, at_ms: int) -> tuple[LaneState, str]:
    """The state of a lane whose execution was open then at this attempt, with its reason.

    That a lane is STALE, or HELD for another reason than its last attempt, is known of today only.
    """
    is_last_lost = attempt is not None and attempt.number >= MAX_ATTEMPTS and attempt.outcome == "lost"
    if execution is not None and attempt is not None and attempt.ended_ts is not None and attempt.ended_ts <= at_ms:
        if is_last_lost:
            return LaneState.HELD, f"attempt {attempt.number} of step {execution.step} failed: {attempt.error}"
        if attempt.outcome == HELD:
            return LaneState.HELD, attempt.error or ""
    is_same = execution is not None and attempt is not None and execution.settled_ts is None and execution.attempt == attempt.number
    if lane.state is LaneState.STALE or (lane.state is LaneState.HELD and is_same and not is_last_lost):
        return lane.state, f"{lane.state_reason} (so it is now; since when is not kept)"
    return LaneState.ACTIVE, ""


def _as_of(execution: Execution, attempt: Attempt | None, at_ms: int) -> Execution:
    if attempt is None:
        return execution
    has_begun = attempt.begun_ts is not None and attempt.begun_ts <= at_ms
    return replace(execution, attempt=attempt.number, run_id=attempt.run_id if has_begun else None)


def _attempted(connection: Connection, row: FlowRow, at_ms: int) -> Iterator[tuple[Execution, Attempt | None]]:
    """The executions that were open then, each with its newest attempt that was due then."""
    was_open = (
        schema.lane.c.flow_id == row.flow_id,
        schema.execution.c.claimed_ts <= at_ms,
        sa.or_(schema.execution.c.settled_ts.is_(None), schema.execution.c.settled_ts > at_ms),
    )
    of_flow = schema.attempt.join(schema.execution).join(schema.lane)
    query = sa.select(schema.attempt).select_from(of_flow).where(*was_open, schema.attempt.c.due_ts <= at_ms)
    attempts = {attempt.execution_id: attempt_from(attempt) for attempt in connection.execute(query.order_by(schema.attempt.c.number))}
    for execution in map(execution_from, connection.execute(EXECUTIONS.where(*was_open))):
        yield execution, attempts.get(execution.execution_id)


def _settlings(connection: Connection, row: FlowRow) -> Iterator[_Move]:
    query = EXECUTIONS.where(schema.lane.c.flow_id == row.flow_id, schema.execution.c.settled_ts.is_not(None))
    for execution in map(execution_from, connection.execute(query)):
        yield _Move(execution.settled_ts or 0, execution.lane.key, execution.start, execution.end)


def _seeks(connection: Connection, row: FlowRow) -> Iterator[_Move]:
    """Where people put lanes, by `seek` or by `resume` from another place."""
    actions = [Action.SEEK.value, Action.RESUME.value]
    query = sa.select(schema.intervention).where(schema.intervention.c.flow_id == row.flow_id, schema.intervention.c.action.in_(actions))
    for one in connection.execute(query.order_by(schema.intervention.c.intervention_id)):
        if one.action == Action.SEEK.value:
            yield _Move(one.ts, one.lane_key, Place.from_json(one.before["place"]), Place.from_json(one.after["place"]))
            continue
        after = dict(one.after["places"])
        for key, before in one.before["places"]:
            yield _Move(one.ts, key, Place.from_json(before), Place.from_json(after[key]))


def _last_claims(connection: Connection, row: FlowRow, at_ms: int) -> dict[str, int]:
    """When each lane was claimed last, until then."""
    query = (
        sa.select(schema.lane.c.key, sa.func.max(schema.execution.c.claimed_ts).label("claimed"))
        .select_from(schema.execution.join(schema.lane))
        .where(schema.lane.c.flow_id == row.flow_id, schema.execution.c.claimed_ts <= at_ms)
        .group_by(schema.lane.c.key)
    )
    return {row.key: row.claimed for row in connection.execute(query)}
