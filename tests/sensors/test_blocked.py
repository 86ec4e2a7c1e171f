"""An execution that asks for a person: its consumer waits at once, and goes on with all that came
when somebody resumes it.
"""

from typing import Any

import pytest
from dagster import DagsterRunStatus
from sqlalchemy import Engine

from lakechime_dagster.errors import ConsumerBlockedError
from lakechime_dagster.runtime.execution import RunningExecution, kept
from lakechime_dagster.runtime.explain import explain
from lakechime_dagster.runtime.platform import Platform, ends_of_blocked
from lakechime_dagster.sensors.tick import Tick
from lakechime_dagster.triggers.consumers import ConsumerState, Execution
from lakechime_dagster.triggers.progress import overview
from lakechime_dagster.triggers.registry import By
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.sensors.test_tick import TARGET, ReportedRuns, commit, one
from tests.support.world import World, a_subscription, ticked

ADA = By(who="ada", reason="the server was replaced")
EVIDENCE = "shop.orders: the position of shop goes back from [3, 120] to [1, 4]"
REASON = f"{EVIDENCE}; then `lakechime trigger resume silver --reason …` tries execution 1 again"


@pytest.fixture
def world(sqlite_engine: Engine) -> World:
    return World(sqlite_engine)


@pytest.fixture
def runs() -> ReportedRuns:
    return ReportedRuns()


@pytest.fixture(params=[None, 1])
def subscription(request: pytest.FixtureRequest) -> Subscription:
    """One that takes all that came, and one that takes a commit with each claim."""
    trigger = SnapshotTrigger("bronze.orders", max_commits=request.param)
    return a_subscription(target=TARGET, trigger=trigger)


def ask_for_a_person(
    platform: Platform, subscription: Subscription, execution: Execution, runs: ReportedRuns
) -> list[str]:
    """What the log of a run says whose body asks for a person."""
    said: list[str] = []
    running = RunningExecution(
        platform, subscription, platform.ledger.begin(execution.execution_id, "run-1")
    )
    with pytest.raises(ConsumerBlockedError), kept(running, platform.log(TARGET), said.append):
        raise ConsumerBlockedError(EVIDENCE)
    runs.report(running.execution, DagsterRunStatus.FAILURE)
    return said


def held(
    world: World, platform: Platform, subscription: Subscription, runs: ReportedRuns
) -> Execution:
    world.change(version=0)
    execution = one(ticked(platform, subscription, runs).launches)
    ask_for_a_person(platform, subscription, execution, runs)
    return execution


def resume(world: World, platform: Platform, subscription: Subscription) -> None:
    row = world.evaluator.activate(subscription)
    world.people.resume(row, ADA, ends=ends_of_blocked(platform, subscription, row))


def launched(tick: Tick) -> list[Any]:
    return [(execution.number, execution.attempt) for execution in tick.launches]


def test_an_execution_that_asks_for_a_person_blocks_its_consumer_at_once(
    world: World, platform: Platform, subscription: Subscription, runs: ReportedRuns
) -> None:
    world.change(version=0)
    execution = one(ticked(platform, subscription, runs).launches)
    assert ask_for_a_person(platform, subscription, execution, runs) == [
        f"silver is BLOCKED: {REASON}"
    ]
    row = world.evaluator.activate(subscription)
    consumer = world.ledger.consumers(row)[""]
    assert (consumer.state, consumer.state_reason) == (ConsumerState.BLOCKED, REASON)
    assert [one.blocked for one in overview(world.ledger)] == [1]
    assert f"silver is BLOCKED: {EVIDENCE}" in explain(platform, subscription).reasons[0]
    (attempt,) = world.ledger.attempts(execution.execution_id)
    assert (attempt.outcome, attempt.error, attempt.lease_until) == ("blocked", REASON, None)


def test_nothing_is_launched_until_a_person_resumes_and_then_all_that_came_is_read(
    world: World, platform: Platform, subscription: Subscription, runs: ReportedRuns
) -> None:
    held(world, platform, subscription, runs)
    world.change(version=1)
    for _ in range(6):
        assert launched(ticked(platform, subscription, runs)) == []
    resume(world, platform, subscription)
    tick = ticked(platform, subscription, runs)
    assert launched(tick) == [(1, 2)]
    assert one(tick.launches).ranges()["bronze.orders"].end == "1"
    commit(platform, one(tick.launches))
    runs.report(one(tick.launches), DagsterRunStatus.SUCCESS)
    assert "completed by its commit" in ticked(platform, subscription, runs).sentences[0]


def test_an_attempt_that_another_has_followed_blocks_nothing(
    world: World, platform: Platform, subscription: Subscription, runs: ReportedRuns
) -> None:
    world.change(version=0)
    execution = one(ticked(platform, subscription, runs).launches)
    running = RunningExecution(
        platform, subscription, platform.ledger.begin(execution.execution_id, "run-1")
    )
    world.ledger.lose(running.execution, "no sign of life", immediately=True)
    with pytest.raises(ConsumerBlockedError), kept(running, platform.log(TARGET), [].append):
        raise ConsumerBlockedError(EVIDENCE)
    assert (
        world.ledger.consumers(world.evaluator.activate(subscription))[""].state
        is ConsumerState.ACTIVE
    )
