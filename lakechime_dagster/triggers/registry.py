"""Subscriptions of a deployment and their consumers, as the ledger keeps them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.engine import among, insert_if_absent, now_ms, reading, writing
from lakechime_dagster.dce.events import Position
from lakechime_dagster.errors import NotFoundError
from lakechime_dagster.triggers import schema
from lakechime_dagster.triggers.conditions import Atom
from lakechime_dagster.triggers.consumers import Cause, Committed, Execution, ExecutionState, FeedLag, LaneId, LaneState, Place
from lakechime_dagster.triggers.subscription import Flow


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
        flow_id=row.flow_id,
        deployment=row.deployment,
        name=row.name,
        description=row.description,
        tables=tuple(row.tables),
        target=row.target,
        job=row.job,
        asset_keys=tuple(row.asset_keys),
        activated_ts=row.activated_ts,
        start=Place.from_json(row.start),
        paused_ts=row.paused_ts,
        paused_reason=row.paused_reason,
        looked=Position(row.looked_tx, row.looked_seq),
        ticked_ts=row.ticked_ts,
        cluster=row.cluster,
        is_partitioned=row.is_partitioned,
        refires=row.refires,
        feed_lag=None if row.feed_lag is None else FeedLag.from_json(row.feed_lag),
    )


def lane_from(row: sa.Row[Any]) -> LaneRow:
    return LaneRow(
        lane_id=row.lane_id,
        key=row.key,
        state=LaneState(row.state),
        state_reason=row.state_reason,
        settled=row.settled,
        place=Place.from_json(row.place),
        fired=row.fired,
        created_ts=row.created_ts,
    )


def execution_from(row: sa.Row[Any]) -> Execution:
    return Execution(
        execution_id=row.execution_id,
        lane=LaneId(row.deployment, row.flow, row.key),
        step=row.step,
        state=ExecutionState(row.state),
        cause=Cause(row.cause),
        start=Place.from_json(row.start_place),
        end=Place.from_json(row.end_place),
        attempt=row.attempt,
        run_id=row.run_id,
        partition_key=row.partition_key,
        claimed_ts=row.claimed_ts,
        lease_until=row.lease_until,
        next_attempt_ts=row.due_ts,
        settled_ts=row.settled_ts,
        reason=row.reason,
        version=row.version,
        backfill=row.backfill or "",
        dagster_backfill=row.dagster_backfill or "",
    )


def attempt_from(row: sa.Row[Any]) -> Attempt:
    return Attempt(
        number=row.number,
        run_id=row.run_id,
        due_ts=row.due_ts,
        begun_ts=row.begun_ts,
        ended_ts=row.ended_ts,
        lease_until=row.lease_until,
        outcome=row.outcome,
        error=row.error,
    )


TICK_NOTE_MS = 60_000
_PLACES = 0x1A6E_C41F  # PostgreSQL's advisory lock of those who move places back; any number that is ours


class Registry:
    """The flows and lanes of one deployment."""

    def __init__(self, engine: Engine, deployment: str) -> None:
        self.engine = engine
        self.deployment = deployment

    def ensure_flow(self, flow: Flow, start: Callable[[Connection], Place] | None = None) -> FlowRow:
        """The flow as the ledger keeps it; activated now, from `start`, when it is new or was forgotten."""
        found = self.flow(flow.name)
        if found is not None and found.describes(flow):
            return found
        with writing(self.engine) as connection:
            hold_places(connection)
            values = {
                "description": flow.condition,
                "tables": list(flow.pinned),
                "target": flow.target,
                "job": flow.job,
                "asset_keys": list(flow.asset_keys),
                "cluster": flow.cluster,
                "tag_keys": sorted(flow.trigger.tags),
                "is_partitioned": flow.is_partitioned,
                "refires": flow.refires,
            }
            values |= nothing_looked(connection)  # what was looked through for another declaration must be looked at again
            update = sa.update(schema.flow).where(schema.flow.c.deployment == self.deployment, schema.flow.c.name == flow.name)
            if not connection.execute(update.where(IS_KNOWN).values(**values)).rowcount:
                place = start(connection) if start else Place()
                values |= {"activated_ts": now_ms(connection), "start": place.to_json(), "forgotten_ts": None}
                if not connection.execute(update.where(~IS_KNOWN).values(**values)).rowcount:
                    insert = insert_if_absent(connection, schema.flow)
                    connection.execute(insert.values(deployment=self.deployment, name=flow.name, **values))
        found = self.flow(flow.name)
        assert found is not None
        return found

    def flow(self, name: str) -> FlowRow | None:
        """The flow of that name, or None."""
        with reading(self.engine) as connection:
            return self._find_flow(connection, name)

    def flows(self) -> list[FlowRow]:
        """All flows of the deployment, by name."""
        with reading(self.engine) as connection:
            query = FLOWS.where(schema.flow.c.deployment == self.deployment).order_by(schema.flow.c.name)
            return [flow_from(row) for row in connection.execute(query)]

    def flows_held_for(self, reason: str) -> list[FlowRow]:
        """The flows of which a lane is held for a reason that begins so, by name."""
        lane = schema.lane.c
        is_held = sa.select(1).where(
            lane.flow_id == schema.flow.c.flow_id,
            lane.state == LaneState.HELD.value,
            lane.state_reason.startswith(reason, autoescape=True),
        )
        with reading(self.engine) as connection:
            query = FLOWS.where(schema.flow.c.deployment == self.deployment, is_held.exists()).order_by(schema.flow.c.name)
            return [flow_from(row) for row in connection.execute(query)]

    def note_tick(self, flows: Sequence[FlowRow], now: int) -> None:
        """Remember that the sensor of these flows ticked; written once a minute, so that a tick without news stays a read."""
        stale = [flow.flow_id for flow in flows if flow.ticked_ts is None or now - flow.ticked_ts >= TICK_NOTE_MS]
        if stale:
            with writing(self.engine) as connection:
                connection.execute(sa.update(schema.flow).where(among(connection, schema.flow.c.flow_id, stale)).values(ticked_ts=now))

    def note_feed(self, flow: FlowRow, lag: FeedLag) -> None:
        """Remember what the feed of a flow was seen to hold, where that is news."""
        if lag != flow.feed_lag:
            with writing(self.engine) as connection:
                connection.execute(sa.update(schema.flow).where(schema.flow.c.flow_id == flow.flow_id).values(feed_lag=lag.to_json()))

    def lanes(self, flow: FlowRow) -> dict[str, LaneRow]:
        """The lanes of a flow by key."""
        with reading(self.engine) as connection:
            return lanes_of(connection, flow.flow_id)

    def ensure_lane(self, flow: FlowRow, key: str, committed: Committed | None = None, atoms: Sequence[Atom] = ()) -> LaneRow:
        """The lane; one that the ledger does not know starts from what its target's last commit says, else from the flow's start.

        With such a commit the lane counts as fired; `atoms` are the partitions whose later change is late.
        """
        with writing(self.engine) as connection:
            is_new = make_lane(connection, flow, key, committed)
            lane = lane_at(connection, flow.flow_id, key, lock=False)
            if is_new and committed:
                remember_atoms(connection, lane.lane_id, atoms)
            return lane

    def flow_in(self, connection: Connection, name: str) -> FlowRow:
        """The flow of that name, in a transaction.

        Raises:
            NotFoundError: there is none.
        """
        found = self._find_flow(connection, name)
        if found is None:
            raise NotFoundError(f"no flow {name!r} in deployment {self.deployment}; `lakechime trigger list` shows those that are there")
        return found

    def open_lanes(self, connection: Connection, flow: FlowRow) -> set[int]:
        """The lanes of a flow that have an open execution."""
        query = sa.select(schema.execution.c.lane_id).join(schema.lane, schema.lane.c.lane_id == schema.execution.c.lane_id)
        return set(
            connection.execute(
                query.where(schema.lane.c.flow_id == flow.flow_id, schema.execution.c.state == ExecutionState.OPEN.value)
            ).scalars()
        )

    def _find_flow(self, connection: Connection, name: str) -> FlowRow | None:
        query = FLOWS.where(schema.flow.c.deployment == self.deployment, schema.flow.c.name == name)
        row = connection.execute(query).one_or_none()
        return flow_from(row) if row else None


def hold_places(connection: Connection) -> None:
    """Until the transaction ends, let nobody else put a lane back, declare a flow otherwise, or fold what flows do not need.

    On SQLite a transaction that writes keeps the others out anyway.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_PLACES)))


def nothing_looked(connection: Connection) -> dict[str, int]:
    """Before every position, and unlike any that an evaluation under way has looked up to, also from such a beginning."""
    return {"looked_tx": 0, "looked_seq": -now_ms(connection)}


def make_lane(connection: Connection, flow: FlowRow, key: str, committed: Committed | None = None) -> bool:
    """Make a lane that the ledger does not know, by its target's last commit or at the flow's start; False when it was there.

    Where that commit no longer says up to where it read, the lane is HELD: from the start, all of it would be read again.
    """
    place = committed.stamp.end if committed else flow.start
    state, reason = LaneState.ACTIVE, ""
    if committed and committed.is_stamp_lost:
        state, reason = LaneState.HELD, f"its target holds step {committed.stamp.step}, but its log no longer says up to where"
    values = {
        "flow_id": flow.flow_id,
        "key": key,
        "state": state.value,
        "state_reason": reason,
        "settled": committed.stamp.step if committed else 0,
        "fired": committed is not None,
        "created_ts": now_ms(connection),
        "place": place.to_json(),
        "place_tx": place.position.tx_id,
        "place_seq": place.position.seq,
    }
    return bool(connection.execute(insert_if_absent(connection, schema.lane).values(**values)).rowcount)


def lanes_of(connection: Connection, flow_id: int, keys: Sequence[str] | None = None, *, lock: bool = False) -> dict[str, LaneRow]:
    """The lanes of a flow by key, all of them or some; `lock` holds their rows until the transaction ends."""
    query = sa.select(schema.lane).where(schema.lane.c.flow_id == flow_id)
    query = query.order_by(schema.lane.c.lane_id).with_for_update() if lock else query
    if keys is not None:
        query = query.where(schema.lane.c.key.in_(keys))
    return {row.key: lane_from(row) for row in connection.execute(query)}


def lane_at(connection: Connection, flow_id: int, key: str, *, lock: bool) -> LaneRow:
    """One lane, which is there."""
    query = sa.select(schema.lane).where(schema.lane.c.flow_id == flow_id, schema.lane.c.key == key)
    return lane_from(connection.execute(query.with_for_update() if lock else query).one())


def remember_atoms(connection: Connection, lane_id: int, atoms: Sequence[Atom]) -> None:
    """Keep the partitions that a lane's claim takes events of; a change in them after the lane has fired is late."""
    connection.execute(sa.delete(schema.lane_partition).where(schema.lane_partition.c.lane_id == lane_id))
    rows = [{"lane_id": lane_id, "cluster": atom.cluster, "table_name": atom.table, "partition_key": atom.canonical} for atom in atoms]
    if rows:
        connection.execute(sa.insert(schema.lane_partition), rows)
