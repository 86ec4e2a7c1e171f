"""Evaluation over a real store: when a subscription fires, what it gets, and why it does not fire
(laws 9 to 11).
"""

import datetime as dt
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.event import listen

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.dce.events import (
    OperationType,
    Position,
    RegisteredEvent,
    Seen,
    SnapshotId,
    TableFormat,
    TableUid,
)
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.dce.schema import dce_event, metadata
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.errors import StoreUnreachableError
from lakechime_dagster.triggers.consumers import CommitMetadata, Committed, Execution
from lakechime_dagster.triggers.decision import Decision
from lakechime_dagster.triggers.evaluation import Evaluator, Sweep
from lakechime_dagster.triggers.evidence import newer, partition_events
from lakechime_dagster.triggers.ledger import events_of
from lakechime_dagster.triggers.progress import consumers_at, needs, overview
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import (
    PartitionCondition,
    PartitionTrigger,
    SnapshotTrigger,
    TableName,
)
from tests.support.stores import fresh_memory
from tests.support.world import World, a_subscription, checkpoint, committed, one

COMPLETE = {"complete": "true"}


def snapshots(execution: Execution) -> dict[str, tuple[str | None, str]]:
    """Per table the range to read, as (start, end]."""
    return {table: (found.start, found.end) for table, found in execution.ranges().items()}


# Snapshot triggers
def test_a_change_fires_and_the_range_ends_at_its_snapshot(world: World) -> None:
    world.change(version=0)
    world.change(version=1)
    execution = one(world.fire(a_subscription()))
    assert snapshots(execution) == {"bronze.orders": (None, "1")}
    assert execution.reason == "2 events arrived (2 of bronze.orders)"


def test_a_trigger_on_all_tables_waits_for_each_and_takes_what_waited(world: World) -> None:
    both = a_subscription(
        "gold", trigger=SnapshotTrigger(["bronze.orders", "bronze.people"], changed="all")
    )
    for version in (0, 1):
        world.change(version=version)
        assert not world.tick_of_the_sensor(both).fires
    world.change("bronze.people", 7)
    assert snapshots(one(world.fire(both))) == {
        "bronze.orders": (None, "1"),
        "bronze.people": (None, "7"),
    }


def test_a_claim_takes_so_many_commits_at_most_and_the_next_one_follows(world: World) -> None:
    subscription = a_subscription(trigger=SnapshotTrigger("bronze.orders", max_commits=2))
    ranges = []
    for version in range(2):
        world.change(version=version)
    world.ledger.complete(one(world.fire(subscription)), None)
    for version in range(2, 6):
        world.change(version=version)
        world.change("bronze.items", version)
    last = world.change(version=6)
    world.change("bronze.items", 6)
    while world.decide(subscription).fires:
        execution = one(world.fire(subscription))
        ranges.append(snapshots(execution)["bronze.orders"])
        world.ledger.complete(execution, None)
    assert ranges == [("1", "3"), ("3", "5"), ("5", "6")]
    assert (
        world.ledger.consumers(world.evaluator.activate(subscription))[""].checkpoint.position
        > last.position
    )


def test_a_commit_of_several_partitions_is_never_divided(world: World) -> None:
    subscription = a_subscription(trigger=SnapshotTrigger("bronze.orders", max_commits=1))
    world.change(version=0)
    world.ledger.complete(one(world.fire(subscription)), None)
    for version in (1, 2, 3):
        for day in ("2013-01-01", "2013-01-02"):
            world.change(version=version, partition=[day])
    handed = []
    while world.decide(subscription).fires:
        execution = one(world.fire(subscription))
        events = events_of(world.engine, subscription, execution)
        handed.append((snapshots(execution)["bronze.orders"], len(events)))
        world.ledger.complete(execution, None)
    assert handed == [(("0", "1"), 2), (("1", "2"), 2), (("2", "3"), 2)]


def test_a_claim_takes_so_many_partitions_at_most_or_one_commit_to_more(world: World) -> None:
    trigger = SnapshotTrigger("bronze.orders", max_partitions=2)
    subscription = a_subscription(trigger=trigger)
    world.change(version=0, partition=["1"])
    world.ledger.complete(one(world.fire(subscription)), None)
    for version, days in enumerate(["12", "1", "2", "3", "1234", "4", "2"], 1):
        for day in days:
            world.change(version=version, partition=[day])
    handed = []
    while world.decide(subscription).fires:
        execution = one(world.fire(subscription))
        events = events_of(world.engine, subscription, execution)
        handed.append("".join(one.event.partition[0] for one in events if one.event.partition))
        world.ledger.complete(execution, None)
    assert handed == ["1212", "3", "1234", "42"]


def test_a_claim_takes_commits_of_so_many_bytes_at_most_or_one_larger_commit(world: World) -> None:
    subscription = a_subscription(trigger=SnapshotTrigger("bronze.orders", max_bytes=100))
    world.change(version=0, added_bytes=1_000)
    world.ledger.complete(one(world.fire(subscription)), None)
    # by version the sizes of its partitions; of some it is not known
    sizes = [(60, None), (20, 20), (1,), (70, 70), (None,), (99,), (1,), (1,)]
    for version, several in enumerate(sizes, 1):
        for day, size in enumerate(several):
            world.change(version=version, partition=[str(day)], added_bytes=size)
    ranges = []
    while world.decide(subscription).fires:
        execution = one(world.fire(subscription))
        ranges.append(snapshots(execution)["bronze.orders"])
        world.ledger.complete(execution, None)
    assert ranges == [("0", "2"), ("2", "3"), ("3", "4"), ("4", "7"), ("7", "8")]


@pytest.mark.parametrize("reads", [(), ("bronze.orders",)])
@pytest.mark.parametrize("most", [{"max_commits": 2}, {"max_partitions": 2}, {"max_bytes": 2}])
def test_changes_of_a_hive_table_are_caught_up_with_in_bounded_executions(
    world: World, reads: tuple[str, ...], most: dict[str, Any]
) -> None:
    subscription = a_subscription(trigger=SnapshotTrigger("bronze.orders", **most), reads=reads)
    world.change(partition=["1"], table_format=TableFormat.HIVE)
    world.ledger.complete(one(world.fire(subscription)), None)
    for day in "12345":
        world.change(partition=[day], table_format=TableFormat.HIVE, added_bytes=1)
    handed = []
    while world.decide(subscription).fires:
        execution = one(world.fire(subscription))
        assert set(execution.ranges()) == set(reads)
        events = events_of(world.engine, subscription, execution)
        handed.append("".join(one.event.partition[0] for one in events if one.event.partition))
        world.ledger.complete(execution, None)
    assert handed == ["12", "34", "5"]


def test_executions_of_a_trigger_are_so_far_apart_whenever_its_events_arrive(world: World) -> None:
    gap = dt.timedelta(minutes=10)
    subscription = a_subscription(
        trigger=SnapshotTrigger("bronze.orders", min_time_between=gap, max_commits=1)
    )
    world.change(version=0)
    assert world.tick_of_the_sensor(subscription).fires
    for version in (1, 2):
        world.change(version=version)
    ranges = []
    for _ in range(2):
        waits = world.tick_of_the_sensor(subscription)
        assert (waits.fires, waits.waits) == (False, True)
        assert "0:10:00 after its last execution" in waits.sentence
        world.let_pass(600_000)
        execution = one(world.fire(subscription))
        ranges.append(snapshots(execution)["bronze.orders"])
        world.ledger.complete(execution, None)
    assert ranges == [("0", "1"), ("1", "2")]
    # as it was between the first execution and the second
    before = world.decide(subscription, at_ms=world.store.now() - 900_000)
    assert "after its last execution" in before.sentence


def test_any_of_the_tables_fires_and_each_has_its_range(world: World) -> None:
    subscription = a_subscription("joined", "bronze.orders", "bronze.items")
    world.change("bronze.orders", 0)
    world.ledger.complete(one(world.fire(subscription)), None)
    world.change("bronze.items", 4)
    assert snapshots(one(world.fire(subscription))) == {"bronze.items": (None, "4")}


def test_a_table_that_is_only_read_is_pinned_but_does_not_fire(world: World) -> None:
    subscription = a_subscription("joined", "bronze.orders", reads=("bronze.rates",))
    world.change("bronze.rates", 3)
    assert not world.decide(subscription).fires
    world.change("bronze.orders", 0)
    assert snapshots(one(world.fire(subscription))) == {
        "bronze.orders": (None, "0"),
        "bronze.rates": (None, "3"),
    }


@pytest.mark.parametrize(
    ("tags_from", "fires"), [("event", False), ("union", True), ("latest", False)]
)
def test_tags_of_several_events_add_up_where_a_trigger_says_so(
    world: World, tags_from: str, fires: bool
) -> None:
    trigger = PartitionTrigger(
        PartitionCondition.of("bronze.orders", {"day": tick("-1d")}),
        every(days=1, start="2013-01-02", until="2013-01-02"),
        tags={"complete": "true", "rows": {">=": 100}},
        tags_from=tags_from,
    )
    subscription = a_subscription(trigger=trigger)
    world.change(version=0, partition=["2013-01-01"], tags={"complete": "true", "rows": "9"})
    assert not world.decide(subscription).fires
    world.change(version=1, partition=["2013-01-01"], tags={"rows": "100"})
    assert world.decide(subscription).fires == fires
    if fires:
        handed = events_of(world.engine, subscription, one(world.fire(subscription)))
        assert [event.event.snapshot_id for event in handed] == ["0", "1"]


def test_a_mark_vouches_also_for_what_came_before_the_checkpoint_but_was_not_read(
    world: World,
) -> None:
    subscription = a_subscription(
        "joined", trigger=SnapshotTrigger(["bronze.orders", "bronze.items"], tags=COMPLETE)
    )
    world.change("bronze.orders", 0, tags=COMPLETE)
    world.ledger.complete(one(world.fire(subscription)), None)
    world.change("bronze.orders", 1)
    world.change("bronze.items", 0, tags=COMPLETE)
    world.ledger.complete(one(world.fire(subscription)), None)
    world.change("bronze.orders", tags=COMPLETE)
    assert snapshots(one(world.fire(subscription))) == {"bronze.orders": ("0", "1")}


def test_an_amendment_that_repeats_the_tags_does_not_fire_again_nor_vouch_for_what_came_since(
    world: World,
) -> None:
    subscription = a_subscription(trigger=SnapshotTrigger("bronze.orders", tags=COMPLETE))
    sweep = Sweep(world.evaluator, [subscription])
    world.change(version=0, tags=COMPLETE)
    world.ledger.complete(one(world.fire(subscription)), None)
    assert sweep.decisions() == {}
    world.change(version=1)
    assert sweep.decisions() == {}
    world.change(version=0, tags={"owner": "ops"})
    decision = world.decide(subscription)
    assert not decision.fires
    assert decision.sentence == "2 events of bronze.orders arrived, none with complete=true"
    assert (sweep.decisions(), Sweep(world.evaluator, [subscription]).decisions()) == ({}, {})
    world.change(version=2, tags=COMPLETE)
    assert (
        sweep.decisions()["silver"].reasons
        == Sweep(world.evaluator, [subscription]).decisions()["silver"].reasons
        == world.decide(subscription).reasons
    )
    assert one(world.fire(subscription)).reason == "1 event arrived (1 of bronze.orders)"


def test_delta_versions_count_as_numbers_in_whatever_order_they_are_registered(
    world: World,
) -> None:
    for version in (8, 10, 9):
        world.change(version=version)
    assert snapshots(one(world.fire(a_subscription()))) == {"bronze.orders": (None, "10")}


def test_an_older_version_that_is_registered_late_does_not_move_the_checkpoint_back(
    world: World,
) -> None:
    world.change(version=10)
    world.ledger.complete(one(world.fire(a_subscription())), None)
    world.change(version=9)
    execution = one(world.fire(a_subscription()))
    assert snapshots(execution) == {}
    assert execution.end.sources["bronze.orders"].snapshot_id == "10"


def test_iceberg_snapshots_are_ordered_by_their_time_and_one_without_a_time_is_no_newer(
    world: World,
) -> None:
    for snapshot, time in (("77", 2_000), ("12", 1_000), ("99", None)):
        world.change(table_format=TableFormat.ICEBERG, snapshot_id=snapshot, snapshot_ts=time)
    assert snapshots(one(world.fire(a_subscription()))) == {"bronze.orders": (None, "77")}


def test_an_iceberg_snapshot_that_another_follows_is_not_the_newest_whatever_its_time(
    world: World,
) -> None:
    for snapshot, before, time in (("5", "9", 1_000), ("9", "77", 3_000), ("77", None, 2_000)):
        iceberg(world, snapshot, snapshot_ts=time, prev_snapshot_id=before)
    execution = one(world.fire(a_subscription("silver", ICE)))
    assert snapshots(execution) == {ICE: (None, "5")}


def test_of_a_hive_table_the_position_of_an_event_stands_for_a_snapshot(world: World) -> None:
    subscription = a_subscription("silver", "bronze.hive", reads=("bronze.hive",))
    assert "has no snapshot yet" in world.decide(subscription).sentence
    first = hive(world, "a", snapshot_id="99")
    begun = one(world.fire(subscription))
    world.ledger.complete(begun, None)
    second, third = hive(world, "a"), hive(world, "b", snapshot_ts=1)
    execution = one(world.fire(subscription))
    assert snapshots(begun) == {"bronze.hive": (None, str(first))}
    assert snapshots(execution) == {"bronze.hive": (str(first), str(third))}
    assert first < second < third
    found = partition_events(world.engine, ("", "bronze.hive"), None, first, third)
    assert found.before == {'["a"]'}
    assert found.changed == {'["a"]': {OperationType.UPDATE}, '["b"]': {OperationType.UPDATE}}
    assert partition_events(world.engine, ("", "bronze.hive"), None, first, second).known == {
        '["a"]'
    }


def test_an_amendment_vouches_for_a_change_of_a_hive_table_and_is_none(world: World) -> None:
    subscription = a_subscription(
        "silver", trigger=SnapshotTrigger("bronze.hive", tags=COMPLETE), reads=("bronze.hive",)
    )
    changed = hive(world, "a", event_key="k")
    hive(world, "a", event_key="k", tags=COMPLETE)
    hive(world, "b")
    assert snapshots(one(world.fire(subscription))) == {"bronze.hive": (None, str(changed))}


def test_a_hive_table_is_never_read_up_to_an_older_position() -> None:
    positions = sorted([Position(0, 9), Position(0, 10), Position(1, 1)])
    old, middle, new = (
        SnapshotCheckpoint(snapshot_id=SnapshotId(str(position))) for position in positions
    )
    assert newer(middle, old, TableFormat.HIVE) == middle
    assert newer(middle, new, TableFormat.HIVE) == new


def hive(world: World, partition: str, **fields: Any) -> Position:
    """A change of a partition of a Hive table; its position."""
    event = {"partition": [partition], "table_format": TableFormat.HIVE, "snapshot_id": None}
    return world.change("bronze.hive", **(event | fields)).position


def test_a_recreated_table_is_read_from_its_new_self(world: World) -> None:
    world.store.register([], [Seen("bronze.orders", TableUid("old"), SnapshotId("0"))])
    world.change(version=7, table_uid="old")
    world.ledger.complete(one(world.fire(a_subscription())), None)
    world.store.register([], [Seen("bronze.orders", TableUid("new"), SnapshotId("0"))])
    world.change(version=1, table_uid="new")
    execution = one(world.fire(a_subscription()))
    assert execution.end.sources["bronze.orders"] == SnapshotCheckpoint(
        table_uid=TableUid("new"), snapshot_id=SnapshotId("1")
    )
    assert execution.ranges()["bronze.orders"].is_recreated


def test_missed_grid_points_collapse_into_one_evaluation(world: World) -> None:
    decade = 3_650
    subscription = a_subscription(trigger=SnapshotTrigger("bronze.orders", every(days=decade)))
    for version in range(3):
        world.change(version=version)
    assert (
        "3 events wait (3 of bronze.orders); the next tick is"
        in world.decide(subscription).sentence
    )
    world.let_pass(2 * decade * 86_400_000)
    assert snapshots(one(world.fire(subscription))) == {"bronze.orders": (None, "2")}
    assert world.fire(subscription) == []


# Start
def test_a_subscription_that_starts_now_does_not_read_what_was_there(world: World) -> None:
    world.change(version=5)
    subscription = a_subscription(trigger=SnapshotTrigger("bronze.orders", start_from="now"))
    assert not world.decide(subscription).fires
    world.change(version=6)
    assert snapshots(one(world.fire(subscription))) == {"bronze.orders": ("5", "6")}


def test_a_subscription_starts_from_a_position(world: World) -> None:
    world.change(version=0)
    middle = world.change(version=1).position
    world.change(version=2)
    subscription = a_subscription(trigger=SnapshotTrigger("bronze.orders", start_from=str(middle)))
    assert snapshots(one(world.fire(subscription))) == {"bronze.orders": ("1", "2")}


def test_a_subscription_that_starts_from_a_time_is_handed_whatever_was_registered_since_also_before_an_older_event(
    world: World,
) -> None:
    world.change(version=0)
    waited = world.change(version=1)  # its registration began first and then waited for a lock
    world.change(version=2)
    world.let_pass(3_600_000)
    with writing(world.engine) as connection:
        of_event = dce_event.c.seq == waited.position.seq
        connection.execute(sa.update(dce_event).where(of_event).values(event_ts=waited.event_ts))
    before = dt.datetime.fromtimestamp(world.store.now() / 1000 - 60, dt.timezone.utc).isoformat()
    subscription = a_subscription(trigger=SnapshotTrigger("bronze.orders", start_from=before))
    assert snapshots(one(world.fire(subscription))) == {"bronze.orders": ("0", "2")}


# Several daemons


def test_a_consumer_that_the_ledger_lost_goes_on_from_its_targets_commit(world: World) -> None:
    for version in range(3):
        world.change(version=version)
    subscription = a_subscription(target="silver.orders")
    row = world.evaluator.activate(subscription)
    end = checkpoint(0, bronze__orders=1)

    def target(consumer: Any) -> Committed:
        return Committed(
            version=SnapshotId("4"),
            commit_metadata=CommitMetadata(consumer=consumer, number=3, attempt=1, end=end),
        )

    assert world.evaluator.fire(subscription, row, world.decide(subscription), target) == []
    execution = one(world.fire(subscription))
    assert (execution.number, snapshots(execution)) == (4, {"bronze.orders": ("1", "2")})


ICE = "ice.orders"


def iceberg(world: World, snapshot_id: str, **fields: Any) -> RegisteredEvent:
    return world.change(ICE, snapshot_id=snapshot_id, table_format="ICEBERG", **fields)


@pytest.mark.dialect
@pytest.mark.parametrize("second", ["3000000000000000001", "9500000000000000001"])
def test_the_id_of_an_iceberg_snapshot_says_nothing_of_its_order(world: World, second: str) -> None:
    subscription = a_subscription("silver", ICE)
    iceberg(world, "9000000000000000001", snapshot_ts=1)
    (first,) = world.fire(subscription)
    world.ledger.complete(first, None)
    iceberg(world, second, snapshot_ts=2, prev_snapshot_id="9000000000000000001")
    (following,) = world.fire(subscription)
    assert (following.ranges()[ICE].start, following.ranges()[ICE].end) == (
        "9000000000000000001",
        second,
    )


DAY = PartitionLevels.of({"day": "date"})


DAYS = every(days=1, start="2013-01-02", until="2013-01-04")  # keys 2013-01-01, -02, -03


def days(*tables: str, schedule: Any = DAYS, **fields: Any) -> Subscription:
    """A subscription per day that waits for that day's partition of all tables."""
    conditions = [
        PartitionCondition.of(table, {"day": tick("-1d")}, DAY)
        for table in tables or ("bronze.orders",)
    ]
    return Subscription(name="daily", trigger=PartitionTrigger(conditions, schedule, **fields))


def arrive(
    world: World, day: str, version: int, table: str = "bronze.orders", **fields: Any
) -> None:
    world.change(table, version, partition=[day], **fields)


def fired(decision: Decision) -> list[str]:
    return [firing.key for firing in decision.firings]


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


def test_late_is_counted_from_the_end_of_the_claim_that_committed(world: World) -> None:
    subscription = days(late="refire", tags=COMPLETE)
    arrive(world, "2013-01-01", 0, tags=COMPLETE)
    execution = one(world.fire(subscription))
    before = execution.end
    arrive(world, "2013-01-01", 1)
    row = world.evaluator.activate(subscription)
    widened = world.ledger.lose(
        execution,
        "it died",
        end=world.evaluator.end_of(
            subscription, row, world.ledger.consumers(row)[execution.consumer.key]
        ),
    )
    assert widened is not None
    world.ledger.complete(widened, committed(execution, end=before))
    assert one(world.fire(subscription)).number == 2


def test_a_late_change_is_known_when_the_levels_are_declared_after_the_key_fired(
    world: World,
) -> None:
    def subscription(levels: PartitionLevels | None) -> Subscription:
        condition = PartitionCondition.of("bronze.orders", {"hour": "5"}, levels)
        return Subscription(
            name="hours",
            trigger=PartitionTrigger(
                condition, every(days=1, start="2013-01-01", until="2013-01-01"), late="refire"
            ),
        )

    world.change(version=0, partition=["5"])
    world.ledger.complete(one(world.fire(subscription(None))), None)
    hours = PartitionLevels.of({"hour": "int"})
    world.store.declare("bronze.orders", hours)
    world.change(version=1, partition=[5])

    assert "arrived late" in one(world.fire(subscription(hours))).reason


def handed(world: World, subscription: Subscription) -> dict[str, list[RegisteredEvent]]:
    """What each execution that the subscription fires now is handed, by its key; all of them are
    completed.
    """
    found = {}
    for execution in world.fire(subscription):
        found[execution.consumer.key] = events_of(world.engine, subscription, execution)
        world.ledger.complete(execution, None)
    return found


def test_a_key_is_handed_the_events_of_its_own_partitions_in_commit_order(world: World) -> None:
    subscription = days("bronze.orders", "bronze.items")
    first, second = "2013-01-01", "2013-01-02"
    arrived = [
        world.change(table, 1, partition=[day])
        for day in (first, second)
        for table in ("bronze.orders", "bronze.items")
    ]
    world.change("bronze.returns", 1, partition=[first])
    assert handed(world, subscription) == {
        f"day={first}": arrived[:2],
        f"day={second}": arrived[2:],
    }


def test_a_key_that_fires_again_is_handed_changes_that_came_late_without_its_tags(
    world: World,
) -> None:
    """They make it fire again, whatever their tags."""
    subscription = days("bronze.orders", tags=COMPLETE, late="refire")
    world.change(version=1, partition=["2013-01-01"])
    world.change(partition=["2013-01-01"], tags=COMPLETE)
    handed(world, subscription)
    late = world.change(version=2, partition=["2013-01-01"])
    again = world.change(partition=["2013-01-01"], tags=COMPLETE)
    assert handed(world, subscription) == {"day=2013-01-01": [late, again]}


def test_a_snapshot_trigger_waits_for_a_table_in_each_of_two_clusters(world: World) -> None:
    both = [TableName("orders", cluster="eu"), TableName("orders", cluster="us"), "people"]
    subscription = a_subscription("joined", trigger=SnapshotTrigger(both, changed=3), cluster="us")
    sweep = Sweep(world.evaluator, [subscription])
    world.change("orders", 1, cluster="eu")
    world.change("people", 1, cluster="us")
    world.change("orders", 5)
    assert not world.decide(subscription).fires
    assert "; orders did not change yet" in world.decide(subscription).sentence
    sweep.decisions()
    world.change("orders", 2, cluster="us")
    assert sweep.decisions()["joined"].fires

    execution = one(world.fire(subscription))

    assert snapshots(execution) == {
        "eu:orders": (None, "1"),
        "orders": (None, "2"),
        "people": (None, "1"),
    }
    handed = events_of(world.engine, subscription, execution)
    assert [(event.event.cluster, event.event.table) for event in handed] == [
        ("eu", "orders"),
        ("us", "people"),
        ("us", "orders"),
    ]
    assert {one.row.name: one.waiting for one in overview(world.ledger)} == {"joined": 3}
    assert {need.table for need in needs(world.engine).values()} >= {"orders", "people"}
    for cluster in ("eu", "us"):
        (found,) = consumers_at(world.engine, "orders", cluster)
        assert found.pinned is not None
    world.ledger.complete(execution, None)
    assert not world.decide(subscription).fires


def test_a_snapshot_trigger_is_handed_the_changes_of_all_its_tables_in_its_cluster(
    world: World,
) -> None:
    subscription = a_subscription("silver", "bronze.orders", "bronze.items", cluster="east")
    changes = [
        world.change(table, 1, partition=[day], cluster="east")
        for table in ("bronze.items", "bronze.orders")
        for day in "ab"
    ]
    world.change("bronze.orders", 1)
    world.change("bronze.returns", 1, cluster="east")
    assert handed(world, subscription) == {"": changes}


ORDERS = "bronze.orders"


def hourly(now: dt.datetime) -> Subscription:
    """A subscription whose only grid point is the hour that has begun."""
    condition = PartitionCondition.of(
        ORDERS, {"hour": tick("+0h", "%Y-%m-%dT%H")}, PartitionLevels.of({"hour": "string"})
    )
    return Subscription(
        name="hourly",
        trigger=PartitionTrigger(condition, every(hours=1, start=f"{now:%Y-%m-%dT%H:00}")),
    )


@pytest.mark.dialect
def test_a_grid_point_that_came_is_not_forgotten_when_its_evaluation_fails(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = dt.datetime.fromtimestamp(world.store.now() / 1000, dt.timezone.utc)
    sweep = Sweep(world.evaluator, [hourly(now)])
    before = now - dt.timedelta(hours=1)
    world.change(version=0, partition=[f"{now:%Y-%m-%dT%H}"])
    rests = {"hourly": Decision(trigger="hourly", fires=False, reasons=("nothing new",))}
    with monkeypatch.context() as patched:
        patched.setattr(
            "lakechime_dagster.triggers.evaluation.from_milliseconds", lambda milliseconds: before
        )
        patched.setattr(Evaluator, "evaluate_all", lambda *_: rests)
        assert sweep.decisions() == {}

    def fails(*_: object) -> None:
        raise StoreUnreachableError("the database is locked")

    with monkeypatch.context() as patched:
        patched.setattr(Evaluator, "evaluate_all", fails)
        with pytest.raises(StoreUnreachableError):
            sweep.decisions()
    assert sweep.decisions()["hourly"].fires


@pytest.mark.dialect
def test_a_subscription_whose_keys_cannot_be_resolved_says_so_and_hinders_no_other(
    world: World,
) -> None:
    day = PartitionLevels.of({"day": "date"})
    good, bad = (
        Subscription(
            name=name,
            trigger=PartitionTrigger(
                PartitionCondition.of(ORDERS, {"day": tick("-1d", form)}, day), days
            ),
        )
        for name, form, days in [
            ("good", "%Y-%m-%d", every(days=1, start="2013-01-02", until="2013-01-02")),
            ("bad", "%d.%m.", every(days=1, start="2013-01-02", until="2013-01-02")),
        ]
    )
    world.change(version=0, partition=["2013-01-01"])
    sweep = Sweep(world.evaluator, [bad, good])
    for _ in range(2):
        found = sweep.decisions()
        assert (found["good"].fires, found["bad"].fires) == (True, False)
        assert "is not a date" in found["bad"].sentence


def emptied(world: World) -> None:
    """Make the store again, as deleting its file or its database does."""
    with writing(world.engine) as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(sa.delete(table))
        if connection.dialect.name == "sqlite":
            connection.execute(sa.text("DELETE FROM sqlite_sequence"))


@pytest.mark.dialect
def test_a_store_that_was_recreated_is_looked_at_from_its_beginning(world: World) -> None:
    subscriptions = [a_subscription(name) for name in ("a", "b")]
    sweep = Sweep(world.evaluator, subscriptions)
    for version in range(3):
        world.change(version=version)
    for subscription in subscriptions:
        world.tick_of_the_sensor(subscription)
    sweep.decisions()
    assert sweep.decisions() == {}
    emptied(world)
    world.change(version=0)
    assert {name: decision.fires for name, decision in sweep.decisions().items()} == {
        "a": True,
        "b": True,
    }
    assert [len(world.fire(subscription)) for subscription in subscriptions] == [1, 1]


def test_sqlite_reads_the_events_since_the_last_evaluation_by_their_range() -> None:
    world = World(fresh_memory())
    sweep = Sweep(world.evaluator, [a_subscription("silver"), a_subscription("gold")])
    sweep.decisions()
    world.change(version=0)
    plans: list[str] = []

    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, *_: object) -> None:
        if "dce_event" in statement:
            cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            plans.extend(row[-1] for row in cursor.fetchall())

    listen(world.engine, "before_cursor_execute", explain)
    sweep.decisions()
    world.store.feed(Position.ORIGIN)

    assert "SEARCH dce_event USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)" in plans
    assert "SEARCH dce_event USING INTEGER PRIMARY KEY (rowid>?)" in plans
    assert [plan for plan in plans if plan.startswith("SCAN dce_event")] == []
