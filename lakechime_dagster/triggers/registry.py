"""Subscriptions of a deployment and their consumers, as the ledger keeps them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.engine import among, insert_if_absent, now_ms, reading, writing
from lakechime_dagster.dce.events import Position
from lakechime_dagster.dce.schema import consumer_partition
from lakechime_dagster.errors import NotFoundError
from lakechime_dagster.triggers import schema
from lakechime_dagster.triggers.conditions import Atom
from lakechime_dagster.triggers.consumers import (
    Cause,
    Checkpoint,
    Committed,
    ConsumerId,
    ConsumerState,
    Execution,
    ExecutionState,
    SourceLag,
)
from lakechime_dagster.triggers.subscription import Subscription


@dataclass(frozen=True, kw_only=True)
class SubscriptionRow:
    """A subscription as the ledger keeps it.

    `ticked_ts` is when its sensor ticked, to the minute; `looked` the position up to which late changes were looked for.
    `cluster`, `is_partitioned` and `refires` are None for a subscription that only an older program has activated.
    """

    subscription_id: int
    deployment: str
    name: str
    description: str
    tables: tuple[str, ...]
    target: str | None
    job: str | None
    asset_keys: tuple[str, ...]
    activated_ts: int
    start: Checkpoint
    paused_ts: int | None
    paused_reason: str | None
    looked: Position
    ticked_ts: int | None = None
    cluster: str | None = None
    is_partitioned: bool | None = None
    refires: bool | None = None
    source_lag: SourceLag | None = None

    def describes(self, subscription: Subscription) -> bool:
        """Whether the declaration is the one that the ledger knows."""
        known = (self.description, self.cluster, self.tables, self.target, self.job, self.asset_keys)
        return known == (
            subscription.condition,
            subscription.cluster,
            subscription.pinned,
            subscription.target,
            subscription.job,
            subscription.asset_keys,
        )

    @property
    def blocked_sentence(self) -> str:
        return f"paused: {self.paused_reason}" if self.paused_ts is not None else ""


@dataclass(frozen=True, kw_only=True)
class ConsumerRow:
    """A consumer as the ledger keeps it; `completed` steps so far, its next step is one more."""

    consumer_id: int
    key: str
    state: ConsumerState
    state_reason: str
    completed: int
    checkpoint: Checkpoint
    fired: bool
    created_ts: int

    def blocked_sentence(self, subscription: str) -> str:
        """Why the consumer may not claim, with the remedy; empty when it may."""
        move = "seek" if self.checkpoint.offsets is None else "resume"
        return blocked_sentence(f"{subscription} {self.key}".strip(), subscription, self.state, self.state_reason, move)


def blocked_sentence(consumer: str, subscription: str, state: ConsumerState, reason: str, move: str = "seek") -> str:
    """Why a consumer in this state may not claim, with the remedy; empty when it may. `move` lets one go on that has no open step."""
    if state is ConsumerState.ACTIVE:
        return ""
    remedy = f"`lakechime execution retry` or `skip` goes on, where no step is open `lakechime trigger {move} {subscription}`"
    if state is ConsumerState.STALE:
        remedy = f"`lakechime trigger seek {subscription}` goes on, after `lakechime execution skip` where a step is open"
    return f"{consumer} is {state.value}: {reason}; {remedy}"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One Dagster run at an execution; times in milliseconds. `outcome` is None while it may still work."""

    number: int
    run_id: str | None
    due_ts: int
    begun_ts: int | None
    ended_ts: int | None
    lease_until: int | None
    outcome: str | None
    error: str | None


IS_KNOWN = schema.subscription.c.forgotten_ts.is_(None)
SUBSCRIPTIONS = sa.select(schema.subscription).where(IS_KNOWN)

EXECUTIONS = (
    sa.select(
        schema.execution,
        schema.consumer.c.key,
        schema.subscription.c.name.label("subscription"),
        schema.subscription.c.deployment,
        schema.attempt.c.run_id,
        schema.attempt.c.due_ts,
        schema.attempt.c.lease_until,
    )
    .join(schema.consumer, schema.consumer.c.consumer_id == schema.execution.c.consumer_id)
    .join(schema.subscription, schema.subscription.c.subscription_id == schema.consumer.c.subscription_id)
    .join(
        schema.attempt,
        sa.and_(schema.attempt.c.execution_id == schema.execution.c.execution_id, schema.attempt.c.number == schema.execution.c.attempt),
    )
)


def subscription_from(row: sa.Row[Any]) -> SubscriptionRow:
    return SubscriptionRow(
        subscription_id=row.subscription_id,
        deployment=row.deployment,
        name=row.name,
        description=row.description,
        tables=tuple(row.tables),
        target=row.target,
        job=row.job,
        asset_keys=tuple(row.asset_keys),
        activated_ts=row.activated_ts,
        start=Checkpoint.from_json(row.start),
        paused_ts=row.paused_ts,
        paused_reason=row.paused_reason,
        looked=Position(row.looked_tx, row.looked_seq),
        ticked_ts=row.ticked_ts,
        cluster=row.cluster,
        is_partitioned=row.is_partitioned,
        refires=row.refires,
        source_lag=None if row.source_lag is None else SourceLag.from_json(row.source_lag),
    )


def consumer_from(row: sa.Row[Any]) -> ConsumerRow:
    return ConsumerRow(
        consumer_id=row.consumer_id,
        key=row.key,
        state=ConsumerState(row.state),
        state_reason=row.state_reason,
        completed=row.completed,
        checkpoint=Checkpoint.from_json(row.checkpoint),
        fired=row.fired,
        created_ts=row.created_ts,
    )


def execution_from(row: sa.Row[Any]) -> Execution:
    return Execution(
        execution_id=row.execution_id,
        consumer=ConsumerId(row.deployment, row.subscription, row.key),
        step=row.step,
        state=ExecutionState(row.state),
        cause=Cause(row.cause),
        start=Checkpoint.from_json(row.start_checkpoint),
        end=Checkpoint.from_json(row.end_checkpoint),
        attempt=row.attempt,
        run_id=row.run_id,
        partition_key=row.partition_key,
        claimed_ts=row.claimed_ts,
        lease_until=row.lease_until,
        next_attempt_ts=row.due_ts,
        completed_ts=row.completed_ts,
        reason=row.reason,
        version=row.version,
        backfill=row.backfill or "",
        dagster_backfill=row.dagster_backfill or "",
    )


def attempt_from(row: sa.Row[Any]) -> Attempt:
    return Attempt(
        number=row.number,
        run_id=row.run_id,
        due_ts=row.due_ts,
        begun_ts=row.begun_ts,
        ended_ts=row.ended_ts,
        lease_until=row.lease_until,
        outcome=row.outcome,
        error=row.error,
    )


TICK_NOTE_MS = 60_000
_CHECKPOINTS = 0x1A6E_C41F  # PostgreSQL's advisory lock of those who move checkpoints back; any number that is ours


class Registry:
    """The subscriptions and consumers of one deployment."""

    def __init__(self, engine: Engine, deployment: str) -> None:
        self.engine = engine
        self.deployment = deployment

    def ensure_subscription(self, subscription: Subscription, start: Callable[[Connection], Checkpoint] | None = None) -> SubscriptionRow:
        """The subscription as the ledger keeps it; activated now, from `start`, when it is new or was forgotten."""
        found = self.subscription(subscription.name)
        if found is not None and found.describes(subscription):
            return found
        with writing(self.engine) as connection:
            hold_checkpoints(connection)
            values = {
                "description": subscription.condition,
                "tables": list(subscription.pinned),
                "target": subscription.target,
                "job": subscription.job,
                "asset_keys": list(subscription.asset_keys),
                "cluster": subscription.cluster,
                "tag_keys": sorted(subscription.trigger.tags),
                "is_partitioned": subscription.is_partitioned,
                "refires": subscription.refires,
            }
            values |= nothing_looked(connection)  # what was looked through for another declaration must be looked at again
            update = sa.update(schema.subscription).where(
                schema.subscription.c.deployment == self.deployment, schema.subscription.c.name == subscription.name
            )
            if not connection.execute(update.where(IS_KNOWN).values(**values)).rowcount:
                checkpoint = start(connection) if start else Checkpoint()
                values |= {"activated_ts": now_ms(connection), "start": checkpoint.to_json(), "forgotten_ts": None}
                if not connection.execute(update.where(~IS_KNOWN).values(**values)).rowcount:
                    insert = insert_if_absent(connection, schema.subscription)
                    connection.execute(insert.values(deployment=self.deployment, name=subscription.name, **values))
        found = self.subscription(subscription.name)
        assert found is not None
        return found

    def subscription(self, name: str) -> SubscriptionRow | None:
        """The subscription of that name, or None."""
        with reading(self.engine) as connection:
            return self._find_subscription(connection, name)

    def subscriptions(self) -> list[SubscriptionRow]:
        """All subscriptions of the deployment, by name."""
        with reading(self.engine) as connection:
            query = SUBSCRIPTIONS.where(schema.subscription.c.deployment == self.deployment).order_by(schema.subscription.c.name)
            return [subscription_from(row) for row in connection.execute(query)]

    def subscriptions_held_for(self, reason: str) -> list[SubscriptionRow]:
        """The subscriptions of which a consumer is held for a reason that begins so, by name."""
        consumer = schema.consumer.c
        is_held = sa.select(1).where(
            consumer.subscription_id == schema.subscription.c.subscription_id,
            consumer.state == ConsumerState.BLOCKED.value,
            consumer.state_reason.startswith(reason, autoescape=True),
        )
        with reading(self.engine) as connection:
            query = SUBSCRIPTIONS.where(schema.subscription.c.deployment == self.deployment, is_held.exists()).order_by(
                schema.subscription.c.name
            )
            return [subscription_from(row) for row in connection.execute(query)]

    def note_tick(self, subscriptions: Sequence[SubscriptionRow], now: int) -> None:
        """Remember that the sensor of these subscriptions ticked; written once a minute, so that a tick without news stays a read."""
        stale = [
            subscription.subscription_id
            for subscription in subscriptions
            if subscription.ticked_ts is None or now - subscription.ticked_ts >= TICK_NOTE_MS
        ]
        if stale:
            with writing(self.engine) as connection:
                connection.execute(
                    sa.update(schema.subscription)
                    .where(among(connection, schema.subscription.c.subscription_id, stale))
                    .values(ticked_ts=now)
                )

    def note_source(self, subscription: SubscriptionRow, lag: SourceLag) -> None:
        """Remember what the source of a subscription was seen to hold, where that is news."""
        if lag != subscription.source_lag:
            with writing(self.engine) as connection:
                connection.execute(
                    sa.update(schema.subscription)
                    .where(schema.subscription.c.subscription_id == subscription.subscription_id)
                    .values(source_lag=lag.to_json())
                )

    def consumers(self, subscription: SubscriptionRow) -> dict[str, ConsumerRow]:
        """The consumers of a subscription by key."""
        with reading(self.engine) as connection:
            return consumers_of(connection, subscription.subscription_id)

    def ensure_consumer(
        self, subscription: SubscriptionRow, key: str, committed: Committed | None = None, atoms: Sequence[Atom] = ()
    ) -> ConsumerRow:
        """The consumer; one that the ledger does not know starts from what its target's last commit says, else from the subscription's
        start.

        With such a commit the consumer counts as fired; `atoms` are the partitions whose later change is late.
        """
        with writing(self.engine) as connection:
            is_new = make_consumer(connection, subscription, key, committed)
            consumer = consumer_at(connection, subscription.subscription_id, key, lock=False)
            if is_new and committed:
                remember_atoms(connection, consumer.consumer_id, atoms)
            return consumer

    def subscription_in(self, connection: Connection, name: str) -> SubscriptionRow:
        """The subscription of that name, in a transaction.

        Raises:
            NotFoundError: there is none.
        """
        found = self._find_subscription(connection, name)
        if found is None:
            raise NotFoundError(
                f"no subscription {name!r} in deployment {self.deployment}; `lakechime trigger show` shows those that are there"
            )
        return found

    def open_consumers(self, connection: Connection, subscription: SubscriptionRow) -> set[int]:
        """The consumers of a subscription that have an open execution."""
        query = sa.select(schema.execution.c.consumer_id).join(
            schema.consumer, schema.consumer.c.consumer_id == schema.execution.c.consumer_id
        )
        return set(
            connection.execute(
                query.where(
                    schema.consumer.c.subscription_id == subscription.subscription_id, schema.execution.c.state == ExecutionState.OPEN.value
                )
            ).scalars()
        )

    def _find_subscription(self, connection: Connection, name: str) -> SubscriptionRow | None:
        query = SUBSCRIPTIONS.where(schema.subscription.c.deployment == self.deployment, schema.subscription.c.name == name)
        row = connection.execute(query).one_or_none()
        return subscription_from(row) if row else None


def hold_checkpoints(connection: Connection) -> None:
    """Until the transaction ends, let nobody else put a consumer back, declare a subscription otherwise, or fold what subscriptions do
    not need.

    On SQLite a transaction that writes keeps the others out anyway.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CHECKPOINTS)))


def nothing_looked(connection: Connection) -> dict[str, int]:
    """Before every position, and unlike any that an evaluation under way has looked up to, also from such a beginning."""
    return {"looked_tx": 0, "looked_seq": -now_ms(connection)}


def make_consumer(connection: Connection, subscription: SubscriptionRow, key: str, committed: Committed | None = None) -> bool:
    """Make a consumer that the ledger does not know, by its target's last commit or at the subscription's start; False when it was there.

    Where that commit no longer says up to where it read, the consumer is BLOCKED: from the start, all of it would be read again.
    """
    checkpoint = committed.commit_metadata.end if committed else subscription.start
    state, reason = ConsumerState.ACTIVE, ""
    if committed and committed.is_commit_metadata_lost:
        state, reason = (
            ConsumerState.BLOCKED,
            f"its target holds step {committed.commit_metadata.step}, but its log no longer says up to where",
        )
    values = {
        "subscription_id": subscription.subscription_id,
        "key": key,
        "state": state.value,
        "state_reason": reason,
        "completed": committed.commit_metadata.step if committed else 0,
        "fired": committed is not None,
        "created_ts": now_ms(connection),
        "checkpoint": checkpoint.to_json(),
        "checkpoint_tx": checkpoint.position.tx_id,
        "checkpoint_seq": checkpoint.position.seq,
    }
    return bool(connection.execute(insert_if_absent(connection, schema.consumer).values(**values)).rowcount)


def consumers_of(
    connection: Connection, subscription_id: int, keys: Sequence[str] | None = None, *, lock: bool = False
) -> dict[str, ConsumerRow]:
    """The consumers of a subscription by key, all of them or some; `lock` holds their rows until the transaction ends."""
    query = sa.select(schema.consumer).where(schema.consumer.c.subscription_id == subscription_id)
    query = query.order_by(schema.consumer.c.consumer_id).with_for_update() if lock else query
    if keys is not None:
        query = query.where(schema.consumer.c.key.in_(keys))
    return {row.key: consumer_from(row) for row in connection.execute(query)}


def consumer_at(connection: Connection, subscription_id: int, key: str, *, lock: bool) -> ConsumerRow:
    """One consumer, which is there."""
    query = sa.select(schema.consumer).where(schema.consumer.c.subscription_id == subscription_id, schema.consumer.c.key == key)
    return consumer_from(connection.execute(query.with_for_update() if lock else query).one())


def remember_atoms(connection: Connection, consumer_id: int, atoms: Sequence[Atom]) -> None:
    """Keep the partitions that a consumer's claim takes events of; a change in them after the consumer has fired is late."""
    connection.execute(sa.delete(consumer_partition).where(consumer_partition.c.consumer_id == consumer_id))
    rows = [
        {"consumer_id": consumer_id, "cluster": atom.cluster, "table_name": atom.table, "partition_key": atom.canonical} for atom in atoms
    ]
    if rows:
        connection.execute(sa.insert(consumer_partition), rows)
