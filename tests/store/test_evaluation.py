"""Evaluation of snapshot triggers over a real store: when a subscription fires, what it is handed, and why it does not (laws 9 to 11)."""

import datetime as dt
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from lakechime_dagster.dce.contract import Seen
from lakechime_dagster.dce.engine import writing
from lakechime_dagster.dce.events import SnapshotId, TableFormat, TableUid
from lakechime_dagster.dce.schema import dce_event
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.triggers.consumers import CommitMetadata, Committed, Execution
from lakechime_dagster.triggers.schedule import every
from lakechime_dagster.triggers.sweep import Sweep
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.support.world import World, a_subscription, checkpoint, nothing_committed, one

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
    assert execution.reason == "2 events came (2 of bronze.orders)"


def test_the_next_range_begins_where_the_last_one_ended(world: World) -> None:
    world.change(version=0)
    world.ledger.complete(one(world.fire(a_subscription())), None)
    world.change(version=1)
    assert snapshots(one(world.fire(a_subscription()))) == {"bronze.orders": ("0", "1")}


def test_a_claim_takes_so_many_commits_at_most_and_the_next_one_follows(world: World) -> None:
    subscription = replace(a_subscription(), max_commits=2)
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
    assert world.ledger.consumers(world.evaluator.activate(subscription))[""].checkpoint.position > last.position


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
    assert snapshots(one(world.fire(subscription))) == {"bronze.orders": (None, "0"), "bronze.rates": (None, "3")}


def test_tags_decide_when_and_commits_between_are_read_too(world: World) -> None:
    subscription = a_subscription(trigger=SnapshotTrigger("bronze.orders", tags=COMPLETE))
    world.change(version=0)
    decision = world.decide(subscription)
    assert not decision.fires
    assert decision.sentence == "1 event of bronze.orders came, none with complete=true"
    world.change(version=1, tags=COMPLETE)
    world.change(version=2)
    assert snapshots(one(world.fire(subscription))) == {"bronze.orders": (None, "1")}


def test_tags_match_by_equality_whatever_they_hold(world: World) -> None:
    for number, odd in enumerate(["it's", 'quo"te', "back\\slash", "drei €", "a.b", "$[0]", "%", "100%_", "?", "{}"]):
        subscription = a_subscription(f"odd-{number}", f"odd.{number}", trigger=SnapshotTrigger(f"odd.{number}", tags={odd: odd}))
        world.change(f"odd.{number}", 0, tags={odd: odd + "x", "k": odd})
        assert not world.decide(subscription).fires, odd
        world.change(f"odd.{number}", 1, tags={odd: odd})
        assert world.decide(subscription).fires, odd


def test_a_mark_vouches_for_what_was_registered_before_it(world: World) -> None:
    subscription = a_subscription(trigger=SnapshotTrigger("bronze.orders", tags=COMPLETE))
    world.change(version=0)
    world.change(version=1)
    world.change(tags=COMPLETE)
    world.change(version=2)
    assert snapshots(one(world.fire(subscription))) == {"bronze.orders": (None, "1")}


def test_a_mark_vouches_also_for_what_came_before_the_checkpoint_but_was_not_read(world: World) -> None:
    subscription = a_subscription("joined", trigger=SnapshotTrigger(["bronze.orders", "bronze.items"], tags=COMPLETE))
    world.change("bronze.orders", 0, tags=COMPLETE)
    world.ledger.complete(one(world.fire(subscription)), None)
    world.change("bronze.orders", 1)
    world.change("bronze.items", 0, tags=COMPLETE)
    world.ledger.complete(one(world.fire(subscription)), None)
    world.change("bronze.orders", tags=COMPLETE)
    assert snapshots(one(world.fire(subscription))) == {"bronze.orders": ("0", "1")}


def test_an_amendment_that_repeats_the_tags_does_not_fire_again_nor_vouch_for_what_came_since(world: World) -> None:
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
    assert decision.sentence == "2 events of bronze.orders came, none with complete=true"
    assert (sweep.decisions(), Sweep(world.evaluator, [subscription]).decisions()) == ({}, {})
    world.change(version=2, tags=COMPLETE)
    assert (
        sweep.decisions()["silver"].reasons
        == Sweep(world.evaluator, [subscription]).decisions()["silver"].reasons
        == world.decide(subscription).reasons
    )
    assert one(world.fire(subscription)).reason == "1 event came (1 of bronze.orders)"


def test_delta_versions_count_as_numbers_in_whatever_order_they_are_registered(world: World) -> None:
    for version in (8, 10, 9):
        world.change(version=version)
    assert snapshots(one(world.fire(a_subscription()))) == {"bronze.orders": (None, "10")}


def test_an_older_version_that_is_registered_late_does_not_move_the_checkpoint_back(world: World) -> None:
    world.change(version=10)
    world.ledger.complete(one(world.fire(a_subscription())), None)
    world.change(version=9)
    execution = one(world.fire(a_subscription()))
    assert snapshots(execution) == {}
    assert execution.end.sources["bronze.orders"].snapshot_id == "10"


def test_iceberg_snapshots_are_ordered_by_their_time_and_one_without_a_time_is_no_newer(world: World) -> None:
    for snapshot, time in (("77", 2_000), ("12", 1_000), ("99", None)):
        world.change(table_format=TableFormat.ICEBERG, snapshot_id=snapshot, snapshot_ts=time)
    assert snapshots(one(world.fire(a_subscription()))) == {"bronze.orders": (None, "77")}


def test_a_recreated_table_is_read_from_its_new_self(world: World) -> None:
    world.store.register([], [Seen("bronze.orders", TableUid("old"), SnapshotId("0"))])
    world.change(version=7, table_uid="old")
    world.ledger.complete(one(world.fire(a_subscription())), None)
    world.store.register([], [Seen("bronze.orders", TableUid("new"), SnapshotId("0"))])
    world.change(version=1, table_uid="new")
    execution = one(world.fire(a_subscription()))
    assert execution.end.sources["bronze.orders"] == SnapshotCheckpoint(table_uid=TableUid("new"), snapshot_id=SnapshotId("1"))
    assert execution.ranges()["bronze.orders"].is_recreated


def test_missed_grid_points_collapse_into_one_evaluation(world: World) -> None:
    decade = 3_650
    subscription = a_subscription(trigger=SnapshotTrigger("bronze.orders", every(days=decade)))
    for version in range(3):
        world.change(version=version)
    assert "3 events wait (3 of bronze.orders); the next grid point is" in world.decide(subscription).sentence
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


def test_a_subscription_that_starts_from_a_time_is_handed_whatever_was_registered_since_also_before_an_older_event(world: World) -> None:
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


def test_a_decision_does_not_claim_a_consumer_that_was_claimed_and_completed_meanwhile(world: World) -> None:
    world.change(version=0)
    subscription = a_subscription()
    row = world.evaluator.activate(subscription)
    slow = world.decide(subscription)
    world.ledger.complete(one(world.fire(subscription)), None)
    assert world.evaluator.fire(subscription, row, slow, nothing_committed) == []


def test_a_consumer_that_the_ledger_lost_goes_on_from_its_targets_commit(world: World) -> None:
    for version in range(3):
        world.change(version=version)
    subscription = a_subscription(target="silver.orders")
    row = world.evaluator.activate(subscription)
    end = checkpoint(0, bronze__orders=1)

    def target(consumer: Any) -> Committed:
        return Committed(version=SnapshotId("4"), commit_metadata=CommitMetadata(consumer=consumer, step=3, attempt=1, end=end))

    assert world.evaluator.fire(subscription, row, world.decide(subscription), target) == []
    execution = one(world.fire(subscription))
    assert (execution.step, snapshots(execution)) == (4, {"bronze.orders": ("1", "2")})


# Pause


def test_an_explanation_of_a_past_time_does_not_change_when_the_subscription_has_rested_since(world: World) -> None:
    subscription = a_subscription(trigger=SnapshotTrigger(["bronze.orders"], tags=COMPLETE))
    world.evaluator.activate(subscription)
    world.change(version=0, tags=COMPLETE)
    world.let_pass(60_000)
    then = world.store.now() - 30_000
    world.ledger.complete(one(world.fire(subscription)), None)
    for version in (1, 2):
        world.change(version=version)
        world.tick_of_the_sensor(subscription)
    assert world.decide(subscription, at_ms=then).fires
