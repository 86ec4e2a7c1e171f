"""Requests for a group and what its executions left are in the one explanation that its sensor acts
on.
"""

import pytest
from sqlalchemy import Engine

from lakechime_dagster.runtime.explain import explain
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.silver.requests import (
    completed_until,
    event_requests,
    event_types,
    requested_of_group,
    requested_of_stream,
)
from lakechime_dagster.silver.results import AT_ONCE, RequestKind, TypeResult
from lakechime_dagster.triggers.interventions import Interventions
from lakechime_dagster.triggers.registry import By
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.support.event_types import complete, learn, registered, result
from tests.support.world import World

SHOP = Subscription(
    name="shop",
    trigger=SnapshotTrigger(["lake.t"]),
    job="anything",
    requests=requested_of_group("shop"),
)
LATER = 10**15
EVENTS = Subscription(
    name="lake.events",
    trigger=SnapshotTrigger(["lake.t"]),
    job="anything",
    requests=requested_of_stream("lake.events"),
)
REPROCESS = "request 1: what was refused is parsed again"


@pytest.fixture
def world(sqlite_engine: Engine) -> World:
    world = World(sqlite_engine)
    world.change("lake.t", 1)
    world.ledger.complete(world.fire(SHOP)[0], None)
    return world


def leave(platform: Platform, due_ts: int) -> None:
    """A type of which an execution left events until a time."""
    registered(event_types(platform))
    complete(
        event_types(platform),
        f"e{due_ts}",
        TypeResult(type="buy", table="shop.buy", start=0, end=0, due_ts=due_ts),
    )


def ask(platform: Platform) -> None:
    """A replay of a type that has a table."""
    learn(event_types(platform))
    complete(event_types(platform), "e1", result(1, number=1))
    event_requests(platform).ask(
        "shop.buy", RequestKind.REPLAY, By(who="me", reason="prices matter")
    )


def test_events_that_an_execution_left_are_reported_before_and_when_they_are_due(
    world: World, platform: Platform
) -> None:
    leave(platform, LATER)
    waiting = explain(platform, SHOP)
    assert (waiting.fires, waiting.reasons[-1]) == (False, "left by an execution for later: buy")
    leave(platform, AT_ONCE)
    due = explain(platform, SHOP)
    assert (due.fires, due.reasons[0]) == (True, "left by an execution, and due: buy")


def test_a_replay_is_why_a_group_fires_and_is_reported_where_events_fire_it(
    world: World, platform: Platform
) -> None:
    ask(platform)
    asked = explain(platform, SHOP)
    assert (asked.fires, asked.reasons[0]) == (True, "to be replayed: buy")
    world.change("lake.t", 2)
    came = explain(platform, SHOP)
    assert (came.fires, len(came.firings), "to be replayed: buy" in came.reasons[1:]) == (
        True,
        1,
        True,
    )


def test_a_reprocess_of_a_stream_is_reported_whether_it_fires_the_stream_or_not(
    world: World, platform: Platform
) -> None:
    world.ledger.complete(world.fire(EVENTS)[0], None)
    event_requests(platform).ask(
        "lake.events", RequestKind.REPROCESS, By(who="me", reason="mended")
    )
    alone = explain(platform, EVENTS)
    assert (alone.fires, alone.reasons) == (True, (REPROCESS,))
    world.change("lake.t", 2)
    came = explain(platform, EVENTS)
    assert (came.fires, len(came.firings), came.reasons[-1], len(came.reasons) > 1) == (
        True,
        1,
        REPROCESS,
        True,
    )
    row = platform.ledger.subscription("lake.events")
    assert row is not None
    Interventions(platform.ledger).pause(row, By(who="me", reason="stock-taking"))
    paused = explain(platform, EVENTS)
    assert (paused.fires, paused.reasons[-1]) == (False, REPROCESS)


def test_what_was_found_out_since_the_newest_completed_execution_is_reported_by_the_next(
    world: World, platform: Platform
) -> None:
    (completed,) = world.ledger.executions(subscription="shop")
    world.change("lake.t", 2)
    (skipped,) = world.fire(SHOP)
    Interventions(world.ledger).skip(skipped, By(who="me", reason="it cannot be read"))
    world.change("lake.t", 3)
    world.fire(SHOP)
    assert completed_until(platform, "shop") == completed.completed_ts
    assert completed_until(platform, "another") == 0
