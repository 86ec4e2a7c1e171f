"""The execution of a run: the one it was launched for, or one that it adopts or claims, and what its
body uses while it works.
"""

import datetime as dt
import json
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from lakechime_dagster.dce.events import RegisteredEvent, to_json
from lakechime_dagster.dce.partitions import PartitionValue
from lakechime_dagster.dce.snapshots import SnapshotRange
from lakechime_dagster.errors import (
    ConsumerBlockedError,
    ConsumerConflictError,
    LakeChimeError,
    NotFoundError,
)
from lakechime_dagster.runtime.names import DAGSTER_BACKFILL_TAG, EXECUTION_TAG
from lakechime_dagster.runtime.platform import FIRED, Platform, ask_target
from lakechime_dagster.runtime.resource import (
    NothingNewError,
    RunContext,
    declared_subscriptions,
    subscription_named,
)
from lakechime_dagster.runtime.sources import ask, block
from lakechime_dagster.triggers.backfills import Backfills
from lakechime_dagster.triggers.consumers import (
    Cause,
    CommitMetadata,
    ConsumerId,
    ConsumerState,
    Execution,
    Span,
)
from lakechime_dagster.triggers.decision import Firing
from lakechime_dagster.triggers.ledger import events_of
from lakechime_dagster.triggers.registry import ConsumerRow, SubscriptionRow
from lakechime_dagster.triggers.schedule import from_milliseconds
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import PartitionKey, PartitionTrigger

if TYPE_CHECKING:
    from lakechime_dagster.runtime.platform import FormatLog


RENEW_SECONDS = 15.0
ENV_LIMIT = 100_000  # bytes of one environment variable; Linux refuses 131,072


@dataclass
class RunningExecution:
    """An execution that this run has begun.

    `lost` is set when the lease could not be kept: another attempt may be at work, so nothing more
    should be written.
    """

    platform: Platform
    subscription: Subscription
    execution: Execution
    lost: threading.Event = field(default_factory=threading.Event)
    completed: bool = False
    _folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def events(self) -> list[RegisteredEvent]:
        """Exactly the events of this execution in commit order: those with its subscription's tags
        in its range of positions.

        They are of the subscription's tables, with a partition trigger of the partitions of its
        key. An amendment is one of them only if it brought the tags; without tags only changes of
        data are. Where a key fires again for late data, these are too, whatever their tags.
        """
        return events_of(self.platform.store.engine, self.subscription, self.execution)

    @property
    def ranges(self) -> dict[str, SnapshotRange]:
        """Per source table the snapshots to read: start exclusive, end inclusive."""
        return self.execution.ranges()

    @property
    def ordered(self) -> tuple[Span, ...]:
        """What backfills ordered of a consumer without a partition key: rows of its inputs that it
        takes as if they had changed.
        """
        if not self.execution.backfill:
            return ()
        orders = Backfills(self.platform.ledger).requests_of(self.execution.execution_id)
        return tuple(order.span for order in orders if order.span is not None)

    def now(self) -> dt.datetime:
        """The store's clock."""
        return from_milliseconds(self.platform.store.now())

    def env(self) -> dict[str, str]:
        """The variables to add to the environment of a child process.

        `LAKECHIME_EXECUTION` is the id of the execution, `LAKECHIME_DCES` its events as a JSON
        array. Above 100 kB the array is in a file that `LAKECHIME_DCES_FILE` names instead; it is
        removed when the execution's `with` block ends.
        """
        wire = json.dumps([to_json(event) for event in self.events], separators=(",", ":"))
        variables = {"LAKECHIME_EXECUTION": self.execution.execution_id}
        if len(wire.encode()) <= ENV_LIMIT:
            return variables | {"LAKECHIME_DCES": wire}
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="lakechime-")
        path = Path(self._folder.name) / "dces.json"
        path.write_text(wire)
        return variables | {"LAKECHIME_DCES_FILE": str(path)}

    def commit_metadata(self, watermark: int | None = None) -> CommitMetadata:
        """The metadata of the commit of this attempt."""
        execution = self.execution
        fired = [
            dict(zip(self.subscription.target_levels.names, partition, strict=True))
            for partition in self.fired_partitions
        ]
        cause = {"cause": "backfill"} if execution.backfill else {}
        return CommitMetadata(
            consumer=execution.consumer,
            number=execution.number,
            attempt=execution.attempt,
            end=execution.end,
            execution_id=execution.execution_id,
            watermark=watermark,
            tags=dict(self.subscription.commit_tags) | cause,
            facts={FIRED: fired} if fired else {},
        )

    @property
    def fired_partitions(self) -> tuple[tuple[PartitionValue, ...], ...]:
        """The target's partition that the execution's partition key stands for, if it does for one."""
        trigger = self.subscription.trigger
        if not isinstance(trigger, PartitionTrigger):
            return ()
        key = trigger.key_of(self.execution.consumer.key, self.now())
        partition = self.subscription.partition_of(key) if key is not None else None
        return (partition,) if partition is not None else ()

    def write_options(self, target: str) -> dict[str, str]:
        """Delta writer options by which the target lets this execution in once: transaction, and
        the commit metadata.

        `target` must be the table that the subscription declares to write, since that is who is
        asked what was committed.
        """
        if target != self.subscription.target:
            raise ConsumerConflictError(
                f"subscription {self.subscription.name} writes "
                f"{self.subscription.target or 'no table'}, not {target}; name it in "
                f"lakechime_sensor(writes=…)"
            )
        commit_metadata = self.commit_metadata()
        return {
            "txnAppId": commit_metadata.txn_app_id,
            "txnVersion": str(commit_metadata.number),
            "userMetadata": commit_metadata.to_text(),
        }

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()


@contextmanager
def kept(
    running: RunningExecution, target: "FormatLog | None", log: Callable[[str], None]
) -> Iterator[RunningExecution]:
    """Keep the lease while the body works; at its end complete by what the target holds.

    A body that raises ConsumerBlockedError lets its consumer wait for a person at once.
    A subscription without a target is not completed here: its run must have succeeded first, which
    its sensor sees.
    """
    stop = threading.Event()
    keeper = threading.Thread(
        target=_keep, args=(running, stop, log), name="lakechime-lease", daemon=True
    )
    keeper.start()
    try:
        yield running
        if target is not None and not running.completed:
            running.completed = (
                running.platform.complete_if_committed(target, running.execution) is not None
            )
    except ConsumerBlockedError as error:
        _block(running, error, log)
        raise
    except Exception as error:
        _note(running, error, log)
        raise
    finally:
        stop.set()
        keeper.join()
        running.close()


def _note(running: RunningExecution, error: Exception, log: Callable[[str], None]) -> None:
    """Keep the first line of why the attempt fails."""
    try:
        running.platform.ledger.note_error(
            running.execution, f"{type(error).__name__}: {error}".splitlines()[0]
        )
    except Exception as failure:  # noqa: BLE001 - whatever hinders that must not hide the error itself
        log(f"the error of attempt {running.execution.attempt} could not be kept: {failure}")


def _block(
    running: RunningExecution, error: ConsumerBlockedError, log: Callable[[str], None]
) -> None:
    """Let the consumer wait for a person, unless a later attempt has begun."""
    execution, name = running.execution, running.subscription.name
    try:
        again = (
            f"`lakechime trigger resume {name} --reason …` tries execution {execution.number} again"
        )
        reason = (
            f"{error}; it goes on by itself once {error.ends_when}, or {again}"
            if error.ends_when
            else f"{error}; then {again}"
        )
        if running.platform.ledger.block_execution(execution, reason):
            log(f"{name} is BLOCKED: {reason}")
    except Exception as failure:  # noqa: BLE001 - as above; without it the next attempt fails likewise
        log(f"{name} could not be blocked: {failure}")


def _keep(running: RunningExecution, stop: threading.Event, log: Callable[[str], None]) -> None:
    execution = running.execution
    while not stop.wait(RENEW_SECONDS):
        try:
            alive = running.platform.ledger.renew(
                execution.execution_id, execution.attempt, execution.run_id or ""
            )
        except (
            LakeChimeError
        ) as error:  # a store that is away for a moment is asked again at the next turn
            log(f"the lease of execution {execution.execution_id} could not be renewed: {error}")
            continue
        if not alive:
            if not running.completed:
                running.lost.set()
                log(
                    f"attempt {execution.attempt} of execution {execution.execution_id} is "
                    f"{_superseded(running)}"
                )
            return


def _superseded(running: RunningExecution) -> str:
    """By whom, as far as that has begun."""
    try:
        current = running.platform.ledger.execution(running.execution.execution_id)
    except LakeChimeError:  # who it is does not matter more than that it is so
        current = None
    if current is None or current.run_id is None:
        return "superseded by a run that has not begun"
    return f"superseded by run {current.run_id} (attempt {current.attempt})"


BY_HAND = "a person asked for it"


def begun(
    platform: Platform, context: RunContext, name: str | None, partition: str | None = None
) -> tuple[Subscription, Execution]:
    """The subscription of a run and the execution that it may begin."""
    run = context.run
    execution_id = run.tags.get(EXECUTION_TAG)
    tagged = platform.ledger.execution(execution_id) if execution_id else None
    subscription = subscription_named(name) if name else _subscription_of(context, tagged)
    chosen = partition or (context.partition_key if context.has_partition_key else None)
    backfill = run.tags.get(DAGSTER_BACKFILL_TAG)
    if (
        tagged is not None
        and tagged.consumer.subscription == subscription.name
        and tagged.partition_key == chosen
    ):
        return subscription, _begin(platform, subscription, tagged, run.run_id, backfill)
    return subscription, adopted(platform, subscription, run.run_id, chosen, backfill)


def adopted(
    platform: Platform,
    subscription: Subscription,
    run_id: str,
    partition: str | None,
    backfill: str | None = None,
) -> Execution:
    """For a run without our tags: the consumer's open execution that no live run is at, or a new
    claim.

    Raises:
        NothingNewError: there are no new events since the consumer's checkpoint.
    """
    row = platform.evaluator.activate(subscription)
    key = _partition_key(platform, subscription, row, partition)
    target = platform.target_of(subscription)
    consumer_key = key.text if key else ""
    opened = next(
        (
            execution
            for execution in platform.ledger.open_executions(row)
            if execution.consumer.key == consumer_key
        ),
        None,
    )
    if opened is not None:
        return _begin(platform, subscription, opened, run_id, backfill)
    consumers = platform.ledger.consumers(row)
    if consumer_key not in consumers:
        committed = ask_target(target)(
            ConsumerId(platform.ledger.deployment, subscription.name, consumer_key)
        )
        consumers = {
            consumer_key: platform.ledger.ensure_consumer(
                row, consumer_key, committed, key.atoms if key else ()
            )
        }
    consumer = consumers[consumer_key]
    if blocked := consumer.blocked_sentence(subscription.name):
        raise ConsumerConflictError(blocked)
    firing = _wanted(platform, subscription, row, consumer, key)
    # a key whose partitions are not all there is done with what is, and still fires when they are
    is_complete = (
        key is None or consumer.fired or bool(platform.evaluator.ready(subscription, row, [key]))
    )
    claimed = platform.evaluator.claim(
        subscription, row, firing, ask_target(target), cause=Cause.MANUAL, fired=is_complete
    )
    if claimed is None:
        raise ConsumerConflictError(
            f"another run claimed {subscription.name} {consumer_key}".strip()
            + " at the same moment; look at its run, or launch again"
        )
    return platform.ledger.begin(claimed.execution_id, run_id, backfill)


def _wanted(
    platform: Platform,
    subscription: Subscription,
    row: SubscriptionRow,
    consumer: ConsumerRow,
    key: PartitionKey | None,
) -> Firing:
    """What a person wants, where there is something to do: new events, or else what the
    subscription is requested to do.
    """
    try:
        return (
            _fed(platform, subscription, row)
            if subscription.source is not None
            else _woken(platform, subscription, row, consumer, key)
        )
    except NothingNewError:
        firing = platform.evaluator.requested(subscription, row)
        if firing is None:
            raise
        return replace(firing, reason=f"{BY_HAND}; {firing.reason}")


def _woken(
    platform: Platform,
    subscription: Subscription,
    row: SubscriptionRow,
    consumer: ConsumerRow,
    key: PartitionKey | None,
) -> Firing:
    """What a person wants, where an event or a snapshot is newer than the consumer's checkpoint, or
    a backfill requested it.
    """
    requests = platform.evaluator.requests(row, consumer.key)
    if requests.waiting_for:
        raise ConsumerConflictError(
            f"{subscription.name} {consumer.key}".strip() + f" waits: {requests.waiting_for}"
        )
    if requests.ids and (key is None or consumer.fired):
        return Firing(key=consumer.key, partition=key, reason=f"{BY_HAND}; {requests.sentence}")
    end = platform.evaluator.end_of(subscription, row, consumer)
    has_new_snapshot = end.sources != consumer.checkpoint.sources or (
        end.sources and not consumer.completed
    )
    if not has_new_snapshot and not platform.evaluator.waits(subscription, row, consumer, key):
        raise NothingNewError(
            f"{consumer.shown(subscription.name)}: no new events since execution "
            f"{consumer.completed} "
            f"(checkpoint {consumer.checkpoint.position})"
        )
    return Firing(key=consumer.key, partition=key, reason=BY_HAND)


def _fed(platform: Platform, subscription: Subscription, row: SubscriptionRow) -> Firing:
    """The same where the subscription's source holds more, whatever the pace at which it is
    asked.
    """
    asked = ask(platform, subscription, row)
    block(platform, row, asked)
    if asked.blocked:
        raise ConsumerConflictError(f"{subscription.name} is BLOCKED: {asked.blocked}")
    if not asked.decision.fires:
        raise NothingNewError(f"{subscription.name}: {asked.decision.sentence}")
    (firing,) = asked.decision.firings
    return replace(firing, reason=f"{BY_HAND}; {firing.reason}")


def _begin(
    platform: Platform,
    subscription: Subscription,
    execution: Execution,
    run_id: str,
    backfill: str | None,
) -> Execution:
    """Begin an execution, unless its target holds its commit already."""
    if execution.completed_ts is not None:
        raise NothingNewError(
            f"execution {execution.number} of {subscription.name} is completed; `lakechime trigger "
            f"seek {subscription.name}` replays from an "
            f"earlier position"
        )
    target = platform.target_of(subscription)
    if platform.complete_if_committed(target, execution) is not None:
        raise NothingNewError(
            f"execution {execution.number} of {subscription.name} was committed by an earlier "
            f"attempt; it is completed now"
        )
    return platform.ledger.begin(execution.execution_id, run_id, backfill)


def _subscription_of(context: RunContext, tagged: Execution | None) -> Subscription:
    """The subscription of a run: by its execution, else by the asset or job that it runs."""
    subscriptions, keys = declared_subscriptions(), _asset_names(context)
    mine = [
        subscription
        for subscription in subscriptions.values()
        if keys & set(subscription.asset_keys)
        or (subscription.job is not None and subscription.job == context.job_name)
    ]
    if (
        tagged is not None
        and tagged.consumer.subscription in subscriptions
        and (
            not mine
            or any(subscription.name == tagged.consumer.subscription for subscription in mine)
        )
    ):
        return subscriptions[tagged.consumer.subscription]
    if len(mine) == 1:
        return mine[0]
    names = ", ".join(sorted(subscription.name for subscription in mine)) or "none"
    raise NotFoundError(
        f"this run belongs to no single subscription (candidates: {names}); name it: "
        f"lakechime.execution(context, subscription=…)"
    )


def _asset_names(context: RunContext) -> set[str]:
    if not isinstance(context, dg.AssetExecutionContext):
        return set()
    return {key.to_user_string() for key in context.selected_asset_keys}


def _partition_key(
    platform: Platform, subscription: Subscription, row: SubscriptionRow, partition: str | None
) -> PartitionKey | None:
    """The partition key that a Dagster partition stands for; of several the one that is open, else
    the first for which something waits.
    """
    if not isinstance(subscription.trigger, PartitionTrigger):
        return None
    keys_of_trigger = subscription.trigger.keys(from_milliseconds(platform.store.now()))
    keys = [key for key in keys_of_trigger if subscription.dagster_key(key) == partition]
    if not keys:
        ends = [
            subscription.dagster_key(key) or key.text
            for key in (*keys_of_trigger[:1], *keys_of_trigger[-1:])
        ]
        there = (
            f"it has {' to '.join(ends)}"
            if ends
            else f"its first is at {subscription.trigger.every.first}"
        )
        raise NotFoundError(
            f"{subscription.name} has no tick of its schedule for partition {partition!r} up to "
            f"now; {there}"
        )
    if len(keys) == 1:
        return keys[0]
    consumers = platform.ledger.consumers(row)
    free = [
        key
        for key in keys
        if key.text not in consumers or consumers[key.text].state is ConsumerState.ACTIVE
    ] or keys
    leases = {
        execution.consumer.key: execution.lease_until or 0
        for execution in platform.ledger.open_executions(row)
    }
    # at which no run lives first
    opened = sorted((key for key in free if key.text in leases), key=lambda key: leases[key.text])
    return next(iter(opened or platform.evaluator.ready(subscription, row, free)), free[-1])
