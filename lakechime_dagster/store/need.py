"""What retention must leave for the flows of all deployments: the events after a position, per table, and the tags of those it folds."""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.position import Position
from lakechime_dagster.store import ledger_schema as schema
from lakechime_dagster.store.dialect import among
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.evidence import late_lanes
from lakechime_dagster.store.ledger_rows import EXECUTIONS, FLOWS, FlowRow, LaneRow, execution_from, flow_from
from lakechime_dagster.store.registry import hold_places, lanes_of, make_lane
from lakechime_dagster.store.retention import ExpiredTable
from lakechime_dagster.store.tables import TableKey
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
            position = _flow_needs_after(connection, flow)
            for table in flow.tables:
                if table not in found or position < found[table].position:
                    found[table] = Need(table=table, position=position, deployment=flow.deployment, flow=flow.name)
    return found


def needed_after(connection: Connection, table: str) -> Position | None:
    """The position after which a table's events are needed, None when nobody needs any; it holds until the transaction ends."""
    hold_places(connection)
    readers = [flow for flow in _flows(connection) if table in flow.tables]
    return min((_flow_needs_after(connection, flow) for flow in readers), default=None)


def tags_needed(engine: Engine) -> frozenset[str] | None:
    """The tags that the triggers of all deployments ask for; None when it is not known of one, so that every tag is needed."""
    with reading(engine) as connection:
        declared = connection.execute(FLOWS.with_only_columns(schema.flow.c.tag_keys)).scalars().all()
    return None if None in declared else frozenset(key for keys in declared for key in keys)


def mark_stale(connection: Connection, expiring: ExpiredTable) -> None:
    """Mark the lanes that a forced expiry takes events from, before it does so in its transaction: they wait for a person."""
    if expiring.through is None:
        return
    reason = f"events of {expiring.table} up to {expiring.through} were expired by force before they were consumed"
    values = {"state": LaneState.STALE.value, "state_reason": reason}
    for flow in _flows(connection):
        if expiring.table in flow.tables:
            lost = _losing(connection, flow, (expiring.cluster, expiring.table), expiring.through)
            connection.execute(sa.update(schema.lane).where(among(connection, schema.lane.c.lane_id, lost)).values(**values))


def _flow_needs_after(connection: Connection, flow: FlowRow) -> Position:
    lanes = lanes_of(connection, flow.flow_id)
    starts = _open_starts(connection, flow)
    if any(key for key in lanes):
        return min([flow.looked, *starts.values()])
    place = lanes[""].place.position if lanes else flow.start.position
    return place if starts else max(place, flow.looked)


def _losing(connection: Connection, flow: FlowRow, table: TableKey, through: Position) -> list[int]:
    """The lanes that still need something of a table at or before `through`; the lane of a snapshot trigger is made for that."""
    if flow.is_partitioned is False and flow.cluster != table[0]:
        return []
    if flow.is_partitioned is False and max(flow.start.position, flow.looked) < through:
        make_lane(connection, flow, "")
    starts = _open_starts(connection, flow)
    late = late_lanes(connection, flow.flow_id, flow.looked, through, table) if flow.refires else {}
    lanes = lanes_of(connection, flow.flow_id).values()
    return [lane.lane_id for lane in lanes if lane.key in late or _needs(lane, starts, flow, through)]


def _needs(lane: LaneRow, starts: dict[str, Position], flow: FlowRow, through: Position) -> bool:
    """Whether a lane still needs something at or before `through`, but for late changes."""
    if lane.key in starts:
        return starts[lane.key] < through
    return not lane.key and max(lane.place.position, flow.looked) < through


def _open_starts(connection: Connection, flow: FlowRow) -> dict[str, Position]:
    """Where the ranges of the flow's open executions begin, by lane key."""
    conditions = (schema.lane.c.flow_id == flow.flow_id, schema.execution.c.state == ExecutionState.OPEN.value)
    rows = connection.execute(EXECUTIONS.where(*conditions))
    return {execution.lane.key: execution.start.position for execution in map(execution_from, rows)}


def _flows(connection: Connection) -> Sequence[FlowRow]:
    return [flow_from(row) for row in connection.execute(FLOWS.order_by(schema.flow.c.flow_id))]
