"""What an explanation of a past time says of consumers: their state of then, from what the ledger keeps."""

from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.triggers.conditions import PartitionCondition
from lakechime_dagster.triggers.interventions import By
from lakechime_dagster.triggers.ledger import MAX_ATTEMPTS
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import PartitionTrigger, StartFrom
from tests.support.world import World, a_subscription, one

ADA = By(who="ada", reason="month end")
BLOCKED = "silver is BLOCKED: attempt 5 of step 1 failed: boom"


MINUTE = 60_000  # milliseconds


def said(world: World, subscription: Subscription, minutes_ago: int) -> str:
    """The first reason at the end of a past minute; 0 is now."""
    return world.decide(subscription, at_ms=ended(world, minutes_ago)).reasons[0]


def ended(world: World, minutes_ago: int) -> int:
    return world.store.now() - minutes_ago * MINUTE + (MINUTE // 2 if minutes_ago else 0)


def held(world: World, subscription: Subscription) -> str:
    """The id of an execution whose last attempt was lost."""
    execution = world.ledger.begin(one(world.fire(subscription)).execution_id, "run-1")
    for _ in range(MAX_ATTEMPTS):
        following = world.ledger.lose(execution, "boom", immediately=True)
        execution = following or execution
    return execution.execution_id


def test_a_consumer_is_held_from_its_last_attempt_until_somebody_lets_it_go_on(world: World) -> None:
    subscription = a_subscription()
    world.change(version=0)
    execution_id = held(world, subscription)
    world.let_pass(MINUTE)
    found = world.ledger.execution(execution_id)
    assert found is not None
    retried = world.people.retry(found, ADA)
    world.let_pass(MINUTE)
    world.ledger.complete(retried, None)
    assert said(world, subscription, 2).startswith(BLOCKED)
    assert said(world, subscription, 1) == "step 1 is with a run that has not begun (attempt 6)"
    assert said(world, subscription, 0) == "nothing new in bronze.orders"


def test_a_subscription_was_paused_from_its_pause_to_its_resumption(world: World) -> None:
    subscription = a_subscription()
    row = world.evaluator.activate(subscription)
    world.change(version=0)
    world.let_pass(MINUTE)
    world.people.pause(row, ADA)
    world.let_pass(MINUTE)
    world.people.resume(row, ADA)
    assert [said(world, subscription, at) for at in (2, 1, 0)] == [
        "1 event came (1 of bronze.orders)",
        "paused: month end",
        "1 event came (1 of bronze.orders)",
    ]


def test_a_consumer_stood_where_it_was_before_somebody_put_it_elsewhere(world: World) -> None:
    subscription = a_subscription()
    row = world.evaluator.activate(subscription)
    world.change(version=0)
    world.ledger.complete(one(world.fire(subscription)), None)
    world.let_pass(MINUTE)
    world.people.seek(row, "", ADA, world.evaluator.checkpoint_at(subscription, StartFrom("beginning")))
    world.let_pass(MINUTE)
    world.people.resume(row, ADA, world.evaluator.checkpoint_at(subscription, StartFrom("now")))
    assert [world.decide(subscription, at_ms=ended(world, ago)).fires for ago in (2, 1, 0)] == [False, True, False]


def first_of_2013() -> PartitionTrigger:
    """A trigger whose only key is a day."""
    condition = PartitionCondition.of("bronze.orders", {"day": tick("-1d")}, PartitionLevels.of({"day": "date"}))
    return PartitionTrigger(condition, every(days=1, start="2013-01-02", until="2013-01-02"))


def test_a_key_had_fired_until_somebody_put_its_consumer_back(world: World) -> None:
    subscription = a_subscription(trigger=first_of_2013())
    row = world.evaluator.activate(subscription)
    world.change(version=0, partition=("2013-01-01",))
    world.let_pass(MINUTE)
    world.ledger.complete(one(world.fire(subscription)), None)
    world.let_pass(MINUTE)
    world.people.seek(row, None, ADA, world.evaluator.checkpoint_at(subscription, StartFrom("beginning")))
    assert [world.decide(subscription, at_ms=ended(world, ago)).fires for ago in (2, 1, 0)] == [True, False, True]
