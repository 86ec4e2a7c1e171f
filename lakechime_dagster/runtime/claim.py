"""How a run gets its execution: the one it was launched for, else one that it adopts or claims."""

from dataclasses import replace

import dagster as dg

from lakechime_dagster.errors import ConsumerConflictError, NotFoundError
from lakechime_dagster.runtime.names import DAGSTER_BACKFILL_TAG, EXECUTION_TAG
from lakechime_dagster.runtime.platform import Platform, ask_target
from lakechime_dagster.runtime.resource import (
    NothingNewError,
    RunContext,
    declared_subscriptions,
    subscription_named,
)
from lakechime_dagster.runtime.sources import ask, block
from lakechime_dagster.triggers.consumers import Cause, ConsumerId, ConsumerState, Execution
from lakechime_dagster.triggers.decision import Firing
from lakechime_dagster.triggers.registry import ConsumerRow, SubscriptionRow
from lakechime_dagster.triggers.schedule import from_milliseconds
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import PartitionKey, PartitionTrigger

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
