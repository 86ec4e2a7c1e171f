"""Progress of consumers: lag, overview, how they stood at a past time, and the history that they
still need, which retention keeps.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, Engine

from lakechime_dagster.dce.engine import high_water, reading, writing
from lakechime_dagster.dce.events import Position
from lakechime_dagster.dce.queries import (
    TableRow,
    changed_table,
    changes_data,
    is_after,
    is_through,
    is_visible,
    locked_whole,
    tables_by_id,
)
from lakechime_dagster.dce.schema import HISTORY, dce_compacted, dce_event, dce_table
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
    hold_checkpoints,
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


Needed = Mapping[str, Position] | Callable[[Connection, str], Position | None]


@dataclass(frozen=True, kw_only=True)
class ExpiredTable:
    """What expiry did, or would do, to the events of one table.

    `needed` events are old enough but held back: they come after the checkpoint of a live consumer.
    """

    table: str
    cluster: str
    compacted: int
    needed: int = 0


@dataclass(frozen=True, kw_only=True)
class Expired:
    """What one expiry did, or would do with `dry_run`."""

    before_ms: int
    dry_run: bool
    tables: tuple[ExpiredTable, ...] = ()

    @property
    def compacted(self) -> int:
        return sum(table.compacted for table in self.tables)

    @property
    def held_back(self) -> int:
        return sum(table.needed for table in self.tables)


def expire(engine: Engine, before_ms: int, *, needed: Needed, dry_run: bool = False) -> Expired:
    """Compact the events registered before a time, table by table, each in one transaction.

    What was compacted is not fetched any more. Triggers still find it: partitions with their tags,
    and the snapshots of tables; their executions still get it. A repeat stays a duplicate. `needed`
    says per table name after which position live consumers still need events; None or absent: no
    consumer needs any. A function is asked in the table's transaction, so that its answer may hold
    until the events are compacted.
    """
    with reading(engine) as connection:
        tables = list(tables_by_id(connection).values())
    results: list[ExpiredTable] = []
    for table in tables:
        with reading(engine) if dry_run else writing(engine) as connection:
            position = (
                needed(connection, table.name) if callable(needed) else needed.get(table.name)
            )
            if not dry_run:
                # from here on nobody registers into this table
                locked_whole(connection, [table.table_id])
            result, expiring = _expiring(connection, table, before_ms, position)
            if result.compacted and not dry_run:
                _compact(connection, table, expiring)
        if result.compacted or result.needed:
            results.append(result)
    return Expired(before_ms=before_ms, dry_run=dry_run, tables=tuple(results))


def _expiring(
    connection: Connection, table: TableRow, before_ms: int, checkpoint: Position | None
) -> tuple[ExpiredTable, ColumnElement[bool]]:
    """What expires of a table, in numbers, and by which condition."""
    event = dce_event.c
    is_old = sa.and_(
        event.table_id == table.table_id,
        event.event_ts < before_ms,
        event.tx_id < high_water(connection),
    )
    expiring = is_old if checkpoint is None else sa.and_(is_old, is_through(checkpoint))
    needed = 0 if checkpoint is None else _count(connection, sa.and_(is_old, is_after(checkpoint)))
    result = ExpiredTable(
        table=table.name,
        cluster=table.cluster,
        compacted=_count(connection, expiring),
        needed=needed,
    )
    return result, expiring


def _compact(connection: Connection, table: TableRow, expiring: ColumnElement[bool]) -> None:
    names = [column.name for column in dce_event.columns]
    moving = sa.select(dce_event).where(expiring)
    connection.execute(sa.insert(dce_compacted).from_select(names, moving))
    connection.execute(sa.delete(dce_event).where(expiring))
    # who registers a single event must look again: its repeat may be compacted now
    changed_table(connection, table.table_id)


def _count(connection: Connection, condition: ColumnElement[bool]) -> int:
    return connection.execute(
        sa.select(sa.func.count()).select_from(dce_event).where(condition)
    ).scalar_one()


@dataclass(frozen=True, kw_only=True)
class Need:
    """A subscription needs the events of a table after a position (exclusive)."""

    table: str
    position: Position
    deployment: str
    subscription: str


def needs(engine: Engine) -> dict[str, Need]:
    """Per table name the oldest need, and whose it is; a table that no subscription reads is not in
    it.

    A snapshot trigger needs what is after its consumer's checkpoint, or after what was evaluated
    without firing. A partition trigger finds compacted partitions too, so it needs what it has not
    evaluated; any subscription what its open executions read.
    """
    found: dict[str, Need] = {}
    with reading(engine) as connection:
        for subscription in _subscriptions(connection):
            position = _subscription_needs_after(connection, subscription)
            for table in sorted(subscription.table_names):
                if table not in found or position < found[table].position:
                    found[table] = Need(
                        table=table,
                        position=position,
                        deployment=subscription.deployment,
                        subscription=subscription.name,
                    )
    return found


def needed_after(connection: Connection, table: str) -> Position | None:
    """The position after which a table's events are needed, None when nobody needs any; it holds
    until the transaction ends.
    """
    hold_checkpoints(connection)
    readers = [
        subscription
        for subscription in _subscriptions(connection)
        if table in subscription.table_names
    ]
    return min(
        (_subscription_needs_after(connection, subscription) for subscription in readers),
        default=None,
    )


def _subscription_needs_after(connection: Connection, subscription: SubscriptionRow) -> Position:
    starts = _open_starts(connection, subscription)
    if subscription.is_partitioned:
        return min([subscription.looked, *starts.values()])
    own = consumers_of(connection, subscription.subscription_id, [""]).get("")
    checkpoint = own.checkpoint.position if own else subscription.start.position
    needed = checkpoint if "" in starts else max(checkpoint, subscription.looked)
    return min([needed, *starts.values()])


def _open_starts(connection: Connection, subscription: SubscriptionRow) -> dict[str, Position]:
    """Where the ranges of the subscription's open executions begin, by consumer key."""
    rows = connection.execute(
        EXECUTIONS.where(lc_consumer.c.subscription_id == subscription.subscription_id, IS_OPEN)
    )
    return {row.key: row.start_checkpoint.position for row in rows}


def _subscriptions(connection: Connection) -> Sequence[SubscriptionRow]:
    return [
        subscription_from(row)
        for row in connection.execute(SUBSCRIPTIONS.order_by(lc_subscription.c.subscription_id))
    ]
