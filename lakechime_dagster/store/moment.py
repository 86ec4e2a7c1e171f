"""The moment that a flow is decided for: now, or a past time."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection

from lakechime_dagster.dce.position import Position
from lakechime_dagster.store import ledger_schema as schema
from lakechime_dagster.store.dialect import now_ms
from lakechime_dagster.store.events import head_within
from lakechime_dagster.store.evidence import head_at
from lakechime_dagster.store.ledger_rows import EXECUTIONS, FlowRow, LaneRow, execution_from
from lakechime_dagster.store.orders import lane_orders
from lakechime_dagster.store.past import lanes_at, open_at, paused_at
from lakechime_dagster.store.registry import lanes_of
from lakechime_dagster.triggers.decision import LaneView
from lakechime_dagster.triggers.lanes import Execution, ExecutionState
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


def present(connection: Connection, row: FlowRow) -> Moment:
    """Now, by the clock of the store."""
    query = EXECUTIONS.where(schema.lane.c.flow_id == row.flow_id, schema.execution.c.state == ExecutionState.OPEN.value)
    return Moment(
        flow=row.name, now=now_ms(connection), through=head_within(connection), lanes=lanes_of(connection, row.flow_id),
        opened={execution.lane.key: execution for execution in map(execution_from, connection.execute(query))},
        blocked=row.blocked_sentence, orders=lane_orders(connection, row.flow_id),
    )  # fmt: skip


def past(connection: Connection, row: FlowRow, at_ms: int) -> Moment:
    """A past time in milliseconds, as far as it is kept."""
    return Moment(
        flow=row.name, now=at_ms, through=head_at(connection, at_ms), lanes=lanes_at(connection, row, at_ms),
        opened=open_at(connection, row, at_ms), blocked=paused_at(connection, row, at_ms),
    )  # fmt: skip


def _open_sentence(execution: Execution) -> str:
    who = f"run {execution.run_id}" if execution.run_id else "a run that has not begun"
    key = f" for {execution.lane.key}" if execution.lane.key else ""
    return f"step {execution.step}{key} is with {who} (attempt {execution.attempt})"
