"""What people do to subscriptions and consumers: pause, resume, seek, skip, retry, forget."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.engine import now_ms, reading, writing
from lakechime_dagster.dce.partitions import checked_text
from lakechime_dagster.errors import LaneConflictError, NotFoundError
from lakechime_dagster.triggers import schema
from lakechime_dagster.triggers.consumers import Execution, ExecutionState, LaneState, Place
from lakechime_dagster.triggers.ledger import Ledger
from lakechime_dagster.triggers.registry import TICK_NOTE_MS, FlowRow, LaneRow, hold_places, lanes_of, nothing_looked
from lakechime_dagster.triggers.requests import cancel_unclaimed

QUIET_MS = 2 * TICK_NOTE_MS  # a sensor that is at work has noted a tick since
PlaceAt = Callable[[Connection, LaneRow], Place]  # where a lane should stand, found in the transaction that moves it


class Action(StrEnum):
    """What was done."""

    PAUSE = "pause"
    RESUME = "resume"
    SEEK = "seek"
    SKIP = "skip"
    RETRY = "retry"
    FORGET = "forget"
    BACKFILL = "backfill"
    CANCEL = "cancel"


@dataclass(frozen=True, kw_only=True)
class By:
    """Who does something and why; both are kept."""

    who: str
    reason: str

    def __post_init__(self) -> None:
        checked_text("who", self.who, limit=128)
        checked_text("reason", self.reason, limit=1000)


@dataclass(frozen=True, kw_only=True)
class Intervention:
    """One thing that somebody did."""

    ts: int
    who: str
    action: Action
    flow: str
    lane_key: str | None
    execution_id: str | None
    reason: str
    before: dict[str, Any]
    after: dict[str, Any]


@dataclass(frozen=True)
class Interventions:
    """The commands of people on a ledger; every one is one transaction that also records it."""

    ledger: Ledger

    def pause(self, flow: FlowRow, by: By) -> None:
        """Stop launching runs, also those of later attempts, until `resume`. Running ones finish; new events queue up."""
        with writing(self.ledger.engine) as connection:
            values = {"paused_ts": now_ms(connection), "paused_reason": by.reason}
            connection.execute(sa.update(schema.flow).where(schema.flow.c.flow_id == flow.flow_id).values(**values))
            record(connection, flow, Action.PAUSE, by, {"paused": flow.paused_reason}, {"paused": by.reason})

    def resume(self, flow: FlowRow, by: By, place_at: PlaceAt | None = None, ends: Mapping[str, Place] | None = None) -> None:
        """Go on; with `place_at` every lane is put there first (`latest`, `since`), without it all that waited is consumed.

        A lane that is HELD because its feed or its step asked for a person goes on too: who resumes has decided. The step is
        tried again, up to the place that `ends` names for its lane, else just as before.
        """
        with writing(self.ledger.engine) as connection:
            moved = self._move(connection, flow, None, place_at) if place_at else []
            values = {"paused_ts": None, "paused_reason": None}
            connection.execute(sa.update(schema.flow).where(schema.flow.c.flow_id == flow.flow_id).values(**values))
            released = self._released(connection, flow, ends or {})
            before = {"paused": flow.paused_reason, "held": released, "places": [[lane.key, lane.place.to_json()] for lane, _ in moved]}
            record(connection, flow, Action.RESUME, by, before, {"places": [[lane.key, place.to_json()] for lane, place in moved]})

    def seek(self, flow: FlowRow, key: str | None, by: By, place_at: PlaceAt, *, dry_run: bool = False) -> list[tuple[LaneRow, Place]]:
        """Put one lane, or all of a flow, at another place; returns the lanes as they were, each with its new place.

        A fired key that is put back counts as not fired, so that it fires again when it is complete.

        Raises:
            LaneConflictError: when a lane has an open execution: settle, skip or wait for it first.
        """
        with writing(self.ledger.engine) as connection:
            moved = self._move(connection, flow, key, place_at, dry_run=dry_run)
            if not dry_run:
                for lane, place in moved:
                    record(
                        connection, flow, Action.SEEK, by, {"place": lane.place.to_json()}, {"place": place.to_json()}, lane_key=lane.key
                    )
            return moved

    def skip(self, execution: Execution, by: By) -> None:
        """Give up an open execution: its lane goes on after its range."""
        with writing(self.ledger.engine) as connection:
            current = self.ledger.locked(connection, execution.execution_id)
            flow = self._open_flow(connection, current)
            self.ledger.close(connection, current, ExecutionState.SKIPPED, current.end, None, f"skipped by {by.who}: {by.reason}")
            before, after = {"place": current.start.to_json()}, {"place": current.end.to_json()}
            record(connection, flow, Action.SKIP, by, before, after, lane_key=current.lane.key, execution_id=current.execution_id)

    def retry(self, execution: Execution, by: By, end: Place | None = None) -> Execution:
        """Try an open execution again at once, also one that is held; up to another end where one is given.

        Raises:
            LaneConflictError: when a run still lives at it, which must end first, or its lane lost events: no retry finds them.
        """
        with writing(self.ledger.engine) as connection:
            current = self.ledger.locked(connection, execution.execution_id)
            flow = self._open_flow(connection, current)
            if current.lease_until is not None and current.lease_until > now_ms(connection):
                raise LaneConflictError(f"run {current.run_id} is at execution {current.execution_id}; end that run first")
            lane = self.ledger.lane_of(connection, current)
            if lane.state is LaneState.STALE:
                raise LaneConflictError(lane.blocked_sentence(flow.name))
            active = {"state": LaneState.ACTIVE.value, "state_reason": ""}
            connection.execute(sa.update(schema.lane).where(schema.lane.c.lane_id == lane.lane_id).values(**active))
            following = self.ledger.next_attempt(connection, current, end or current.end, due_ts=now_ms(connection))
            before, after = {"attempt": current.attempt}, {"attempt": following.attempt}
            record(connection, flow, Action.RETRY, by, before, after, lane_key=current.lane.key, execution_id=current.execution_id)
            return following

    def forget(self, flow: FlowRow, by: By, *, dry_run: bool = False) -> list[LaneRow]:
        """Drop the lanes and executions of a flow, so that retention waits for it no longer; returns the lanes as they were.

        What people did to it is kept. A flow that is declared again is new.

        Raises:
            LaneConflictError: when it has an open execution, or its sensor is at work, which would activate it again.
        """
        with writing(self.ledger.engine) as connection:
            current = self.ledger.flow_in(connection, flow.name)
            lanes = list(lanes_of(connection, current.flow_id, lock=True).values())
            if self.ledger.open_lanes(connection, current):
                raise LaneConflictError(f"{flow.name} has an open execution; wait for it, or skip it first")
            if current.ticked_ts is not None and now_ms(connection) - current.ticked_ts < QUIET_MS:
                raise LaneConflictError(
                    f"the sensor of {flow.name} looked at it less than {QUIET_MS // 60_000} minutes ago; remove the trigger from the "
                    "code or stop its sensor, and try again later"
                )
            if not dry_run:
                record(connection, current, Action.FORGET, by, {"places": [[lane.key, lane.place.to_json()] for lane in lanes]}, {})
                _drop(connection, current)
            return lanes

    def history(self, flow: FlowRow, limit: int = 100) -> list[Intervention]:
        """What people did to a flow, newest first."""
        query = sa.select(schema.intervention).where(schema.intervention.c.flow_id == flow.flow_id)
        with reading(self.ledger.engine) as connection:
            rows = connection.execute(query.order_by(schema.intervention.c.intervention_id.desc()).limit(limit)).all()
        return [
            Intervention(
                ts=row.ts,
                who=row.who,
                action=Action(row.action),
                flow=flow.name,
                lane_key=row.lane_key,
                execution_id=row.execution_id,
                reason=row.reason,
                before=row.before,
                after=row.after,
            )
            for row in rows
        ]

    def _move(
        self, connection: Connection, flow: FlowRow, key: str | None, place_at: PlaceAt, *, dry_run: bool = False
    ) -> list[tuple[LaneRow, Place]]:
        hold_places(connection)
        lanes = lanes_of(connection, flow.flow_id, None if key is None else [key], lock=True)
        if not lanes and key is not None:
            raise NotFoundError(f"{flow.name} has no lane {key!r}; `lakechime trigger show {flow.name}` lists its lanes")
        busy = self.ledger.open_lanes(connection, flow)
        moved = []
        for lane in lanes.values():
            if lane.lane_id in busy:
                raise LaneConflictError(f"{flow.name} {lane.key}".strip() + " has an open execution; wait for it, or skip it first")
            place = place_at(connection, lane)
            moved.append((lane, place))
            if not dry_run:
                values = {"place": place.to_json(), "place_tx": place.position.tx_id, "place_seq": place.position.seq}
                values |= {
                    "fired": lane.fired and place.position >= lane.place.position,
                    "state": LaneState.ACTIVE.value,
                    "state_reason": "",
                }
                connection.execute(sa.update(schema.lane).where(schema.lane.c.lane_id == lane.lane_id).values(**values))
                if not values["fired"]:
                    connection.execute(sa.delete(schema.lane_partition).where(schema.lane_partition.c.lane_id == lane.lane_id))
        if moved and not dry_run:
            connection.execute(sa.update(schema.flow).where(schema.flow.c.flow_id == flow.flow_id).values(**nothing_looked(connection)))
        return moved

    def _released(self, connection: Connection, flow: FlowRow, ends: Mapping[str, Place]) -> list[list[str]]:
        """The lanes that waited for a person's choice, with why; they are active now, and a step that asked for it is tried again."""
        lanes = lanes_of(connection, flow.flow_id, lock=True).values()
        busy, steps = self.ledger.open_lanes(connection, flow), self.ledger.held_steps(connection, flow)
        found = [
            lane
            for lane in lanes
            if lane.state is LaneState.HELD and (lane.lane_id in steps or (lane.place.feed is not None and lane.lane_id not in busy))
        ]
        active = {"state": LaneState.ACTIVE.value, "state_reason": ""}
        for lane in found:
            connection.execute(sa.update(schema.lane).where(schema.lane.c.lane_id == lane.lane_id).values(**active))
            if (step := steps.get(lane.lane_id)) is not None:
                self.ledger.next_attempt(connection, step, ends.get(lane.key, step.end), due_ts=now_ms(connection))
        return [[lane.key, lane.state_reason] for lane in found]

    def _open_flow(self, connection: Connection, execution: Execution) -> FlowRow:
        if execution.state is not ExecutionState.OPEN:
            raise LaneConflictError(f"execution {execution.execution_id} is {execution.state.value.lower()} already; nothing was changed")
        return self.ledger.flow_in(connection, execution.lane.flow)


def _drop(connection: Connection, flow: FlowRow) -> None:
    """Remove what a flow has, and leave its row for what people did to it."""
    cancel_unclaimed(connection, schema.order.c.flow_id == flow.flow_id)
    lanes = sa.select(schema.lane.c.lane_id).where(schema.lane.c.flow_id == flow.flow_id)
    executions = sa.select(schema.execution.c.execution_id).where(schema.execution.c.lane_id.in_(lanes))
    connection.execute(sa.delete(schema.attempt).where(schema.attempt.c.execution_id.in_(executions)))
    for table in (schema.execution, schema.lane_partition, schema.lane):
        connection.execute(sa.delete(table).where(table.c.lane_id.in_(lanes)))
    unset = {"ticked_ts": None, "paused_ts": None, "paused_reason": None}
    this = schema.flow.c.flow_id == flow.flow_id
    connection.execute(sa.update(schema.flow).where(this).values(forgotten_ts=now_ms(connection), **unset))


def record(
    connection: Connection,
    flow: FlowRow,
    action: Action,
    by: By,
    before: dict[str, Any],
    after: dict[str, Any],
    *,
    lane_key: str | None = None,
    execution_id: str | None = None,
) -> None:
    """Keep what somebody did to a flow, in the transaction that does it."""
    values = {"ts": now_ms(connection), "who": by.who, "action": action.value, "flow_id": flow.flow_id, "lane_key": lane_key}
    values |= {"execution_id": execution_id, "reason": by.reason, "before": before, "after": after}
    connection.execute(sa.insert(schema.intervention).values(**values))
