"""The events that an execution is handed: of a partition trigger those of its own key's partitions."""

from lakechime_dagster.dce.events import RegisteredEvent
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.triggers.conditions import PartitionCondition
from lakechime_dagster.triggers.ledger import events_of
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import PartitionTrigger
from tests.support.world import World, a_subscription

DAY = PartitionLevels.of({"day": "date"})
DAYS = every(days=1, start="2013-01-02", until="2013-01-04")  # keys 2013-01-01, -02, -03
COMPLETE = {"complete": "true"}


def days(*tables: str, cluster: str = "", **fields: object) -> Subscription:
    conditions = [PartitionCondition.of(table, {"day": tick("-1d")}, DAY, cluster) for table in tables]
    return Subscription(name="daily", trigger=PartitionTrigger(conditions, DAYS, **fields))  # type: ignore[arg-type]


def handed(world: World, subscription: Subscription) -> dict[str, list[RegisteredEvent]]:
    """What each execution that the subscription fires now is handed, by its key; all of them are completed."""
    found = {}
    for execution in world.fire(subscription):
        found[execution.consumer.key] = events_of(world.engine, subscription, execution)
        world.ledger.complete(execution, None)
    return found


def test_a_key_is_handed_the_events_of_its_own_partitions_in_commit_order(world: World) -> None:
    subscription = days("bronze.orders", "bronze.items")
    first, second = "2013-01-01", "2013-01-02"
    arrived = [world.change(table, 1, partition=[day]) for day in (first, second) for table in ("bronze.orders", "bronze.items")]
    world.change("bronze.returns", 1, partition=[first])
    assert handed(world, subscription) == {f"day={first}": arrived[:2], f"day={second}": arrived[2:]}


def test_a_key_that_fires_again_is_handed_changes_that_came_late_without_its_tags(world: World) -> None:
    """They make it fire again, whatever their tags."""
    subscription = days("bronze.orders", tags=COMPLETE, late="refire")
    world.change(version=1, partition=["2013-01-01"])
    world.change(partition=["2013-01-01"], tags=COMPLETE)
    handed(world, subscription)
    late = world.change(version=2, partition=["2013-01-01"])
    again = world.change(partition=["2013-01-01"], tags=COMPLETE)
    assert handed(world, subscription) == {"day=2013-01-01": [late, again]}


def test_a_key_is_handed_the_events_that_brought_the_tags(world: World) -> None:
    subscription = days("bronze.orders", tags=COMPLETE)
    world.change(version=1, partition=["2013-01-01"])
    mark = world.change(partition=["2013-01-01"], tags=COMPLETE)
    assert handed(world, subscription) == {"day=2013-01-01": [mark]}


def test_a_key_is_handed_the_events_of_partitions_whose_levels_were_declared_after_the_claim(world: World) -> None:
    condition = PartitionCondition.of("bronze.orders", {"hour": "05"})
    subscription = Subscription(name="hourly", trigger=PartitionTrigger(condition, DAYS))
    world.change(version=1, partition=["05"])
    (execution,) = world.fire(subscription)
    world.store.declare("bronze.orders", PartitionLevels.of({"hour": "int"}))
    assert [event.event.snapshot_id for event in events_of(world.engine, subscription, execution)] == ["1"]


def test_a_snapshot_trigger_is_handed_the_changes_of_all_its_tables_in_its_cluster(world: World) -> None:
    subscription = a_subscription("silver", "bronze.orders", "bronze.items", cluster="east")
    changes = [world.change(table, 1, partition=[day], cluster="east") for table in ("bronze.items", "bronze.orders") for day in "ab"]
    world.change("bronze.orders", 1)
    world.change("bronze.returns", 1, cluster="east")
    assert handed(world, subscription) == {"": changes}
