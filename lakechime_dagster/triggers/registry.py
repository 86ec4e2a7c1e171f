"""Subscriptions of a deployment and their consumers, as the ledger keeps them."""

from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.engine import among, insert_if_absent, now_ms, reading, writing
from lakechime_dagster.dce.events import Position
from lakechime_dagster.dce.partitions import checked_text
from lakechime_dagster.dce.schema import lc_consumer_partition
from lakechime_dagster.errors import NotFoundError
from lakechime_dagster.triggers.consumers import (
    Action,
    Checkpoint,
    Committed,
    ConsumerId,
    ConsumerState,
    Execution,
    ExecutionState,
    SourceLag,
)
from lakechime_dagster.triggers.schema import (
    lc_attempt,
    lc_consumer,
    lc_execution,
    lc_intervention,
    lc_subscription,
)
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import Atom


@dataclass(frozen=True, kw_only=True)
class SubscriptionRow:
    """A subscription as the ledger keeps it.

    `ticked_ts` is when its sensor ticked, to the minute; `looked` the position up to which no event
    can fire it any more, but for what the checkpoints of its consumers say.
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
    cluster: str
    is_partitioned: bool
    paused_ts: int | None = None
    paused_reason: str | None = None
    looked: Position = Position.ORIGIN
    ticked_ts: int | None = None
    source_lag: SourceLag | None = None

    def describes(self, subscription: Subscription) -> bool:
        """Whether the declaration is the one that the ledger knows."""
        return all(getattr(self, name) == value for name, value in declared(subscription).items())

    @property
    def own_keys(self) -> list[str] | None:
        """The keys of its consumers but for those of replays; None for any key, as of partitions."""
        return None if self.is_partitioned else [""]

    @property
    def table_names(self) -> frozenset[str]:
        """The names of its tables, in whatever cluster they are."""
        return frozenset(
            name for one in self.tables for name in (one, one.partition(":")[2]) if name
        )

    @property
    def blocked_sentence(self) -> str:
        return f"paused: {self.paused_reason}" if self.paused_ts is not None else ""


def declared(subscription: Subscription) -> dict[str, Any]:
    """The columns of a subscription that its declaration says."""
    return {
        "description": subscription.condition,
        "tables": subscription.pinned,
        "target": subscription.target,
        "job": subscription.job,
        "asset_keys": subscription.asset_keys,
        "cluster": subscription.cluster,
        "is_partitioned": subscription.is_partitioned,
    }


@dataclass(frozen=True, kw_only=True)
class ConsumerRow:
    """A consumer as the ledger keeps it; its next execution has the number `completed` + 1."""

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
        if self.state is ConsumerState.ACTIVE:
            return ""
        move = "seek" if self.checkpoint.offsets is None else "resume"
        remedy = (
            f"`lakechime execution retry` or `skip` goes on, where no execution is open `lakechime "
            f"trigger {move} {subscription}`"
        )
        return f"{self.shown(subscription)} is {self.state.value}: {self.state_reason}; {remedy}"

    def is_still(self, seen: "ConsumerRow") -> bool:
        """Whether nothing was completed or put back since it was seen so."""
        return (self.completed, self.checkpoint) == (seen.completed, seen.checkpoint)

    def shown(self, subscription: str) -> str:
        """The consumer of this subscription in messages."""
        return f"{subscription} {self.key}".strip()


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One Dagster run at an execution; times in milliseconds. `outcome` is None while it may still
    work.
    """

    number: int
    run_id: str | None
    due_ts: int
    begun_ts: int | None
    ended_ts: int | None
    lease_until: int | None
    outcome: str | None
    error: str | None


IS_KNOWN = lc_subscription.c.forgotten_ts.is_(None)
SUBSCRIPTIONS = sa.select(lc_subscription).where(IS_KNOWN)

EXECUTIONS = (
    sa.select(
        lc_execution,
        lc_consumer.c.key,
        lc_subscription.c.name.label("subscription"),
        lc_subscription.c.deployment,
        lc_attempt.c.run_id,
        lc_attempt.c.due_ts,
        lc_attempt.c.lease_until,
    )
    .join(lc_consumer, lc_consumer.c.consumer_id == lc_execution.c.consumer_id)
    .join(lc_subscription, lc_subscription.c.subscription_id == lc_consumer.c.subscription_id)
    .join(
        lc_attempt,
        sa.and_(
            lc_attempt.c.execution_id == lc_execution.c.execution_id,
            lc_attempt.c.number == lc_execution.c.attempt,
        ),
    )
)


OF_EXECUTION = lc_consumer.c.consumer_id == lc_execution.c.consumer_id
IS_OPEN = lc_execution.c.state == ExecutionState.OPEN


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


Record = TypeVar("Record", bound=_Dataclass)


def record_of(kind: type[Record], row: sa.Row[Any], **others: Any) -> Record:
    """A record from the columns of a row that its fields are named after, and from the `others`."""
    columns = row._asdict()
    return kind(
        **{name: columns[name] for name in kind.__dataclass_fields__ if name in columns} | others
    )


def subscription_from(row: sa.Row[Any]) -> SubscriptionRow:
    lists = {"tables": tuple(row.tables), "asset_keys": tuple(row.asset_keys)}
    return record_of(SubscriptionRow, row, **lists, looked=Position(row.looked_tx, row.looked_seq))


def consumer_from(row: sa.Row[Any]) -> ConsumerRow:
    return record_of(ConsumerRow, row)


def execution_from(row: sa.Row[Any]) -> Execution:
    consumer = ConsumerId(row.deployment, row.subscription, row.key)
    return record_of(
        Execution,
        row,
        consumer=consumer,
        start=row.start_checkpoint,
        end=row.end_checkpoint,
        next_attempt_ts=row.due_ts,
    )


def attempt_from(row: sa.Row[Any]) -> Attempt:
    return record_of(Attempt, row)


def change(connection: Connection, table: sa.Table, key: int | str, **values: Any) -> None:
    """Set columns of the row that has this primary key."""
    (primary_key,) = table.primary_key
    connection.execute(sa.update(table).where(primary_key == key).values(**values))


def standing_at(checkpoint: Checkpoint) -> dict[str, Any]:
    """The columns of a consumer that stands at a checkpoint."""
    return {
        "checkpoint": checkpoint,
        "checkpoint_tx": checkpoint.position.tx_id,
        "checkpoint_seq": checkpoint.position.seq,
    }


@dataclass(frozen=True, kw_only=True)
class By:
    """Who does something and why; both are kept."""

    who: str
    reason: str

    def __post_init__(self) -> None:
        checked_text("who", self.who, limit=128)
        checked_text("reason", self.reason, limit=1000)


def record(
    connection: Connection,
    subscription: SubscriptionRow,
    action: Action,
    by: By,
    before: dict[str, Any],
    after: dict[str, Any],
    *,
    consumer_key: str | None = None,
    execution_id: str | None = None,
) -> None:
    """Keep what somebody did to a subscription, in the transaction that does it."""
    connection.execute(
        sa.insert(lc_intervention).values(
            ts=now_ms(connection),
            who=by.who,
            action=action,
            subscription_id=subscription.subscription_id,
            consumer_key=consumer_key,
            execution_id=execution_id,
            reason=by.reason,
            before=before,
            after=after,
        )
    )


# the columns of a consumer that may claim
ACTIVE = {"state": ConsumerState.ACTIVE, "state_reason": ""}
ENDED = {"state": ConsumerState.ENDED, "state_reason": ""}
TICK_NOTE_MS = 60_000
# PostgreSQL's advisory lock of those who move checkpoints back; any number that is ours
_CHECKPOINTS = 0x1A6E_C41F


class Registry:
    """The subscriptions and consumers of one deployment."""

    def __init__(self, engine: Engine, deployment: str) -> None:
        self.engine = engine
        self.deployment = deployment

    def ensure_subscription(
        self, subscription: Subscription, start: Callable[[Connection], Checkpoint] | None = None
    ) -> SubscriptionRow:
        """The subscription as the ledger keeps it; activated now, from `start`, when it is new or
        was forgotten.
        """
        found = self.subscription(subscription.name)
        if found is not None and found.describes(subscription):
            return found
        with writing(self.engine) as connection:
            hold_checkpoints(connection)
            # what was looked through for another declaration must be looked at again
            values = {
                **declared(subscription),
                "tag_keys": sorted({key for _, tags in subscription.wanted for key in tags}),
                **nothing_looked(connection),
            }
            update = sa.update(lc_subscription).where(
                lc_subscription.c.deployment == self.deployment,
                lc_subscription.c.name == subscription.name,
            )
            if not connection.execute(update.where(IS_KNOWN).values(**values)).rowcount:
                values |= {
                    "activated_ts": now_ms(connection),
                    "start": start(connection) if start else Checkpoint(),
                    "forgotten_ts": None,
                }
                if not connection.execute(update.where(~IS_KNOWN).values(**values)).rowcount:
                    insert = insert_if_absent(connection, lc_subscription)
                    connection.execute(
                        insert.values(deployment=self.deployment, name=subscription.name, **values)
                    )
        found = self.subscription(subscription.name)
        assert found is not None
        return found

    def subscription(self, name: str) -> SubscriptionRow | None:
        """The subscription of that name, or None."""
        with reading(self.engine) as connection:
            return self._find_subscription(connection, name)

    def subscriptions(self, *which: sa.ColumnElement[bool]) -> list[SubscriptionRow]:
        """The subscriptions of the deployment, all or those for which these conditions hold, by
        name.
        """
        query = SUBSCRIPTIONS.where(
            lc_subscription.c.deployment == self.deployment, *which
        ).order_by(lc_subscription.c.name)
        with reading(self.engine) as connection:
            return [subscription_from(row) for row in connection.execute(query)]

    def subscriptions_blocked_for(self, reason: str) -> list[SubscriptionRow]:
        """The subscriptions of which a consumer is BLOCKED for a reason that begins so, by name."""
        is_blocked = sa.exists(lc_consumer.c.consumer_id).where(
            lc_consumer.c.subscription_id == lc_subscription.c.subscription_id,
            lc_consumer.c.state == ConsumerState.BLOCKED,
            lc_consumer.c.state_reason.startswith(reason, autoescape=True),
        )
        return self.subscriptions(is_blocked)

    def note_tick(self, subscriptions: Sequence[SubscriptionRow], now: int) -> None:
        """Remember that the sensor of these subscriptions ticked; written once a minute, so that a
        tick without news stays a read.
        """
        stale = [
            one.subscription_id
            for one in subscriptions
            if one.ticked_ts is None or now - one.ticked_ts >= TICK_NOTE_MS
        ]
        if stale:
            with writing(self.engine) as connection:
                these = among(connection, lc_subscription.c.subscription_id, stale)
                connection.execute(sa.update(lc_subscription).where(these).values(ticked_ts=now))

    def note_source(self, subscription: SubscriptionRow, lag: SourceLag) -> None:
        """Remember what a poll of the subscription's source found, where that is news."""
        if lag != subscription.source_lag:
            with writing(self.engine) as connection:
                change(connection, lc_subscription, subscription.subscription_id, source_lag=lag)

    def consumers(
        self, subscription: SubscriptionRow, keys: Sequence[str] | None = None
    ) -> dict[str, ConsumerRow]:
        """The consumers of a subscription by key, all of them or some."""
        with reading(self.engine) as connection:
            return consumers_of(connection, subscription.subscription_id, keys)

    def ensure_consumer(
        self,
        subscription: SubscriptionRow,
        key: str,
        committed: Committed | None = None,
        atoms: Sequence[Atom] = (),
    ) -> ConsumerRow:
        """The consumer; one that the ledger does not know starts from what its target's last commit
        says, else from the subscription's start.

        With such a commit the consumer counts as fired; `atoms` are the partitions whose later
        change is late.
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
                f"no subscription {name!r} in deployment {self.deployment}; `lakechime trigger "
                f"show` shows those that are there"
            )
        return found

    def open_consumers(self, connection: Connection, subscription: SubscriptionRow) -> set[int]:
        """The consumers of a subscription that have an open execution."""
        query = sa.select(lc_execution.c.consumer_id).join(lc_consumer, OF_EXECUTION)
        return set(
            connection.execute(
                query.where(lc_consumer.c.subscription_id == subscription.subscription_id, IS_OPEN)
            ).scalars()
        )

    def _find_subscription(self, connection: Connection, name: str) -> SubscriptionRow | None:
        query = SUBSCRIPTIONS.where(
            lc_subscription.c.deployment == self.deployment, lc_subscription.c.name == name
        )
        row = connection.execute(query).one_or_none()
        return subscription_from(row) if row else None


def hold_checkpoints(connection: Connection) -> None:
    """Until the transaction ends, let nobody else put a consumer back, declare a subscription
    otherwise, or compact events that no subscription needs.

    On SQLite a transaction that writes keeps the others out anyway.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CHECKPOINTS)))


def nothing_looked(connection: Connection) -> dict[str, int]:
    """Before every position, and unlike any that an evaluation under way has looked up to, also
    from such a beginning.
    """
    return {"looked_tx": 0, "looked_seq": -now_ms(connection)}


def make_consumer(
    connection: Connection,
    subscription: SubscriptionRow,
    key: str,
    committed: Committed | None = None,
) -> bool:
    """Make a consumer that the ledger does not know, by its target's last commit or at the
    subscription's start; False when it was there.

    Where that commit no longer says up to where it read, the consumer is BLOCKED: from the start,
    all of it would be read again.
    """
    metadata = committed.commit_metadata if committed else None
    values: dict[str, Any] = {
        "subscription_id": subscription.subscription_id,
        "key": key,
        "created_ts": now_ms(connection),
    }
    values |= {
        "completed": metadata.number if metadata else 0,
        "fired": metadata is not None,
        **ACTIVE,
    }
    values |= standing_at(metadata.end if metadata else subscription.start)
    if metadata and committed and committed.is_commit_metadata_lost:
        reason = (
            f"its target holds execution {metadata.number}, but its log no longer says up to where"
        )
        values |= {"state": ConsumerState.BLOCKED, "state_reason": reason}
    return bool(
        connection.execute(insert_if_absent(connection, lc_consumer).values(**values)).rowcount
    )


def consumers_of(
    connection: Connection,
    subscription_id: int,
    keys: Sequence[str] | None = None,
    *,
    lock: bool = False,
) -> dict[str, ConsumerRow]:
    """The consumers of a subscription by key, all that have not ended or some of them; `lock` holds
    their rows until the transaction ends.
    """
    query = sa.select(lc_consumer).where(
        lc_consumer.c.subscription_id == subscription_id, lc_consumer.c.state != ConsumerState.ENDED
    )
    query = query.order_by(lc_consumer.c.consumer_id).with_for_update() if lock else query
    if keys is not None:
        query = query.where(lc_consumer.c.key.in_(keys))
    return {row.key: consumer_from(row) for row in connection.execute(query)}


def newest_consumer(connection: Connection, subscription_id: int) -> ConsumerRow | None:
    """The consumer of a subscription whose checkpoint has the newest position."""
    query = sa.select(lc_consumer).where(lc_consumer.c.subscription_id == subscription_id)
    newest = query.order_by(lc_consumer.c.checkpoint_tx.desc(), lc_consumer.c.checkpoint_seq.desc())
    row = connection.execute(newest.limit(1)).one_or_none()
    return None if row is None else consumer_from(row)


def consumer_at(
    connection: Connection, subscription_id: int, key: str, *, lock: bool
) -> ConsumerRow:
    """One consumer, which is there."""
    query = sa.select(lc_consumer).where(
        lc_consumer.c.subscription_id == subscription_id, lc_consumer.c.key == key
    )
    return consumer_from(connection.execute(query.with_for_update() if lock else query).one())


def remember_atoms(connection: Connection, consumer_id: int, atoms: Sequence[Atom]) -> None:
    """Keep the partitions that a consumer's claim takes events of; a change in them after the
    consumer has fired is late.
    """
    connection.execute(
        sa.delete(lc_consumer_partition).where(lc_consumer_partition.c.consumer_id == consumer_id)
    )
    if atoms:  # of which two may differ in their tags alone
        partitions = dict.fromkeys((one.cluster, one.table, one.canonical) for one in atoms)
        rows = [
            {"cluster": cluster, "table_name": table, "partition_key": canonical}
            for cluster, table, canonical in partitions
        ]
        connection.execute(sa.insert(lc_consumer_partition).values(consumer_id=consumer_id), rows)
