"""Progress of consumers: lag, overview, how they stood at a past time, and the history that they
still need.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.engine import reading
from lakechime_dagster.dce.events import Position
from lakechime_dagster.dce.queries import changes_data, is_after, is_visible
from lakechime_dagster.dce.schema import HISTORY, dce_table
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.triggers.consumers import (
    Action,
    Checkpoint,
    ConsumerId,
    ConsumerState,
    source_name,
)
from lakechime_dagster.triggers.evaluation import Moment
from lakechime_dagster.triggers.evidence import head_at
from lakechime_dagster.triggers.ledger import Ledger
from lakechime_dagster.triggers.registry import (
    EXECUTIONS,
    IS_OPEN,
    SUBSCRIPTIONS,
    ConsumerRow,
    SubscriptionRow,
    consumers_of,
    execution_from,
    subscription_from,
)
from lakechime_dagster.triggers.schema import (
    lc_consumer,
    lc_execution,
    lc_intervention,
    lc_subscription,
)

MESSAGES = "messages"  # topics or files outside of the lake


@dataclass(frozen=True, kw_only=True)
class ConsumerLag:
    """What of one source a consumer has not consumed.

    Attributes:
        consumer: The name of its subscription.
        source: A table that it reads, or `MESSAGES`.
        amounts: By unit. Of a table `events`, of which a commit has one for each partition that it
            changed, and `versions`, which a Hive table has none of; of topics `events`, of files
            `bytes`.
        since_ts: When the oldest of them was registered, or seen first, in milliseconds of the
            store's clock; None where there is none.
    """

    consumer: str
    source: str
    amounts: Mapping[str, int]
    since_ts: int | None = None


def consumer_lags(connection: Connection, deployment: str) -> list[ConsumerLag]:
    """Of each consumer of the deployment and each source that it reads, by their names.

    What an evaluation has found to start nothing is consumed; what an open execution reads is not,
    until it is complete. Of a source it is what the last poll of it found.
    """
    own = sa.and_(
        lc_consumer.c.subscription_id == lc_subscription.c.subscription_id, lc_consumer.c.key == ""
    )
    consumers = (
        SUBSCRIPTIONS.add_columns(lc_consumer.c.checkpoint_tx, lc_consumer.c.checkpoint_seq)
        .select_from(lc_subscription.outerjoin(lc_consumer, own))
        .where(lc_subscription.c.deployment == deployment)
        .order_by(lc_subscription.c.name)
    )
    return [one for row in connection.execute(consumers).all() for one in _lags_of(connection, row)]


def _lags_of(connection: Connection, row: sa.Row) -> Iterator[ConsumerLag]:
    started = (
        row.start.position
        if row.checkpoint_tx is None
        else Position(row.checkpoint_tx, row.checkpoint_seq)
    )
    consumed = max(started, Position(row.looked_tx, row.looked_seq))
    unread = sa.union_all(*(_unread_in(event, row, consumed) for event in HISTORY)).subquery()
    counts = sa.select(
        unread.c.name,
        sa.func.count().label("events"),
        sa.func.count(sa.distinct(unread.c.snapshot_id)).label("versions"),
        sa.func.min(unread.c.event_ts).label("since_ts"),
    ).group_by(unread.c.name)
    found = {one.name: one for one in connection.execute(counts)} if row.tables else {}
    for table in row.tables:
        one = found.get(table)
        amounts = (
            {"events": one.events, "versions": one.versions}
            if one
            else {"events": 0, "versions": 0}
        )
        yield ConsumerLag(
            consumer=row.name, source=table, amounts=amounts, since_ts=one.since_ts if one else None
        )
    if row.source_lag is not None:
        lag = row.source_lag
        yield ConsumerLag(
            consumer=row.name,
            source=MESSAGES,
            amounts={lag.unit: lag.unread},
            since_ts=lag.since_ms,
        )


def _unread_in(event: sa.Table, row: sa.Row, consumed: Position) -> sa.Select[Any]:
    """The events of one table of the history that a consumer has not consumed."""
    name = sa.case(  # as `source_name` says
        (dce_table.c.cluster == row.cluster, dce_table.c.name),
        else_=dce_table.c.cluster + ":" + dce_table.c.name,
    )
    unread = (
        sa.select(name.label("name"), event.c.snapshot_id, event.c.event_ts)
        .join_from(event, dce_table, dce_table.c.table_id == event.c.table_id)
        .where(name.in_(row.tables), is_after(consumed, event), is_visible(event))
    )
    if not row.tag_keys:  # an amendment matters only to a consumer that asks for tags
        unread = unread.where(changes_data(event))
    return unread


@dataclass(frozen=True, kw_only=True)
class SubscriptionOverview:
    """A subscription: its consumers, how many of them have an open execution or wait for a person.

    `waiting` counts the events of its tables that it has not consumed, as `consumer_lags` says.
    """

    row: SubscriptionRow
    consumers: int
    open: int
    blocked: int
    waiting: int


def overview(ledger: Ledger) -> list[SubscriptionOverview]:
    """The subscriptions of the deployment by name."""
    subscriptions = ledger.subscriptions()
    with reading(ledger.engine) as connection:
        waiting = Counter[str]()
        for lag in consumer_lags(connection, ledger.deployment):
            waiting[lag.consumer] += lag.amounts["events"] if lag.source != MESSAGES else 0
        return [_overview(connection, ledger, row, waiting) for row in subscriptions]


def _overview(
    connection: Connection, ledger: Ledger, row: SubscriptionRow, waiting: Mapping[str, int]
) -> SubscriptionOverview:
    counting = sa.select(lc_consumer.c.state, sa.func.count()).where(
        lc_consumer.c.subscription_id == row.subscription_id
    )
    counts = dict(connection.execute(counting.group_by(lc_consumer.c.state)).tuples().all())
    blocked = counts.get(ConsumerState.BLOCKED, 0)
    return SubscriptionOverview(
        row=row,
        consumers=blocked + counts.get(ConsumerState.ACTIVE, 0),
        open=len(ledger.open_consumers(connection, row)),
        blocked=blocked,
        waiting=waiting[row.name],
    )


@dataclass(frozen=True, kw_only=True)
class ConsumerAt:
    """A consumer at a table.

    `read` is up to where it has read the table: what arrived after is still to be read; None for a
    consumer that reads its whole state next, or only writes it. Of an open execution `pinned` is
    the snapshot that it reads, and `open_since` when it was claimed, in milliseconds.
    """

    consumer: ConsumerId
    writes: bool
    state: ConsumerState = ConsumerState.ACTIVE
    state_reason: str = ""
    read: SnapshotCheckpoint | None = None
    pinned: SnapshotCheckpoint | None = None
    open_since: int | None = None


def consumers_at(engine: Engine, table: str, cluster: str = "") -> list[ConsumerAt]:
    """The consumers at a table of a cluster, by subscription and key."""
    query = SUBSCRIPTIONS.order_by(lc_subscription.c.deployment, lc_subscription.c.name)
    with reading(engine) as connection:
        subscriptions = [subscription_from(row) for row in connection.execute(query)]
        return [
            found
            for subscription in subscriptions
            for name in [source_name((cluster, table), subscription.cluster)]
            if name in (*subscription.tables, subscription.target)
            for found in _consumers(connection, subscription, name)
        ]


def _consumers(
    connection: Connection, subscription: SubscriptionRow, table: str
) -> Iterator[ConsumerAt]:
    is_own = lc_consumer.c.subscription_id == subscription.subscription_id
    opened = {
        row.key: execution_from(row)
        for row in connection.execute(EXECUTIONS.where(is_own, IS_OPEN))
    }
    writes = table == subscription.target

    def named(key: str) -> ConsumerId:
        return ConsumerId(subscription.deployment, subscription.name, key)

    consumers = consumers_of(connection, subscription.subscription_id)
    if "" not in consumers and not subscription.is_partitioned:
        yield ConsumerAt(
            consumer=named(""), writes=writes, read=subscription.start.sources.get(table)
        )
    for key, consumer in consumers.items():
        execution, checkpoint = opened.get(key), consumer.checkpoint
        # a key that was done is read again only by a later change, and then from where that is
        if subscription.is_partitioned:
            checkpoint = execution.start if execution else Checkpoint()
        yield ConsumerAt(
            consumer=named(key),
            writes=writes,
            state=consumer.state,
            state_reason=consumer.state_reason,
            read=checkpoint.sources.get(table),
            pinned=execution.end.sources.get(table) if execution else None,
            open_since=execution.claimed_ts if execution else None,
        )


def moment_at(engine: Engine, row: SubscriptionRow, at_ms: int) -> Moment:
    """A subscription as it stood at a past time in milliseconds, as far as that is kept: not of
    which attempt an execution was then, nor whether a consumer was BLOCKED.
    """
    with reading(engine) as connection:
        return Moment(
            subscription=row.name,
            now=at_ms,
            through=head_at(connection, at_ms),
            blocked=_paused_at(connection, row, at_ms),
            consumers=_consumers_at(connection, row, at_ms),
            opened=_opened_at(connection, row, at_ms),
        )


@dataclass(frozen=True)
class _Move:
    """A consumer went from one checkpoint to another, by completing an execution or by a person."""

    ts: int
    key: str
    before: Checkpoint
    after: Checkpoint


def _paused_at(connection: Connection, row: SubscriptionRow, at_ms: int) -> str:
    """A sentence when the subscription was paused then."""
    query = (
        sa.select(lc_intervention.c.action, lc_intervention.c.reason)
        .where(
            lc_intervention.c.subscription_id == row.subscription_id,
            lc_intervention.c.ts <= at_ms,
            lc_intervention.c.action.in_([Action.PAUSE, Action.RESUME]),
        )
        .order_by(lc_intervention.c.intervention_id.desc())
        .limit(1)
    )
    newest = connection.execute(query).one_or_none()
    return (
        f"paused: {newest.reason}" if newest is not None and newest.action == Action.PAUSE else ""
    )


def _consumers_at(
    connection: Connection, row: SubscriptionRow, at_ms: int
) -> dict[str, ConsumerRow]:
    """The consumers that were there then: their checkpoints, and whether they had fired."""
    executions = [
        execution_from(one)
        for one in connection.execute(
            EXECUTIONS.where(lc_consumer.c.subscription_id == row.subscription_id)
        )
    ]
    completed = [
        _Move(one.completed_ts, one.consumer.key, one.start, one.end)
        for one in executions
        if one.completed_ts is not None
    ]
    moves = sorted([*completed, *_seeks(connection, row)], key=lambda move: move.ts)
    numbers = Counter(move.key for move in completed)
    consumers: dict[str, ConsumerRow] = {}
    for key, consumer in consumers_of(connection, row.subscription_id).items():
        if consumer.created_ts > at_ms:
            continue
        own = [move for move in moves if move.key == key]
        checkpoint = next((move.before for move in own if move.ts > at_ms), consumer.checkpoint)
        put_back = max(
            (
                move.ts
                for move in own
                if move.ts <= at_ms and move.after.position < move.before.position
            ),
            default=-1,
        )
        # one rebuilt from its target has completed executions that the ledger lost: it had fired
        # when it was made
        fired_ts = [consumer.created_ts] if consumer.completed > numbers[key] else []
        fired_ts += [
            one.claimed_ts
            for one in executions
            if one.consumer.key == key and one.claimed_ts <= at_ms
        ]
        fired = max(fired_ts, default=-1) > put_back
        consumers[key] = replace(
            consumer,
            checkpoint=checkpoint,
            fired=fired,
            state=ConsumerState.ACTIVE,
            state_reason="",
        )
    return consumers


def _opened_at(connection: Connection, row: SubscriptionRow, at_ms: int) -> dict[str, str]:
    """A sentence about the execution that was open then, by consumer."""
    query = EXECUTIONS.where(
        lc_consumer.c.subscription_id == row.subscription_id,
        lc_execution.c.claimed_ts <= at_ms,
        sa.or_(lc_execution.c.completed_ts.is_(None), lc_execution.c.completed_ts > at_ms),
    )
    opened = [execution_from(execution) for execution in connection.execute(query)]
    return {one.consumer.key: f"{one.named} was open" for one in opened}


def _seeks(connection: Connection, row: SubscriptionRow) -> Iterator[_Move]:
    """Where people put consumers."""
    query = sa.select(lc_intervention).where(
        lc_intervention.c.subscription_id == row.subscription_id,
        lc_intervention.c.action == Action.SEEK,
    )
    for one in connection.execute(query.order_by(lc_intervention.c.intervention_id)):
        yield _Move(
            one.ts,
            one.consumer_key,
            Checkpoint.from_json(one.before["checkpoint"]),
            Checkpoint.from_json(one.after["checkpoint"]),
        )
