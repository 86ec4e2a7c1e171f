"""The ledger: what every consumer has consumed, and which execution is open in which run."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.engine import now_ms, reading, writing
from lakechime_dagster.dce.events import RegisteredEvent
from lakechime_dagster.dce.partitions import storable
from lakechime_dagster.dce.queries import event_of, in_order, is_after, is_data, is_new, is_through, select_events
from lakechime_dagster.dce.schema import dce_event, dce_table
from lakechime_dagster.errors import LaneConflictError, NotFoundError
from lakechime_dagster.triggers import requests, schema
from lakechime_dagster.triggers import schema as ledger
from lakechime_dagster.triggers.conditions import Atom
from lakechime_dagster.triggers.consumers import Cause, Committed, Execution, ExecutionState, LaneState, Place
from lakechime_dagster.triggers.registry import (
    EXECUTIONS,
    Attempt,
    FlowRow,
    LaneRow,
    Registry,
    attempt_from,
    execution_from,
    lane_at,
    lane_from,
    remember_atoms,
)
from lakechime_dagster.triggers.subscription import Flow
from lakechime_dagster.triggers.triggers import Late, PartitionTrigger

Beside = Callable[[Connection], None]

LEASE_MS = 60_000
MAX_ATTEMPTS = 5
HELD = "held"  # the outcome of an attempt that asked for a person
BACKOFF_MS = (0, 10_000, 30_000, 120_000, 300_000)  # before attempts 2, 3, 4, 5


def together(*several: Beside | None) -> Beside:
    """What writes all of these that there are."""

    def write(connection: Connection) -> None:
        for one in several:
            if one is not None:
                one(connection)

    return write


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a claim takes: the end of its range and why; `fired` says whether a partition trigger's key counts as fired by it.

    `orders` are those that waited for the lane before its end was read.
    """

    end: Place
    cause: Cause = Cause.TRIGGER
    reason: str = ""
    partition_key: str | None = None
    fired: bool = True
    atoms: tuple[Atom, ...] = ()
    orders: tuple[int, ...] = ()


class Ledger(Registry):
    """The executions of one deployment's lanes: claimed, attempted, settled."""

    # Claims

    def claim(self, flow: FlowRow, lane: LaneRow, claim: Claim) -> Execution:
        """Take the next step of a lane, as seen in `lane`, with its range frozen.

        A lane that was rebuilt from its target begins with attempt 2: an attempt that the lost ledger knew may still be
        at work, so that nothing but a commit may settle this step.

        Raises:
            LaneConflictError: when the lane has moved since, is not active, has an open execution, or other orders than were seen, or
                when the trigger fired and was paused since.
        """
        with writing(self.engine) as connection:
            if claim.cause is Cause.TRIGGER and (paused := self.flow_in(connection, flow.name).blocked_sentence):
                raise LaneConflictError(f"{flow.name} is {paused}")
            current = lane_at(connection, flow.flow_id, lane.key, lock=True)
            if (current.settled, current.place) != (lane.settled, lane.place) or current.state is not LaneState.ACTIVE:
                raise LaneConflictError(f"lane {flow.name} {lane.key} moved on (step {current.settled}, {current.state.value})")
            if _open_of(connection, current.lane_id) is not None:
                raise LaneConflictError(f"lane {flow.name} {lane.key} has an open execution")
            now = now_ms(connection)
            attempt = 2 if current.settled and not _has_history(connection, current.lane_id) else 1
            execution_id = uuid.uuid4().hex
            connection.execute(
                sa.insert(schema.execution).values(
                    execution_id=execution_id,
                    lane_id=current.lane_id,
                    step=current.settled + 1,
                    state=ExecutionState.OPEN.value,
                    cause=claim.cause.value,
                    start_place=current.place.to_json(),
                    end_place=claim.end.to_json(),
                    attempt=attempt,
                    partition_key=claim.partition_key,
                    claimed_ts=now,
                    reason=claim.reason,
                )
            )
            connection.execute(sa.insert(schema.attempt).values(execution_id=execution_id, number=attempt, due_ts=now))
            requests.take(connection, flow.flow_id, lane.key, claim.orders, execution_id)
            if claim.atoms:
                remember_atoms(connection, current.lane_id, claim.atoms)
            if claim.fired and not current.fired:
                connection.execute(sa.update(schema.lane).where(schema.lane.c.lane_id == current.lane_id).values(fired=True))
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

    def begin(self, execution_id: str, run_id: str, dagster_backfill: str | None = None) -> Execution:
        """Let a run begin the newest attempt of an execution; again by the same run changes nothing.

        A run that comes while the attempt's own run is dead (its lease over) takes the next attempt. The backfill of Dagster that a
        run is of is kept, for the runs of later attempts.

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
            if dagster_backfill is not None:
                this = schema.execution.c.execution_id == execution_id
                connection.execute(sa.update(schema.execution).where(this).values(dagster_backfill=dagster_backfill))
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

    def hold(self, flow: FlowRow, lane: LaneRow, reason: str) -> bool:
        """Let a lane, as seen in `lane`, wait for a person; False when it moved on since, or a step of it is open."""
        with writing(self.engine) as connection:
            current = lane_at(connection, flow.flow_id, lane.key, lock=True)
            if (current.settled, current.place) != (lane.settled, lane.place) or _open_of(connection, current.lane_id) is not None:
                return False
            _hold(connection, current, reason)
            return True

    def hold_step(self, execution: Execution, reason: str) -> bool:
        """End an attempt whose step asks for a person, and let its lane wait; False when another attempt has followed it.

        `Interventions.resume` makes the next one, however many there were.
        """
        with writing(self.engine) as connection:
            current = self.locked(connection, execution.execution_id)
            if current.state is not ExecutionState.OPEN or current.attempt != execution.attempt:
                return False
            _end_attempt(connection, current, HELD, storable(reason), now_ms(connection))
            _hold(connection, self.lane_of(connection, current), storable(reason))
            return True

    # Settling

    def settle(self, execution: Execution, committed: Committed | None, *, reason: str = "", beside: Beside | None = None) -> bool:
        """Close a step: its lane's place becomes the end recorded in the commit, else the attempt's own end.

        What is to be kept of it `beside` is written in the same transaction.

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
                if beside is not None:
                    beside(connection)
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
        requests.close(connection, execution.execution_id, is_done=state is ExecutionState.SETTLED)
        lane = self.lane_of(connection, execution)
        values = {
            "settled": execution.step,
            "place": end.to_json(),
            "place_tx": end.position.tx_id,
            "place_seq": end.position.seq,
        }
        if lane.state is not LaneState.STALE or state is ExecutionState.SKIPPED:
            values |= {"state": LaneState.ACTIVE.value, "state_reason": ""}
        connection.execute(sa.update(schema.lane).where(schema.lane.c.lane_id == lane.lane_id).values(**values))

    # Reading rows inside a transaction

    def held_steps(self, connection: Connection, flow: FlowRow) -> dict[int, Execution]:
        """The open executions of a flow whose newest attempt asked for a person, by lane."""
        asked = (schema.execution.c.state == ExecutionState.OPEN.value, schema.attempt.c.outcome == HELD)
        rows = connection.execute(EXECUTIONS.where(schema.lane.c.flow_id == flow.flow_id, *asked))
        return {row.lane_id: execution_from(row) for row in rows}

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

    def next_attempt(self, connection: Connection, execution: Execution, end: Place, *, due_ts: int) -> Execution:
        number = execution.attempt + 1
        connection.execute(
            sa.update(schema.execution)
            .where(schema.execution.c.execution_id == execution.execution_id)
            .values(attempt=number, end_place=end.to_json())
        )
        connection.execute(sa.insert(schema.attempt).values(execution_id=execution.execution_id, number=number, due_ts=due_ts))
        return self._execution(connection, execution.execution_id)


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


def events_of(engine: Engine, flow: Flow, execution: Execution) -> list[RegisteredEvent]:
    """The events of an execution in commit order: those of its flow's tables that say something new to its trigger.

    Of a partition trigger those alone in the partitions that its lane fired for; where that fires again for what came late,
    all changes of data are news to it, whatever their tags.
    """
    start, end = execution.start.position, execution.end.position
    with reading(engine) as connection:
        new = is_new(connection.dialect.name, dict(flow.trigger.tags))
        if _fires_again(connection, flow, execution):
            new = sa.or_(new, is_data)
        query = in_order(select_events().where(is_after(start), is_through(end), new))
        if flow.is_partitioned:
            query = query.join(ledger.lane_partition, _is_partition_of(execution))
        else:
            query = query.where(dce_table.c.cluster == flow.cluster, dce_table.c.name.in_(flow.trigger.tables))
        return [event_of(row) for row in connection.execute(query)]


def _fires_again(connection: Connection, flow: Flow, execution: Execution) -> bool:
    """Whether a key fires for what came late: it goes on from where it fired before, and was not put back."""
    if not isinstance(flow.trigger, PartitionTrigger) or flow.trigger.late is not Late.REFIRE or execution.step == 1:
        return False
    of_lane, step = ledger.execution.c.lane_id == _lane_of(execution), ledger.execution.c.step == execution.step - 1
    before = connection.execute(sa.select(ledger.execution.c.start_place).where(of_lane, step)).scalar_one_or_none()
    return before is None or Place.from_json(before).position < execution.start.position


def _lane_of(execution: Execution) -> sa.ScalarSelect[int]:
    return sa.select(ledger.execution.c.lane_id).where(ledger.execution.c.execution_id == execution.execution_id).scalar_subquery()


def _is_partition_of(execution: Execution) -> sa.ColumnElement[bool]:
    """Whether the event is in a partition that the execution's lane remembers from its claim."""
    partition = ledger.lane_partition.c
    return sa.and_(
        partition.lane_id == _lane_of(execution),
        partition.cluster == dce_table.c.cluster,
        partition.table_name == dce_table.c.name,
        partition.partition_key == dce_event.c.partition_key,
    )
