"""One sensor for many triggers: what changed since its last tick says which of them must be decided at all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.runtime.names import dagster_name
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.runtime.resource import declare_subscription
from lakechime_dagster.sensors.tick import MAX_REQUESTS, AskedAt, DagsterRuns, Runs, Tick, attended, claim, decided, instance_of
from lakechime_dagster.sensors.trigger import INTERVAL_SECONDS, AssetJob, accepts_of, request
from lakechime_dagster.triggers.consumers import Execution, ExecutionState
from lakechime_dagster.triggers.decision import Decision
from lakechime_dagster.triggers.evaluation import any_key
from lakechime_dagster.triggers.registry import TICK_NOTE_MS, SubscriptionRow
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.sweep import Sweep

MAX_OPEN = 10_000  # open executions looked at in a tick


@dataclass(frozen=True)
class Launch:
    """A subscription and what launches its runs; with all checks of the selection unless `checks` names them."""

    subscription: Subscription
    job: AssetJob
    selection: list[dg.AssetKey]
    partitions: dg.PartitionsDefinition | None = None
    checks: list[dg.AssetCheckKey] | None = None


def many_sensor(name: str, launches: Sequence[Launch]) -> dg.SensorDefinition:
    """A sensor that launches the runs of all these subscriptions; each has its own consumers, as with a sensor of its own."""
    by_subscription = {launch.subscription.name: launch for launch in launches}
    for launch in launches:
        declare_subscription(launch.subscription)
    sweeps: dict[tuple[str, str], Sweep] = {}  # per store and deployment; it remembers where the last look ended
    asked: AskedAt = {}

    @dg.sensor(
        name=dagster_name(name),
        jobs=list({launch.job.name: launch.job for launch in launches}.values()),
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Launches the runs of {len(launches)} triggers; `lakechime trigger show` shows each of them.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        try:
            platform = open_platform()
            key = (platform.settings.store_url, platform.settings.deployment)
            if key not in sweeps:
                sweeps[key] = Sweep(platform.evaluator, [launch.subscription for launch in launches if launch.subscription.source is None])
            accepts = {
                subscription: accepts_of(launch.partitions, instance_of(context)) for subscription, launch in by_subscription.items()
            }
            tick = run_many(platform, sweeps[key], by_subscription, DagsterRuns(instance_of(context)), accepts, asked)
        except LakeChimeError as error:
            return dg.SensorResult(skip_reason=str(error))
        if not tick.launches:
            return dg.SensorResult(skip_reason="; ".join(tick.sentences))
        return dg.SensorResult(
            run_requests=[_request(by_subscription[execution.consumer.subscription], execution) for execution in tick.launches]
        )

    return sensor


def run_many(
    platform: Platform,
    sweep: Sweep,
    launches: Mapping[str, Launch],
    runs: Runs,
    accepts: Mapping[str, Callable[[str], bool]],
    asked: AskedAt | None = None,
) -> Tick:
    """One tick of many subscriptions: complete or retry what is open, then decide those that changed and claim for them.

    A subscription that cannot be claimed for hinders no other; it is decided again by the next tick. Those that read a source are
    none of the sweep's, as no event tells of theirs: each source is asked when it is due.
    """
    now = platform.store.now()
    is_noted = now - sweep.noted_ts >= TICK_NOTE_MS
    if is_noted:
        sweep.reread()
    fed = {
        name: platform.evaluator.activate(launch.subscription)
        for name, launch in launches.items()
        if launch.subscription.source is not None
    }
    if is_noted:
        platform.ledger.note_tick([*sweep.rows.values(), *fed.values()], now)
        sweep.noted_ts = now
    attempts: list[Execution] = []
    sentences: list[str] = []
    opened = platform.ledger.executions(state=ExecutionState.OPEN, limit=MAX_OPEN)
    for execution in opened:
        if execution.consumer.subscription in launches:
            name = execution.consumer.subscription
            launch, sentence = attended(platform, launches[name].subscription, (sweep.rows | fed)[name], execution, runs)
            attempts += [launch] if launch else []
            sentences += [sentence] if sentence else []
    attempts = attempts[:MAX_REQUESTS]  # the rest is asked for by the next tick
    decisions = sweep.decisions(most=MAX_REQUESTS - len(attempts), accepts=accepts)
    decisions |= _asked(platform, launches, sweep.rows, decisions)
    decisions |= _by_sources(platform, launches, fed, {} if asked is None else asked)
    rows = sweep.rows | fed
    for name, decision in decisions.items():
        room = MAX_REQUESTS - len(attempts)
        try:
            claimed, refusal = claim(platform, launches[name].subscription, rows[name], decision, room)
        except LakeChimeError as error:  # what it claimed before is launched by the next tick; it stays restless
            claimed, refusal = [], str(error)
        attempts += claimed
        sentences += [refusal] if refusal else []
    if is_noted:
        sweep.move_on({execution.consumer.subscription for execution in opened})
    waiting = [decision for decision in decisions.values() if not decision.fires]
    sentences += [f"{decision.trigger}: {decision.reasons[0]}" for decision in waiting[:3]]
    sentences += [f"{name}: {why}" for name, why in sweep.refused.items()]
    sentences.append(f"{len(launches)} triggers, {len(waiting)} of them wait; the others have nothing new")
    return Tick(launches=tuple(attempts), sentences=tuple(sentences))


def _asked(
    platform: Platform, launches: Mapping[str, Launch], rows: Mapping[str, SubscriptionRow], decisions: Mapping[str, Decision]
) -> dict[str, Decision]:
    """Subscriptions that fire by their requests, though no event arrived."""
    named = [name for name in rows if launches[name].subscription.requests is not None]
    found = {name: decisions.get(name, Decision(trigger=name, fires=False, reasons=("no event came",))) for name in named}
    asked = {
        name: platform.evaluator.with_requests(launches[name].subscription, rows[name], one) for name, one in found.items() if not one.fires
    }
    return {name: one for name, one in asked.items() if one.fires}


def _by_sources(
    platform: Platform, launches: Mapping[str, Launch], rows: Mapping[str, SubscriptionRow], asked: AskedAt
) -> dict[str, Decision]:
    """The decisions of subscriptions that read a source; one that cannot be asked says so, and hinders no other."""
    found: dict[str, Decision] = {}
    for name, row in rows.items():
        try:
            found[name] = decided(platform, launches[name].subscription, row, any_key, asked)
        except LakeChimeError as error:
            found[name] = Decision(trigger=name, fires=False, reasons=(str(error),))
    return found


def _request(launch: Launch, execution: Execution) -> dg.RunRequest:
    return request(execution, launch.selection, launch.job.name, launch.checks)
