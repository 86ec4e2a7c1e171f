"""What people do to subscriptions and consumers: pause, resume, seek, replay, skip, retry, forget."""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from lakechime_dagster.dce.engine import now_ms, reading, writing
from lakechime_dagster.dce.schema import lc_consumer_partition
from lakechime_dagster.errors import ConsumerConflictError, NotFoundError
from lakechime_dagster.triggers.backfills import cancel_unclaimed
from lakechime_dagster.triggers.consumers import (
    Action,
    Cause,
    Checkpoint,
    ConsumerState,
    Execution,
    ExecutionState,
)
from lakechime_dagster.triggers.ledger import Claim, Ledger, open_execution
from lakechime_dagster.triggers.registry import (
    ACTIVE,
    TICK_NOTE_MS,
    By,
    ConsumerRow,
    SubscriptionRow,
    change,
    consumer_at,
    consumers_of,
    hold_checkpoints,
    make_consumer,
    nothing_looked,
    record,
    record_of,
    remember_atoms,
    standing_at,
)
from lakechime_dagster.triggers.schema import (
    lc_attempt,
    lc_consumer,
    lc_execution,
    lc_intervention,
    lc_request,
    lc_subscription,
)

QUIET_MS = 2 * TICK_NOTE_MS  # a sensor that is at work has noted a tick since
# where a consumer should stand, found in the transaction that moves it
CheckpointAt = Callable[[Connection, ConsumerRow], Checkpoint]


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
        """Stop launching runs, also those of later attempts, until `resume`. Running ones finish;
        new events queue up.
        """
        with writing(self.ledger.engine) as connection:
            paused = {"paused_ts": now_ms(connection), "paused_reason": by.reason}
            change(connection, lc_subscription, subscription.subscription_id, **paused)
            record(
                connection,
                subscription,
                Action.PAUSE,
                by,
                {"paused": subscription.paused_reason},
                {"paused": by.reason},
            )

    def resume(
        self,
        subscription: SubscriptionRow,
        by: By,
        checkpoint_at: CheckpointAt | None = None,
        ends: Mapping[str, Checkpoint] | None = None,
    ) -> None:
        """Let the trigger launch runs again; with `checkpoint_at` every consumer is put there
        first, such as to what its source still holds.

        A consumer that is BLOCKED because its source or its execution asked for a person goes on
        too: who resumes has decided. The execution is tried again, up to the checkpoint that `ends`
        names for its consumer, else just as before.
        """
        with writing(self.ledger.engine) as connection:
            if checkpoint_at:
                moved = self._move(connection, subscription, None, checkpoint_at)
                _record_seeks(connection, subscription, by, moved)
            change(
                connection,
                lc_subscription,
                subscription.subscription_id,
                paused_ts=None,
                paused_reason=None,
            )
            before = {
                "paused": subscription.paused_reason,
                "blocked": self._released(connection, subscription, ends or {}),
            }
            record(connection, subscription, Action.RESUME, by, before, {})

    def seek(
        self,
        subscription: SubscriptionRow,
        key: str | None,
        by: By,
        checkpoint_at: CheckpointAt,
        *,
        dry_run: bool = False,
    ) -> list[tuple[ConsumerRow, Checkpoint]]:
        """Put one consumer, or all of a subscription, at another checkpoint; returns the consumers
        as they were, each with its new checkpoint.

        A fired key that is put back counts as not fired, so that it fires again when it is
        complete.

        Raises:
            ConsumerConflictError: when a consumer has an open execution: complete, skip or wait for
                it first.
        """
        with writing(self.ledger.engine, keep=not dry_run) as connection:
            moved = self._move(connection, subscription, key, checkpoint_at)
            _record_seeks(connection, subscription, by, moved)
            return moved

    def replay(
        self, subscription: SubscriptionRow, by: By, start: Checkpoint, end: Checkpoint
    ) -> Execution:
        """Claim an execution of the range between two checkpoints of a snapshot trigger, by a
        consumer of its own, which ends with it; no other consumer moves.
        """
        key = f"replay-{uuid.uuid4().hex[:8]}"
        with writing(self.ledger.engine) as connection:
            hold_checkpoints(connection)
            make_consumer(connection, replace(subscription, start=start), key)
            consumer = consumer_at(connection, subscription.subscription_id, key, lock=True)
            claim = Claim(end=end, cause=Cause.REPLAY, reason=by.reason)
            execution_id = open_execution(connection, consumer, claim)
            before, after = {"checkpoint": start.to_json()}, {"checkpoint": end.to_json()}
            ids = {"consumer_key": key, "execution_id": execution_id}
            record(connection, subscription, Action.REPLAY, by, before, after, **ids)
            return self.ledger.locked(connection, execution_id)

    def skip(self, execution: Execution, by: By) -> None:
        """Give up an open execution: its consumer goes on after its range."""
        with writing(self.ledger.engine) as connection:
            current = self._open(connection, execution)
            self.ledger.close(
                connection,
                current,
                ExecutionState.SKIPPED,
                current.end,
                None,
                f"skipped by {by.who}: {by.reason}",
            )
            before, after = (
                {"checkpoint": current.start.to_json()},
                {"checkpoint": current.end.to_json()},
            )
            self._record_of(connection, current, Action.SKIP, by, before, after)

    def retry(self, execution: Execution, by: By, end: Checkpoint | None = None) -> Execution:
        """Try an open execution again at once, also one that is BLOCKED; up to another end where
        one is given.

        Raises:
            ConsumerConflictError: when a run still lives at it, which must end first.
        """
        with writing(self.ledger.engine) as connection:
            current = self._open(connection, execution)
            if current.lease_until is not None and current.lease_until > now_ms(connection):
                raise ConsumerConflictError(
                    f"run {current.run_id} is at execution {current.execution_id}; end that run "
                    f"first"
                )
            consumer = self.ledger.consumer_of(connection, current)
            change(connection, lc_consumer, consumer.consumer_id, **ACTIVE)
            following = self.ledger.next_attempt(
                connection, current, end or current.end, due_ts=now_ms(connection)
            )
            before, after = {"attempt": current.attempt}, {"attempt": following.attempt}
            self._record_of(connection, current, Action.RETRY, by, before, after)
            return following

    def forget(
        self, subscription: SubscriptionRow, by: By, *, dry_run: bool = False
    ) -> list[ConsumerRow]:
        """Drop the consumers and executions of a subscription, so that retention waits for it no
        longer; returns the consumers as they were.

        What people did to it is kept. A subscription that is declared again is new.

        Raises:
            ConsumerConflictError: when it has an open execution, or its sensor is at work, which
                would activate it again.
        """
        with writing(self.ledger.engine, keep=not dry_run) as connection:
            current = self.ledger.subscription_in(connection, subscription.name)
            consumers = list(consumers_of(connection, current.subscription_id, lock=True).values())
            if self.ledger.open_consumers(connection, current):
                raise ConsumerConflictError(
                    f"{subscription.name} has an open execution; wait for it, or skip it first"
                )
            if current.ticked_ts is not None and now_ms(connection) - current.ticked_ts < QUIET_MS:
                raise ConsumerConflictError(
                    f"the sensor of {subscription.name} ticked less than {QUIET_MS // 60_000} "
                    f"minutes ago; remove the trigger "
                    "from the code or stop its sensor, and try again later"
                )
            before = {"checkpoints": [[one.key, one.checkpoint.to_json()] for one in consumers]}
            record(connection, current, Action.FORGET, by, before, {})
            _drop(connection, current)
            return consumers

    def history(self, subscription: SubscriptionRow, limit: int = 100) -> list[Intervention]:
        """What people did to a subscription, newest first."""
        query = sa.select(lc_intervention).where(
            lc_intervention.c.subscription_id == subscription.subscription_id
        )
        with reading(self.ledger.engine) as connection:
            rows = connection.execute(
                query.order_by(lc_intervention.c.intervention_id.desc()).limit(limit)
            ).all()
        return [record_of(Intervention, row, subscription=subscription.name) for row in rows]

    def _move(
        self,
        connection: Connection,
        subscription: SubscriptionRow,
        key: str | None,
        checkpoint_at: CheckpointAt,
    ) -> list[tuple[ConsumerRow, Checkpoint]]:
        hold_checkpoints(connection)
        keys = subscription.own_keys if key is None else [key]
        consumers = consumers_of(connection, subscription.subscription_id, keys, lock=True)
        if not consumers and keys is not None:
            raise NotFoundError(
                f"{subscription.name} has no consumer {keys[0]!r}; `lakechime trigger show "
                f"{subscription.name}` lists its consumers"
            )
        busy = self.ledger.open_consumers(connection, subscription)
        moved = []
        for consumer in consumers.values():
            if consumer.consumer_id in busy:
                raise ConsumerConflictError(
                    f"{consumer.shown(subscription.name)} has an open execution; wait for it, or "
                    f"skip it first"
                )
            checkpoint = checkpoint_at(connection, consumer)
            moved.append((consumer, checkpoint))
            fired = consumer.fired and checkpoint.position >= consumer.checkpoint.position
            change(
                connection,
                lc_consumer,
                consumer.consumer_id,
                fired=fired,
                **standing_at(checkpoint),
                **ACTIVE,
            )
            if not fired:
                remember_atoms(connection, consumer.consumer_id, ())
        if moved:
            change(
                connection,
                lc_subscription,
                subscription.subscription_id,
                **nothing_looked(connection),
            )
        return moved

    def _released(
        self, connection: Connection, subscription: SubscriptionRow, ends: Mapping[str, Checkpoint]
    ) -> list[list[str]]:
        """The consumers that waited for a person's choice, with why; they are active now, and an
        execution that asked for it is tried again.
        """
        busy, blocked = (
            self.ledger.open_consumers(connection, subscription),
            self.ledger.blocked_executions(connection, subscription),
        )
        found = []
        for consumer in consumers_of(connection, subscription.subscription_id, lock=True).values():
            execution = blocked.get(consumer.consumer_id)
            asks_itself = (
                consumer.checkpoint.offsets is not None and consumer.consumer_id not in busy
            )
            if consumer.state is not ConsumerState.BLOCKED or (
                execution is None and not asks_itself
            ):
                continue
            found.append([consumer.key, consumer.state_reason])
            change(connection, lc_consumer, consumer.consumer_id, **ACTIVE)
            if execution is not None:
                end = ends.get(consumer.key, execution.end)
                self.ledger.next_attempt(connection, execution, end, due_ts=now_ms(connection))
        return found

    def _open(self, connection: Connection, execution: Execution) -> Execution:
        """The execution as it is now, its consumer locked."""
        current = self.ledger.locked(connection, execution.execution_id)
        if current.state is not ExecutionState.OPEN:
            raise ConsumerConflictError(
                f"execution {current.execution_id} is {current.state.value.lower()} already; "
                f"nothing was changed"
            )
        return current

    def _record_of(
        self,
        connection: Connection,
        execution: Execution,
        action: Action,
        by: By,
        before: dict[str, Any],
        after: dict[str, Any],
    ) -> None:
        subscription = self.ledger.subscription_in(connection, execution.consumer.subscription)
        ids = {"consumer_key": execution.consumer.key, "execution_id": execution.execution_id}
        record(connection, subscription, action, by, before, after, **ids)


def _record_seeks(
    connection: Connection,
    subscription: SubscriptionRow,
    by: By,
    moved: Iterable[tuple[ConsumerRow, Checkpoint]],
) -> None:
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


def _drop(connection: Connection, subscription: SubscriptionRow) -> None:
    """Remove what a subscription has, and leave its row for what people did to it."""
    cancel_unclaimed(connection, lc_request.c.subscription_id == subscription.subscription_id)
    consumers = sa.select(lc_consumer.c.consumer_id).where(
        lc_consumer.c.subscription_id == subscription.subscription_id
    )
    executions = sa.select(lc_execution.c.execution_id).where(
        lc_execution.c.consumer_id.in_(consumers)
    )
    connection.execute(sa.delete(lc_attempt).where(lc_attempt.c.execution_id.in_(executions)))
    for table in (lc_execution, lc_consumer_partition, lc_consumer):
        connection.execute(sa.delete(table).where(table.c.consumer_id.in_(consumers)))
    unset = {"ticked_ts": None, "paused_ts": None, "paused_reason": None}
    change(
        connection,
        lc_subscription,
        subscription.subscription_id,
        forgotten_ts=now_ms(connection),
        **unset,
    )
