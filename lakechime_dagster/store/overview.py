"""All flows of a deployment at a glance: what is open, held, and waiting."""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from lakechime_dagster.dce.position import Position
from lakechime_dagster.store import ledger_schema as schema
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.events import head_within
from lakechime_dagster.store.ledger import Ledger
from lakechime_dagster.store.ledger_rows import FLOWS, FlowRow, LaneRow, flow_from
from lakechime_dagster.store.queries import is_after, is_through
from lakechime_dagster.store.registry import lanes_of
from lakechime_dagster.store.schema import dce_event, dce_table
from lakechime_dagster.triggers.lanes import LaneState


@dataclass(frozen=True, kw_only=True)
class FlowOverview:
    """A flow: its lanes, how many of them have an open execution, wait for a person, or lost events.

    `waiting` counts the events of its tables that neither an execution nor an evaluation has gone past. Those of a
    partition trigger, whose conditions may name clusters of their own, are counted in all clusters.
    """

    row: FlowRow
    lanes: int
    open: int
    held: int
    stale: int
    waiting: int


def overview(ledger: Ledger) -> list[FlowOverview]:
    """The flows of the deployment by name."""
    with reading(ledger.engine) as connection:
        query = FLOWS.where(schema.flow.c.deployment == ledger.deployment).order_by(schema.flow.c.name)
        return [_overview(connection, ledger, flow_from(row)) for row in connection.execute(query)]


def _overview(connection: Connection, ledger: Ledger, row: FlowRow) -> FlowOverview:
    lanes = lanes_of(connection, row.flow_id)
    states = [lane.state for lane in lanes.values()]
    return FlowOverview(
        row=row, lanes=len(lanes), open=len(ledger.open_lanes(connection, row)), held=states.count(LaneState.HELD),
        stale=states.count(LaneState.STALE), waiting=_waiting(connection, row, _gone_past(row, lanes)),
    )  # fmt: skip


def _gone_past(row: FlowRow, lanes: dict[str, LaneRow]) -> Position:
    place = lanes[""].place.position if "" in lanes else row.start.position
    return max(place, row.looked)


def _waiting(connection: Connection, row: FlowRow, after: Position) -> int:
    query = sa.select(sa.func.count()).select_from(dce_event).join(dce_table, dce_table.c.table_id == dce_event.c.table_id)
    query = query.where(dce_table.c.name.in_(row.tables), is_after(after), is_through(head_within(connection)))
    if row.cluster is not None and not row.is_partitioned:
        query = query.where(dce_table.c.cluster == row.cluster)
    return connection.execute(query).scalar_one()
