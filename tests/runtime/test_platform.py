"""Settling by a commit: whoever finds it registers its events and the marks of what it fired for,
before the checkpoint moves.
"""

import datetime as dt
from pathlib import Path

import pytest

from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.runtime.execution import RunningExecution
from lakechime_dagster.runtime.explain import explain
from lakechime_dagster.runtime.platform import Platform, hours_of
from lakechime_dagster.tables.cdc import CDCMerge, SourceSchema, cdc_table
from lakechime_dagster.tables.databases import Maxwell
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.triggers.consumers import COMPLETE as COMPLETE_FACT
from lakechime_dagster.triggers.consumers import (
    HOUR_MS,
    LATE,
    Checkpoint,
    CommitMetadata,
    ConsumerId,
    Execution,
)
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import PartitionCondition, PartitionTrigger
from tests.support.tables import SCHEMA, rows, write
from tests.support.world import World

COMPLETE = {"complete": "true"}
DAY = PartitionLevels.of({"day": "date"})
GOLD = "gold.orders_of_day"
MAY = dt.date(2013, 5, 1)


def daily(name: str, table: str, **fields: object) -> Subscription:
    """A subscription that waits for one day of a table."""
    condition = PartitionCondition.of(table, {"day": tick("-1d")}, DAY)
    trigger = PartitionTrigger(
        condition, every(days=1, start="2013-05-02", until="2013-05-02"), tags=COMPLETE
    )
    return Subscription(name=name, trigger=trigger, **fields)  # type: ignore[arg-type]


def second_attempt(world: World, subscription: Subscription) -> Execution:
    """The attempt after one that died; it may not complete without a commit."""
    world.change(version=1, partition=[str(MAY)], tags=COMPLETE)
    (first,) = world.fire(subscription)
    following = world.ledger.lose(
        world.ledger.begin(first.execution_id, "run-1"), "out of memory", immediately=True
    )
    assert following is not None
    return world.ledger.begin(following.execution_id, "run-2")


def commit(
    platform: Platform, commit_metadata: CommitMetadata, *values: tuple[object, ...]
) -> None:
    """What the attempt commits to a table that holds another day: nothing is a fence."""
    location = Path(platform.location(GOLD))
    location.mkdir(parents=True)
    write(location, rows((dt.date(2012, 1, 1), 0, 0, "x")), partition_by=["day"])
    data = rows(*values) if values else SCHEMA.empty_table()
    write(
        location,
        data,
        partition_by=["day"],
        user_metadata=commit_metadata.to_text(),
        transaction=(commit_metadata.txn_app_id, commit_metadata.number),
    )


def test_a_day_whose_fence_is_completed_by_somebody_else_is_complete_downstream(
    world: World, platform: Platform
) -> None:
    subscription = daily("daily", "bronze.orders", target=GOLD, target_levels=DAY)
    execution = second_attempt(world, subscription)
    commit(platform, RunningExecution(platform, subscription, execution).commit_metadata())
    platform.complete_if_committed(platform.log(GOLD), execution)
    assert world.decide(daily("downstream", GOLD)).fires


ORDERS = cdc_table(
    "shop.orders",
    source=JsonLines("in"),
    envelope=Maxwell(),
    merge=CDCMerge(keys=("id",), max_transaction=dt.timedelta(0)),
    schema=SourceSchema(types={"id": "bigint"}),
)
EPOCH_HOURS = int(dt.datetime(2013, 5, 1, tzinfo=dt.timezone.utc).timestamp()) // 3600


def hourly(late: str, **tags: str) -> Subscription:
    """A subscription that fires for the fourth and the fifth hour of a day, once each is
    complete.
    """
    condition = ORDERS.hours.partitions(source_date=tick("-1h"), source_hour=tick("-1h", "%H"))
    schedule = every(hours=1, start="2013-05-01T04:00", until="2013-05-01T05:00")
    return Subscription(
        name=late, trigger=PartitionTrigger(condition, schedule, late=late, tags=tags)
    )


def of_orders(number: int, **facts: object) -> CommitMetadata:
    """What the table's commit says in an execution."""
    return CommitMetadata(
        consumer=ConsumerId("test", "shop.orders"),
        number=number,
        attempt=1,
        end=Checkpoint(),
        execution_id=f"e{number}",
        facts=facts,
    )


@pytest.mark.parametrize("tags", [{}, COMPLETE])
def test_a_late_change_of_a_complete_hour_fires_again_for_that_hour(
    world: World, platform: Platform, tags: dict[str, str]
) -> None:
    refire, ignore = hourly("refire", **tags), hourly("ignore", **tags)
    complete = [HOUR_MS * (EPOCH_HOURS + hour) for hour in (3, 5)]
    world.store.register(hours_of(of_orders(1, **{COMPLETE_FACT: complete}), "shop.orders"))
    for subscription in (refire, ignore):
        assert [world.ledger.complete(one, None) for one in world.fire(subscription)] == [
            True,
            True,
        ]
    commit_metadata = CommitMetadata.from_text(
        of_orders(2, **{COMPLETE_FACT: complete, LATE: [(EPOCH_HOURS + 4, 7)]}).to_text()
    )
    assert commit_metadata is not None
    for registered in (1, 0):  # by each attempt, and whoever else finds the commit
        assert (
            len(world.store.register(hours_of(commit_metadata, "shop.orders")).registered)
            == registered
        )
    assert (
        explain(platform, refire).reasons[0]
        == "1 event arrived late for source_date=2013-05-01/source_hour=4"
    )
    (again,) = world.fire(refire)
    (event,) = RunningExecution(platform, refire, again).events
    assert (again.number, event.event.partition, event.event.tags["late"]) == (
        2,
        ("2013-05-01", 4),
        "7",
    )
    world.ledger.complete(again, None)
    assert (world.fire(refire), world.fire(ignore)) == ([], [])
