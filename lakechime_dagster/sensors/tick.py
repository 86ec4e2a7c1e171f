"""One tick of the sensors of triggers: what is evaluated, claimed, launched, and found dead."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import dagster as dg

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.runtime.names import ATTEMPT_TAG, EXECUTION_TAG
from lakechime_dagster.runtime.platform import Platform, ask_target
from lakechime_dagster.runtime.sources import ask, block
from lakechime_dagster.triggers.consumers import Cause, ConsumerState, Execution
from lakechime_dagster.triggers.decision import Decision
from lakechime_dagster.triggers.evaluation import Accepts, Sweep
from lakechime_dagster.triggers.registry import TICK_NOTE_MS, SubscriptionRow
from lakechime_dagster.triggers.subscription import Subscription

OpenInstance = Callable[[], dg.DagsterInstance]  # opened by the first call
MAX_REQUESTS = 100  # a tick; creating a run costs Dagster about 0.1 CPU seconds
# by subscription, when its source was polled last; kept by a process, whose first tick polls at
# once
PolledAt = dict[str, int]
# a run that has started must begin its execution by then, else its process is taken for dead
UNBEGUN_MS = 600_000
SUCCESS = dg.DagsterRunStatus.SUCCESS
FAILED = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


@dataclass(frozen=True)
class RunFact:
    """A run of an attempt; `started_ts` (milliseconds) is when its process began, None while it
    only waits for that.
    """

    run_id: str
    status: dg.DagsterRunStatus
    started_ts: int | None = None


class Runs(Protocol):
    """What a tick asks of Dagster."""

    def of_attempt(self, execution: Execution) -> RunFact | None:
        """The newest run of the execution's newest attempt, or None when there is none."""
        ...

    def report_lost(self, run_id: str, reason: str) -> None:
        """Report a run failed whose process is gone, so that its slot is free."""
        ...


@dataclass(frozen=True, kw_only=True)
class Tick:
    """What a tick found: attempts to launch a run for, and what to say when there are none."""

    launches: tuple[Execution, ...] = ()
    sentences: tuple[str, ...] = ()


def run_tick(
    platform: Platform,
    sweep: Sweep,
    subscriptions: Mapping[str, Subscription],
    runs: Runs,
    accepts: Mapping[str, Accepts] | None = None,
    polled: PolledAt | None = None,
) -> Tick:
    """One tick of the subscriptions of a sensor: complete or retry what is open, then decide those
    that changed and claim for them.

    It is idempotent and safe beside other daemons; a lost launch is requested again by the next
    one. A subscription that cannot be claimed for hinders no other; it is decided again by the next
    tick. Those that read a message source are none of the sweep's, as no event announces theirs:
    each source is polled when it is due.

    Args:
        platform: The store, the ledger and what evaluates them.
        sweep: The evaluation of the subscriptions, of this sensor's process.
        subscriptions: All of the sensor, by name.
        runs: What is asked of Dagster.
        accepts: By subscription, whether Dagster knows a partition key: one that it does not know
            would fail a whole tick, so its firing is refused before the claim.
        polled: What earlier ticks of this process remember of sources.
    """
    now, accepts = platform.store.now(), accepts or {}
    is_noted = now - sweep.noted_ts >= TICK_NOTE_MS
    if is_noted:
        sweep.reread()
    polling = {
        name: platform.evaluator.activate(one)
        for name, one in subscriptions.items()
        if one.source is not None
    }
    if is_noted:
        platform.ledger.note_tick([*sweep.rows.values(), *polling.values()], now)
        sweep.noted_ts = now
    rows = sweep.rows | polling
    launches: list[Execution] = []
    sentences: list[str] = []
    opened = platform.ledger.open_executions(*rows.values())
    for execution in opened:
        name = execution.consumer.subscription
        try:
            launch, sentence = attend(platform, subscriptions[name], rows[name], execution, runs)
        except LakeChimeError as error:  # such as of a target that cannot be read: the others go on
            launch, sentence = None, str(error)
        launches += [launch] if launch else []
        sentences += [sentence] if sentence else []
    launches = launches[:MAX_REQUESTS]  # the rest is requested by the next tick
    decisions = sweep.decisions(most=MAX_REQUESTS - len(launches), accepts=accepts)
    decisions |= _polled(platform, subscriptions, polling, {} if polled is None else polled)
    rows = sweep.rows | polling
    decisions |= _requested(platform, subscriptions, rows, decisions)
    for name, decision in decisions.items():
        try:
            claimed, refusal = claim(
                platform, subscriptions[name], rows[name], decision, MAX_REQUESTS - len(launches)
            )
        except LakeChimeError as error:  # what it claimed before is launched by the next tick
            claimed, refusal = [], str(error)
        launches += claimed
        sentences += [refusal] if refusal else []
    if is_noted:
        sweep.move_on({execution.consumer.subscription for execution in opened})
    sentences += [f"{name}: {why}" for name, why in sweep.refused.items()]
    if not launches and (held_back := platform.evaluator.held_back_events()):
        sentences.append(held_back)
    return Tick(
        launches=tuple(launches),
        sentences=(*sentences, *_reasons(subscriptions, decisions, sweep.last)),
    )


def _reasons(
    subscriptions: Mapping[str, Subscription],
    decisions: Mapping[str, Decision],
    last: Mapping[str, Decision],
) -> list[str]:
    """Why a trigger does not fire, as its last decision says; of many triggers the first that
    wait.
    """
    if len(subscriptions) == 1:
        return [
            reason
            for name, decision in {**last, **decisions}.items()
            if name in subscriptions
            for reason in decision.reasons
        ]
    waiting = [decision for decision in decisions.values() if not decision.fires]
    shown = [f"{decision.trigger}: {decision.reasons[0]}" for decision in waiting[:3]]
    return [
        *shown,
        f"{len(subscriptions)} triggers, {len(waiting)} of them wait; the others have nothing new",
    ]


def _requested(
    platform: Platform,
    subscriptions: Mapping[str, Subscription],
    rows: Mapping[str, SubscriptionRow],
    decisions: Mapping[str, Decision],
) -> dict[str, Decision]:
    """The decisions of this tick that requests change, also of subscriptions without a new event;
    one whose requests cannot be read says so, and hinders no other.
    """
    found: dict[str, Decision] = {}
    for name, row in rows.items():
        nothing = Decision(trigger=name, fires=False, reasons=("no new event",))
        before = decisions.get(name, nothing)
        try:
            after = platform.evaluator.with_requests(subscriptions[name], row, before)
        except LakeChimeError as error:
            after = replace(before, reasons=(str(error), *before.reasons))
        if after != before:
            found[name] = after
    return found


def _polled(
    platform: Platform,
    subscriptions: Mapping[str, Subscription],
    rows: Mapping[str, SubscriptionRow],
    polled: PolledAt,
) -> dict[str, Decision]:
    """The decisions of subscriptions that read a message source; one that cannot be polled says so,
    and hinders no other.

    A source that needs a person's choice blocks the consumer.
    """
    decisions: dict[str, Decision] = {}
    for name, row in rows.items():
        try:
            found = ask(platform, subscriptions[name], row, polled.get(name))
            if found.at_ms is not None:
                polled[name] = found.at_ms
            if found.lag is not None:
                platform.ledger.note_source(row, found.lag)
            block(platform, row, found)
            decisions[name] = found.decision
        except LakeChimeError as error:
            decisions[name] = Decision(trigger=name, fires=False, reasons=(str(error),))
    return decisions


def claim(
    platform: Platform,
    subscription: Subscription,
    row: SubscriptionRow,
    decision: Decision,
    room: int,
) -> tuple[list[Execution], str]:
    """Claim at most `room` of what a decision fires, and say which keys Dagster would refuse."""
    refused = [subscription.key_of(firing) for firing in decision.refused]
    bounded = replace(decision, firings=decision.firings[: max(0, room)])
    claimed = platform.evaluator.fire(
        subscription, row, bounded, ask_target(platform.target_of(subscription))
    )
    first = (
        f"{len(refused)} keys are no partitions of the asset in Dagster, such as {refused[0]}; "
        f"widen its partitions"
        if refused
        else ""
    )
    return claimed, first


def attend(
    platform: Platform,
    subscription: Subscription,
    row: SubscriptionRow,
    execution: Execution,
    runs: Runs,
) -> tuple[Execution | None, str]:
    """What an open execution needs: nothing, completing, a launch, or the next attempt (law 7: the
    target is asked first).
    """
    now, target = platform.store.now(), platform.target_of(subscription)
    run = runs.of_attempt(execution)
    where = f"execution {execution.number} of {execution.consumer.key or subscription.name}"
    if run is None:
        if execution.run_id is None:
            seconds = ((execution.next_attempt_ts or 0) - now) // 1000 + 1
            if (execution.next_attempt_ts or 0) <= now:
                return _launched(platform, execution, where)
            return None, f"{where} is tried again in {seconds} s"
        # a run of another instance: its lease alone decides
        run = RunFact(execution.run_id, dg.DagsterRunStatus.STARTED)
    if run.status is not SUCCESS and run.status not in FAILED:
        if _may_live(run, execution, now):
            return None, ""  # the decision says so
        silence = (
            "a minute"
            if execution.lease_until
            else f"{UNBEGUN_MS // 60_000} minutes since its start"
        )
        reason = f"run {run.run_id} gave no sign of life for {silence}"
        runs.report_lost(
            run.run_id, f"LakeChime: {reason}; attempt {execution.attempt} is called lost"
        )
    elif target is None and run.status is SUCCESS:
        platform.ledger.complete(execution, None)
        return None, f"{where} is completed by the success of run {run.run_id}"
    else:
        ended = "succeeded without a commit" if run.status is SUCCESS else "failed"
        reason = f"run {run.run_id} {ended}"
    if platform.complete_if_committed(target, execution) is not None:
        return None, f"{where} is completed by its commit"
    key = execution.consumer.key
    consumer = platform.ledger.consumers(row, [key])[key]
    if consumer.state is not ConsumerState.ACTIVE:
        return None, ""  # it waits for a person, as the decision says
    wider = (
        platform.evaluator.end_of(subscription, row, consumer)
        if subscription.source is None
        and not subscription.trigger.is_bounded
        and execution.cause is not Cause.REPLAY
        else None
    )
    following = platform.ledger.lose(execution, reason, end=wider)
    if following is None:
        return None, f"{where} is BLOCKED after attempt {execution.attempt}: {reason}"
    if (following.next_attempt_ts or 0) <= now:
        return _launched(platform, following, where)
    return None, f"{where} is tried again as attempt {following.attempt}: {reason}"


def _launched(platform: Platform, execution: Execution, where: str) -> tuple[Execution | None, str]:
    """An attempt that is due, unless its trigger is paused by now; then it is launched once
    somebody resumes that.
    """
    row = platform.ledger.subscription(execution.consumer.subscription)
    if row is not None and row.paused_ts is not None:
        return None, f"{where}: attempt {execution.attempt} is launched when {row.name} is resumed"
    return execution, ""


def _may_live(run: RunFact, execution: Execution, now: int) -> bool:
    """Whether a run that Dagster calls live may be: by its lease; before it has one, by how long
    ago its process began.
    """
    if execution.lease_until is not None:
        return execution.lease_until > now
    return run.started_ts is None or now - run.started_ts < UNBEGUN_MS


# by what refers to them; a process has one but in tests
_kept: list[tuple[object, dg.DagsterInstance]] = []
_keeping = threading.Lock()


def instance_of(context: dg.SensorEvaluationContext) -> OpenInstance:
    """The instance of a tick, opened at most once a process, and never closed.

    A context opens one of its own, for which Dagster reads all its migrations three times: longer
    than all else of a tick.
    """
    ref = context.instance_ref
    if ref is None:  # the context was given an instance
        return lambda: context.instance

    def opened() -> dg.DagsterInstance:
        with _keeping:
            found = next((instance for known, instance in _kept if known == ref), None)
            if found is None:
                found = dg.DagsterInstance.from_ref(ref)
                _kept.append((ref, found))
            return found

    return opened


class DagsterRuns:
    """Finds the run of an attempt: the one that began it, else the newest one launched with its
    tags.

    The instance is opened by the first question: that takes longer than a tick that has nothing to
    ask.
    """

    def __init__(self, instance: OpenInstance) -> None:
        self.instance = instance

    def of_attempt(self, execution: Execution) -> RunFact | None:
        run = self.instance().get_run_by_id(execution.run_id) if execution.run_id else None
        if run is None:
            tags = {EXECUTION_TAG: execution.execution_id, ATTEMPT_TAG: str(execution.attempt)}
            run = next(
                iter(self.instance().get_runs(filters=dg.RunsFilter(tags=tags), limit=1)), None
            )
        return RunFact(run.run_id, run.status, self._started(run)) if run is not None else None

    def _started(self, run: dg.DagsterRun) -> int | None:
        record = (
            self.instance().get_run_record_by_id(run.run_id)
            if run.status is dg.DagsterRunStatus.STARTED
            else None
        )
        return (
            int(record.start_time * 1000)
            if record is not None and record.start_time is not None
            else None
        )

    def report_lost(self, run_id: str, reason: str) -> None:
        """Dagster's own monitoring does not find it: its default launcher has no health check.

        `report_run_failed` is not part of its public interface; this function is the only one that
        knows it.
        """
        run = self.instance().get_run_by_id(run_id)
        if run is not None and not run.is_finished:
            self.instance().report_run_failed(run, reason)
