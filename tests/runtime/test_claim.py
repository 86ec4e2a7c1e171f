"""Runs that a person launches: they claim what waits for a consumer, also where no snapshot reports
that something came.
"""

import json

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.errors import NotFoundError
from lakechime_dagster.runtime.execution import RunningExecution, adopted, kept
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.runtime.resource import NothingNewError
from lakechime_dagster.triggers.consumers import Execution
from lakechime_dagster.triggers.ledger import events_of
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import PartitionCondition, PartitionTrigger
from tests.support.world import World, a_subscription, one

HIVE = "hive.orders"
DAY = PartitionLevels.of({"day": "date"})


def daily(**fields: object) -> Subscription:
    """A subscription for two days of a table without snapshots, one of which may run at a time."""
    condition = PartitionCondition.of(HIVE, {"day": tick("-1d")}, DAY)
    trigger = PartitionTrigger(
        condition,
        every(days=1, start="2013-01-02", until="2013-01-03"),
        max_in_flight=1,
        **fields,  # pyright: ignore[reportArgumentType]
    )
    return Subscription(name="daily", trigger=trigger, target_levels=DAY, job="nightly")


def unpartitioned(**fields: object) -> Subscription:
    """A subscription for three days that launches what has no partitions."""
    condition = PartitionCondition.of(HIVE, {"day": tick("-1d")}, DAY)
    return Subscription(
        name="daily",
        trigger=PartitionTrigger(
            condition,
            every(days=1, start="2013-01-02", until="2013-01-04"),
            **fields,  # pyright: ignore[reportArgumentType]
        ),
    )


def arrive(world: World, *days: int) -> None:
    for day in days:
        world.change(HIVE, table_format="HIVE", partition=[f"2013-01-0{day}"])


def manual_run(
    platform: Platform,
    subscription: Subscription,
    run_id: str = "run",
    partition: str | None = None,
) -> Execution:
    """A run that a person launches, whose success completes it."""
    execution = adopted(platform, subscription, run_id, partition)
    platform.ledger.complete(execution, None)
    return execution


def test_a_manual_run_claims_the_events_of_a_table_without_snapshots_once(
    world: World, platform: Platform
) -> None:
    subscription = a_subscription("nightly", HIVE, job="nightly")
    with pytest.raises(NothingNewError):
        adopted(platform, subscription, "run-0", None)
    event = world.change(HIVE, table_format="HIVE", partition=["a"])
    execution = adopted(platform, subscription, "run-1", None)
    assert execution.start.position < event.position <= execution.end.position
    world.ledger.complete(execution, None)
    with pytest.raises(NothingNewError, match="nightly: no new events since execution 1"):
        adopted(platform, subscription, "run-2", None)


def test_a_manual_run_of_a_day_claims_it_when_it_is_there_although_another_one_runs(
    world: World, platform: Platform
) -> None:
    subscription = daily()
    for day in ("2013-01-01", "2013-01-02"):
        with pytest.raises(NothingNewError):
            adopted(platform, subscription, "run-0", day)
        world.change(HIVE, table_format="HIVE", partition=[day])
    assert adopted(platform, subscription, "run-1", "2013-01-01").consumer.key == "day=2013-01-01"
    second = adopted(platform, subscription, "run-2", "2013-01-02")
    world.ledger.complete(second, None)
    with pytest.raises(NothingNewError):
        adopted(platform, subscription, "run-3", "2013-01-02")
    world.change(HIVE, table_format="HIVE", partition=["2013-01-02"])
    assert adopted(platform, subscription, "run-4", "2013-01-02").number == 2


def test_a_key_that_is_run_before_its_partitions_are_there_still_fires_when_they_are(
    world: World, platform: Platform
) -> None:
    """As all keys up to now are by a backfill of Dagster of all partitions; this one ignores what
    comes late.
    """
    conditions = [
        PartitionCondition.of(table, {"day": tick("-1d")}, DAY)
        for table in ("bronze.orders", "bronze.rates")
    ]
    trigger = PartitionTrigger(conditions, every(days=1, start="2013-01-02", until="2013-01-03"))
    subscription = Subscription(
        name="daily", trigger=trigger, target_levels=DAY, job="nightly", reads=("bronze.orders",)
    )
    world.change("bronze.orders", 1, partition=["2013-01-01"])
    assert manual_run(platform, subscription, partition="2013-01-01").number == 1
    assert not world.decide(subscription).fires
    world.change("bronze.rates", 1, partition=["2013-01-01"])
    assert (one(world.fire(subscription)).number, len(world.fire(subscription))) == (2, 0)


@pytest.mark.parametrize("levels", [DAY, PartitionLevels()], ids=["a partition", "a plain job"])
def test_each_event_of_a_key_is_handed_to_one_run_whoever_launches_it(
    world: World, platform: Platform, levels: PartitionLevels
) -> None:
    conditions = [
        PartitionCondition.of(table, {"day": tick("-1d")}, DAY)
        for table in ("bronze.orders", "bronze.rates")
    ]
    trigger = PartitionTrigger(conditions, every(days=1, start="2013-01-02", until="2013-01-02"))
    subscription = Subscription(name="daily", trigger=trigger, target_levels=levels, job="nightly")
    orders = world.change("bronze.orders", 1, partition=["2013-01-01"])
    world.change("bronze.orders", 2, partition=["2013-01-02"])
    by_hand = manual_run(platform, subscription, partition="2013-01-01" if levels else None)
    assert events_of(world.engine, subscription, by_hand) == [orders]
    rates = world.change("bronze.rates", 7, partition=["2013-01-01"])
    assert events_of(world.engine, subscription, one(world.fire(subscription))) == [rates]


def test_a_manual_run_without_a_partition_takes_the_key_that_is_open(
    world: World, platform: Platform
) -> None:
    subscription = unpartitioned()
    arrive(world, 1)
    manual_run(platform, subscription)
    arrive(world, 2)
    opened = one(world.fire(subscription))
    arrive(world, 1, 3)
    assert adopted(platform, subscription, "run-2", None).execution_id == opened.execution_id


def test_manual_runs_without_a_partition_go_through_the_keys_that_are_there_oldest_first_and_then_through_late_changes(
    world: World, platform: Platform
) -> None:
    subscription = unpartitioned()
    arrive(world, 1)
    assert manual_run(platform, subscription).consumer.key == "day=2013-01-01"
    arrive(world, 1, 3)
    assert manual_run(platform, subscription).consumer.key == "day=2013-01-03"
    assert manual_run(platform, subscription).consumer.key == "day=2013-01-01"
    with pytest.raises(NothingNewError, match=r"daily day=.*: no new events"):
        adopted(platform, subscription, "run", None)


@pytest.mark.parametrize("partition", ["2013-01-09", "2013-01-01/x", None])
def test_a_partition_that_no_grid_point_stands_for_is_not_reported_as_done(
    platform: Platform, partition: str | None
) -> None:
    there = "it has 2013-01-01 to 2013-01-02"
    with pytest.raises(
        NotFoundError,
        match=f"daily has no tick of its schedule for partition {partition!r} up to now; {there}",
    ):
        adopted(platform, daily(), "run", partition)


@pytest.fixture
def world(sqlite_engine: Engine) -> World:
    return World(sqlite_engine)


def test_the_runs_of_two_days_are_handed_the_events_of_their_own_day(
    world: World, platform: Platform
) -> None:
    condition = PartitionCondition.of(
        "bronze.orders", {"day": tick("-1d")}, PartitionLevels.of({"day": "date"})
    )
    subscription = Subscription(
        name="daily",
        trigger=PartitionTrigger(condition, every(days=1, start="2013-01-02", until="2013-01-03")),
    )
    arrived = [
        world.change(version=version, partition=[day])
        for version, day in enumerate(("2013-01-01", "2013-01-02"))
    ]
    first, second = (
        RunningExecution(platform, subscription, execution)
        for execution in world.fire(subscription)
    )
    assert (first.events, second.events) == ([arrived[0]], [arrived[1]])
    assert json.loads(first.env()["LAKECHIME_DCES"])[0]["partition"] == ["2013-01-01"]


def test_the_error_of_a_run_is_not_hidden_by_one_of_the_store_that_should_keep_it(
    world: World, platform: Platform
) -> None:
    world.change(version=0)
    (claimed,) = world.fire(a_subscription())
    running = RunningExecution(
        platform, a_subscription(), world.ledger.begin(claimed.execution_id, "run-1")
    )
    said: list[str] = []
    with writing(world.engine) as connection:
        connection.execute(sa.text("DROP TABLE lc_attempt"))
    with pytest.raises(RuntimeError, match="the disk is full"), kept(running, None, said.append):
        raise RuntimeError("the disk is full")
    assert ["the error of attempt 1 could not be kept" in sentence for sentence in said] == [True]
