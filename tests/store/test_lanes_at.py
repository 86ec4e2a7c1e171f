"""Who is at a table: what of its history consumers still need, and which of them wait."""

from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.triggers.conditions import PartitionCondition
from lakechime_dagster.triggers.consumers import ConsumerState
from lakechime_dagster.triggers.ledger import Claim
from lakechime_dagster.triggers.progress import ConsumerAt, consumers_at
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import PartitionTrigger
from tests.support.world import World, a_subscription, checkpoint, elsewhere, one

ORDERS = "bronze.orders"


def at(world: World, table: str = ORDERS, cluster: str = "") -> dict[str, ConsumerAt]:
    return {
        f"{found.consumer.deployment}/{found.consumer.subscription}{found.consumer.key}": found
        for found in consumers_at(world.engine, table, cluster)
    }


def version(found: SnapshotCheckpoint | None) -> str | None:
    return found.snapshot_id if found else None


def test_a_consumer_needs_what_came_after_its_checkpoint_and_one_of_another_deployment_too(world: World) -> None:
    world.change(ORDERS, 1)
    world.tick_of_the_sensor(a_subscription())
    world.change(ORDERS, 2)
    elsewhere(world, "production").evaluator.activate(a_subscription("slow"))
    found = at(world)
    assert {name: (version(consumer.read), consumer.writes, consumer.open_since) for name, consumer in found.items()} == {
        "test/silver": ("1", False, None),
        "production/slow": (None, False, None),
    }


def test_an_open_execution_reads_a_pinned_snapshot(world: World) -> None:
    world.change(ORDERS, 1)
    execution = one(world.fire(a_subscription()))
    (found,) = consumers_at(world.engine, ORDERS)
    assert (version(found.read), version(found.pinned), found.open_since) == (None, "1", execution.claimed_ts)


def test_those_who_write_the_table_are_at_it_and_one_that_is_held_says_why(world: World) -> None:
    subscription = world.evaluator.activate(a_subscription(target="silver.orders"))
    consumer = world.ledger.ensure_consumer(subscription, "")
    assert world.ledger.hold(subscription, consumer, "a column changed")
    (found,) = consumers_at(world.engine, "silver.orders")
    assert (found.writes, found.state, found.state_reason, found.read) == (True, ConsumerState.BLOCKED, "a column changed", None)


def test_a_key_of_a_partition_trigger_needs_its_range_while_it_is_open(world: World) -> None:
    condition = PartitionCondition.of(ORDERS, {"day": tick("-1d")}, PartitionLevels.of({"day": "date"}))
    subscription = world.evaluator.activate(
        Subscription(name="daily", trigger=PartitionTrigger(condition, every(days=1, start="2013-01-02")))
    )
    for position in (1, 2):
        execution = world.ledger.claim(
            subscription, world.ledger.ensure_consumer(subscription, "k"), Claim(end=checkpoint(position, bronze__orders=position))
        )
        (found,) = consumers_at(world.engine, ORDERS)
        assert (version(found.read), version(found.pinned)) == (str(position - 1) if position > 1 else None, str(position))
        world.ledger.complete(execution, None)
        (found,) = consumers_at(world.engine, ORDERS)
        assert (found.read, found.pinned, found.open_since) == (None, None, None)
