"""Processes are killed at random moments. LAKECHIME_TEST_KILLS says how many."""

import os
import random
import time
from collections.abc import Callable

import pytest

from tests.crash.harness import Deployment
from tests.crash.points import Point

pytestmark = [pytest.mark.tier3, pytest.mark.e2e, pytest.mark.spark, pytest.mark.services]

KILLS = int(os.environ.get("LAKECHIME_TEST_KILLS", "20"))
MANY_ATTEMPTS = (
    1_000  # killed at random, five attempts in a row are no sign of a fault of their subscription
)
SUBSCRIPTIONS = tuple(Point)[:4]
MOST_SECONDS_BETWEEN = 6.0
SHARE_OF_RUNS = 0.6


@pytest.mark.parametrize("deployment", [MANY_ATTEMPTS], indirect=True, ids=["many attempts"])
def test_kills_at_random_moments_lose_double_and_block_nothing(
    deployment: Deployment, say: Callable[[str], None]
) -> None:
    seed = random.randrange(1_000_000)
    chance = random.Random(seed)
    say(f"{KILLS} kills, seed {seed}")
    killed: dict[str, int] = {}
    try:
        while sum(killed.values()) < KILLS:
            deployment.change(chance.choice(SUBSCRIPTIONS))
            due = time.monotonic() + chance.uniform(0, MOST_SECONDS_BETWEEN)
            deployment.await_true(lambda due=due: time.monotonic() >= due, "the next kill is due")
            name = strike(deployment, chance)
            killed[name] = killed.get(name, 0) + 1
        for point in SUBSCRIPTIONS:
            deployment.change(point)
        for point in SUBSCRIPTIONS:
            deployment.await_true(
                lambda point=point: deployment.is_consumed(point),
                f"{point.target} has consumed everything",
                240,
            )
        deployment.await_true(
            lambda: not deployment.unfinished_runs(), "every Dagster run has ended", 120
        )
    finally:
        verdict = deployment.judge(SUBSCRIPTIONS)
        say(
            f"{sum(killed.values())} kills "
            f"({', '.join(f'{n} {name}' for name, n in sorted(killed.items()))}), {verdict}"
        )
    assert verdict.is_clean, (verdict, deployment.story(SUBSCRIPTIONS))


def strike(deployment: Deployment, chance: random.Random) -> str:
    """Kill one process, runs most often, as soon as there is one: they are where the work is."""
    if chance.random() < SHARE_OF_RUNS:
        deployment.await_true(lambda: deployment.kill_a_run(chance), "a run is at work", 240)
        return "runs"
    others: dict[str, Callable[[], None]] = {
        "code server": deployment.code_server.kill,
        "daemon": deployment.daemon.kill,
        "warm driver": deployment.kill_warm_driver,
        "store": deployment.store.restart,
    }
    name = chance.choice(sorted(others))
    if name == "daemon" and not deployment.daemon.is_running:
        name = "code server"
    others[name]()
    return name
