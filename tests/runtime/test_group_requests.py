"""What people ask of a group and what its steps left is told by the one explanation that its sensor acts on."""

import pytest
from sqlalchemy import Engine

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.runtime.explain import explain
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.silver.requests import event_replays, event_reprocesses, event_types, requested_of_group, requested_of_stream
from lakechime_dagster.silver.results import AT_ONCE, TypeResult
from lakechime_dagster.silver.schema import KnownType, registered
from lakechime_dagster.triggers.interventions import By, Interventions
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.store.test_event_types import NEW, learning, prototype, result
from tests.support.world import World

SHOP = Subscription(name="shop", trigger=SnapshotTrigger(["lake.t"]), job="anything", requests=requested_of_group("shop"))
LATER = 10**15
EVENTS = Subscription(name="lake.events", trigger=SnapshotTrigger(["lake.t"]), job="anything", requests=requested_of_stream("lake.events"))
DRAIN = "reprocessing 1: what was refused is looked at again"


@pytest.fixture
def world(sqlite_engine: Engine) -> World:
    world = World(sqlite_engine)
    world.change("lake.t", 1)
    world.ledger.complete(world.fire(SHOP)[0], None)
    return world


def leave(platform: Platform, due_ts: int) -> None:
    """A type of which a step left events until a time."""
    one = registered(KnownType(type="buy", table="buy"))
    assert one is not None
    event_types(platform).learn("shop", [one])
    complete(platform, TypeResult(type="buy", table="buy", start=0, end=0, due_ts=due_ts))


def complete(platform: Platform, one: TypeResult) -> None:
    with writing(platform.store.engine) as connection:
        event_types(platform).complete(connection, "shop", f"e{one.due_ts}", [one], "u")


def ask(platform: Platform) -> None:
    """A replay of a type that has a table."""
    event_types(platform).learn("shop", [learning(NEW, prototype(a=1))])
    complete(platform, result(1, step=1))
    event_replays(platform).ask("shop", ["buy"], By(who="me", reason="prices matter"))


def test_events_that_a_step_left_are_told_before_and_when_they_are_due(world: World, platform: Platform) -> None:
    leave(platform, LATER)
    waiting = explain(platform, SHOP)
    assert (waiting.fires, waiting.reasons[-1]) == (False, "left by a step for later: buy")
    leave_due = TypeResult(type="buy", table="buy", start=0, end=0, due_ts=AT_ONCE)
    complete(platform, leave_due)
    due = explain(platform, SHOP)
    assert (due.fires, due.reasons[0]) == (True, "left by a step, and due: buy")


def test_a_replay_is_why_a_group_fires_and_is_told_where_events_fire_it(world: World, platform: Platform) -> None:
    ask(platform)
    asked = explain(platform, SHOP)
    assert (asked.fires, asked.reasons[0]) == (True, "to be replayed: buy")
    world.change("lake.t", 2)
    came = explain(platform, SHOP)
    assert (came.fires, len(came.firings), "to be replayed: buy" in came.reasons[1:]) == (True, 1, True)


def test_a_reprocess_of_a_stream_is_told_whether_it_fires_the_stream_or_not(world: World, platform: Platform) -> None:
    world.ledger.complete(world.fire(EVENTS)[0], None)
    event_reprocesses(platform).ask("lake.events", By(who="me", reason="mended"))
    alone = explain(platform, EVENTS)
    assert (alone.fires, alone.reasons) == (True, (DRAIN,))
    world.change("lake.t", 2)
    came = explain(platform, EVENTS)
    assert (came.fires, len(came.firings), came.reasons[-1], len(came.reasons) > 1) == (True, 1, DRAIN, True)
    row = platform.ledger.subscription("lake.events")
    assert row is not None
    Interventions(platform.ledger).pause(row, By(who="me", reason="stock-taking"))
    paused = explain(platform, EVENTS)
    assert (paused.fires, paused.reasons[-1]) == (False, DRAIN)
