"""Processes are killed at named points of the loop: no change is lost, none is applied twice, none
stays behind.
"""

import os
import signal
from collections.abc import Callable

import pytest

from tests.crash.harness import Deployment
from tests.crash.points import Point
from tests.support.processes import is_alive

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.services]

# these take code server and daemon along, so before the runs of others
EARLY = (Point.AFTER_CLAIM, Point.AFTER_RUN_REQUEST)
IN_RUNS = (
    Point.DURING_SPARK_JOB,
    Point.AFTER_COMMIT,
    Point.AFTER_REGISTRATION,
    Point.BETWEEN_COMMITS,
    Point.ZOMBIE,
)
AROUND_RUNS = (
    Point.AFTER_RUN_START,
    Point.CODE_SERVER,
    Point.DAEMON,
    Point.WARM_DRIVER,
    Point.STORE,
)


@pytest.mark.parametrize(
    ("rounds", "changes_follow"),
    [
        pytest.param((EARLY, IN_RUNS), False, id="transactions", marks=pytest.mark.tier2),
        pytest.param(
            (EARLY, IN_RUNS, AROUND_RUNS), True, id="every process", marks=pytest.mark.tier3
        ),
    ],
)
def test_a_kill_at_any_point_loses_doubles_and_blocks_nothing(
    deployment: Deployment,
    say: Callable[[str], None],
    rounds: tuple[tuple[Point, ...], ...],
    changes_follow: bool,
) -> None:
    """Between any two transactions that belong together; with `changes_follow`, while further
    changes arrive.
    """
    points = [point for one in rounds for point in one]
    try:
        for one in rounds:
            strike(deployment, one, changes_follow)
        for point in points:
            deployment.await_true(
                lambda point=point: deployment.is_consumed(point),
                f"{point.target} has consumed everything",
                180,
            )
        deployment.await_true(
            lambda: not deployment.unfinished_runs(), "every Dagster run has ended", 90
        )
    finally:
        verdict = deployment.judge(points)
        reached = [point for point in points if deployment.switch.reached_by(point) is not None]
        say(f"{len(points)} points, {len(reached)} reached, {verdict}")
    assert reached == points
    assert verdict.is_clean, (verdict, deployment.story(points))


def strike(deployment: Deployment, points: tuple[Point, ...], changes_follow: bool) -> None:
    """Let a change come to each point, and another one as soon as the point is reached."""
    for point in points:
        deployment.switch.arm(point)
        deployment.change(point)
    waiting = list(points)
    while waiting:
        deployment.await_true(
            lambda: any(deployment.switch.reached_by(point) for point in waiting),
            f"{waiting} reached",
            300,
        )
        point = next(point for point in waiting if deployment.switch.reached_by(point))
        waiting.remove(point)
        strike_others(deployment, point)
        if changes_follow:
            deployment.change(point)
    if Point.ZOMBIE in points:
        wake_zombie(deployment)


def strike_others(deployment: Deployment, point: Point) -> None:
    """Where the run only says that it is there, the one who is struck is another."""
    if point is Point.CODE_SERVER:
        deployment.code_server.kill()
    elif point is Point.DAEMON:
        deployment.daemon.kill()
    elif point is Point.WARM_DRIVER:
        deployment.kill_warm_driver()
    elif point is Point.STORE:
        deployment.store.restart()
    deployment.switch.release(point)


def wake_zombie(deployment: Deployment) -> None:
    """The stopped run goes on after its successor has committed and completed the execution; it
    must end without a trace.
    """
    pid = deployment.switch.reached_by(Point.ZOMBIE)
    assert pid is not None
    assert is_alive(pid)
    deployment.await_true(
        lambda: deployment.completed_executions(Point.ZOMBIE) >= 1,
        "the zombie's successor has committed",
        300,
    )
    assert is_alive(pid)
    os.kill(pid, signal.SIGCONT)
    deployment.await_true(lambda: not is_alive(pid), "the zombie has ended")
