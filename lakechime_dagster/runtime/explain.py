"""Explains why a trigger fires or not, now or at a past time, and shows executions."""

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from lakechime_dagster.dce.events import EventQuery, Position, RegisteredEvent, to_json
from lakechime_dagster.errors import LakeChimeError, NotFoundError
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.runtime.sources import ask, inactive
from lakechime_dagster.triggers.consumers import Execution
from lakechime_dagster.triggers.decision import Decision, LackingKey
from lakechime_dagster.triggers.evaluation import Moment
from lakechime_dagster.triggers.interventions import Intervention, Interventions
from lakechime_dagster.triggers.progress import SubscriptionOverview, moment_at
from lakechime_dagster.triggers.registry import ConsumerRow, SubscriptionRow
from lakechime_dagster.triggers.schedule import from_milliseconds
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import Atom, PartitionKey, PartitionTrigger, TagsFrom

MOST_KEYS = 100  # of a page
MOST_EVENTS = 1_000  # of an explanation, oldest first
SILENT_MS = 180_000  # ticks are noted once a minute
NOT_ACTIVE = "not active yet: its sensor has not ticked in this deployment"


def explain(platform: Platform, subscription: Subscription, at_ms: int | None = None) -> Decision:
    """The decision with its events; nothing is written.

    Of a snapshot trigger: the matching events that wait. Of a partition trigger: those in the
    partitions of the keys that fire, else of the oldest key that is missing something.
    """
    known = platform.ledger.subscription(subscription.name)
    row = known or inactive(platform, subscription)
    if at_ms is None:
        moment = platform.evaluator.moment(row)
        decision = _decided_now(platform, subscription, row, moment)
    else:
        moment = moment_at(platform.store.engine, row, at_ms)
        decision = _decided_at(platform, subscription, row, moment)
    reasons = decision.reasons if known else (*decision.reasons, NOT_ACTIVE)
    consumers = moment.consumers
    if isinstance(subscription.trigger, PartitionTrigger):
        fired = moment.fired | {key for key, consumer in consumers.items() if consumer.fired}
        keys = [firing.partition for firing in decision.firings if firing.partition]
        found = _of_keys(
            platform,
            subscription,
            keys or subscription.trigger.keys(from_milliseconds(moment.now), fired)[:1],
            decision.through,
        )
    else:
        checkpoint = consumers[""].checkpoint.position if "" in consumers else row.start.position
        found = _of_tables(platform, subscription, checkpoint, decision.through)
    events = tuple(sorted(itertools.islice(found, MOST_EVENTS), key=lambda event: event.position))
    return replace(decision, reasons=reasons, events=events)


def _decided_now(
    platform: Platform, subscription: Subscription, row: SubscriptionRow, moment: Moment
) -> Decision:
    evaluator = platform.evaluator
    if subscription.source is None:
        decision = evaluator.evaluate(subscription, row, moment)
        held_back = "" if decision.fires else evaluator.held_back_events()
    else:
        decision, held_back = ask(platform, subscription, row).decision, ""
    decision = evaluator.with_requests(subscription, row, decision)
    hindrances = filter(None, (held_back, _silence(row, moment.now)))
    return replace(decision, reasons=(*decision.reasons, *hindrances))


def _decided_at(
    platform: Platform, subscription: Subscription, row: SubscriptionRow, moment: Moment
) -> Decision:
    if subscription.source is None:
        return platform.evaluator.evaluate(subscription, row, moment)
    return Decision(
        trigger=subscription.name,
        fires=False,
        reasons=(f"what {subscription.source} held then is not kept; ask without a time",),
    )


def _silence(row: SubscriptionRow, now: int) -> str:
    """A sentence when the subscription's sensor has not ticked for minutes, though it did
    before.
    """
    if row.ticked_ts is None or now - row.ticked_ts < SILENT_MS:
        return ""
    return (
        f"its sensor has not ticked since {from_milliseconds(row.ticked_ts):%Y-%m-%d %H:%M}Z: it "
        f"is stopped in Dagster, or no daemon runs"
    )


def _of_tables(
    platform: Platform, subscription: Subscription, after: Position, through: Position
) -> Iterator[RegisteredEvent]:
    for (cluster, table), tags in subscription.wanted:
        query = EventQuery(
            table=table,
            cluster=cluster,
            tags=tags,
            only_new=True,
            after=after,
            through=through,
            limit=MOST_EVENTS,
        )
        yield from platform.store.fetch(query)


def _of_keys(
    platform: Platform, subscription: Subscription, keys: list[PartitionKey], through: Position
) -> Iterator[RegisteredEvent]:
    for atom in dict.fromkeys(atom for key in keys for atom in key.atoms):
        query = EventQuery(
            table=atom.table,
            cluster=atom.cluster,
            partition=_partition(atom),
            tags=atom.tags if subscription.tags_from is TagsFrom.EVENT else {},
            through=through,
        )
        yield from platform.store.fetch(query)


def _partition(atom: Atom) -> tuple[object, ...]:
    return tuple(json.loads(atom.canonical))


def trigger_summary(
    name: str, subscription: Subscription | None, known: SubscriptionOverview | None
) -> dict[str, Any]:
    """A trigger in a list, as JSON: one that is declared, recorded, or both."""
    row = known.row if known else None
    if row is None:
        state = "not active yet"
    elif row.paused_ts is not None:
        state = "paused"
    else:
        state = "active" if subscription else "not declared here"
    return {
        "name": name,
        "state": state,
        "declared": subscription is not None,
        "condition": subscription.condition if subscription else row.description if row else "",
        "waiting": known.waiting if known else None,
        "open": known.open if known else 0,
        "consumers": known.consumers if known else 0,
        "blocked": known.blocked if known else 0,
        "paused_reason": row and row.paused_reason,
    }


@dataclass(frozen=True, kw_only=True)
class Explained:
    """A trigger: what it reads and launches, whether it fires, a page of the keys that lack
    something, its consumers, and what people did to it, newest first.

    `next_key` is the last key of the page where more follow it.
    """

    trigger: Mapping[str, Any]
    decision: Decision
    keys: tuple[LackingKey, ...]
    next_key: str | None
    consumers: tuple[ConsumerRow, ...]
    interventions: tuple[Intervention, ...]

    def to_json(self) -> dict[str, Any]:
        """As commands and the HTTP server show it."""
        return {
            "trigger": self.trigger,
            "decision": "fire" if self.decision.fires else "not_yet",
            "reasons": self.decision.reasons,
            "events": [to_json(event) for event in self.decision.events],
            "keys": [asdict(one) for one in self.keys],
            "next_key": self.next_key,
            "consumers": [_consumer(one) for one in self.consumers],
            "interventions": self.interventions,
        }


def explained(
    platform: Platform,
    name: str,
    subscription: Subscription | None,
    known: SubscriptionOverview | None,
    *,
    at_ms: int | None = None,
    problem: str = "",
    after_key: str | None = None,
) -> Explained:
    """Explain a trigger that is declared, recorded, or both; `problem` is what is wrong with its
    declaration. The page of keys begins after `after_key`.

    Raises:
        LakeChimeError: a past time cannot be explained; what stands in the way of knowing whether
            it fires now is the reason.
    """
    row = known.row if known else None
    found = subscription or row
    about = trigger_summary(name, subscription, known) | {
        "tables": subscription.pinned if subscription else row.tables if row else (),
        "target": found and found.target,
        "job": found and found.job,
        "assets": found.asset_keys if found else (),
        "activated_ts": row and row.activated_ts,
    }
    decision = _decision(platform, name, subscription, at_ms, problem)
    keys, has_more = _page(decision.lacking, after_key)
    return Explained(
        trigger=about,
        decision=decision,
        keys=keys,
        next_key=keys[-1].key if has_more else None,
        consumers=tuple(platform.ledger.consumers(row).values()) if row else (),
        interventions=tuple(Interventions(platform.ledger).history(row)) if row else (),
    )


def _page(
    lacking: tuple[LackingKey, ...], after_key: str | None
) -> tuple[tuple[LackingKey, ...], bool]:
    """The keys after one, as many as a page holds, and whether there are more.

    Raises:
        NotFoundError: that key is none of them, such as one that has fired since.
    """
    first = 0
    if after_key is not None:
        keys = [one.key for one in lacking]
        if after_key not in keys:
            raise NotFoundError(f"no key {after_key!r} lacks anything; leave it out")
        first = keys.index(after_key) + 1
    end = first + MOST_KEYS
    return lacking[first:end], len(lacking) > end


def _decision(
    platform: Platform,
    name: str,
    subscription: Subscription | None,
    at_ms: int | None,
    problem: str,
) -> Decision:
    if problem:
        why = (
            f"its declaration is wrong, and its events wait in the stream's table until it is "
            f"corrected: {problem}"
        )
    elif subscription is None:
        why = "it is not declared here, so that no sensor evaluates it"
    else:
        try:
            return explain(platform, subscription, at_ms)
        except LakeChimeError as error:
            if at_ms is not None:
                raise
            why = " ".join(str(error).split())
    return Decision(trigger=name, fires=False, reasons=(why,))


def _consumer(consumer: ConsumerRow) -> dict[str, Any]:
    return {
        "key": consumer.key,
        "state": consumer.state,
        "completed": consumer.completed,
        "fired": consumer.fired,
        "checkpoint": consumer.checkpoint.to_json(),
        "reason": consumer.state_reason,
    }


def execution_summary(execution: Execution) -> dict[str, Any]:
    """An execution as JSON: its range, its newest attempt, and what became of it."""
    names = (
        "execution_id number attempt run_id partition_key claimed_ts completed_ts lease_until "
        "next_attempt_ts version reason state cause"
    )
    return {name: getattr(execution, name) for name in names.split()} | {
        "trigger": execution.consumer.subscription,
        "key": execution.consumer.key,
        "start": execution.start.to_json(),
        "end": execution.end.to_json(),
        "ranges": [
            {"table": one.table, "start": one.start, "end": one.end}
            for one in execution.ranges().values()
        ],
    }


def found_execution(platform: Platform, execution_id: str) -> Execution:
    """The execution of that id.

    Raises:
        NotFoundError: there is none.
    """
    execution = platform.ledger.execution(execution_id)
    if execution is None:
        raise NotFoundError(
            f"there is no execution {execution_id!r}; `lakechime execution show` lists them"
        )
    return execution
