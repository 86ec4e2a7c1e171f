"""The ledger: what every lane has consumed, what it is at, and who runs it (laws 5 to 8 of docs/laws.md).

All moves are compare-and-set in one transaction that holds the row of the lane, so several daemons may run at once.
Nothing here knows Dagster or Spark: a run is an id.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.text import storable
from lakechime_dagster.errors import LaneConflictError, NotFoundError
from lakechime_dagster.store import ledger_schema as schema
from lakechime_dagster.store.dialect import among, insert_if_absent, now_ms
from lakechime_dagster.store.engine import reading, writing
from lakechime_dagster.store.ledger_rows import (
    EXECUTIONS,
    FLOWS,
    IS_KNOWN,
    Attempt,
    FlowRow,
    LaneRow,
    attempt_from,
    execution_from,
    flow_from,
    lane_from,
)
from lakechime_dagster.triggers.conditions import Atom
from lakechime_dagster.triggers.flow import Flow
from lakechime_dagster.triggers.lanes import Cause, Committed, Execution, ExecutionState, LaneState, Place

LEASE_MS = 60_000
TICK_NOTE_MS = 60_000
MAX_ATTEMPTS = 5
_PLACES = 0x1A6E_C41F  # PostgreSQL's advisory lock of those who move places back; any number that is ours
BACKOFF_MS = (0, 10_000, 30_000, 120_000, 300_000)  # before attempts 2, 3, 4, 5


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a claim takes: the end of its range and why; `fired` says whether a partition trigger's key counts as fired by it."""

    end: Place
    cause: Cause = Cause.TRIGGER
    reason: str = ""
    partition_key: str | None = None
    fired: bool = True
    atoms: tuple[Atom, ...] = ()


class Ledger:
    """The lanes of one deployment."""

    def __init__(self, engine: Engine, deployment: str) -> None:
        self.engine = engine
        self.deployment = deployment

    # Flows and lanes

    def ensure_flow(self, flow: Flow, start: Callable[[Connection], Place] | None = None) -> FlowRow:
        """The flow as the ledger keeps it; activated now, from `start`, when it is new or was forgotten."""
        found = self.flow(flow.name)
        if found is not None and found.describes(flow):
            return found
        with writing(self.engine) as connection:
            hold_places(connection)
            values = {
                "description": str(flow.trigger), "tables": list(flow.pinned), "target": flow.target, "job": flow.job,
                "asset_keys": list(flow.asset_keys), "cluster": flow.cluster, "tag_keys": sorted(flow.trigger.tags),
                "is_partitioned": flow.is_partitioned, "refires": flow.refires,
            }  # fmt: skip
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

    def note_tick(self, flows: Sequence[FlowRow], now: int) -> None:
        """Remember that the sensor of these flows ticked; written once a minute, so that a tick without news stays a read."""
        stale = [flow.flow_id for flow in flows if flow.ticked_ts is None or now - flow.ticked_ts >= TICK_NOTE_MS]
        if stale:
            with writing(self.engine) as connection:
                connection.execute(sa.update(schema.flow).where(among(connection, schema.flow.c.flow_id, stale)).values(ticked_ts=now))

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
            lane = _lane(connection, flow.flow_id, key, lock=False)
            if is_new and committed:
                _remember_atoms(connection, lane.lane_id, atoms)
            return lane

    # Claims

    def claim(self, flow: FlowRow, lane: LaneRow, claim: Claim) -> Execution:
        """Take the next step of a lane, as seen in `lane`, with its range frozen.

        A lane that was rebuilt from its target begins with attempt 2: an attempt that the lost ledger knew may still be
        at work, so that nothing but a commit may settle this step.

        Raises:
            LaneConflictError: when the lane has moved since, is not active, or has an open execution.
        """
        with writing(self.engine) as connection:
            current = _lane(connection, flow.flow_id, lane.key, lock=True)
            if (current.settled, current.place) != (lane.settled, lane.place) or current.state is not LaneState.ACTIVE:
                raise LaneConflictError(f"lane {flow.name} {lane.key} moved on (step {current.settled}, {current.state.value})")
            if _open_of(connection, current.lane_id) is not None:
                raise LaneConflictError(f"lane {flow.name} {lane.key} has an open execution")
            now = now_ms(connection)
            attempt = 2 if current.settled and not _has_history(connection, current.lane_id) else 1
            execution_id = uuid.uuid4().hex
            connection.execute(
                sa.insert(schema.execution).values(
                    execution_id=execution_id, lane_id=current.lane_id, step=current.settled + 1, state=ExecutionState.OPEN.value,
                    cause=claim.cause.value, start_place=current.place.to_json(), end_place=claim.end.to_json(), attempt=attempt,
                    partition_key=claim.partition_key, claimed_ts=now, reason=claim.reason,
                )
            )  # fmt: skip
            connection.execute(sa.insert(schema.attempt).values(execution_id=execution_id, number=attempt, due_ts=now))
            if claim.fired and not current.fired:
                connection.execute(sa.update(schema.lane).where(schema.lane.c.lane_id == current.lane_id).values(fired=True))
                _remember_atoms(connection, current.lane_id, claim.atoms)
            return self._execution(connection, execution_id)

    def execution(self, execution_id: str) -> Execution | None:
        """The execution of that id, or None."""
        with reading(self.engine) as connection:
            return self._find(connection, execution_id)

    def has_committed(self, execution: Execution) -> bool:
        """Whether an earlier step of the execution's lane was settled by a commit."""
        of_lane = sa.select(schema.execution.c.lane_id).where(schema.execution.c.execution_id == execution.execution_id)
        earlier = sa.select(schema.execution.c.step).where(
            schema.execution.c.lane_id == of_lane.scalar_subquery(),
            schema.execution.c.step < execution.step,
            schema.execution.c.version.is_not(None),
        )
        with reading(self.engine) as connection:
            return connection.execute(earlier.limit(1)).first() is not None

    def open_executions(self, flow: FlowRow) -> list[Execution]:
        """The open executions of a flow, oldest claim first."""
        conditions = (schema.lane.c.flow_id == flow.flow_id, schema.execution.c.state == ExecutionState.OPEN.value)
        with reading(self.engine) as connection:
            query = EXECUTIONS.where(*conditions).order_by(schema.execution.c.claimed_ts, schema.execution.c.execution_id)
            return [execution_from(row) for row in connection.execute(query)]

    # Attempts

    def begin(self, execution_id: str, run_id: str) -> Execution:
        """Let a run begin the newest attempt of an execution; again by the same run changes nothing.

        A run that comes while the attempt's own run is dead (its lease over) takes the next attempt.

        Raises:
            LaneConflictError: when it is settled, skipped or held, or another run is at it; the message names what to do.
        """
        with writing(self.engine) as connection:
            execution = self.locked(connection, execution_id)
            if execution.state is not ExecutionState.OPEN:
                raise LaneConflictError(
                    f"execution {execution_id} is {execution.state.value.lower()} already; to run its range again use "
                    f"`lakechime trigger seek {execution.lane.flow} --to …`"
                )
            lane = self.lane_of(connection, execution)
            if lane.state is not LaneState.ACTIVE:
                raise LaneConflictError(f"{lane.blocked_sentence(execution.lane.flow)}")
            now = now_ms(connection)
            if execution.run_id not in (None, run_id):
                if execution.lease_until is not None and execution.lease_until > now:
                    raise LaneConflictError(f"run {execution.run_id} is at execution {execution_id} (attempt {execution.attempt})")
                _end_attempt(connection, execution, "lost", "its lease was over when another run came", now)
                execution = self.next_attempt(connection, execution, execution.end, due_ts=now)
            connection.execute(
                sa.update(schema.attempt)
                .where(schema.attempt.c.execution_id == execution_id, schema.attempt.c.number == execution.attempt)
                .values(run_id=run_id, begun_ts=sa.func.coalesce(schema.attempt.c.begun_ts, now), lease_until=now + LEASE_MS)
            )
            return self._execution(connection, execution_id)

    def renew(self, execution_id: str, attempt: int, run_id: str) -> bool:
        """Renew the lease of a running attempt; False when it is not the newest any more, so that the run should end."""
        newest = (
            sa.select(schema.execution.c.execution_id)
            .where(
                schema.execution.c.execution_id == execution_id,
                schema.execution.c.attempt == attempt,
                schema.execution.c.state == ExecutionState.OPEN.value,
            )
            .exists()
        )
        with writing(self.engine) as connection:
            changed = connection.execute(
                sa.update(schema.attempt)
                .where(
                    schema.attempt.c.execution_id == execution_id,
                    schema.attempt.c.number == attempt,
                    schema.attempt.c.run_id == run_id,
                    newest,
                )
                .values(lease_until=now_ms(connection) + LEASE_MS)
            )
            return bool(changed.rowcount)

    def note_error(self, execution: Execution, error: str) -> None:
        """Keep why an attempt fails, for the reason of the next one; changes nothing else."""
        with writing(self.engine) as connection:
            same = (schema.attempt.c.execution_id == execution.execution_id, schema.attempt.c.number == execution.attempt)
            connection.execute(sa.update(schema.attempt).where(*same).values(error=storable(error)[:2000]))

    def executions(self, *, flow: str | None = None, state: ExecutionState | None = None, limit: int = 50) -> list[Execution]:
        """Executions of the deployment, newest claim first."""
        query = EXECUTIONS.where(schema.flow.c.deployment == self.deployment)
        query = query.where(schema.flow.c.name == flow) if flow is not None else query
        query = query.where(schema.execution.c.state == state.value) if state is not None else query
        with reading(self.engine) as connection:
            newest = query.order_by(schema.execution.c.claimed_ts.desc(), schema.execution.c.execution_id).limit(limit)
            return [execution_from(row) for row in connection.execute(newest)]

    def attempts(self, execution_id: str) -> list[Attempt]:
        """The attempts at an execution, first one first."""
        query = sa.select(schema.attempt).where(schema.attempt.c.execution_id == execution_id).order_by(schema.attempt.c.number)
        with reading(self.engine) as connection:
            return [attempt_from(row) for row in connection.execute(query)]

    def lose(self, execution: Execution, error: str, end: Place | None = None, *, immediately: bool = False) -> Execution | None:
        """Call the newest attempt lost: the next one is due after a pause and may read further; after the fifth the lane is HELD.

        The target must have been asked before. Returns the execution at its next attempt, or None when it is held.

        Raises:
            LaneConflictError: when the attempt is not the newest any more.
        """
        with writing(self.engine) as connection:
            current = self.locked(connection, execution.execution_id)
            if current.state is not ExecutionState.OPEN or current.attempt != execution.attempt:
                raise LaneConflictError(f"execution {execution.execution_id} moved on (attempt {current.attempt}, {current.state.value})")
            now = now_ms(connection)
            _end_attempt(connection, current, "lost", storable(error), now)
            error = _error_of(connection, current) or storable(error)
            if current.attempt >= MAX_ATTEMPTS:
                reason = f"attempt {current.attempt} of step {current.step} failed: {error}"
                _hold(connection, self.lane_of(connection, current), reason)
                return None
            pause = 0 if immediately else BACKOFF_MS[min(current.attempt, len(BACKOFF_MS) - 1)]
            return self.next_attempt(connection, current, end or current.end, due_ts=now + pause)

    # Settling

    def settle(self, execution: Execution, committed: Committed | None, *, reason: str = "") -> bool:
        """Close a step: its lane's place becomes the end recorded in the commit, else the attempt's own end.

        The commit's event must have been registered. Without a commit (nothing to do, or a flow without a lake target)
        the attempt must still be the newest, and the first one where a target takes commits: an earlier attempt may
        still commit there. True when this call settled; False when somebody had.

        Raises:
            LaneConflictError: without a commit, when another attempt exists: write a fence instead. With one whose stamp is
                lost, after a second attempt: which of them it ended is not known, so the lane is HELD for a person.
        """
        with writing(self.engine) as connection:
            current = self.locked(connection, execution.execution_id)
            if current.state is not ExecutionState.OPEN:
                return False
            if committed is None and current.attempt != execution.attempt:
                raise LaneConflictError(
                    f"attempt {current.attempt} of step {current.step} exists; attempt {execution.attempt} may not settle without a commit"
                )
            if committed is None and current.attempt > 1 and self.flow_in(connection, current.lane.flow).target is not None:
                raise LaneConflictError(
                    f"attempt {current.attempt} of step {current.step} has nothing to write, but an earlier attempt may still commit; "
                    "let it make an empty commit, which keeps the others out"
                )
            is_end_unknown = committed is not None and committed.is_stamp_lost and current.attempt > 1
            if is_end_unknown:
                _hold(connection, self.lane_of(connection, current), _end_unknown(current))
            else:
                end = committed.stamp.end if committed and not committed.is_stamp_lost else current.end
                version = committed.version if committed else None
                self.close(connection, current, ExecutionState.SETTLED, end, version, reason or current.reason)
                _end_attempt(connection, current, "settled", None, now_ms(connection))
        if is_end_unknown:
            raise LaneConflictError(_end_unknown(current))
        return True

    def close(
        self, connection: Connection, execution: Execution, state: ExecutionState, end: Place, version: str | None, reason: str
    ) -> None:
        """Close a step; its lane goes on, but a STALE one only when a person gives the step up: its events are still lost."""
        connection.execute(
            sa.update(schema.execution)
            .where(schema.execution.c.execution_id == execution.execution_id)
            .values(state=state.value, end_place=end.to_json(), settled_ts=now_ms(connection), version=version, reason=reason)
        )
        lane = self.lane_of(connection, execution)
        values = {
            "settled": execution.step, "place": end.to_json(), "place_tx": end.position.tx_id, "place_seq": end.position.seq,
        }  # fmt: skip
        if lane.state is not LaneState.STALE or state is ExecutionState.SKIPPED:
            values |= {"state": LaneState.ACTIVE.value, "state_reason": ""}
        connection.execute(sa.update(schema.lane).where(schema.lane.c.lane_id == lane.lane_id).values(**values))

    # Reading rows inside a transaction

    def _find(self, connection: Connection, execution_id: str) -> Execution | None:
        this = (schema.flow.c.deployment == self.deployment, schema.execution.c.execution_id == execution_id)
        row = connection.execute(EXECUTIONS.where(*this)).one_or_none()
        return execution_from(row) if row else None

    def _execution(self, connection: Connection, execution_id: str) -> Execution:
        found = self._find(connection, execution_id)
        if found is None:
            raise NotFoundError(
                f"no execution {execution_id} in deployment {self.deployment}; `lakechime execution list` shows those that are there"
            )
        return found

    def locked(self, connection: Connection, execution_id: str) -> Execution:
        """The execution, its lane's row held until the transaction ends."""
        of_execution = sa.select(schema.execution.c.lane_id).where(schema.execution.c.execution_id == execution_id).scalar_subquery()
        connection.execute(sa.select(schema.lane.c.lane_id).where(schema.lane.c.lane_id == of_execution).with_for_update())
        return self._execution(connection, execution_id)

    def lane_of(self, connection: Connection, execution: Execution) -> LaneRow:
        of_execution = (
            sa.select(schema.execution.c.lane_id).where(schema.execution.c.execution_id == execution.execution_id).scalar_subquery()
        )
        return lane_from(connection.execute(sa.select(schema.lane).where(schema.lane.c.lane_id == of_execution)).one())

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

    def next_attempt(self, connection: Connection, execution: Execution, end: Place, *, due_ts: int) -> Execution:
        number = execution.attempt + 1
        connection.execute(
            sa.update(schema.execution)
            .where(schema.execution.c.execution_id == execution.execution_id)
            .values(attempt=number, end_place=end.to_json())
        )
        connection.execute(sa.insert(schema.attempt).values(execution_id=execution.execution_id, number=number, due_ts=due_ts))
        return self._execution(connection, execution.execution_id)


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
        "flow_id": flow.flow_id, "key": key, "state": state.value, "state_reason": reason,
        "settled": committed.stamp.step if committed else 0, "fired": committed is not None, "created_ts": now_ms(connection),
        "place": place.to_json(), "place_tx": place.position.tx_id, "place_seq": place.position.seq,
    }  # fmt: skip
    return bool(connection.execute(insert_if_absent(connection, schema.lane).values(**values)).rowcount)


def lanes_of(connection: Connection, flow_id: int, keys: Sequence[str] | None = None, *, lock: bool = False) -> dict[str, LaneRow]:
    """The lanes of a flow by key, all of them or some; `lock` holds their rows until the transaction ends."""
    query = sa.select(schema.lane).where(schema.lane.c.flow_id == flow_id)
    query = query.order_by(schema.lane.c.lane_id).with_for_update() if lock else query
    if keys is not None:
        query = query.where(schema.lane.c.key.in_(keys))
    return {row.key: lane_from(row) for row in connection.execute(query)}


def _lane(connection: Connection, flow_id: int, key: str, *, lock: bool) -> LaneRow:
    query = sa.select(schema.lane).where(schema.lane.c.flow_id == flow_id, schema.lane.c.key == key)
    return lane_from(connection.execute(query.with_for_update() if lock else query).one())


def _hold(connection: Connection, lane: LaneRow, reason: str) -> None:
    """Let a lane wait for a person; one that is STALE waits already, for what is worse."""
    if lane.state is not LaneState.STALE and (lane.state, lane.state_reason) != (LaneState.HELD, reason):
        held = {"state": LaneState.HELD.value, "state_reason": reason}
        connection.execute(sa.update(schema.lane).where(schema.lane.c.lane_id == lane.lane_id).values(**held))


def _end_unknown(execution: Execution) -> str:
    where = f"step {execution.step} of {execution.lane.flow} {execution.lane.key}".strip()
    return (
        f"{where} has committed, but its target's log no longer says up to where; "
        f"`lakechime execution skip {execution.execution_id}`, then `lakechime trigger seek {execution.lane.flow} --to …` tell the lane "
        "where to go on"
    )


def _has_history(connection: Connection, lane_id: int) -> bool:
    """Whether the ledger knows of an earlier step of the lane."""
    return connection.execute(sa.select(schema.execution.c.step).where(schema.execution.c.lane_id == lane_id).limit(1)).first() is not None


def _open_of(connection: Connection, lane_id: int) -> str | None:
    query = sa.select(schema.execution.c.execution_id)
    return connection.execute(
        query.where(schema.execution.c.lane_id == lane_id, schema.execution.c.state == ExecutionState.OPEN.value)
    ).scalar()


def _end_attempt(connection: Connection, execution: Execution, outcome: str, error: str | None, now: int) -> None:
    same = (schema.attempt.c.execution_id == execution.execution_id, schema.attempt.c.number == execution.attempt)
    values = {"outcome": outcome, "ended_ts": now, "lease_until": None}
    values |= {"error": sa.func.coalesce(schema.attempt.c.error, error)} if error else {}
    connection.execute(sa.update(schema.attempt).where(*same).values(**values))


def _error_of(connection: Connection, execution: Execution) -> str | None:
    same = (schema.attempt.c.execution_id == execution.execution_id, schema.attempt.c.number == execution.attempt)
    return connection.execute(sa.select(schema.attempt.c.error).where(*same)).scalar()


def _remember_atoms(connection: Connection, lane_id: int, atoms: Sequence[Atom]) -> None:
    rows = [{"lane_id": lane_id, "cluster": atom.cluster, "table_name": atom.table, "partition_key": atom.canonical} for atom in atoms]
    if rows:
        connection.execute(sa.insert(schema.lane_partition), rows)
