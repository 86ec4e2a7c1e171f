"""The lanes of all deployments that read a table or write it: what of its history they still need, and whether they go on."""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.snapshots import SnapshotPlace
from lakechime_dagster.store import ledger_schema as schema
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.ledger_rows import EXECUTIONS, FLOWS, FlowRow, LaneRow, execution_from, flow_from
from lakechime_dagster.store.registry import lanes_of
from lakechime_dagster.triggers.lanes import Execution, ExecutionState, LaneId, LaneState, Place


@dataclass(frozen=True, kw_only=True)
class LaneAt:
    """A lane at a table.

    `read` is up to where it has read the table: what came after is still to be read; None for a lane that reads its whole state
    next, or only writes it. Of an open execution `pinned` is the snapshot that it reads, and `open_since` when it was claimed, in
    milliseconds.
    """

    lane: LaneId
    writes: bool
    state: LaneState = LaneState.ACTIVE
    state_reason: str = ""
    read: SnapshotPlace | None = None
    pinned: SnapshotPlace | None = None
    open_since: int | None = None


def lanes_at(engine: Engine, table: str, cluster: str = "") -> list[LaneAt]:
    """The lanes at a table of a cluster, by flow and key."""
    with reading(engine) as connection:
        flows = [flow_from(row) for row in connection.execute(FLOWS.order_by(schema.flow.c.deployment, schema.flow.c.name))]
        return [found for flow in flows if _is_at(flow, table, cluster) for found in _lanes(connection, flow, table)]


def _is_at(flow: FlowRow, table: str, cluster: str) -> bool:
    """A partition trigger may wait for tables of other clusters, and of an old flow it is not known: both may be at it."""
    is_of_cluster = flow.cluster in (None, cluster) or flow.is_partitioned is not False
    return is_of_cluster and (table in flow.tables or table == flow.target)


def _lanes(connection: Connection, flow: FlowRow, table: str) -> Iterator[LaneAt]:
    lanes = lanes_of(connection, flow.flow_id)
    of_flow = (schema.lane.c.flow_id == flow.flow_id, schema.execution.c.state == ExecutionState.OPEN.value)
    opened = {execution.lane.key: execution for execution in map(execution_from, connection.execute(EXECUTIONS.where(*of_flow)))}
    if not lanes and not flow.is_partitioned:
        yield _lane_at(flow, table, "", flow.start, None, None)
    for key, lane in lanes.items():
        execution = opened.get(key)
        if flow.is_partitioned:  # a key that was done is read again only by a later change, and then from where that is
            yield _lane_at(flow, table, key, execution.start if execution else Place(), lane, execution)
        else:
            yield _lane_at(flow, table, key, lane.place, lane, execution)


def _lane_at(flow: FlowRow, table: str, key: str, place: Place, lane: LaneRow | None, execution: Execution | None) -> LaneAt:
    return LaneAt(
        lane=LaneId(flow.deployment, flow.name, key),
        writes=table == flow.target,
        state=lane.state if lane else LaneState.ACTIVE,
        state_reason=lane.state_reason if lane else "",
        read=place.sources.get(table),
        pinned=execution.end.sources.get(table) if execution else None,
        open_since=execution.claimed_ts if execution else None,
    )
