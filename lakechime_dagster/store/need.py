"""What retention must leave for the flows of all deployments: the events after a position, per table, and the tags of those it folds."""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.position import Position
from lakechime_dagster.store import ledger_schema as schema
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.ledger import lanes_of
from lakechime_dagster.store.ledger_rows import EXECUTIONS, FlowRow, LaneRow, execution_from, flow_from
from lakechime_dagster.store.retention import ExpiredTable
from lakechime_dagster.triggers.lanes import ExecutionState, LaneState


@dataclass(frozen=True, kw_only=True)
class Need:
    """A flow needs the events of a table after a position (exclusive)."""

    table: str
    position: Position
    deployment: str
    flow: str


def needs(engine: Engine) -> dict[str, Need]:
    """Per table name the oldest need, and whose it is; a table that no flow reads is not in it.

    A snapshot trigger needs what is after its lane's place, or after what was looked through in vain. A partition
    trigger finds folded partitions too, so it needs what it has not looked through; any flow what its open executions read.
    """
    found: dict[str, Need] = {}
    with reading(engine) as connection:
        for flow in _flows(connection):
            position = _needed_after(connection, flow)
            for table in flow.tables:
                if table not in found or position < found[table].position:
                    found[table] = Need(table=table, position=position, deployment=flow.deployment, flow=flow.name)
    return found


def tags_needed(engine: Engine) -> frozenset[str] | None:
    """The tags that the triggers of all deployments ask for; None when it is not known of one, so that every tag is needed."""
    with reading(engine) as connection:
        declared = connection.execute(sa.select(schema.flow.c.tag_keys)).scalars().all()
    return None if None in declared else frozenset(key for keys in declared for key in keys)


def mark_stale(connection: Connection, expired: ExpiredTable) -> None:
    """Mark the lanes that lost events to a forced expiry, in its transaction: they wait for a person."""
    if expired.through is None:
        return
    reason = f"events of {expired.table} up to {expired.through} were expired by force before they were consumed"
    for flow in _flows(connection):
        if expired.table not in flow.tables:
            continue
        starts = _open_starts(connection, flow)
        lost = [lane.lane_id for lane in lanes_of(connection, flow.flow_id).values() if _lost(lane, starts, flow, expired.through)]
        if lost:
            values = {"state": LaneState.STALE.value, "state_reason": reason}
            connection.execute(sa.update(schema.lane).where(schema.lane.c.lane_id.in_(lost)).values(**values))


def _needed_after(connection: Connection, flow: FlowRow) -> Position:
    lanes = lanes_of(connection, flow.flow_id)
    starts = _open_starts(connection, flow)
    if any(key for key in lanes):
        return min([flow.looked, *starts.values()])
    place = lanes[""].place.position if lanes else flow.start.position
    return place if starts else max(place, flow.looked)


def _lost(lane: LaneRow, starts: dict[str, Position], flow: FlowRow, through: Position) -> bool:
    """Whether a lane still needed something at or before `through`."""
    if lane.key in starts:
        return starts[lane.key] < through
    return not lane.key and max(lane.place.position, flow.looked) < through


def _open_starts(connection: Connection, flow: FlowRow) -> dict[str, Position]:
    """Where the ranges of the flow's open executions begin, by lane key."""
    conditions = (schema.lane.c.flow_id == flow.flow_id, schema.execution.c.state == ExecutionState.OPEN.value)
    rows = connection.execute(EXECUTIONS.where(*conditions))
    return {execution.lane.key: execution.start.position for execution in map(execution_from, rows)}


def _flows(connection: Connection) -> Sequence[FlowRow]:
    return [flow_from(row) for row in connection.execute(sa.select(schema.flow).order_by(schema.flow.c.flow_id))]
