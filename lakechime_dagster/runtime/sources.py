"""Subscriptions that read a message source: whether they fire, and what blocks them; and how a
person moves the checkpoints of any subscription.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakechime_dagster.dce.engine import reading
from lakechime_dagster.errors import LakeChimeError, NotFoundError
from lakechime_dagster.runtime.platform import Platform, ask_target, ends_of_blocked
from lakechime_dagster.settings import in_project
from lakechime_dagster.sources.files import OpenSource
from lakechime_dagster.sources.source import open_source
from lakechime_dagster.triggers.consumers import (
    Cause,
    Checkpoint,
    ConsumerId,
    ConsumerState,
    Execution,
    ExecutionState,
    SourceLag,
)
from lakechime_dagster.triggers.decision import ConsumerView, Decision, Firing, source_rests
from lakechime_dagster.triggers.interventions import CheckpointAt, Interventions
from lakechime_dagster.triggers.ledger import events_of
from lakechime_dagster.triggers.registry import By, ConsumerRow, SubscriptionRow, declared
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import SnapshotTrigger, StartFrom


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What asking a subscription's source gave.

    Attributes:
        decision: Whether the subscription fires, and why not.
        at_ms: When the source was asked, by the store's clock; None where it was not.
        blocked: Why the consumer must wait for a person; empty where it need not.
        consumer: The consumer for which it was asked, where there is one yet.
        lag: What it holds that was not read; None where it was not asked, or a person must decide
            first.
    """

    decision: Decision
    at_ms: int | None = None
    blocked: str = ""
    consumer: ConsumerRow | None = None
    lag: SourceLag | None = None


def opened(subscription: Subscription) -> OpenSource:
    """The source of a subscription that has one, to be asked."""
    assert subscription.source is not None
    return open_source(
        subscription.source,
        in_project,
        os.environ,
        is_ordered_by_position=subscription.is_ordered_by_position,
    )


def ask(
    platform: Platform,
    subscription: Subscription,
    row: SubscriptionRow,
    asked_ms: int | None = None,
) -> Asked:
    """Decide for a subscription by what its source holds now; nothing is written.

    The source is not asked while the consumer has an open execution or waits for a person, nor
    before the next tick of the subscription's schedule after `asked_ms`; where the last execution
    left something, it is asked at once.

    Raises:
        MessagesUnreadableError: the source cannot be asked.
    """
    assert isinstance(subscription.trigger, SnapshotTrigger)
    moment = platform.evaluator.moment(row)
    consumer = moment.views.get("", ConsumerView(checkpoint=row.start))
    paced = (
        ""
        if consumer.checkpoint.has_more
        else source_rests(subscription.trigger.every, asked_ms, moment.now)
    )
    rests = moment.blocked or consumer.blocked or consumer.open or paced
    if rests:
        return Asked(decision=Decision(trigger=subscription.name, fires=False, reasons=(rests,)))
    poll = opened(subscription).poll(consumer.checkpoint.offsets)
    news = "" if poll.problems else "; ".join(filter(None, (poll.news, poll.left)))
    reasons = poll.problems or (
        poll.news or f"nothing new in {subscription.source}",
        *filter(None, (poll.left, poll.rest)),
    )
    firing = Firing(
        reason=news,
        completed=consumer.completed,
        offsets=poll.limited_end or poll.end,
        has_more=poll.limited_end is not None,
    )
    firings = (firing,) if news else ()
    decision = Decision(
        trigger=subscription.name, fires=bool(news), reasons=reasons, firings=firings
    )
    lag = SourceLag.seen(
        consumer.checkpoint.offsets,
        poll.end,
        completed=consumer.completed,
        now_ms=moment.now,
        before=row.source_lag,
        has_more=consumer.checkpoint.has_more,
    )
    return Asked(
        decision=decision,
        at_ms=moment.now,
        blocked="; ".join(poll.problems),
        consumer=moment.consumers.get(""),
        lag=None if poll.problems else lag,
    )


def block(platform: Platform, row: SubscriptionRow, asked: Asked) -> None:
    """Let the consumer wait for a person, where its source asks for one."""
    if asked.blocked and asked.consumer is not None:
        platform.ledger.block(row, asked.consumer, asked.blocked)


def resume(
    platform: Platform,
    subscription: Subscription | None,
    row: SubscriptionRow,
    by: By,
    *,
    dry_run: bool = False,
) -> list[tuple[ConsumerRow, Checkpoint]]:
    """Let a trigger launch runs again, and return the consumers that move for it, as they were,
    each with its new checkpoint.

    Where it is declared, a consumer that its source blocks goes on with what is still there, and an
    execution that asked for a person is tried again with all newer events.

    Raises:
        MessagesUnreadableError: its source cannot be asked.
    """
    interventions = Interventions(platform.ledger)
    kept = _kept(platform, subscription, row) if subscription is not None else None
    ends = ends_of_blocked(platform, subscription, row) if subscription is not None else {}
    moved = interventions.seek(row, None, by, kept, dry_run=True) if kept is not None else []
    if not dry_run:
        interventions.resume(row, by, kept, ends)
    return moved


def _kept(
    platform: Platform, subscription: Subscription, row: SubscriptionRow
) -> CheckpointAt | None:
    """Where a consumer that its source blocks goes on when a person lets it, what is gone given up;
    None where it does not move for that.
    """
    consumer = platform.ledger.consumers(row).get("")
    if (
        subscription.source is None
        or consumer is None
        or consumer.state is not ConsumerState.BLOCKED
        or (kept := opened(subscription).poll(consumer.checkpoint.offsets).kept) is None
    ):
        return None
    return lambda connection, held: replace(held.checkpoint, offsets=kept)


def checkpoint_at(platform: Platform, subscription: Subscription, where: StartFrom) -> CheckpointAt:
    """How to find the checkpoint to which a person puts a consumer; in a source that is `now`
    alone, after all that it holds.

    Raises:
        LakeChimeError: a source is not read again.
        MessagesUnreadableError: it cannot be asked.
    """
    if where.where != "now" and (subscription.source is not None or subscription.is_stream):
        source = subscription.source or ", ".join(subscription.reads)
        raise LakeChimeError(
            f"{subscription.name} adds what its source brings, so that its rows would be there "
            f"twice were {source} read again from "
            f"{where.where}; put the trigger of the table that reads {subscription.target or 'it'} "
            f"back instead, or this one to `now`, "
            "which leaves out what is not read yet"
        )
    if subscription.source is None:
        return platform.evaluator.checkpoint_at(subscription, where)
    end = opened(subscription).poll(None).end

    def checkpoint(connection: object, consumer: ConsumerRow) -> Checkpoint:
        return replace(consumer.checkpoint, offsets=end, has_more=False)

    return checkpoint


Moved = Sequence[tuple[ConsumerRow, Checkpoint]]  # consumers as they were, each with its new one


def seek(
    platform: Platform,
    subscription: Subscription,
    where: StartFrom,
    by: By,
    *,
    key: str | None = None,
    dry_run: bool = False,
) -> Moved:
    """Move the checkpoint of the consumer of a key, or of all: back to replay events, forward to
    leave them out. Returns the consumers as they were, each with its new checkpoint.

    Raises:
        LakeChimeError: there is nothing to move, or a source is not read again.
        ConsumerConflictError: a consumer has an open execution.
    """
    _check_consumers(platform, subscription, key)
    imagined = (
        (platform.ledger.subscription(subscription.name) or inactive(platform, subscription))
        if dry_run
        else None
    )
    row = imagined or platform.evaluator.activate(subscription)
    found = checkpoint_at(platform, subscription, where)
    moved = _first_consumer(platform, subscription, row, found, dry_run)
    return moved or Interventions(platform.ledger).seek(row, key, by, found, dry_run=dry_run)


def replay(
    platform: Platform,
    subscription: Subscription,
    start: StartFrom,
    end: StartFrom,
    by: By,
    *,
    dry_run: bool = False,
) -> tuple[Execution, int]:
    """Claim an execution of what was registered between two points, beside those of the trigger's
    consumer, which stays where it is; its sensor launches it. Returns it, in a dry run only
    imagined, and how many events it has.

    Raises:
        LakeChimeError: the trigger's runs write a table, where rows would be there twice, or it has
            no event in the range.
    """
    name = subscription.name
    if subscription.is_partitioned:
        remedy = f"`lakechime trigger seek {name} --key KEY --to TIME` lets a key fire again"
        raise LakeChimeError(f"{name} is a partition trigger; {remedy}")
    if subscription.target or subscription.reads or subscription.source:
        written = subscription.target or "its tables"
        remedy = "`lakechime backfill run` computes a table again"
        raise LakeChimeError(f"{name} writes {written} by its checkpoint; {remedy}")
    first, last = platform.evaluator.between(subscription, start, end)
    execution = Execution(
        execution_id="",
        consumer=ConsumerId(platform.ledger.deployment, name),
        number=1,
        state=ExecutionState.OPEN,
        cause=Cause.REPLAY,
        start=first,
        end=last,
        reason=by.reason,
    )
    events = len(events_of(platform.store.engine, subscription, execution))
    if not events:
        where = f"from {start.where} ({first.position}) to {end.where} ({last.position})"
        raise LakeChimeError(f"{name} has no event {where}; `lakechime dce list` shows events")
    if not dry_run:
        row = platform.evaluator.activate(subscription)
        execution = Interventions(platform.ledger).replay(row, by, first, last)
    return execution, events


def _check_consumers(platform: Platform, subscription: Subscription, key: str | None) -> None:
    """Refuse to move a consumer that does not exist, before anything is written."""
    row = platform.ledger.subscription(subscription.name)
    keys = {
        *(platform.ledger.consumers(row) if row else {}),
        *([] if subscription.is_partitioned else [""]),
    }
    if key is not None and key not in keys:
        raise NotFoundError(
            f"{subscription.name} has no consumer {key!r}; `lakechime trigger show "
            f"{subscription.name}` lists its consumers"
        )
    if not keys:
        raise LakeChimeError(
            f"{subscription.name} has no consumer yet: nothing was claimed, so there is nothing to "
            f"move"
        )


def _first_consumer(
    platform: Platform,
    subscription: Subscription,
    row: SubscriptionRow,
    checkpoint_at: CheckpointAt,
    dry_run: bool,
) -> Moved:
    """The one consumer of a snapshot trigger, which can be moved before anything was claimed:
    created, in a dry run only imagined.
    """
    if subscription.is_partitioned or "" in platform.ledger.consumers(row):
        return []
    consumer_id = ConsumerId(platform.ledger.deployment, subscription.name)
    committed = ask_target(platform.target_of(subscription))(consumer_id)
    if not dry_run:
        platform.ledger.ensure_consumer(row, "", committed)
        return []
    consumer = ConsumerRow(
        consumer_id=0,
        key="",
        state=ConsumerState.ACTIVE,
        state_reason="",
        completed=committed.commit_metadata.number if committed else 0,
        checkpoint=committed.commit_metadata.end if committed else row.start,
        fired=committed is not None,
        created_ts=row.activated_ts,
    )
    with reading(platform.ledger.engine) as connection:
        return [(consumer, checkpoint_at(connection, consumer))]


def inactive(platform: Platform, subscription: Subscription) -> SubscriptionRow:
    """The row that a subscription would get, were it activated now."""
    return SubscriptionRow(
        subscription_id=0,
        deployment=platform.ledger.deployment,
        name=subscription.name,
        **declared(subscription),
        activated_ts=platform.store.now(),
        start=platform.evaluator.start_of(subscription),
    )


def moves(moved: Moved) -> list[dict[str, Any]]:
    """Which consumers were moved from where to where, as JSON."""
    return [
        {"key": one.key, "before": one.checkpoint.to_json(), "after": after.to_json()}
        for one, after in moved
    ]
