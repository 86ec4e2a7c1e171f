"""All flows of a deployment at a glance: what is open, held, and waiting."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from lakechime_dagster.store import ledger_schema as schema
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.lag import FEED, consumer_lags
from lakechime_dagster.store.ledger import Ledger
from lakechime_dagster.store.ledger_rows import FLOWS, FlowRow, flow_from
from lakechime_dagster.store.registry import lanes_of
from lakechime_dagster.triggers.lanes import LaneState


@dataclass(frozen=True, kw_only=True)
class FlowOverview:
    """A flow: its lanes, how many of them have an open execution, wait for a person, or lost events.

    `waiting` counts the events of its tables that it has not consumed, as `lag.consumer_lags` says. Those of a partition trigger,
    whose conditions may name clusters of their own, are counted in all clusters.
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
        waiting = Counter[str]()
        for lag in consumer_lags(connection, ledger.deployment):
            waiting[lag.consumer] += lag.amounts["events"] if lag.source != FEED else 0
        return [_overview(connection, ledger, flow_from(row), waiting) for row in connection.execute(query)]


def _overview(connection: Connection, ledger: Ledger, row: FlowRow, waiting: Mapping[str, int]) -> FlowOverview:
    lanes = lanes_of(connection, row.flow_id)
    states = [lane.state for lane in lanes.values()]
    return FlowOverview(
        row=row, lanes=len(lanes), open=len(ledger.open_lanes(connection, row)), held=states.count(LaneState.HELD),
        stale=states.count(LaneState.STALE), waiting=waiting[row.name],
    )  # fmt: skip
