"""What people do to subscriptions and consumers: pause, resume, seek, skip, retry, forget."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.engine import now_ms, reading, writing
from lakechime_dagster.dce.partitions import checked_text
from lakechime_dagster.dce.schema import consumer_partition
from lakechime_dagster.errors import ConsumerConflictError, NotFoundError
from lakechime_dagster.triggers import schema
from lakechime_dagster.triggers.consumers import Checkpoint, ConsumerState, Execution, ExecutionState
from lakechime_dagster.triggers.ledger import Ledger
from lakechime_dagster.triggers.registry import TICK_NOTE_MS, ConsumerRow, SubscriptionRow, consumers_of, hold_checkpoints, nothing_looked
from lakechime_dagster.triggers.requests import cancel_unclaimed

QUIET_MS = 2 * TICK_NOTE_MS  # a sensor that is at work has noted a tick since
CheckpointAt = Callable[[Connection, ConsumerRow], Checkpoint]  # where a consumer should stand, found in the transaction that moves it


class Action(StrEnum):
    """What was done."""

    PAUSE = "pause"
    RESUME = "resume"
    SEEK = "seek"
    SKIP = "skip"
    RETRY = "retry"
    FORGET = "forget"
    BACKFILL = "backfill"
    CANCEL = "cancel"


@dataclass(frozen=True, kw_only=True)
class By:
    """Who does something and why; both are kept."""

    who: str
    reason: str

    def __post_init__(self) -> None:
        checked_text("who", self.who, limit=128)
        checked_text("reason", self.reason, limit=1000)


@dataclass(frozen=True, kw_only=True)
class Intervention:
    """One thing that somebody did."""

    ts: int
    who: str
    action: Action
    subscription: str
    consumer_key: str | None
    execution_id: str | None
    reason: str
    before: dict[str, Any]
    after: dict[str, Any]


@dataclass(frozen=True)
class Interventions:
    """The commands of people on a ledger; every one is one transaction that also records it."""

    ledger: Ledger

    def pause(self, subscription: SubscriptionRow, by: By) -> None:
        """Stop launching runs, also those of later attempts, until `resume`. Running ones finish; new events queue up."""
        with writing(self.ledger.engine) as connection:
            values = {"paused_ts": now_ms(connection), "paused_reason": by.reason}
            connection.execute(
                sa.update(schema.subscription).where(schema.subscription.c.subscription_id == subscription.subscription_id).values(**values)
            )
            record(connection, subscription, Action.PAUSE, by, {"paused": subscription.paused_reason}, {"paused": by.reason})

    def resume(
        self, subscription: SubscriptionRow, by: By, checkpoint_at: CheckpointAt | None = None, ends: Mapping[str, Checkpoint] | None = None
    ) -> None:
        """Go on; with `checkpoint_at` every consumer is put there first (`latest`, `since`), without it all that waited is consumed.

        A consumer that is BLOCKED because its source or its step asked for a person goes on too: who resumes has decided. The step is
        tried again, up to the checkpoint that `ends` names for its consumer, else just as before.
        """
        with writing(self.ledger.engine) as connection:
            moved = self._move(connection, subscription, None, checkpoint_at) if checkpoint_at else []
            values = {"paused_ts": None, "paused_reason": None}
            connection.execute(
                sa.update(schema.subscription).where(schema.subscription.c.subscription_id == subscription.subscription_id).values(**values)
            )
            released = self._released(connection, subscription, ends or {})
            before = {
                "paused": subscription.paused_reason,
                "held": released,
                "checkpoints": [[consumer.key, consumer.checkpoint.to_json()] for consumer, _ in moved],
            }
            record(
                connection,
                subscription,
                Action.RESUME,
                by,
                before,
                {"checkpoints": [[consumer.key, checkpoint.to_json()] for consumer, checkpoint in moved]},
            )

    def seek(
        self, subscription: SubscriptionRow, key: str | None, by: By, checkpoint_at: CheckpointAt, *, dry_run: bool = False
    ) -> list[tuple[ConsumerRow, Checkpoint]]:
        """Put one consumer, or all of a subscription, at another checkpoint; returns the consumers as they were, each with its new
        checkpoint.

        A fired key that is put back counts as not fired, so that it fires again when it is complete.

        Raises:
            ConsumerConflictError: when a consumer has an open execution: complete, skip or wait for it first.
        """
        with writing(self.ledger.engine) as connection:
            moved = self._move(connection, subscription, key, checkpoint_at, dry_run=dry_run)
            if not dry_run:
                for consumer, checkpoint in moved:
                    record(
                        connection,
                        subscription,
                        Action.SEEK,
                        by,
                        {"checkpoint": consumer.checkpoint.to_json()},
                        {"checkpoint": checkpoint.to_json()},
                        consumer_key=consumer.key,
                    )
            return moved

    def skip(self, execution: Execution, by: By) -> None:
        """Give up an open execution: its consumer goes on after its range."""
        with writing(self.ledger.engine) as connection:
            current = self.ledger.locked(connection, execution.execution_id)
            subscription = self._open_subscription(connection, current)
            self.ledger.close(connection, current, ExecutionState.SKIPPED, current.end, None, f"skipped by {by.who}: {by.reason}")
            before, after = {"checkpoint": current.start.to_json()}, {"checkpoint": current.end.to_json()}
            record(
                connection,
                subscription,
                Action.SKIP,
                by,
                before,
                after,
                consumer_key=current.consumer.key,
                execution_id=current.execution_id,
            )

    def retry(self, execution: Execution, by: By, end: Checkpoint | None = None) -> Execution:
        """Try an open execution again at once, also one that is held; up to another end where one is given.

        Raises:
            ConsumerConflictError: when a run still lives at it, which must end first, or its consumer lost events: no retry finds them.
        """
        with writing(self.ledger.engine) as connection:
            current = self.ledger.locked(connection, execution.execution_id)
            subscription = self._open_subscription(connection, current)
            if current.lease_until is not None and current.lease_until > now_ms(connection):
                raise ConsumerConflictError(f"run {current.run_id} is at execution {current.execution_id}; end that run first")
            consumer = self.ledger.consumer_of(connection, current)
            if consumer.state is ConsumerState.STALE:
                raise ConsumerConflictError(consumer.blocked_sentence(subscription.name))
            active = {"state": ConsumerState.ACTIVE.value, "state_reason": ""}
            connection.execute(sa.update(schema.consumer).where(schema.consumer.c.consumer_id == consumer.consumer_id).values(**active))
            following = self.ledger.next_attempt(connection, current, end or current.end, due_ts=now_ms(connection))
            before, after = {"attempt": current.attempt}, {"attempt": following.attempt}
            record(
                connection,
                subscription,
                Action.RETRY,
                by,
                before,
                after,
                consumer_key=current.consumer.key,
                execution_id=current.execution_id,
            )
            return following

    def forget(self, subscription: SubscriptionRow, by: By, *, dry_run: bool = False) -> list[ConsumerRow]:
        """Drop the consumers and executions of a subscription, so that retention waits for it no longer; returns the consumers as they
        were.

        What people did to it is kept. A subscription that is declared again is new.

        Raises:
            ConsumerConflictError: when it has an open execution, or its sensor is at work, which would activate it again.
        """
        with writing(self.ledger.engine) as connection:
            current = self.ledger.subscription_in(connection, subscription.name)
            consumers = list(consumers_of(connection, current.subscription_id, lock=True).values())
            if self.ledger.open_consumers(connection, current):
                raise ConsumerConflictError(f"{subscription.name} has an open execution; wait for it, or skip it first")
            if current.ticked_ts is not None and now_ms(connection) - current.ticked_ts < QUIET_MS:
                raise ConsumerConflictError(
                    f"the sensor of {subscription.name} looked at it less than {QUIET_MS // 60_000} minutes ago; remove the trigger "
                    f"from the "
                    "code or stop its sensor, and try again later"
                )
            if not dry_run:
                record(
                    connection,
                    current,
                    Action.FORGET,
                    by,
                    {"checkpoints": [[consumer.key, consumer.checkpoint.to_json()] for consumer in consumers]},
                    {},
                )
                _drop(connection, current)
            return consumers

    def history(self, subscription: SubscriptionRow, limit: int = 100) -> list[Intervention]:
        """What people did to a subscription, newest first."""
        query = sa.select(schema.intervention).where(schema.intervention.c.subscription_id == subscription.subscription_id)
        with reading(self.ledger.engine) as connection:
            rows = connection.execute(query.order_by(schema.intervention.c.intervention_id.desc()).limit(limit)).all()
        return [
            Intervention(
                ts=row.ts,
                who=row.who,
                action=Action(row.action),
                subscription=subscription.name,
                consumer_key=row.consumer_key,
                execution_id=row.execution_id,
                reason=row.reason,
                before=row.before,
                after=row.after,
            )
            for row in rows
        ]

    def _move(
        self, connection: Connection, subscription: SubscriptionRow, key: str | None, checkpoint_at: CheckpointAt, *, dry_run: bool = False
    ) -> list[tuple[ConsumerRow, Checkpoint]]:
        hold_checkpoints(connection)
        consumers = consumers_of(connection, subscription.subscription_id, None if key is None else [key], lock=True)
        if not consumers and key is not None:
            raise NotFoundError(
                f"{subscription.name} has no consumer {key!r}; `lakechime trigger show {subscription.name}` lists its consumers"
            )
        busy = self.ledger.open_consumers(connection, subscription)
        moved = []
        for consumer in consumers.values():
            if consumer.consumer_id in busy:
                raise ConsumerConflictError(
                    f"{subscription.name} {consumer.key}".strip() + " has an open execution; wait for it, or skip it first"
                )
            checkpoint = checkpoint_at(connection, consumer)
            moved.append((consumer, checkpoint))
            if not dry_run:
                values = {
                    "checkpoint": checkpoint.to_json(),
                    "checkpoint_tx": checkpoint.position.tx_id,
                    "checkpoint_seq": checkpoint.position.seq,
                }
                values |= {
                    "fired": consumer.fired and checkpoint.position >= consumer.checkpoint.position,
                    "state": ConsumerState.ACTIVE.value,
                    "state_reason": "",
                }
                connection.execute(sa.update(schema.consumer).where(schema.consumer.c.consumer_id == consumer.consumer_id).values(**values))
                if not values["fired"]:
                    connection.execute(sa.delete(consumer_partition).where(consumer_partition.c.consumer_id == consumer.consumer_id))
        if moved and not dry_run:
            connection.execute(
                sa.update(schema.subscription)
                .where(schema.subscription.c.subscription_id == subscription.subscription_id)
                .values(**nothing_looked(connection))
            )
        return moved

    def _released(self, connection: Connection, subscription: SubscriptionRow, ends: Mapping[str, Checkpoint]) -> list[list[str]]:
        """The consumers that waited for a person's choice, with why; they are active now, and a step that asked for it is tried again."""
        consumers = consumers_of(connection, subscription.subscription_id, lock=True).values()
        busy, steps = self.ledger.open_consumers(connection, subscription), self.ledger.held_steps(connection, subscription)
        found = [
            consumer
            for consumer in consumers
            if consumer.state is ConsumerState.BLOCKED
            and (consumer.consumer_id in steps or (consumer.checkpoint.offsets is not None and consumer.consumer_id not in busy))
        ]
        active = {"state": ConsumerState.ACTIVE.value, "state_reason": ""}
        for consumer in found:
            connection.execute(sa.update(schema.consumer).where(schema.consumer.c.consumer_id == consumer.consumer_id).values(**active))
            if (step := steps.get(consumer.consumer_id)) is not None:
                self.ledger.next_attempt(connection, step, ends.get(consumer.key, step.end), due_ts=now_ms(connection))
        return [[consumer.key, consumer.state_reason] for consumer in found]

    def _open_subscription(self, connection: Connection, execution: Execution) -> SubscriptionRow:
        if execution.state is not ExecutionState.OPEN:
            raise ConsumerConflictError(
                f"execution {execution.execution_id} is {execution.state.value.lower()} already; nothing was changed"
            )
        return self.ledger.subscription_in(connection, execution.consumer.subscription)


def _drop(connection: Connection, subscription: SubscriptionRow) -> None:
    """Remove what a subscription has, and leave its row for what people did to it."""
    cancel_unclaimed(connection, schema.request.c.subscription_id == subscription.subscription_id)
    consumers = sa.select(schema.consumer.c.consumer_id).where(schema.consumer.c.subscription_id == subscription.subscription_id)
    executions = sa.select(schema.execution.c.execution_id).where(schema.execution.c.consumer_id.in_(consumers))
    connection.execute(sa.delete(schema.attempt).where(schema.attempt.c.execution_id.in_(executions)))
    for table in (schema.execution, consumer_partition, schema.consumer):
        connection.execute(sa.delete(table).where(table.c.consumer_id.in_(consumers)))
    unset = {"ticked_ts": None, "paused_ts": None, "paused_reason": None}
    this = schema.subscription.c.subscription_id == subscription.subscription_id
    connection.execute(sa.update(schema.subscription).where(this).values(forgotten_ts=now_ms(connection), **unset))


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
    values = {
        "ts": now_ms(connection),
        "who": by.who,
        "action": action.value,
        "subscription_id": subscription.subscription_id,
        "consumer_key": consumer_key,
    }
    values |= {"execution_id": execution_id, "reason": by.reason, "before": before, "after": after}
    connection.execute(sa.insert(schema.intervention).values(**values))
