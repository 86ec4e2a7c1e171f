"""A step that asks for a person: its lane waits at once, and goes on with all that came when somebody resumes it."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine

from lakechime_dagster.errors import LaneHeldError
from lakechime_dagster.runtime.execution import RunningExecution, kept
from lakechime_dagster.runtime.explain import explain
from lakechime_dagster.runtime.platform import Platform, ends_of_held
from lakechime_dagster.sensors.tick import RunState, Tick, run_tick
from lakechime_dagster.triggers.consumers import Execution, LaneState
from lakechime_dagster.triggers.interventions import By
from lakechime_dagster.triggers.progress import overview
from lakechime_dagster.triggers.subscription import Flow
from tests.sensors.test_tick import TARGET, ToldRuns, commit, one
from tests.support.world import World, a_flow

ADA = By(who="ada", reason="the server was replaced")
EVIDENCE = "shop.orders: the position of shop goes back from [3, 120] to [1, 4]"
REASON = f"{EVIDENCE}; then `lakechime trigger resume silver --reason …` tries step 1 again"


@pytest.fixture
def world(sqlite_engine: Engine) -> World:
    return World(sqlite_engine)


@pytest.fixture
def runs() -> ToldRuns:
    return ToldRuns()


@pytest.fixture(params=[None, 1])
def flow(request: pytest.FixtureRequest) -> Flow:
    """One that takes all that came, and one that takes a commit with each claim."""
    return replace(a_flow(target=TARGET), max_commits=request.param)


def ask_for_a_person(platform: Platform, flow: Flow, execution: Execution, runs: ToldRuns) -> list[str]:
    """What the log of a run says whose body asks for a person."""
    said: list[str] = []
    running = RunningExecution(platform, flow, platform.ledger.begin(execution.execution_id, "run-1"))
    with pytest.raises(LaneHeldError), kept(running, platform.log(TARGET), said.append):
        raise LaneHeldError(EVIDENCE)
    runs.tell(running.execution, RunState.FAILED)
    return said


def held(world: World, platform: Platform, flow: Flow, runs: ToldRuns) -> Execution:
    world.change(version=0)
    execution = one(run_tick(platform, flow, runs).launches)
    ask_for_a_person(platform, flow, execution, runs)
    return execution


def resume(world: World, platform: Platform, flow: Flow) -> None:
    row = world.evaluator.activate(flow)
    world.people.resume(row, ADA, ends=ends_of_held(platform, flow, row))


def launched(tick: Tick) -> list[Any]:
    return [(execution.step, execution.attempt) for execution in tick.launches]


def test_a_step_that_asks_for_a_person_holds_its_lane_at_once(world: World, platform: Platform, flow: Flow, runs: ToldRuns) -> None:
    world.change(version=0)
    execution = one(run_tick(platform, flow, runs).launches)
    assert ask_for_a_person(platform, flow, execution, runs) == [f"silver is HELD: {REASON}"]
    row = world.evaluator.activate(flow)
    lane = world.ledger.lanes(row)[""]
    assert (lane.state, lane.state_reason) == (LaneState.HELD, REASON)
    assert [one.held for one in overview(world.ledger)] == [1]
    assert f"silver is HELD: {EVIDENCE}" in explain(platform, flow).reasons[0]
    (attempt,) = world.ledger.attempts(execution.execution_id)
    assert (attempt.outcome, attempt.error, attempt.lease_until) == ("held", REASON, None)


def test_nothing_is_launched_until_a_person_resumes_and_then_all_that_came_is_read(
    world: World, platform: Platform, flow: Flow, runs: ToldRuns
) -> None:
    held(world, platform, flow, runs)
    world.change(version=1)
    for _ in range(6):
        assert launched(run_tick(platform, flow, runs)) == []
    resume(world, platform, flow)
    tick = run_tick(platform, flow, runs)
    assert launched(tick) == [(1, 2)]
    assert one(tick.launches).ranges()["bronze.orders"].end == "1"
    commit(platform, one(tick.launches))
    runs.tell(one(tick.launches), RunState.SUCCEEDED)
    assert "settled by its commit" in run_tick(platform, flow, runs).sentences[0]


def test_a_step_that_asks_again_is_held_again(world: World, platform: Platform, flow: Flow, runs: ToldRuns) -> None:
    execution = held(world, platform, flow, runs)
    for attempt in range(2, 8):  # more often than a step is tried that only fails
        resume(world, platform, flow)
        assert launched(run_tick(platform, flow, runs)) == [(1, attempt)]
        ask_for_a_person(platform, flow, execution, runs)
        assert launched(run_tick(platform, flow, runs)) == []


def test_an_attempt_that_another_has_followed_holds_nothing(world: World, platform: Platform, flow: Flow, runs: ToldRuns) -> None:
    world.change(version=0)
    execution = one(run_tick(platform, flow, runs).launches)
    running = RunningExecution(platform, flow, platform.ledger.begin(execution.execution_id, "run-1"))
    world.ledger.lose(running.execution, "no sign of life", immediately=True)
    with pytest.raises(LaneHeldError), kept(running, platform.log(TARGET), [].append):
        raise LaneHeldError(EVIDENCE)
    assert world.ledger.lanes(world.evaluator.activate(flow))[""].state is LaneState.ACTIVE


def test_an_explanation_of_a_past_time_knows_of_it(world: World, platform: Platform, flow: Flow, runs: ToldRuns) -> None:
    held(world, platform, flow, runs)
    world.let_pass(60_000)
    then = platform.store.now() - 1_000
    resume(world, platform, flow)
    assert f"silver is HELD: {EVIDENCE}" in explain(platform, flow, then).reasons[0]
