"""Evaluates subscriptions: loads their evidence, decides, and claims what fires."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.engine import PARAMETERS, among, now_ms, reading, slices, writing
from lakechime_dagster.dce.events import (
    NO_CONDITIONS,
    Position,
    SnapshotId,
    TableFormat,
    version_of,
)
from lakechime_dagster.dce.migration import Switch, switches_of
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.dce.store import head_within, newest_snapshot, without_snapshot
from lakechime_dagster.errors import ConsumerConflictError, DeclarationError, InvalidValueError
from lakechime_dagster.triggers import evidence
from lakechime_dagster.triggers.conditions import Atom
from lakechime_dagster.triggers.consumers import (
    NO_REQUESTS,
    Action,
    Cause,
    Checkpoint,
    Committed,
    ConsumerId,
    ConsumerRequests,
    ConsumerState,
    Execution,
    source_name,
)
from lakechime_dagster.triggers.decision import (
    SHOWN,
    AtomState,
    ConsumerView,
    Decision,
    Firing,
    KeyEvidence,
    decide_partition,
    decide_snapshot,
)
from lakechime_dagster.triggers.evidence import head_at
from lakechime_dagster.triggers.interventions import CheckpointAt
from lakechime_dagster.triggers.ledger import Claim, Ledger
from lakechime_dagster.triggers.registry import (
    EXECUTIONS,
    IS_OPEN,
    OF_EXECUTION,
    ConsumerRow,
    SubscriptionRow,
    consumer_from,
    consumers_of,
    execution_from,
    newest_consumer,
)
from lakechime_dagster.triggers.requests import IS_REQUESTED, consumer_requests
from lakechime_dagster.triggers.schedule import from_milliseconds
from lakechime_dagster.triggers.schema import (
    lc_consumer,
    lc_execution,
    lc_intervention,
    lc_subscription,
)
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import (
    Late,
    PartitionKey,
    PartitionTrigger,
    SnapshotTrigger,
    StartFrom,
)


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The time and head of the store, and a subscription as it stands at both; consumers and what
    belongs to them by key.

    Of a partition trigger, consumers that have fired and are at rest may be in `fired` alone.
    """

    subscription: str
    now: int  # milliseconds
    through: Position
    blocked: str  # why the subscription may not fire at all
    consumers: dict[str, ConsumerRow] = field(default_factory=dict)
    fired: set[str] = field(default_factory=set)
    opened: dict[str, str] = field(default_factory=dict)  # a sentence about its open execution
    requests: dict[str, ConsumerRequests] = field(default_factory=dict)

    @property
    def views(self) -> dict[str, ConsumerView]:
        """What a decision needs of each consumer: its checkpoint, and whether it is open or may not
        claim.
        """
        return {
            key: ConsumerView(
                checkpoint=consumer.checkpoint,
                completed=consumer.completed,
                open=self.opened.get(key, ""),
                blocked=consumer.blocked_sentence(self.subscription),
                requests=self.requests.get(key, NO_REQUESTS),
            )
            for key, consumer in self.consumers.items()
        }


def present(connection: Connection, rows: Sequence[SubscriptionRow]) -> dict[str, Moment]:
    """Subscriptions as they stand now, by the clock of the store."""
    now, through = now_ms(connection), head_within(connection)
    moments = {
        row.subscription_id: Moment(
            subscription=row.name, now=now, through=through, blocked=row.blocked_sentence
        )
        for row in rows
    }
    is_own = among(connection, lc_consumer.c.subscription_id, list(moments))
    consumer = lc_consumer.c
    has_fired = sa.and_(consumer.key != "", consumer.fired, consumer.state == ConsumerState.ACTIVE)
    is_busy = sa.exists(lc_execution.c.execution_id).where(OF_EXECUTION, IS_OPEN)
    rests = sa.and_(has_fired, ~is_busy, ~IS_REQUESTED)
    goes_on = sa.and_(~rests, consumer.state != ConsumerState.ENDED)
    for row in connection.execute(sa.select(lc_consumer).where(is_own, goes_on)):
        moments[row.subscription_id].consumers[row.key] = consumer_from(row)
    fired = sa.select(consumer.subscription_id, consumer.key).where(is_own, rests)
    for subscription_id, key in connection.execute(fired):
        moments[subscription_id].fired.add(key)
    for row in connection.execute(
        EXECUTIONS.add_columns(lc_consumer.c.subscription_id).where(is_own, IS_OPEN)
    ):
        moments[row.subscription_id].opened[row.key] = _open_sentence(execution_from(row))
    for (subscription_id, key), requests in consumer_requests(connection, list(moments)).items():
        moments[subscription_id].requests[key] = requests
    return {moment.subscription: moment for moment in moments.values()}


# A subscription as it stood at a past time


def past(connection: Connection, row: SubscriptionRow, at_ms: int) -> Moment:
    """A past time in milliseconds, as far as it is kept: not of which attempt an execution was
    then, nor whether a consumer was BLOCKED.
    """
    return Moment(
        subscription=row.name,
        now=at_ms,
        through=head_at(connection, at_ms),
        blocked=_paused_at(connection, row, at_ms),
        consumers=_consumers_at(connection, row, at_ms),
        opened=_opened_at(connection, row, at_ms),
    )


def _named(execution: Execution) -> str:
    key = f" for {execution.consumer.key}" if execution.consumer.key else ""
    return f"execution {execution.number}{key}"


def _open_sentence(execution: Execution) -> str:
    state = (
        f"is running in run {execution.run_id}"
        if execution.run_id
        else "waits for its run to start"
    )
    return f"{_named(execution)} {state} (attempt {execution.attempt})"


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
    return {one.consumer.key: f"{_named(one)} was open" for one in opened}


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


# the newest commit of a consumer in the subscription's target
AskTarget = Callable[[ConsumerId], Committed | None]
Accepts = Callable[[str], bool]  # whether a partition key can be launched


def any_key(key: str) -> bool:
    """Every partition key can be launched."""
    return True


@dataclass(frozen=True)
class Evaluator:
    """Evaluates subscriptions against the store and claims for them; several may run at once."""

    engine: Engine
    ledger: Ledger

    def activate(self, subscription: Subscription) -> SubscriptionRow:
        """The subscription's row; a new subscription starts where its declaration says, which is
        asked once.

        Raises:
            InvalidValueError: for a new subscription that starts from a time in the future.
        """
        return self.ledger.ensure_subscription(
            subscription, lambda connection: self._start(connection, subscription)
        )

    def start_of(self, subscription: Subscription) -> Checkpoint:
        """Where the subscription would start, were it activated now."""
        with reading(self.engine) as connection:
            return self._start(connection, subscription)

    def checkpoint_at(self, subscription: Subscription, where: StartFrom) -> CheckpointAt:
        """How to find the checkpoint of a point in the past, or of now, in the transaction that
        puts a consumer there.

        It raises InvalidValueError for a position or a time that the store has not reached yet.
        """
        return lambda connection, consumer: self._past(connection, subscription, where)

    def between(
        self, subscription: Subscription, start: StartFrom, end: StartFrom
    ) -> tuple[Checkpoint, Checkpoint]:
        """The checkpoints of two points in the past, or of now; it raises as `checkpoint_at`
        does.
        """
        with reading(self.engine) as connection:
            return (
                self._past(connection, subscription, start),
                self._past(connection, subscription, end),
            )

    def moment(self, row: SubscriptionRow, at_ms: int | None = None) -> Moment:
        """The time of the store, and how the subscription's consumers stand now, or stood at a past
        time (milliseconds).
        """
        with reading(self.engine) as connection:
            return (
                present(connection, [row])[row.name]
                if at_ms is None
                else past(connection, row, at_ms)
            )

    def evaluate(
        self, subscription: Subscription, row: SubscriptionRow, *, at_ms: int | None = None
    ) -> Decision:
        """Whether the subscription fires, now or as it was at a past time (milliseconds), and
        why.
        """
        with reading(self.engine) as connection:
            if at_ms is not None:
                # up to where it was looked through since says nothing of then
                row = replace(row, looked=Position.ORIGIN)
                return self.evaluate_all(
                    connection, [(subscription, row)], {}, {row.name: past(connection, row, at_ms)}
                )[row.name]
            decision = self.evaluate_all(connection, [(subscription, row)], {})[row.name]
            held_back = "" if decision.fires else evidence.held_back_events(connection)
            return (
                replace(decision, reasons=(*decision.reasons, held_back)) if held_back else decision
            )

    def held_back_events(self) -> str:
        """A sentence when an open transaction of the database keeps registered events from being
        read.
        """
        with reading(self.engine) as connection:
            return evidence.held_back_events(connection)

    def with_requests(
        self, subscription: Subscription, row: SubscriptionRow, decision: Decision
    ) -> Decision:
        """A decision that also fires for the subscription's requests, where nothing new fires it.

        Requests that are not due, or that an execution handles which follows anyway, are reasons of
        the decision.
        """
        if subscription.requests is None:
            return decision
        asked = subscription.requests(self.ledger)
        firing, reasons = self._requested(row, asked.due), (*asked.due, *asked.later)
        if (
            firing is None
            or decision.fires
            or row.paused_ts is not None
            or self.ledger.open_executions(row)
        ):
            return replace(decision, reasons=(*decision.reasons, *reasons))
        return replace(decision, fires=True, reasons=reasons, firings=(firing,))

    def requested(self, subscription: Subscription, row: SubscriptionRow) -> Firing | None:
        """What is to be claimed for requests alone, with nothing new; None where none is due, or
        the consumer is blocked.
        """
        return (
            None
            if subscription.requests is None
            else self._requested(row, subscription.requests(self.ledger).due)
        )

    def _requested(self, row: SubscriptionRow, due: Sequence[str]) -> Firing | None:
        consumer = self.ledger.consumers(row).get("") if due else None
        if consumer is None or consumer.state is not ConsumerState.ACTIVE:
            return None
        return Firing(
            reason=due[0],
            completed=consumer.completed,
            offsets=consumer.checkpoint.offsets,
            has_more=consumer.checkpoint.has_more,
        )

    def fire(
        self,
        subscription: Subscription,
        row: SubscriptionRow,
        decision: Decision,
        ask_target: AskTarget,
    ) -> list[Execution]:
        """Claim what the decision fires. What another daemon claimed first is left out."""
        claimed = []
        for firing in decision.firings:
            execution = self.claim(subscription, row, firing, ask_target, cause=Cause.TRIGGER)
            if execution is not None:
                claimed.append(execution)
        return claimed

    def claim(
        self,
        subscription: Subscription,
        row: SubscriptionRow,
        firing: Firing,
        ask_target: AskTarget,
        *,
        cause: Cause,
        fired: bool = True,
    ) -> Execution | None:
        """Claim one consumer's next execution, up to the newest position or as much as the
        subscription takes, and the requests that wait for it.

        None when somebody moved the consumer first, or a request of its inputs must be done before.
        """
        known = self.ledger.consumers(row, [firing.key]).get(firing.key)
        atoms = firing.partition.atoms if firing.partition else ()
        if known is None:
            committed = ask_target(ConsumerId(self.ledger.deployment, row.name, firing.key))
            known = self.ledger.ensure_consumer(row, firing.key, committed, atoms)
            if committed is not None:
                # the ledger was lost; the next evaluation sees what its target already has
                return None
        if firing.completed is not None and known.completed != firing.completed:
            # somebody claimed and completed between the decision and this claim: what it saw is
            # consumed
            return None
        # before the end is read: what the requests of its inputs made is within it
        waiting = self.requests(row, firing.key)
        if waiting.waiting_for:
            return None
        end = replace(
            self.end_of(subscription, row, known, is_bounded=subscription.trigger.is_bounded),
            offsets=firing.offsets,
            has_more=firing.has_more,
        )
        try:
            return self.ledger.claim(
                row,
                known,
                Claim(
                    end=end,
                    cause=cause,
                    reason=firing.reason,
                    partition_key=subscription.dagster_key(firing.partition)
                    if firing.partition
                    else None,
                    fired=fired,
                    atoms=atoms,
                    requests=waiting.ids,
                ),
            )
        except ConsumerConflictError:
            return None

    def end_of(
        self,
        subscription: Subscription,
        row: SubscriptionRow,
        consumer: ConsumerRow,
        *,
        is_bounded: bool = False,
    ) -> Checkpoint:
        """The checkpoint that a claim of this consumer ends at, now: the newest position, and per
        source the snapshot to read up to.

        One that `is_bounded` takes no more than its trigger says, unless it builds its target from
        the whole of a table.
        """
        with reading(self.engine) as connection:
            through = head_within(connection)
            # what any consumer of the subscription has seen already need not be searched again for
            # the newest snapshot
            newest = (
                newest_consumer(connection, row.subscription_id)
                if subscription.is_partitioned
                else None
            )
            known = max(
                (one.checkpoint for one in (consumer, newest) if one is not None),
                key=lambda checkpoint: checkpoint.position,
            )
            sources = self._sources(connection, subscription, known, known.position, through)
            trigger = subscription.trigger
            names = {source_name(one, subscription.cluster) for one in subscription.woken_by}
            builds = names & sources.keys() - consumer.checkpoint.sources.keys()
            if is_bounded and isinstance(trigger, SnapshotTrigger) and not builds:
                through = evidence.bounded_end(
                    connection, subscription.woken_by, known.position, through, trigger
                )
                # the other side of a switch is read by all partitions that changed before it
                passed = [
                    switch.position
                    for key in subscription.sources.values()
                    for switch in switches_of(connection, key)
                    if switch.position > known.position
                ]
                through = max([through, *passed])
                sources = self._sources(connection, subscription, known, known.position, through)
            return Checkpoint(position=through, sources=sources)

    def requests(self, row: SubscriptionRow, key: str) -> ConsumerRequests:
        """The requests of backfills that wait for a consumer."""
        with reading(self.engine) as connection:
            return consumer_requests(connection, [row.subscription_id], key).get(
                (row.subscription_id, key), NO_REQUESTS
            )

    def waits(
        self,
        subscription: Subscription,
        row: SubscriptionRow,
        consumer: ConsumerRow,
        key: PartitionKey | None,
    ) -> bool:
        """Whether something waits for a consumer, whatever the pace of its trigger and however many
        others run.
        """
        if key is None:
            with reading(self.engine) as connection:
                questions = _questions(subscription, consumer.checkpoint.position)
                waiting = evidence.waiting_events(connection, questions, head_within(connection))
                return any(table.count for table in waiting)
        return bool(self.ready(subscription, row, [key]))

    def ready(
        self, subscription: Subscription, row: SubscriptionRow, keys: Sequence[PartitionKey]
    ) -> list[PartitionKey]:
        """Those of the keys for which something waits, as `waits` says: first all that have not
        fired, then what arrived late.
        """
        with reading(self.engine) as connection:
            through = head_within(connection)
            consumers = consumers_of(connection, row.subscription_id)
            known = [consumers[key.text] for key in keys if key.text in consumers]
            since = min((one.checkpoint.position for one in known if one.fired), default=through)
            late = evidence.late_consumers(connection, row.subscription_id, since, through)
            pending, _ = _pending(connection, subscription, keys, consumers, through)
        complete = [key for key, missing in pending if missing is None]
        return [*complete, *(key for key in keys if key.text in late)]

    def looked_through(self, rows: Iterable[SubscriptionRow], position: Position) -> None:
        """Remember that nothing up to a position can fire these subscriptions any more, but for
        what their consumers' checkpoints say.

        It is a statement for those that were looked through up to the same position before.
        """
        behind: dict[Position, list[int]] = {}
        for row in rows:
            if row.looked < position:
                behind.setdefault(row.looked, []).append(row.subscription_id)
        if not behind:
            return
        with writing(self.engine) as connection:
            for looked, subscription_ids in behind.items():
                is_still = (  # a seek between evaluation and here begins the search again
                    among(connection, lc_subscription.c.subscription_id, subscription_ids),
                    lc_subscription.c.looked_tx == looked.tx_id,
                    lc_subscription.c.looked_seq == looked.seq,
                )
                moving = sa.update(lc_subscription).where(*is_still)
                connection.execute(moving.values(looked_tx=position.tx_id, looked_seq=position.seq))

    def evaluate_all(
        self,
        connection: Connection,
        subscriptions: Sequence[tuple[Subscription, SubscriptionRow]],
        accepts: Mapping[str, Accepts],
        moments: Mapping[str, Moment] | None = None,
    ) -> dict[str, Decision]:
        """The decisions by subscription, now or at these moments: a few statements for all of them.

        A subscription whose keys cannot be resolved says so, waits, and hinders no other.
        """
        moments = (
            present(connection, [row for _, row in subscriptions]) if moments is None else moments
        )
        found: dict[str, Decision] = {}
        snapshots: list[tuple[str, SnapshotTrigger, ConsumerView]] = []
        questions: list[evidence.Question] = []
        through = Position.ORIGIN
        spaced = [
            row.subscription_id
            for one, row in subscriptions
            if isinstance(one.trigger, SnapshotTrigger) and one.trigger.min_time_between
        ]
        until_ms = max((moment.now for moment in moments.values()), default=0)
        claims = evidence.last_claims(connection, spaced, until_ms)
        for subscription, row in subscriptions:
            name, trigger = subscription.name, subscription.trigger
            moment = moments[name]
            through = moment.through
            if blocked := moment.blocked or _unreadable(connection, subscription, moment):
                moment = replace(moment, blocked=blocked)
            if isinstance(trigger, PartitionTrigger):
                try:
                    found[name] = self._partition(
                        connection, subscription, trigger, row, moment, accepts.get(name, any_key)
                    )
                except (DeclarationError, InvalidValueError) as error:
                    found[name] = Decision(
                        trigger=name,
                        fires=False,
                        reasons=(str(error),),
                        through=through,
                        waits=True,
                    )
                continue
            consumer = moment.views.get("") or ConsumerView(
                checkpoint=row.start, requests=moment.requests.get("", NO_REQUESTS)
            )
            consumer = replace(
                consumer,
                blocked=moment.blocked or consumer.blocked,
                claimed_ms=claims.get(row.subscription_id),
            )
            snapshots.append((name, trigger, consumer))
            since = max(consumer.checkpoint.position, row.looked)
            questions += _questions(subscription, since)
        answers = iter(evidence.waiting_events(connection, questions, through))
        for name, trigger, consumer in snapshots:
            waiting = [next(answers) for _ in trigger.tables]
            found[name] = decide_snapshot(
                name, trigger, consumer, waiting, now_ms=moments[name].now, through=through
            )
        return found

    def _partition(
        self,
        connection: Connection,
        subscription: Subscription,
        trigger: PartitionTrigger,
        row: SubscriptionRow,
        moment: Moment,
        accepts: Accepts,
    ) -> Decision:
        through, now = moment.through, from_milliseconds(moment.now)
        late = (
            evidence.late_consumers(connection, row.subscription_id, row.looked, through)
            if trigger.late is Late.REFIRE
            else {}
        )
        for several in slices(sorted(moment.fired & late.keys()), PARAMETERS):
            moment.consumers.update(consumers_of(connection, row.subscription_id, several))
        consumers, views, at_rest = moment.consumers, moment.views, moment.fired - late.keys()
        keys = trigger.keys(now, at_rest)
        pending, states = _pending(connection, subscription, keys, consumers, through)
        absent = [missing for _, missing in pending if missing is not None]
        unseen = [atom for atom in absent if atom not in states]
        for atom, newest in evidence.newest_partitions(connection, unseen[:SHOWN]).items():
            states[atom] = AtomState(available=False, newest=newest)
        start = ConsumerView(checkpoint=row.start)
        # which have no consumer yet
        new = {
            text: replace(start, requests=requests) for text, requests in moment.requests.items()
        }
        found = [
            KeyEvidence(
                key=key,
                consumer=views.get(key.text) or new.get(key.text, start),
                fired=key.text in consumers and consumers[key.text].fired,
                late_events=late.get(key.text, 0),
                atoms=states,
            )
            for key in keys
        ]
        in_flight = sum(1 for view in views.values() if view.open and not view.blocked)
        return decide_partition(
            row.name,
            trigger,
            found,
            in_flight=in_flight,
            activated_ms=row.activated_ts,
            now_ms=moment.now,
            through=through,
            blocked=moment.blocked,
            at_rest=len(at_rest.intersection(trigger.texts(now))),
            accepts=lambda firing: (key := subscription.key_of(firing)) is None or accepts(key),
        )

    def _past(
        self, connection: Connection, subscription: Subscription, where: StartFrom
    ) -> Checkpoint:
        head = head_within(connection)
        if where.position is not None and where.position > head:
            raise InvalidValueError(
                "position",
                where.where,
                f"the store has reached {head} only; give a position up to that, or now",
            )
        _check_past(connection, "time", where)
        return self._checkpoint(connection, subscription, where)

    def _start(self, connection: Connection, subscription: Subscription) -> Checkpoint:
        _check_past(connection, "start_from", subscription.trigger.start_from)
        return self._checkpoint(connection, subscription, subscription.trigger.start_from)

    def _checkpoint(
        self, connection: Connection, subscription: Subscription, where: StartFrom
    ) -> Checkpoint:
        """The checkpoint before whatever was registered from that point on."""
        head = head_within(connection)
        if where.where == "now":
            position = head
        elif where.position is not None:
            position = min(where.position, head)
        else:
            position = evidence.checkpoint_before(connection, where.time_ms, head)
        if position == Position.ORIGIN:
            return Checkpoint()
        return Checkpoint(
            position=position,
            sources=self._sources(
                connection, subscription, Checkpoint(), Position.ORIGIN, position
            ),
        )

    def _sources(
        self,
        connection: Connection,
        subscription: Subscription,
        checkpoint: Checkpoint,
        after: Position,
        through: Position,
    ) -> dict[str, SnapshotCheckpoint]:
        """Per source the snapshot to read up to: the newest that the trigger's tags vouch for, else
        where the consumer stands; of a Hive table only where the subscription reads it. Of a table
        that was migrated it is one of the side that its name stood for at `through`, by default that
        of the switch.
        """
        sources: dict[str, SnapshotCheckpoint] = {}
        wanted = {} if subscription.is_partitioned else dict(subscription.wanted)
        for table, key in subscription.sources.items():
            stands = checkpoint.sources.get(table)
            tags = wanted.get(key, NO_CONDITIONS)
            since = after if stands is not None else Position.ORIGIN
            switches = switches_of(connection, key)
            switch = next((one for one in reversed(switches) if one.position <= through), None)
            later = next((one.from_uid for one in switches if one.position > through), None)
            if switch is not None:
                since = max(since, switch.position)
            found = newest_snapshot(connection, key, tags, since, through, later)
            if found is None and switch is not None and not _knows(stands, after, switch):
                found = switch.checkpoint, switch.to_format
            if (
                found is not None
                and found[1] is TableFormat.HIVE
                and table not in subscription.reads
            ):
                found = None
            chosen = stands if found is None else newer(stands, *found)
            if chosen is not None:
                sources[table] = chosen
        return sources


def _check_past(connection: Connection, field: str, where: StartFrom) -> None:
    """Refuse a time in the future by the store's clock: nobody knows the position that will be the
    newest then.
    """
    if where.where != "now" and where.position is None and where.time_ms > now_ms(connection):
        raise InvalidValueError(
            field,
            where.where,
            "lies in the future; give `now` or a time that has passed, or wait until it has",
        )


def _questions(subscription: Subscription, since: Position) -> list[evidence.Question]:
    """What a snapshot trigger asks of each table that it waits for."""
    return [
        evidence.Question(table, since, tags, source_name(table, subscription.cluster))
        for table, tags in subscription.wanted
    ]


def _pending(
    connection: Connection,
    subscription: Subscription,
    keys: Sequence[PartitionKey],
    consumers: Mapping[str, ConsumerRow],
    through: Position,
) -> tuple[list[tuple[PartitionKey, Atom | None]], dict[Atom, AtomState]]:
    """The keys that have not fired, each with its first partition that is not available, and what
    is known of their partitions.
    """
    pending = [key for key in keys if not (key.text in consumers and consumers[key.text].fired)]
    atoms = [atom for key in pending for atom in key.atoms]
    states = evidence.atom_states(connection, atoms, subscription.tags_from, through)
    available = {atom for atom, state in states.items() if state.available}
    return [
        (key, next((a for a in key.atoms if a not in available), None)) for key in pending
    ], states


def _knows(stands: SnapshotCheckpoint | None, position: Position, switch: Switch) -> bool:
    """Whether a consumer that has consumed all up to a position stands where a switch led, or past
    it.
    """
    is_there = stands is not None and stands.table_uid == switch.to_uid
    return is_there and position >= switch.position


def newer(
    stands: SnapshotCheckpoint | None, found: SnapshotCheckpoint, table_format: TableFormat
) -> SnapshotCheckpoint:
    """The later of a consumer's checkpoint in a table and the snapshot found after it, of this
    format.

    Another table uid is always later, an older Delta version never is, nor an older position, which
    stands for a snapshot of a Hive table; the ids of Iceberg say nothing of their order, so that
    what was registered after the checkpoint is later.
    """
    if stands is None or (
        stands.table_uid != found.table_uid
        and stands.table_uid is not None
        and found.table_uid is not None
    ):
        return found
    old, new = (_order(stands.snapshot_id, table_format), _order(found.snapshot_id, table_format))
    return stands if old is not None and new is not None and new < old else found


def _order(snapshot: SnapshotId | None, table_format: TableFormat) -> Position | None:
    """By what snapshots of a table are compared; None where they have no order."""
    if table_format is TableFormat.HIVE:
        with suppress(InvalidValueError):
            return Position.parse(snapshot or "")
    version = version_of(snapshot) if table_format is TableFormat.DELTA else None
    return None if version is None else Position(0, version)


def _unreadable(connection: Connection, subscription: Subscription, moment: Moment) -> str:
    """A sentence when the subscription reads a table that has no snapshot yet; asked only until
    some consumer has read them all.
    """
    if any(
        set(subscription.reads) <= set(consumer.checkpoint.sources)
        for consumer in moment.consumers.values()
    ):
        return ""
    missing = without_snapshot(
        connection, [(subscription.cluster, table) for table in subscription.reads], moment.through
    )
    return f"{missing[0]} has no snapshot yet, and {subscription.name} reads it" if missing else ""
