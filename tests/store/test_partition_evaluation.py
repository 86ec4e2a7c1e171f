"""Evaluation of partition triggers over a real store: which keys fire, what late changes do, and what a drop withdraws."""

import datetime as dt
from typing import Any

from lakechime_dagster.dce.events import OperationType
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.triggers.conditions import PartitionCondition
from lakechime_dagster.triggers.consumers import Cause, Execution
from lakechime_dagster.triggers.decision import Decision
from lakechime_dagster.triggers.retention import expire
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import PartitionTrigger
from tests.support.world import World, committed, one

COMPLETE = {"complete": "true"}
DAY = PartitionLevels.of({"day": "date"})
DAYS = every(days=1, start="2013-01-02", until="2013-01-04")  # keys 2013-01-01, -02, -03


def days(*tables: str, schedule: Any = DAYS, **fields: Any) -> Subscription:
    """A subscription per day that waits for that day's partition of all tables."""
    conditions = [PartitionCondition.of(table, {"day": tick("-1d")}, DAY) for table in tables or ("bronze.orders",)]
    return Subscription(name="daily", trigger=PartitionTrigger(conditions, schedule, **fields))


def arrive(world: World, day: str, version: int, table: str = "bronze.orders", **fields: Any) -> None:
    world.change(table, version, partition=[day], **fields)


def fired(decision: Decision) -> list[str]:
    return [firing.key for firing in decision.firings]


def test_a_key_fires_when_all_its_partitions_are_there_and_only_once(world: World) -> None:
    subscription = days("bronze.orders", "bronze.items")
    arrive(world, "2013-01-01", 0)
    decision = world.decide(subscription)
    assert not decision.fires
    assert decision.reasons[0] == 'day=2013-01-01: 1 of 2 partitions; bronze.items["2013-01-01"] has no event yet'
    arrive(world, "2013-01-01", 0, "bronze.items")
    execution = one(world.fire(subscription))
    assert (execution.consumer.key, execution.cause) == ("day=2013-01-01", Cause.TRIGGER)
    world.ledger.complete(execution, None)
    assert world.fire(subscription) == []


def test_keys_fire_oldest_first_and_no_more_than_may_run_at_once(world: World) -> None:
    subscription = days(max_in_flight=2)
    for version, day in enumerate(("2013-01-03", "2013-01-01", "2013-01-02")):
        arrive(world, day, version)
    decision = world.decide(subscription)
    assert fired(decision) == ["day=2013-01-01", "day=2013-01-02"]
    assert "1 key more is ready; 2 may run at once" in decision.reasons
    first, _ = world.fire(subscription)
    assert world.fire(subscription) == []
    world.ledger.complete(first, None)
    assert [execution.consumer.key for execution in world.fire(subscription)] == ["day=2013-01-03"]


def test_a_key_that_is_held_says_why_and_keeps_no_other_from_running(world: World) -> None:
    subscription = days(max_in_flight=1)
    for version, day in enumerate(("2013-01-01", "2013-01-02")):
        arrive(world, day, version)
    execution: Execution | None = one(world.fire(subscription))
    while execution is not None:
        execution = world.ledger.lose(execution, "disk full")
    decision = world.decide(subscription)
    assert fired(decision) == ["day=2013-01-02"]
    assert "daily day=2013-01-01 is BLOCKED: attempt 5 of step 1 failed: disk full" in decision.sentence
    assert decision.waits


def test_tags_that_come_after_a_drop_for_a_version_before_it_do_not_bring_the_partition_back(world: World) -> None:
    arrive(world, "2013-01-01", 1)
    arrive(world, "2013-01-01", 2, operation_type=OperationType.DELETE)
    arrive(world, "2013-01-01", 1, tags=COMPLETE)
    assert not world.decide(days(tags=COMPLETE)).fires


def test_versions_of_a_table_and_of_its_successor_are_not_compared(world: World) -> None:
    subscription = days()
    arrive(world, "2013-01-01", 9, table_uid="old", operation_type=OperationType.DELETE)
    arrive(world, "2013-01-01", 1, table_uid="new")
    assert world.decide(subscription).fires
    arrive(world, "2013-01-02", 9, table_uid="old")
    arrive(world, "2013-01-02", 1, table_uid="new", operation_type=OperationType.DELETE)
    assert fired(world.decide(subscription)) == ["day=2013-01-01"]


def test_partitions_are_compared_by_the_types_that_the_table_declares(world: World) -> None:
    world.store.declare("bronze.orders", PartitionLevels.of({"day": "date", "hour": "int"}))
    levels = PartitionLevels.of({"day": "date", "hour": "int"})
    condition = PartitionCondition.of("bronze.orders", {"day": tick("-1d"), "hour": "05"}, levels)
    world.change(version=0, partition=["2013-01-01", "5"])
    assert world.decide(Subscription(name="hours", trigger=PartitionTrigger(condition, DAYS))).fires


def test_a_near_miss_by_type_only_is_named(world: World) -> None:
    condition = PartitionCondition.of("bronze.orders", {"day": tick("-1d"), "hour": 5})
    world.change(version=0, partition=["2013-01-01", "5"])
    decision = world.decide(Subscription(name="hours", trigger=PartitionTrigger(condition, DAYS)))
    assert not decision.fires
    assert 'has no event yet (there is ["2013-01-01","5"], of another type)' in decision.reasons[0]


def test_a_drop_after_folding_withdraws_what_was_folded(world: World) -> None:
    subscription = days()
    arrive(world, "2013-01-01", 0)
    world.let_pass(3_600_000)
    expire(world.engine, world.store.now() - 60_000, needed={})
    arrive(world, "2013-01-01", 1, operation_type=OperationType.DELETE)
    assert not world.decide(subscription).fires


# Late


def test_late_changes_of_a_fired_key_fire_it_once_more_for_all_of_them(world: World) -> None:
    subscription = days(late="refire")
    arrive(world, "2013-01-01", 0)
    world.ledger.complete(one(world.fire(subscription)), None)
    arrive(world, "2013-01-01", 1)
    arrive(world, "2013-01-01", 2, tags={"who": "cares"})
    execution = one(world.fire(subscription))
    assert (execution.step, execution.reason) == (2, "2 events came late for day=2013-01-01")
    world.ledger.complete(execution, None)
    assert world.fire(subscription) == []


def test_late_is_counted_from_the_end_of_the_claim_that_committed(world: World) -> None:
    subscription = days(late="refire", tags=COMPLETE)
    arrive(world, "2013-01-01", 0, tags=COMPLETE)
    execution = one(world.fire(subscription))
    before = execution.end
    arrive(world, "2013-01-01", 1)
    row = world.evaluator.activate(subscription)
    widened = world.ledger.lose(
        execution, "it died", end=world.evaluator.end_of(subscription, row, world.ledger.consumers(row)[execution.consumer.key])
    )
    assert widened is not None
    world.ledger.complete(widened, committed(execution, end=before))
    assert one(world.fire(subscription)).step == 2


# Deadline


def test_a_deadline_counts_from_the_activation_of_the_subscription_and_availability_comes_first(world: World) -> None:
    subscription = days(deadline=dt.timedelta(hours=1))
    assert "expired" not in world.decide(subscription).sentence
    world.let_pass(2 * 3_600_000)
    arrive(world, "2013-01-02", 0)
    decision = world.decide(subscription)
    assert fired(decision) == ["day=2013-01-02"]
    assert "0 of 3 keys fired, 2 expired" in decision.reasons
    assert [reason.partition(": ")[2] for reason in decision.reasons if "expired at" in reason] == [
        f'0 of 1 partitions; bronze.orders["{day}"] has no event yet' for day in ("2013-01-03", "2013-01-01")
    ]


def test_a_late_change_is_known_when_the_levels_are_declared_after_the_key_fired(world: World) -> None:
    def subscription(levels: PartitionLevels | None) -> Subscription:
        condition = PartitionCondition.of("bronze.orders", {"hour": "5"}, levels)
        return Subscription(
            name="hours", trigger=PartitionTrigger(condition, every(days=1, start="2013-01-01", until="2013-01-01"), late="refire")
        )

    world.change(version=0, partition=["5"])
    world.ledger.complete(one(world.fire(subscription(None))), None)
    hours = PartitionLevels.of({"hour": "int"})
    world.store.declare("bronze.orders", hours)
    world.change(version=1, partition=[5])

    assert "came late" in one(world.fire(subscription(hours))).reason
