"""How far each consumer is behind the tables that it reads, by the events of the store alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from lakechime_dagster.dce.position import Position
from lakechime_dagster.store import ledger_schema as schema
from lakechime_dagster.store.queries import is_after, is_data, is_visible
from lakechime_dagster.store.schema import dce_event, dce_table
from lakechime_dagster.triggers.feeds import FeedLag

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
