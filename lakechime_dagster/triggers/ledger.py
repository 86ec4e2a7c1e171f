"""The ledger: what every consumer has consumed, and which execution is open in which run."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.engine import among, now_ms, reading, writing
from lakechime_dagster.dce.events import RegisteredEvent, TagConditions
from lakechime_dagster.dce.partitions import storable
from lakechime_dagster.dce.queries import (
    TableKey,
    changes_data,
    event_of,
    is_after,
    is_new,
    is_through,
    select_events,
)
from lakechime_dagster.dce.schema import HISTORY, dce_table, lc_consumer_partition
from lakechime_dagster.errors import ConsumerConflictError, NotFoundError
from lakechime_dagster.triggers.backfills import close_requests, take_requests
from lakechime_dagster.triggers.consumers import (
    Cause,
    Checkpoint,
    Committed,
    ConsumerState,
    Execution,
    ExecutionState,
)
from lakechime_dagster.triggers.registry import (
    ACTIVE,
    ENDED,
    EXECUTIONS,
    IS_OPEN,
    Attempt,
    ConsumerRow,
    Registry,
    SubscriptionRow,
    attempt_from,
    change,
    consumer_at,
    consumer_from,
    execution_from,
    remember_atoms,
    standing_at,
)
from lakechime_dagster.triggers.schema import lc_attempt, lc_consumer, lc_execution, lc_subscription
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import Atom, TagsFrom

Beside = Callable[[Connection], None]

LEASE_MS = 60_000
MAX_ATTEMPTS = 5
BLOCKED = "blocked"  # the outcome of an attempt that asked for a person
BACKOFF_MS = (0, 10_000, 30_000, 120_000, 300_000)  # before attempts 2, 3, 4, 5


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a claim takes: the end of its range and why; `fired` says whether a partition trigger's
    key counts as fired by it.

    `requests` are those that waited for the consumer before its end was read.
    """

    end: Checkpoint
    cause: Cause = Cause.TRIGGER
    reason: str = ""
    partition_key: str | None = None
    fired: bool = True
    atoms: tuple[Atom, ...] = ()
    requests: tuple[int, ...] = ()


class Ledger(Registry):
    """The executions of one deployment's consumers: claimed, attempted, completed."""

    # Claims

    def claim(
        self, subscription: SubscriptionRow, consumer: ConsumerRow, claim: Claim
    ) -> Execution:
        """Take the next execution of a consumer, as seen in `consumer`, with its range frozen.

        A consumer that was rebuilt from its target begins with attempt 2: an attempt that the lost
        ledger knew may still be at work, so that nothing but a commit may complete this execution.

        Raises:
            ConsumerConflictError: when the consumer has moved since, is not active, has an open
                execution, or other requests than were seen, or when the trigger fired and was
                paused since.
        """
        with writing(self.engine) as connection:
            if claim.cause is Cause.TRIGGER and (
                paused := self.subscription_in(connection, subscription.name).blocked_sentence
            ):
                raise ConsumerConflictError(f"{subscription.name} is {paused}")
            current = consumer_at(connection, subscription.subscription_id, consumer.key, lock=True)
            if not current.is_still(consumer) or current.state is not ConsumerState.ACTIVE:
                found = f"{current.completed} executions, {current.state.value}"
                raise ConsumerConflictError(
                    f"consumer {consumer.shown(subscription.name)} moved on ({found})"
                )
            if _is_busy(connection, current):
                raise ConsumerConflictError(
                    f"consumer {consumer.shown(subscription.name)} has an open execution"
                )
            attempt = 2 if current.completed and not _has_history(connection, current) else 1
            execution_id = open_execution(connection, current, claim, attempt)
            take_requests(
                connection, subscription.subscription_id, consumer.key, claim.requests, execution_id
            )
            if claim.atoms:
                remember_atoms(connection, current.consumer_id, claim.atoms)
            if claim.fired and not current.fired:
                change(connection, lc_consumer, current.consumer_id, fired=True)
            return self._execution(connection, execution_id)

    # Attempts

    def begin(
        self, execution_id: str, run_id: str, dagster_backfill: str | None = None
    ) -> Execution:
        """Let a run begin the newest attempt of an execution; again by the same run changes
        nothing.

        A run that comes while the attempt's own run is dead (its lease over) takes the next
        attempt. The backfill of Dagster that a run is of is kept, for the runs of later attempts.

        Raises:
            ConsumerConflictError: when it is completed, skipped or BLOCKED, or another run is at
                it; the message names what to do.
        """
        with writing(self.engine) as connection:
            execution = self.locked(connection, execution_id)
            if execution.state is not ExecutionState.OPEN:
                raise ConsumerConflictError(
                    f"execution {execution_id} is {execution.state.value.lower()} already; to run "
                    f"its range again use "
                    f"`lakechime trigger seek {execution.consumer.subscription} --to …`"
                )
            consumer = self.consumer_of(connection, execution)
            if consumer.state is not ConsumerState.ACTIVE:
                raise ConsumerConflictError(
                    consumer.blocked_sentence(execution.consumer.subscription)
                )
            now = now_ms(connection)
            if execution.run_id not in (None, run_id):
                if execution.lease_until is not None and execution.lease_until > now:
                    raise ConsumerConflictError(
                        f"run {execution.run_id} is at execution {execution_id} (attempt "
                        f"{execution.attempt})"
                    )
                _end_attempt(
                    connection, execution, "lost", "its lease was over when another run came", now
                )
                execution = self.next_attempt(connection, execution, execution.end, due_ts=now)
            begun = sa.func.coalesce(lc_attempt.c.begun_ts, now)
            _change_attempt(
                connection, execution, run_id=run_id, begun_ts=begun, lease_until=now + LEASE_MS
            )
            if dagster_backfill is not None:
                change(connection, lc_execution, execution_id, dagster_backfill=dagster_backfill)
            return self._execution(connection, execution_id)

    def renew(self, execution_id: str, attempt: int, run_id: str) -> bool:
        """Renew the lease of a running attempt; False when it is not the newest any more, so that
        the run should end.
        """
        newest = sa.exists(lc_execution.c.execution_id).where(
            lc_execution.c.execution_id == execution_id, lc_execution.c.attempt == attempt, IS_OPEN
        )
        mine = (
            lc_attempt.c.execution_id == execution_id,
            lc_attempt.c.number == attempt,
            lc_attempt.c.run_id == run_id,
        )
        with writing(self.engine) as connection:
            renewing = (
                sa.update(lc_attempt)
                .where(*mine, newest)
                .values(lease_until=now_ms(connection) + LEASE_MS)
            )
            return bool(connection.execute(renewing).rowcount)

    def note_error(self, execution: Execution, error: str) -> None:
        """Keep why an attempt fails, for the reason of the next one; changes nothing else."""
        with writing(self.engine) as connection:
            _change_attempt(connection, execution, error=storable(error)[:2000])

    def lose(
        self,
        execution: Execution,
        error: str,
        end: Checkpoint | None = None,
        *,
        immediately: bool = False,
    ) -> Execution | None:
        """Call the newest attempt lost: the next one is due after a pause and may read further;
        after the fifth the consumer is BLOCKED.

        The target must have been asked before. Returns the execution at its next attempt, or None
        when the consumer is BLOCKED.

        Raises:
            ConsumerConflictError: when the attempt is not the newest any more.
        """
        with writing(self.engine) as connection:
            current = self.locked(connection, execution.execution_id)
            if not current.is_at(execution.attempt):
                found = f"attempt {current.attempt}, {current.state.value}"
                raise ConsumerConflictError(
                    f"execution {execution.execution_id} moved on ({found})"
                )
            now = now_ms(connection)
            _end_attempt(connection, current, "lost", storable(error), now)
            if current.attempt >= MAX_ATTEMPTS:
                error = connection.execute(
                    sa.select(lc_attempt.c.error).where(*_attempt_of(current))
                ).scalar_one()
                reason = f"attempt {current.attempt} of execution {current.number} failed: {error}"
                _block(connection, self.consumer_of(connection, current), reason)
                return None
            pause = 0 if immediately else BACKOFF_MS[min(current.attempt, len(BACKOFF_MS) - 1)]
            return self.next_attempt(connection, current, end or current.end, due_ts=now + pause)

    def block(self, subscription: SubscriptionRow, consumer: ConsumerRow, reason: str) -> bool:
        """Let a consumer, as seen in `consumer`, wait for a person; False when it moved on since,
        or an execution of it is open.
        """
        with writing(self.engine) as connection:
            current = consumer_at(connection, subscription.subscription_id, consumer.key, lock=True)
            if not current.is_still(consumer) or _is_busy(connection, current):
                return False
            _block(connection, current, reason)
            return True

    def block_execution(self, execution: Execution, reason: str) -> bool:
        """End an attempt that asks for a person, and let its consumer wait; False when another
        attempt has followed it.

        `Interventions.resume` makes the next one, however many there were.
        """
        with writing(self.engine) as connection:
            current = self.locked(connection, execution.execution_id)
            if not current.is_at(execution.attempt):
                return False
            _end_attempt(connection, current, BLOCKED, storable(reason), now_ms(connection))
            _block(connection, self.consumer_of(connection, current), storable(reason))
            return True

    # Completing

    def complete(
        self,
        execution: Execution,
        committed: Committed | None,
        *,
        reason: str = "",
        beside: Beside | None = None,
    ) -> bool:
        """Close an execution: its consumer's checkpoint becomes the end recorded in the commit,
        else the attempt's own end.

        What is to be kept of it `beside` is written in the same transaction.

        The commit's event must have been registered. Without a commit (nothing to do, or a
        subscription without a lake target) the attempt must still be the newest, and the first one
        where a target takes commits: an earlier attempt may still commit there. True when this call
        completed; False when somebody had.

        Raises:
            ConsumerConflictError: without a commit, when another attempt exists: write a fence
                instead. With one whose commit metadata is lost, after a second attempt: which of
                them it ended is not known, so the consumer is BLOCKED for a person.
        """
        with writing(self.engine) as connection:
            current = self.locked(connection, execution.execution_id)
            if current.state is not ExecutionState.OPEN:
                return False
            if committed is None:
                self._check_may_be_empty(connection, current, execution.attempt)
            is_end_unknown = (
                committed is not None and committed.is_commit_metadata_lost and current.attempt > 1
            )
            if is_end_unknown:
                _block(connection, self.consumer_of(connection, current), _end_unknown(current))
            else:
                end = (
                    committed.commit_metadata.end
                    if committed and not committed.is_commit_metadata_lost
                    else current.end
                )
                version = committed.version if committed else None
                self.close(
                    connection,
                    current,
                    ExecutionState.COMPLETED,
                    end,
                    version,
                    reason or current.reason,
                )
                if beside is not None:
                    beside(connection)
                _end_attempt(connection, current, "completed", None, now_ms(connection))
        if is_end_unknown:
            raise ConsumerConflictError(_end_unknown(current))
        return True

    def _check_may_be_empty(self, connection: Connection, current: Execution, attempt: int) -> None:
        where = f"attempt {current.attempt} of execution {current.number}"
        if current.attempt != attempt:
            raise ConsumerConflictError(
                f"{where} exists; attempt {attempt} may not complete without a commit"
            )
        if (
            current.attempt > 1
            and self.subscription_in(connection, current.consumer.subscription).target is not None
        ):
            raise ConsumerConflictError(
                f"{where} has nothing to write, but an earlier attempt may still commit; "
                "let it make an empty commit, which keeps the others out"
            )

    def close(
        self,
        connection: Connection,
        execution: Execution,
        state: ExecutionState,
        end: Checkpoint,
        version: str | None,
        reason: str,
    ) -> None:
        """Close an execution; its consumer goes on, but for that of a replay, which ends."""
        closed = {
            "state": state,
            "end_checkpoint": end,
            "completed_ts": now_ms(connection),
            "version": version,
            "reason": reason,
        }
        change(connection, lc_execution, execution.execution_id, **closed)
        close_requests(
            connection, execution.execution_id, is_done=state is ExecutionState.COMPLETED
        )
        consumer = self.consumer_of(connection, execution)
        change(
            connection,
            lc_consumer,
            consumer.consumer_id,
            completed=execution.number,
            **standing_at(end),
            **(ENDED if execution.cause is Cause.REPLAY else ACTIVE),
        )

    # Reading

    def execution(self, execution_id: str) -> Execution | None:
        """The execution of that id, or None."""
        with reading(self.engine) as connection:
            return self._find(connection, execution_id)

    def executions(
        self,
        *,
        subscription: str | None = None,
        state: ExecutionState | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> list[Execution]:
        """Executions of the deployment, newest claim first; those that follow `after`, the id of
        one, where it is given.

        Raises:
            NotFoundError: there is no such one.
        """
        query = EXECUTIONS.where(lc_subscription.c.deployment == self.deployment)
        query = (
            query.where(lc_subscription.c.name == subscription)
            if subscription is not None
            else query
        )
        query = query.where(lc_execution.c.state == state) if state is not None else query
        newest = query.order_by(
            lc_execution.c.claimed_ts.desc(), lc_execution.c.execution_id
        ).limit(limit)
        with reading(self.engine) as connection:
            if after is not None:
                ts, last = lc_execution.c.claimed_ts, self._execution(connection, after)
                follows = lc_execution.c.execution_id > after
                is_later = sa.or_(ts < last.claimed_ts, sa.and_(ts == last.claimed_ts, follows))
                newest = newest.where(is_later)
            return [execution_from(row) for row in connection.execute(newest)]

    def open_executions(self, *subscriptions: SubscriptionRow) -> list[Execution]:
        """The open executions of subscriptions, oldest claim first."""
        query = EXECUTIONS.where(IS_OPEN).order_by(
            lc_execution.c.claimed_ts, lc_execution.c.execution_id
        )
        with reading(self.engine) as connection:
            mine = among(
                connection,
                lc_consumer.c.subscription_id,
                [one.subscription_id for one in subscriptions],
            )
            return [execution_from(row) for row in connection.execute(query.where(mine))]

    def attempts(self, execution_id: str) -> list[Attempt]:
        """The attempts at an execution, first one first."""
        query = (
            sa.select(lc_attempt)
            .where(lc_attempt.c.execution_id == execution_id)
            .order_by(lc_attempt.c.number)
        )
        with reading(self.engine) as connection:
            return [attempt_from(row) for row in connection.execute(query)]

    def has_committed(self, execution: Execution) -> bool:
        """Whether an earlier execution of the same consumer was completed by a commit."""
        earlier = sa.select(lc_execution.c.number).where(
            lc_execution.c.consumer_id == _consumer_of(execution.execution_id),
            lc_execution.c.number < execution.number,
            lc_execution.c.version.is_not(None),
        )
        with reading(self.engine) as connection:
            return connection.execute(earlier.limit(1)).first() is not None

    # Reading rows inside a transaction

    def blocked_executions(
        self, connection: Connection, subscription: SubscriptionRow
    ) -> dict[int, Execution]:
        """The open executions of a subscription whose newest attempt asked for a person, by
        consumer.
        """
        query = EXECUTIONS.where(
            lc_consumer.c.subscription_id == subscription.subscription_id,
            IS_OPEN,
            lc_attempt.c.outcome == BLOCKED,
        )
        return {row.consumer_id: execution_from(row) for row in connection.execute(query)}

    def _find(self, connection: Connection, execution_id: str) -> Execution | None:
        this = (
            lc_subscription.c.deployment == self.deployment,
            lc_execution.c.execution_id == execution_id,
        )
        row = connection.execute(EXECUTIONS.where(*this)).one_or_none()
        return execution_from(row) if row else None

    def _execution(self, connection: Connection, execution_id: str) -> Execution:
        found = self._find(connection, execution_id)
        if found is None:
            raise NotFoundError(
                f"no execution {execution_id} in deployment {self.deployment}; `lakechime "
                f"execution show` shows those that are there"
            )
        return found

    def locked(self, connection: Connection, execution_id: str) -> Execution:
        """The execution, its consumer's row locked until the transaction ends."""
        this = lc_consumer.c.consumer_id == _consumer_of(execution_id)
        connection.execute(sa.select(lc_consumer.c.consumer_id).where(this).with_for_update())
        return self._execution(connection, execution_id)

    def consumer_of(self, connection: Connection, execution: Execution) -> ConsumerRow:
        this = lc_consumer.c.consumer_id == _consumer_of(execution.execution_id)
        return consumer_from(connection.execute(sa.select(lc_consumer).where(this)).one())

    def next_attempt(
        self, connection: Connection, execution: Execution, end: Checkpoint, *, due_ts: int
    ) -> Execution:
        number = execution.attempt + 1
        change(connection, lc_execution, execution.execution_id, attempt=number, end_checkpoint=end)
        connection.execute(
            sa.insert(lc_attempt).values(
                execution_id=execution.execution_id, number=number, due_ts=due_ts
            )
        )
        return self._execution(connection, execution.execution_id)


def open_execution(
    connection: Connection, consumer: ConsumerRow, claim: Claim, attempt: int = 1
) -> str:
    """Make the next execution of a consumer that has none, and return its id."""
    execution_id, now = uuid.uuid4().hex, now_ms(connection)
    connection.execute(
        sa.insert(lc_execution).values(
            execution_id=execution_id,
            consumer_id=consumer.consumer_id,
            number=consumer.completed + 1,
            state=ExecutionState.OPEN,
            cause=claim.cause,
            start_checkpoint=consumer.checkpoint,
            end_checkpoint=claim.end,
            attempt=attempt,
            partition_key=claim.partition_key,
            claimed_ts=now,
            reason=claim.reason,
        )
    )
    connection.execute(
        sa.insert(lc_attempt).values(execution_id=execution_id, number=attempt, due_ts=now)
    )
    return execution_id


def _block(connection: Connection, consumer: ConsumerRow, reason: str) -> None:
    """Let a consumer wait for a person."""
    if (consumer.state, consumer.state_reason) != (ConsumerState.BLOCKED, reason):
        change(
            connection,
            lc_consumer,
            consumer.consumer_id,
            state=ConsumerState.BLOCKED,
            state_reason=reason,
        )


def _end_unknown(execution: Execution) -> str:
    subscription = execution.consumer.subscription
    where = f"execution {execution.number} of {subscription} {execution.consumer.key}".strip()
    return (
        f"{where} has committed, but its target's log no longer says up to where; "
        f"run `lakechime execution skip {execution.execution_id}`, then `lakechime trigger seek "
        f"{subscription} --to …`"
    )


def _has_history(connection: Connection, consumer: ConsumerRow) -> bool:
    """Whether the ledger knows of an earlier execution of the consumer."""
    query = sa.select(lc_execution.c.number).where(
        lc_execution.c.consumer_id == consumer.consumer_id
    )
    return connection.execute(query.limit(1)).first() is not None


def _is_busy(connection: Connection, consumer: ConsumerRow) -> bool:
    query = sa.select(lc_execution.c.execution_id).where(
        lc_execution.c.consumer_id == consumer.consumer_id, IS_OPEN
    )
    return connection.execute(query).first() is not None


def _attempt_of(execution: Execution) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        lc_attempt.c.execution_id == execution.execution_id,
        lc_attempt.c.number == execution.attempt,
    )


def _change_attempt(connection: Connection, execution: Execution, **values: Any) -> None:
    connection.execute(sa.update(lc_attempt).where(*_attempt_of(execution)).values(**values))


def _end_attempt(
    connection: Connection, execution: Execution, outcome: str, error: str | None, now: int
) -> None:
    """An error that was kept before stays: it says more than that of who found the attempt lost."""
    kept = {"error": sa.func.coalesce(lc_attempt.c.error, error)} if error else {}
    _change_attempt(connection, execution, outcome=outcome, ended_ts=now, lease_until=None, **kept)


def events_of(
    engine: Engine, subscription: Subscription, execution: Execution
) -> list[RegisteredEvent]:
    """The events of an execution in commit order, compacted ones too: those of its subscription's
    tables that say something new to its trigger.

    Of a partition trigger those alone in the partitions that its consumer fired for; where that
    fires again for what arrived late, all changes of data are news to it, whatever their tags.
    """
    start, end = execution.start.position, execution.end.position
    found: list[RegisteredEvent] = []
    with reading(engine) as connection:
        fires_again = _fires_again(connection, subscription, execution)
        for event in HISTORY:
            new = sa.or_(*_news(connection, subscription, event))
            if fires_again:
                new = sa.or_(new, changes_data(event))
            query = select_events(event).where(is_after(start, event), is_through(end, event), new)
            if subscription.is_partitioned:
                query = query.join(lc_consumer_partition, _is_partition_of(execution, event))
            found += map(event_of, connection.execute(query))
    return sorted(found, key=lambda one: one.position)


def _news(
    connection: Connection, subscription: Subscription, event: sa.FromClause
) -> Iterator[sa.ColumnElement[bool]]:
    """Whether the event says something new of a table to the subscription's trigger; where tags are
    those of several events, each of them does.
    """
    alike: dict[TagConditions, list[TableKey]] = {}
    for table, tags in subscription.wanted:
        alike.setdefault(tags, []).append(table)
    name = sa.tuple_(dce_table.c.cluster, dce_table.c.name)
    for tags, tables in alike.items():
        new = is_new(connection.dialect.name, tags, event)
        is_one = subscription.tags_from is TagsFrom.EVENT
        yield sa.and_(name.in_(tables), new if is_one else sa.true())


def _fires_again(connection: Connection, subscription: Subscription, execution: Execution) -> bool:
    """Whether a key fires for what arrived late: it goes on from where it fired before, and was not
    put back.
    """
    if not subscription.refires or execution.number == 1:
        return False
    before = (
        lc_execution.c.consumer_id == _consumer_of(execution.execution_id),
        lc_execution.c.number == execution.number - 1,
    )
    start = connection.execute(
        sa.select(lc_execution.c.start_checkpoint).where(*before)
    ).scalar_one_or_none()
    return start is None or start.position < execution.start.position


def _consumer_of(execution_id: str) -> sa.ScalarSelect[int]:
    return (
        sa.select(lc_execution.c.consumer_id)
        .where(lc_execution.c.execution_id == execution_id)
        .scalar_subquery()
    )


def _is_partition_of(execution: Execution, event: sa.FromClause) -> sa.ColumnElement[bool]:
    """Whether the event is in a partition that the execution's consumer remembers from its
    claim.
    """
    partition = lc_consumer_partition.c
    return sa.and_(
        partition.consumer_id == _consumer_of(execution.execution_id),
        partition.cluster == dce_table.c.cluster,
        partition.table_name == dce_table.c.name,
        partition.partition_key == event.c.partition_key,
    )
