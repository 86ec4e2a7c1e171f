"""Progress of consumers: lag, overview, and the history that they still need."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.engine import reading
from lakechime_dagster.dce.events import Position
from lakechime_dagster.dce.queries import is_after, is_data, is_visible
from lakechime_dagster.dce.schema import dce_event, dce_table
from lakechime_dagster.dce.snapshots import SnapshotPlace
from lakechime_dagster.triggers import schema
from lakechime_dagster.triggers.consumers import Execution, ExecutionState, FeedLag, LaneId, LaneState, Place
from lakechime_dagster.triggers.ledger import Ledger
from lakechime_dagster.triggers.registry import EXECUTIONS, FLOWS, FlowRow, LaneRow, execution_from, flow_from, lanes_of

FEED = "feed"  # topics or files outside of the lake


@dataclass(frozen=True, kw_only=True)
class ConsumerLag:
    """What of one source a consumer has not consumed.

    Attributes:
        consumer: The name of its subscription.
        source: A table that it reads, or `FEED`.
        amounts: By unit. Of a table `events`, of which a commit has one for each partition that it changed, and `versions`, which
            a Hive table has none of; of topics `events`, of files `bytes`.
        since_ts: When the oldest of them was registered, or seen first, in milliseconds of the store's clock; None where there is none.
    """

    consumer: str
    source: str
    amounts: Mapping[str, int]
    since_ts: int | None = None


def consumer_lags(connection: Connection, deployment: str) -> list[ConsumerLag]:
    """Of each consumer of the deployment and each source that it reads, by their names.

    What an evaluation has found to start nothing is consumed; what an open execution reads is not, until it is complete. Of a feed it
    is what the last look at it told.
    """
    flow, lane = schema.flow.c, schema.lane.c
    columns = (flow.name, flow.tables, flow.cluster, flow.is_partitioned, flow.tag_keys, flow.start, flow.looked_tx, flow.looked_seq)
    own_lane = sa.and_(lane.flow_id == flow.flow_id, lane.key == "")
    consumers = (
        sa.select(*columns, flow.feed_lag, lane.place_tx, lane.place_seq)
        .select_from(schema.flow.outerjoin(schema.lane, own_lane))
        .where(flow.deployment == deployment, flow.forgotten_ts.is_(None))
        .order_by(flow.name)
    )
    return [one for row in connection.execute(consumers).all() for one in _lags_of(connection, row)]


def _lags_of(connection: Connection, row: sa.Row) -> Iterator[ConsumerLag]:
    started = Position.parse(row.start["position"]) if row.place_tx is None else Position(row.place_tx, row.place_seq)
    consumed = max(started, Position(row.looked_tx, row.looked_seq))
    unread = (
        sa.select(
            dce_table.c.name,
            sa.func.count().label("events"),
            sa.func.count(sa.distinct(dce_event.c.snapshot_id)).label("versions"),
            sa.func.min(dce_event.c.event_ts).label("since_ts"),
        )
        .join_from(dce_event, dce_table, dce_table.c.table_id == dce_event.c.table_id)
        .where(dce_table.c.name.in_(row.tables), is_after(consumed), is_visible())
        .group_by(dce_table.c.name)
    )
    if not row.tag_keys:  # an amendment matters only to a consumer that asks for tags
        unread = unread.where(is_data)
    if row.cluster is not None and not row.is_partitioned:
        unread = unread.where(dce_table.c.cluster == row.cluster)
    found = {one.name: one for one in connection.execute(unread)} if row.tables else {}
    for table in row.tables:
        one = found.get(table)
        amounts = {"events": one.events, "versions": one.versions} if one else {"events": 0, "versions": 0}
        yield ConsumerLag(consumer=row.name, source=table, amounts=amounts, since_ts=one.since_ts if one else None)
    if row.feed_lag is not None:
        lag = FeedLag.from_json(row.feed_lag)
        yield ConsumerLag(consumer=row.name, source=FEED, amounts={lag.unit: lag.unread}, since_ts=lag.since_ms)


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
        row=row,
        lanes=len(lanes),
        open=len(ledger.open_lanes(connection, row)),
        held=states.count(LaneState.HELD),
        stale=states.count(LaneState.STALE),
        waiting=waiting[row.name],
    )


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
