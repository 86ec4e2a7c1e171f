"""Evaluates subscriptions: loads their evidence, decides, and claims what fires."""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.engine import PARAMETERS, among, now_ms, reading, slices, writing
from lakechime_dagster.dce.events import Position
from lakechime_dagster.dce.queries import TableKey, is_after, is_through, switches_of
from lakechime_dagster.dce.schema import dce_event, dce_table
from lakechime_dagster.dce.store import head_within
from lakechime_dagster.errors import ConsumerConflictError, DeclarationError, InvalidValueError
from lakechime_dagster.triggers import evidence
from lakechime_dagster.triggers.backfills import (
    IS_REQUESTED,
    consumer_requests,
    subscriptions_with_requests,
)
from lakechime_dagster.triggers.consumers import (
    NO_REQUESTS,
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
from lakechime_dagster.triggers.interventions import CheckpointAt
from lakechime_dagster.triggers.ledger import Claim, Ledger
from lakechime_dagster.triggers.registry import (
    EXECUTIONS,
    IS_OPEN,
    OF_EXECUTION,
    SUBSCRIPTIONS,
    ConsumerRow,
    SubscriptionRow,
    consumer_from,
    consumers_of,
    execution_from,
    newest_consumer,
    subscription_from,
)
from lakechime_dagster.triggers.schedule import from_milliseconds
from lakechime_dagster.triggers.schema import (
    lc_consumer,
    lc_execution,
    lc_intervention,
    lc_subscription,
)
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import (
    Atom,
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
    looked: Position = Position.ORIGIN  # as of `SubscriptionRow`; not kept of a past time
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
            subscription=row.name,
            now=now,
            through=through,
            blocked=row.blocked_sentence,
            looked=row.looked,
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


def _open_sentence(execution: Execution) -> str:
    state = (
        f"is running in run {execution.run_id}"
        if execution.run_id
        else "waits for its run to start"
    )
    return f"{execution.named} {state} (attempt {execution.attempt})"


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
            subscription, lambda connection: _start(connection, subscription)
        )

    def start_of(self, subscription: Subscription) -> Checkpoint:
        """Where the subscription would start, were it activated now."""
        with reading(self.engine) as connection:
            return _start(connection, subscription)

    def checkpoint_at(self, subscription: Subscription, where: StartFrom) -> CheckpointAt:
        """How to find the checkpoint of a point in the past, or of now, in the transaction that
        puts a consumer there.

        It raises InvalidValueError for a position or a time that the store has not reached yet.
        """
        return lambda connection, consumer: _checkpoint(connection, subscription, where, "time")

    def between(
        self, subscription: Subscription, start: StartFrom, end: StartFrom
    ) -> tuple[Checkpoint, Checkpoint]:
        """The checkpoints of two points in the past, or of now; it raises as `checkpoint_at`
        does.
        """
        with reading(self.engine) as connection:
            return (
                _checkpoint(connection, subscription, start, "time"),
                _checkpoint(connection, subscription, end, "time"),
            )

    def moment(self, row: SubscriptionRow) -> Moment:
        """The time of the store, and how the subscription's consumers stand now."""
        with reading(self.engine) as connection:
            return present(connection, [row])[row.name]

    def evaluate(
        self, subscription: Subscription, row: SubscriptionRow, moment: Moment | None = None
    ) -> Decision:
        """Whether the subscription fires, now or at a moment, and why."""
        moments = None if moment is None else {row.name: moment}
        with reading(self.engine) as connection:
            return self.evaluate_all(connection, [(subscription, row)], {}, moments)[row.name]

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
            sources = evidence.sources_through(
                connection, subscription, known, known.position, through
            )
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
                sources = evidence.sources_through(
                    connection, subscription, known, known.position, through
                )
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
            since = max(consumer.checkpoint.position, moment.looked)
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
            evidence.late_consumers(connection, row.subscription_id, moment.looked, through)
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


def _start(connection: Connection, subscription: Subscription) -> Checkpoint:
    """Where a subscription starts that is activated now."""
    return _checkpoint(connection, subscription, subscription.trigger.start_from, "start_from")


def _checkpoint(
    connection: Connection, subscription: Subscription, where: StartFrom, field: str
) -> Checkpoint:
    """The checkpoint before whatever was registered from a point on.

    Raises:
        InvalidValueError: for a position, or a time by the store's clock, that the store has not
            reached: nobody knows the position that will be the newest then.
    """
    head = head_within(connection)
    if where.where == "now":
        position = head
    elif where.position is not None:
        position = where.position
        if position > head:
            remedy = f"the store has reached {head} only; give a position up to that, or now"
            raise InvalidValueError("position", where.where, remedy)
    elif where.time_ms > now_ms(connection):
        remedy = "lies in the future; give `now` or a time that has passed, or wait until it has"
        raise InvalidValueError(field, where.where, remedy)
    else:
        position = evidence.checkpoint_before(connection, where.time_ms, head)
    if position == Position.ORIGIN:
        return Checkpoint()
    sources = evidence.sources_through(
        connection, subscription, Checkpoint(), Position.ORIGIN, position
    )
    return Checkpoint(position=position, sources=sources)


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


def _unreadable(connection: Connection, subscription: Subscription, moment: Moment) -> str:
    """A sentence when the subscription reads a table that has no snapshot yet; asked only until
    some consumer has read them all.
    """
    if any(
        set(subscription.reads) <= set(consumer.checkpoint.sources)
        for consumer in moment.consumers.values()
    ):
        return ""
    missing = evidence.without_snapshot(
        connection, [(subscription.cluster, table) for table in subscription.reads], moment.through
    )
    return f"{missing[0]} has no snapshot yet, and {subscription.name} reads it" if missing else ""


AT_ONCE = 100  # subscriptions decided before it is asked whether enough of them fired


@dataclass
class Sweep:
    """The evaluation of many subscriptions, again and again, by one process; the decisions are
    those of `Evaluator.evaluate`.

    Restless subscriptions are decided at every evaluation; those that rest only when something of
    theirs changed.
    """

    evaluator: Evaluator
    subscriptions: Sequence[Subscription]
    rows: dict[str, SubscriptionRow] = field(default_factory=dict)
    # subscriptions that cannot be activated now, and why
    refused: dict[str, str] = field(default_factory=dict)
    noted_ts: int = 0  # when its ticks were noted last
    # the last decision of each subscription
    last: dict[str, Decision] = field(default_factory=dict)
    _through: Position | None = None  # where the last evaluation ended; None before the first one
    _intervention: int = 0
    # in the order in which they are decided
    _restless: dict[str, None] = field(default_factory=dict)
    _points: dict[str, dt.datetime | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.subscriptions = [
            subscription for subscription in self.subscriptions if subscription.source is None
        ]
        self._begin()

    def _begin(self) -> None:
        """Know nothing of the store yet: every subscription that can be activated is decided at the
        next evaluation.
        """
        self._activate()
        self._subscriptions = {
            subscription.name: subscription
            for subscription in self.subscriptions
            if subscription.name in self.rows
        }
        self._by_table: dict[TableKey, list[str]] = {}
        for subscription in self._subscriptions.values():
            for table in subscription.watched:
                self._by_table.setdefault(table, []).append(subscription.name)
        self._ids = {row.subscription_id: name for name, row in self.rows.items()}
        self._restless = dict.fromkeys(self._subscriptions)
        self._through, self._intervention = None, 0

    def _activate(self) -> None:
        """Read the subscriptions' rows, and make those of new subscriptions; one that starts later
        hinders no other.
        """
        known = self._known()
        self.rows, self.refused = {}, {}
        for subscription in self.subscriptions:
            row = known.get(subscription.name)
            try:
                self.rows[subscription.name] = (
                    row
                    if row is not None and row.describes(subscription)
                    else self.evaluator.activate(subscription)
                )
            except InvalidValueError as error:
                self.refused[subscription.name] = str(error)

    def _known(self) -> dict[str, SubscriptionRow]:
        names = [subscription.name for subscription in self.subscriptions]
        return (
            {
                row.name: row
                for row in self.evaluator.ledger.subscriptions(lc_subscription.c.name.in_(names))
            }
            if names
            else {}
        )

    def decisions(
        self, most: int | None = None, accepts: Mapping[str, Accepts] | None = None
    ) -> dict[str, Decision]:
        """The decisions of the subscriptions that may fire now or wait, by name; a subscription
        that is not there has nothing to do.

        After `most` firings no more are decided: the rest is decided first the next time. `accepts`
        is by subscription.
        """
        if not self.subscriptions:
            return {}
        if self._is_replaced():
            self._begin()
        found: dict[str, Decision] = {}
        with reading(self.evaluator.engine) as connection:
            now, through = now_ms(connection), head_within(connection)
            # until decided: an evaluation may fail
            self._restless |= dict.fromkeys(self._changed(connection, now, through))
            names = list(self._restless)
            for start in range(0, len(names), AT_ONCE):
                if most is not None and sum(decision.fires for decision in found.values()) >= most:
                    break
                found |= self._decided(connection, names[start : start + AT_ONCE], accepts or {})
        self._through = through
        self.last |= found
        restless = {
            name: decision for name, decision in found.items() if decision.fires or decision.waits
        }
        self._restless = dict.fromkeys([*(name for name in names if name not in found), *restless])
        return restless

    def reread(self) -> None:
        """Read the subscriptions' rows again; one whose search somebody else began again is decided
        at the next evaluation.

        When one is gone, or was refused before, all are decided again.
        """
        found = self._known()
        if self.refused or any(
            name not in found or found[name].activated_ts != row.activated_ts
            for name, row in self.rows.items()
        ):
            self._begin()
            return
        self._restless |= {
            name: None for name, row in found.items() if row.looked != self.rows[name].looked
        }
        self.rows |= found

    def move_on(self, busy: Set[str]) -> None:
        """Remember that nothing up to the last evaluation can fire the subscriptions that rest, so
        that retention may compact it.

        Left out are those that are `busy`, having an open execution, and those that were declared
        otherwise since.
        """
        if self._through is None:
            return
        rows = [
            row
            for name, row in self.rows.items()
            if name not in self._restless and name not in busy
        ]
        resting = [
            row
            for row in rows
            if row.looked < self._through and row.describes(self._subscriptions[row.name])
        ]
        self.evaluator.looked_through(resting, self._through)
        self.rows |= {row.name: replace(row, looked=self._through) for row in resting}

    def _is_replaced(self) -> bool:
        """Whether the store was created again, or put back to what it was, since the last
        evaluation.
        """
        if self._through is None or not self.rows:
            return False
        first = next(iter(self.rows.values()))
        same = sa.select(sa.literal(1)).where(
            lc_subscription.c.subscription_id == first.subscription_id,
            lc_subscription.c.activated_ts == first.activated_ts,
        )
        with reading(self.evaluator.engine) as connection:
            return (
                head_within(connection) < self._through or connection.execute(same).scalar() is None
            )

    def _changed(self, connection: Connection, now: int, through: Position) -> list[str]:
        """The subscriptions that may not rest any longer."""
        touched = {
            self._ids[subscription_id]
            for subscription_id in self._touched_by_people(connection)
            if subscription_id in self._ids
        }
        requested = {
            self._ids[subscription_id]
            for subscription_id in subscriptions_with_requests(connection)
            if subscription_id in self._ids
        }
        tables = (
            _changed_tables(connection, self._through, through) if self._through is not None else []
        )
        woken = [name for table in tables for name in self._by_table.get(table, ())]
        return [*sorted(touched | requested), *woken, *self._due(now)]

    def _due(self, now: int) -> list[str]:
        """The subscriptions of partitions whose schedule has another last tick."""
        due = []
        for name, subscription in self._subscriptions.items():
            if isinstance(subscription.trigger, PartitionTrigger):
                point, before = (
                    subscription.trigger.every.last(from_milliseconds(now)),
                    self._points.get(name),
                )
                self._points[name] = point
                due += [name] if point != before else []
        return due

    def _touched_by_people(self, connection: Connection) -> set[int]:
        """The subscriptions to which a person did something since the last evaluation."""
        query = sa.select(lc_intervention.c.intervention_id, lc_intervention.c.subscription_id)
        rows = connection.execute(
            query.where(lc_intervention.c.intervention_id > self._intervention)
        ).all()
        self._intervention = max((row.intervention_id for row in rows), default=self._intervention)
        return {row.subscription_id for row in rows}

    def _decided(
        self, connection: Connection, names: Sequence[str], accepts: Mapping[str, Accepts]
    ) -> dict[str, Decision]:
        ids = among(
            connection,
            lc_subscription.c.subscription_id,
            [self.rows[name].subscription_id for name in names],
        )
        rows = {
            row.name: subscription_from(row) for row in connection.execute(SUBSCRIPTIONS.where(ids))
        }
        self.rows |= rows  # without what is gone, which `reread` activates
        return self.evaluator.evaluate_all(
            connection, [(self._subscriptions[name], row) for name, row in rows.items()], accepts
        )


def _changed_tables(connection: Connection, since: Position, through: Position) -> list[TableKey]:
    """The tables of the events in (since, through]."""
    query = sa.select(dce_table.c.cluster, dce_table.c.name).join(
        dce_event, dce_table.c.table_id == dce_event.c.table_id
    )
    return [
        (row.cluster, row.name)
        for row in connection.execute(query.where(is_after(since), is_through(through)).distinct())
    ]
