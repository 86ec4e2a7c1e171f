"""One sensor for many triggers: each subscription keeps its own consumer, a tick launches a bounded
number, and none waits for ever.
"""

import shutil
from pathlib import Path
from typing import NoReturn

import dagster as dg
import pytest
import sqlalchemy as sa

from lakechime_dagster.dce.engine import TransactionId, writing
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.sensors.tick import MAX_REQUESTS, RunFact, Tick, run_tick
from lakechime_dagster.sensors.trigger import Launch, many_sensor
from lakechime_dagster.silver.requests import event_requests, requested_of_stream
from lakechime_dagster.silver.results import RequestDone, RequestKind
from lakechime_dagster.triggers.consumers import Execution
from lakechime_dagster.triggers.evaluation import Sweep
from lakechime_dagster.triggers.ledger import Ledger
from lakechime_dagster.triggers.progress import needs
from lakechime_dagster.triggers.registry import TICK_NOTE_MS, By
from lakechime_dagster.triggers.schema import lc_intervention
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import SnapshotTrigger, StartFrom
from tests.support.world import World, a_subscription

pytestmark = pytest.mark.dialect

SUBSCRIPTIONS = 150


class AllSucceed:
    """Every run that was launched has succeeded."""

    def of_attempt(self, execution: Execution) -> RunFact | None:
        return RunFact(f"run-{execution.execution_id}", dg.DagsterRunStatus.SUCCESS)

    def report_lost(self, run_id: str, reason: str) -> None:
        raise AssertionError(f"{run_id} is not lost")


class NoRuns(AllSucceed):
    """No run was launched yet."""

    def of_attempt(self, execution: Execution) -> None:
        return None


@dg.job
def anything() -> None:
    """A job that the subscriptions launch."""


def tick_of(platform: Platform, sweep: Sweep, runs: AllSucceed) -> Tick:
    return run_tick(
        platform,
        sweep,
        {subscription.name: subscription for subscription in sweep.subscriptions},
        runs,
    )


@pytest.fixture
def subscriptions() -> list[Subscription]:
    return [
        Subscription(
            name=f"subscription-{number}",
            trigger=SnapshotTrigger([f"lake.t{number}"]),
            job="anything",
        )
        for number in range(SUBSCRIPTIONS)
    ]


@pytest.mark.tier2
def test_every_subscription_fires_once_although_a_tick_launches_a_bounded_number(
    world: World, platform: Platform, subscriptions: list[Subscription]
) -> None:
    sweep = Sweep(platform.evaluator, subscriptions)
    for number in range(SUBSCRIPTIONS):
        world.change(f"lake.t{number}", 1)
    ticks = [tick_of(platform, sweep, AllSucceed()) for _ in range(4)]
    launched = [execution.consumer.subscription for tick in ticks for execution in tick.launches]
    assert sorted(launched) == sorted(subscription.name for subscription in subscriptions)
    assert max(len(tick.launches) for tick in ticks) == MAX_REQUESTS
    assert ticks[-1].launches == ()


def test_a_group_or_a_stream_of_which_a_person_wants_something_fires_though_no_event_came(
    world: World, platform: Platform
) -> None:
    requests = event_requests(platform)
    subscription = Subscription(
        name="game.events",
        trigger=SnapshotTrigger(["bronze.raw"]),
        job="anything",
        requests=requested_of_stream("game.events"),
    )
    sweep = Sweep(platform.evaluator, [subscription])
    requests.ask(
        subscription.name, RequestKind.REPROCESS, By(who="me", reason="more are events now")
    )
    # nothing was read yet that could be refused
    assert tick_of(platform, sweep, NoRuns()).launches == ()
    world.change("bronze.raw", 1)
    (first,) = tick_of(platform, sweep, NoRuns()).launches
    platform.ledger.complete(first, None)
    (second,) = tick_of(platform, sweep, NoRuns()).launches
    assert (second.number, second.reason) == (2, "request 1: what was refused is parsed again")
    requests.close(second.execution_id, RequestDone(request_id=1))
    platform.ledger.complete(second, None)
    assert tick_of(platform, sweep, NoRuns()).launches == ()


def test_a_trigger_that_rests_is_not_called_waiting_although_somebody_could_request_something(
    platform: Platform,
) -> None:
    subscriptions = [
        Subscription(
            name=name, trigger=SnapshotTrigger(["bronze.raw"]), requests=requested_of_stream(name)
        )
        for name in ("a", "b")
    ]
    sweep = Sweep(platform.evaluator, subscriptions)
    tick_of(platform, sweep, NoRuns())
    assert tick_of(platform, sweep, NoRuns()).sentences == (
        "2 triggers, 0 of them wait; the others have nothing new",
    )


def test_an_attempt_that_is_due_is_launched_although_requests_of_another_cannot_be_read(
    world: World, platform: Platform
) -> None:
    def unreadable(ledger: Ledger) -> NoReturn:
        raise LakeChimeError("the table of requests is locked")

    subscriptions = [
        Subscription(name="a", trigger=SnapshotTrigger(["lake.t"])),
        Subscription(name="b", trigger=SnapshotTrigger(["lake.other"]), requests=unreadable),
    ]
    world.change("lake.t", 1)
    sweep = Sweep(platform.evaluator, subscriptions)
    (launched,) = tick_of(platform, sweep, NoRuns()).launches
    again = tick_of(platform, sweep, NoRuns())
    assert again.launches == (launched,)
    assert any("the table of requests is locked" in sentence for sentence in again.sentences)


def test_an_execution_that_cannot_be_attended_to_hinders_no_other(
    world: World, platform: Platform
) -> None:
    class Unknown(AllSucceed):
        def of_attempt(self, execution: Execution) -> RunFact | None:
            if execution.consumer.subscription == "a":
                raise LakeChimeError("a cannot be asked")
            return None

    subscriptions = [
        Subscription(name=name, trigger=SnapshotTrigger(["lake.t"])) for name in ("a", "b")
    ]
    world.change("lake.t", 1)
    sweep = Sweep(platform.evaluator, subscriptions)
    tick_of(platform, sweep, NoRuns())
    again = tick_of(platform, sweep, Unknown())
    assert [execution.consumer.subscription for execution in again.launches] == ["b"]
    assert any("a cannot be asked" in sentence for sentence in again.sentences)


@pytest.mark.services
def test_a_tick_says_which_events_an_open_transaction_holds_back(
    postgres_engine: sa.Engine, tmp_path: Path
) -> None:
    world = World(postgres_engine)
    platform = world.platform(tmp_path)
    sweep = Sweep(platform.evaluator, [a_subscription("silver", "lake.t")])
    with writing(postgres_engine) as other:
        other.execute(sa.select(TransactionId()))  # takes a transaction number, as any write does
        world.change("lake.t", 1)
        held = tick_of(platform, sweep, NoRuns())
    assert held.launches == ()
    assert any(
        "1 event held back by a database transaction open since" in sentence
        for sentence in held.sentences
    )


def in_a_minute(sweep: Sweep) -> None:
    sweep.noted_ts -= TICK_NOTE_MS


def test_a_subscription_that_rests_needs_what_came_since_only(
    world: World, platform: Platform
) -> None:
    subscription = Subscription(
        name="subscription",
        trigger=SnapshotTrigger(["lake.t"], tags={"complete": "true"}),
        job="anything",
    )
    sweep = Sweep(platform.evaluator, [subscription])
    for version in range(2):
        event = world.change("lake.t", version)
        tick_of(platform, sweep, AllSucceed())
        assert needs(world.engine)["lake.t"].position >= event.position
        in_a_minute(sweep)
    world.change("lake.t", 0, tags={"complete": "true"})
    (launched,) = tick_of(platform, sweep, AllSucceed()).launches
    assert launched.ranges()["lake.t"].end == "1"


def test_a_subscription_that_was_put_back_is_decided_although_nobody_reported_the_sensor(
    world: World, platform: Platform
) -> None:
    subscription = Subscription(
        name="subscription", trigger=SnapshotTrigger(["lake.t"]), job="anything"
    )
    sweep = Sweep(platform.evaluator, [subscription])
    world.change("lake.t", 1)
    for _ in range(3):
        tick_of(platform, sweep, AllSucceed())
        in_a_minute(sweep)
    row = world.evaluator.activate(subscription)
    world.people.seek(
        row,
        None,
        By(who="me", reason="replay"),
        world.evaluator.checkpoint_at(subscription, StartFrom("beginning")),
    )
    with writing(world.engine) as connection:
        connection.execute(sa.delete(lc_intervention))
    assert [execution.number for execution in tick_of(platform, sweep, AllSucceed()).launches] == [
        2
    ]


def test_a_target_that_cannot_be_read_hinders_no_other_subscription(
    world: World, platform: Platform
) -> None:
    subscriptions = [
        Subscription(
            name=f"gold.{name}", trigger=SnapshotTrigger([f"lake.{name}"]), target=f"gold.{name}"
        )
        for name in ("bad", "a", "b")
    ]
    break_log(platform.location("gold.bad"))
    for subscription in subscriptions:
        world.change(subscription.trigger.tables[0], 1)
    sweep = Sweep(platform.evaluator, subscriptions)
    tick = tick_of(platform, sweep, NoRuns())
    assert sorted(execution.consumer.subscription for execution in tick.launches) == [
        "gold.a",
        "gold.b",
    ]
    assert any("gold.bad" in sentence for sentence in tick.sentences)
    shutil.rmtree(platform.location("gold.bad"))
    again = tick_of(platform, sweep, NoRuns())
    assert "gold.bad" in [execution.consumer.subscription for execution in again.launches]


def break_log(location: str) -> None:
    """Put something there that is no log of a table."""
    log = Path(location) / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("not json\n")


@pytest.mark.tier2
def test_the_sensor_requests_a_run_of_the_subscriptions_job_with_its_tags(
    world: World,
    platform: Platform,
    subscriptions: list[Subscription],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lakechime_dagster.runtime.platform.open_platform", lambda: platform)
    sensor = many_sensor(
        "triggers",
        [Launch(subscription=subscription, job=anything) for subscription in subscriptions],
    )
    world.change("lake.t3", 1)
    with dg.DagsterInstance.ephemeral() as instance:
        result = sensor.evaluate_tick(dg.build_sensor_context(instance=instance))
    [request] = result.run_requests or []
    assert (request.job_name, request.tags["lakechime/consumer"]) == ("anything", "subscription-3")
