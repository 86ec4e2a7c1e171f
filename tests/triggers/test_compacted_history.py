"""Readers that start after retention compacted the history of a table start from it all the
same.
"""

import pytest

from lakechime_dagster.dce.engine import reading
from lakechime_dagster.dce.events import EventQuery, Position, Seen, SnapshotId, TableUid
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.triggers.evaluation import Sweep
from lakechime_dagster.triggers.ledger import events_of
from lakechime_dagster.triggers.progress import consumer_lags, expire, needs
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import (
    PartitionCondition,
    PartitionTrigger,
    SnapshotTrigger,
)
from tests.factories import make_event
from tests.support.world import World, a_subscription, one

FAR = 4_000_000_000_000


ORDERS = "bronze.orders"


COMPLETE = {"complete": "true"}


def compact(world: World) -> None:
    """Compact all that no live consumer needs."""
    expire(
        world.engine,
        FAR,
        needed={name: need.position for name, need in needs(world.engine).items()},
    )


def from_now(tags: dict[str, str] | None = None) -> Subscription:
    return a_subscription("new", trigger=SnapshotTrigger(ORDERS, tags=tags or {}, start_from="now"))


def start_of(world: World, subscription: Subscription) -> tuple[str | None, str | None]:
    """The uid and snapshot of the table at which a subscription stands."""
    checkpoint = world.evaluator.activate(subscription).start.sources.get(
        ORDERS, SnapshotCheckpoint()
    )
    return checkpoint.table_uid, checkpoint.snapshot_id


def test_the_head_does_not_go_back_when_everything_is_compacted(world: World) -> None:
    position = world.change(version=1).position
    compact(world)

    assert world.store.fetch(EventQuery()) == []
    assert world.store.head() >= position
    assert world.store.feed(Position.ORIGIN).through >= position


def test_a_subscription_that_starts_now_reads_only_what_comes_after_the_compacted_snapshots(
    world: World,
) -> None:
    for version in range(3):
        world.change(version=version)
    compact(world)
    subscription = from_now()
    assert world.fire(subscription) == []

    world.change(version=3)
    range_ = one(world.fire(subscription)).ranges()[ORDERS]

    assert (range_.start, range_.end) == ("2", "3")


def test_a_uid_that_becomes_known_later_is_that_of_the_compacted_snapshots_too(
    world: World,
) -> None:
    world.change(version=5)
    compact(world)
    world.change(version=2, table_uid=TableUid("u"))

    assert start_of(world, from_now()) == ("u", "5")


def test_compacted_snapshots_of_a_table_that_was_created_again_are_not_its_own(
    world: World,
) -> None:
    world.change(version=7, table_uid=TableUid("old"))
    compact(world)
    again = Seen(table=ORDERS, cluster="", table_uid=TableUid("new"), snapshot_id=SnapshotId("0"))
    world.store.register([], [again])

    assert start_of(world, from_now()) == (None, None)


def test_a_mark_vouches_for_a_snapshot_that_was_looked_through_and_compacted(world: World) -> None:
    subscription = a_subscription("silver", trigger=SnapshotTrigger(ORDERS, tags=COMPLETE))
    world.change(version=5)
    assert not world.tick_of_the_sensor(subscription).fires
    compact(world)
    assert world.store.fetch(EventQuery()) == []

    world.change(tags=COMPLETE)

    assert one(world.fire(subscription)).end.sources[ORDERS].snapshot_id == "5"


def test_a_subscription_that_begins_with_a_compacted_history_fires_for_it_at_once(
    world: World,
) -> None:
    for version in range(3):
        world.change(version=version)
    compact(world)
    subscription = a_subscription()
    tagged = a_subscription("tagged", trigger=SnapshotTrigger(ORDERS, tags=COMPLETE))
    assert Sweep(world.evaluator, [subscription, tagged]).decisions()[subscription.name].fires
    assert (world.decide(subscription).sentence, world.decide(tagged).fires) == (
        "3 events arrived (3 of bronze.orders)",
        False,
    )

    execution = one(world.fire(subscription))
    assert (execution.ranges()[ORDERS].start, execution.ranges()[ORDERS].end) == (None, "2")
    world.ledger.complete(execution, None)

    assert not world.decide(subscription).fires
    assert Sweep(world.evaluator, [subscription, tagged]).decisions() == {}


# Repeats of what was compacted


def test_a_repeat_of_a_compacted_event_stays_a_duplicate_when_levels_are_declared(
    world: World,
) -> None:
    sent, keyed = (
        make_event(partition=["05"], snapshot_id="1"),
        make_event(partition=["05"], snapshot_id="2", event_key="mine"),
    )
    world.store.register([sent, make_event(partition=[5], snapshot_id="1"), keyed])
    compact(world)
    world.store.declare(ORDERS, PartitionLevels.of({"hour": "int"}))

    assert (
        world.store.register([sent, make_event(partition=[5], snapshot_id="1"), keyed]).registered
        == ()
    )


# What was compacted while somebody still needs it


@pytest.mark.dialect
def test_a_run_gets_the_events_of_its_partitions_that_were_compacted_while_its_key_was_pending(
    world: World,
) -> None:
    days = PartitionLevels.of({"day": "date"})
    conditions = [
        PartitionCondition.of(ORDERS, {"day": tick(past)}, days) for past in ("-2d", "-1d")
    ]
    grid = every(days=1, start="2013-01-03", until="2013-01-04")
    subscription = Subscription(name="both", trigger=PartitionTrigger(conditions, grid))
    first = world.change(version=1, partition=["2013-01-01"])
    assert not world.tick_of_the_sensor(subscription).fires
    world.evaluator.looked_through([world.evaluator.activate(subscription)], first.position)
    compact(world)
    second = world.change(version=2, partition=["2013-01-02"])

    execution = one(world.fire(subscription))

    assert world.store.fetch(EventQuery()) == [second]
    assert events_of(world.engine, subscription, execution) == [first, second]


@pytest.mark.dialect
def test_a_run_gets_the_matching_events_of_a_compacted_history(world: World) -> None:
    tagged = world.change(version=1, tags=COMPLETE)
    world.change(version=2)
    compact(world)
    subscription = a_subscription(trigger=SnapshotTrigger(ORDERS, tags=COMPLETE))

    execution = one(world.fire(subscription))

    assert events_of(world.engine, subscription, execution) == [tagged]


@pytest.mark.dialect
def test_compacted_events_are_counted_for_their_table_and_for_who_has_not_consumed_them(
    world: World,
) -> None:
    world.change(version=1, partition=["2013-01-01"])
    last = world.change(version=1, partition=["2013-01-02"])
    compact(world)
    world.evaluator.activate(a_subscription("silver"))

    table = world.store.table(ORDERS)
    with reading(world.engine) as connection:
        (lag,) = consumer_lags(connection, world.deployment)

    assert table is not None
    assert (table.events, table.last_event_ts) == (2, last.event_ts)
    assert lag.amounts == {"events": 2, "versions": 1}


def test_a_missing_partition_names_the_newest_compacted_one_of_its_table(world: World) -> None:
    levels = PartitionLevels.of({"day": "date"})
    condition = PartitionCondition.of(ORDERS, {"day": tick("-1d")}, levels)
    days = PartitionTrigger(condition, every(days=1, start="2013-01-03", until="2013-01-04"))
    world.store.declare(ORDERS, levels)
    world.change(version=1, partition=["2013-01-01"])
    compact(world)

    (reason, *_) = world.decide(Subscription(name="days", trigger=days)).reasons

    assert "2013-01-01" in reason


@pytest.mark.dialect
def test_a_late_change_that_was_compacted_before_it_was_evaluated_fires_its_key_again(
    world: World,
) -> None:
    levels = PartitionLevels.of({"day": "date"})
    condition = PartitionCondition.of(ORDERS, {"day": tick("-1d")}, levels)
    grid = every(days=1, start="2013-01-02", until="2013-01-03")
    days = Subscription(name="days", trigger=PartitionTrigger(condition, grid, late="refire"))
    world.change(version=1, partition=["2013-01-01"])
    assert world.tick_of_the_sensor(days).fires
    late = world.change(version=2, partition=["2013-01-01"])
    expire(world.engine, FAR, needed={})

    execution = one(world.fire(days))

    assert events_of(world.engine, days, execution) == [late]
