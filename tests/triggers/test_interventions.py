"""What people do to subscriptions and consumers, and what an explanation of a past time says."""

import pytest
import sqlalchemy as sa

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.dce.events import EventQuery
from lakechime_dagster.errors import ConsumerConflictError, InvalidValueError
from lakechime_dagster.triggers.consumers import (
    Action,
    Cause,
    ConsumerState,
    Execution,
    ExecutionState,
)
from lakechime_dagster.triggers.interventions import CheckpointAt
from lakechime_dagster.triggers.ledger import MAX_ATTEMPTS
from lakechime_dagster.triggers.progress import consumers_at, needs, overview
from lakechime_dagster.triggers.registry import TICK_NOTE_MS, By, SubscriptionRow
from lakechime_dagster.triggers.schema import lc_subscription
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import StartFrom
from tests.support.world import World, a_subscription, checkpoint, one

ADA = By(who="ada", reason="month end")


def at(world: World, where: str) -> CheckpointAt:
    return world.evaluator.checkpoint_at(a_subscription(), StartFrom(where))


def consumed(world: World, *versions: int) -> SubscriptionRow:
    """A subscription that has consumed these versions."""
    for version in versions:
        world.change(version=version)
        (execution,) = world.fire(a_subscription())
        world.ledger.complete(execution, None)
    return world.evaluator.activate(a_subscription())


def held(world: World) -> tuple[SubscriptionRow, Execution]:
    world.change(version=0)
    (execution,) = world.fire(a_subscription())
    newest: Execution | None = execution
    while newest is not None:
        execution, newest = newest, world.ledger.lose(newest, "disk full", immediately=True)
    assert execution.attempt == MAX_ATTEMPTS
    return world.evaluator.activate(a_subscription()), execution


def snapshot_of(world: World, row: SubscriptionRow) -> str | None:
    source = world.ledger.consumers(row)[""].checkpoint.sources.get("bronze.orders")
    return source.snapshot_id if source else None


@pytest.mark.parametrize(
    ("who", "reason"), [("", "why"), ("ada", ""), ("ada", "a\x00b"), ("x" * 200, "why")]
)
def test_who_and_why_are_required(who: str, reason: str) -> None:
    with pytest.raises(InvalidValueError):
        By(who=who, reason=reason)


def test_a_pause_holds_claims_back_and_resuming_consumes_all_that_waited(world: World) -> None:
    row = consumed(world, 0)
    world.people.pause(row, ADA)
    world.change(version=1)
    world.change(version=2)
    assert world.fire(a_subscription()) == []
    world.people.resume(world.evaluator.activate(a_subscription()), By(who="bob", reason="closed"))
    assert world.fire(a_subscription())[0].ranges()["bronze.orders"].end == "2"
    assert [(one.action, one.who, one.reason) for one in world.people.history(row)] == [
        (Action.RESUME, "bob", "closed"),
        (Action.PAUSE, "ada", "month end"),
    ]


def test_resuming_at_the_latest_passes_over_what_waited(world: World) -> None:
    row = consumed(world, 0)
    world.people.pause(row, ADA)
    world.change(version=1)
    world.people.resume(world.evaluator.activate(a_subscription()), ADA, at(world, "now"))
    assert world.fire(a_subscription()) == []
    world.change(version=2)
    (execution,) = world.fire(a_subscription())
    assert (execution.ranges()["bronze.orders"].start, execution.ranges()["bronze.orders"].end) == (
        "1",
        "2",
    )


def test_a_seek_puts_a_consumer_back_and_its_range_is_read_again(world: World) -> None:
    row = consumed(world, 0, 1)
    assert not world.tick_of_the_sensor(a_subscription()).fires
    ((before, after),) = world.people.seek(row, "", ADA, at(world, "beginning"))
    assert (before.checkpoint.sources["bronze.orders"].snapshot_id, after) == ("1", checkpoint(0))
    (execution,) = world.fire(a_subscription())
    assert (execution.number, execution.ranges()["bronze.orders"].start) == (3, None)
    assert world.people.history(row)[0].action is Action.SEEK


def test_a_replay_keeps_what_it_reads_until_it_ends_and_hinders_no_seek(world: World) -> None:
    row = consumed(world, 0, 1, 2)
    first, second, _ = world.store.fetch(EventQuery(table="bronze.orders"))
    points = (StartFrom(str(one.position)) for one in (first, second))
    start, end = world.evaluator.between(a_subscription(), *points)
    replay = world.people.replay(row, ADA, start, end)
    assert (replay.start, replay.end, replay.cause) == (start, end, Cause.REPLAY)
    assert needs(world.engine)["bronze.orders"].position == start.position
    mine = consumers_at(world.engine, "bronze.orders")
    assert [(one.read and one.read.snapshot_id, one.pinned is None) for one in mine] == [
        ("2", True),
        ("0", False),
    ]
    world.people.seek(row, None, ADA, at(world, "now"))
    world.change(version=3)
    assert world.decide(a_subscription()).fires
    with pytest.raises(ConsumerConflictError):
        world.people.forget(row, ADA)
    world.people.skip(replay, ADA)
    assert needs(world.engine)["bronze.orders"].position > end.position
    assert len(consumers_at(world.engine, "bronze.orders")) == 1
    actions = [one.action for one in world.people.history(row)]
    assert actions == [Action.SKIP, Action.SEEK, Action.REPLAY]


def test_a_seek_of_a_consumer_that_is_open_is_refused_and_changes_nothing(world: World) -> None:
    row = consumed(world, 0)
    world.change(version=1)
    world.fire(a_subscription())
    with pytest.raises(
        ConsumerConflictError, match="has an open execution; wait for it, or skip it first"
    ):
        world.people.seek(row, "", ADA, at(world, "beginning"))
    assert snapshot_of(world, row) == "0"
    assert world.people.history(row) == []


def test_a_blocked_execution_that_is_skipped_lets_the_consumer_go_on_after_its_range(
    world: World,
) -> None:
    row, execution = held(world)
    world.people.skip(execution, ADA)
    consumer = world.ledger.consumers(row)[""]
    assert (consumer.state, consumer.completed, snapshot_of(world, row)) == (
        ConsumerState.ACTIVE,
        1,
        "0",
    )
    skipped = world.ledger.execution(execution.execution_id)
    assert skipped is not None
    assert (skipped.state, skipped.reason) == (ExecutionState.SKIPPED, "skipped by ada: month end")
    kept = world.people.history(row)[0]
    assert (kept.action, kept.execution_id) == (Action.SKIP, execution.execution_id)
    assert (
        kept.before["checkpoint"]["sources"],
        kept.after["checkpoint"]["sources"]["bronze.orders"][1],
    ) == ({}, "0")


def test_a_blocked_execution_that_is_retried_gets_another_attempt_at_once(world: World) -> None:
    row, execution = held(world)
    following = world.people.retry(execution, ADA)
    assert following.attempt == execution.attempt + 1
    assert (following.next_attempt_ts or 0) <= world.store.now()
    assert world.ledger.consumers(row)[""].state is ConsumerState.ACTIVE
    assert world.ledger.begin(following.execution_id, "run-9").run_id == "run-9"
    kept = world.people.history(row)[0]
    assert (kept.before, kept.after) == ({"attempt": 5}, {"attempt": 6})


def test_what_a_live_run_is_at_is_not_retried(world: World) -> None:
    world.change(version=0)
    (execution,) = world.fire(a_subscription())
    world.ledger.begin(execution.execution_id, "run-1")
    with pytest.raises(ConsumerConflictError, match="run run-1 is at execution"):
        world.people.retry(execution, ADA)


def test_no_consumer_is_put_past_what_was_registered(world: World) -> None:
    row = consumed(world, 0)
    beyond = at(world, "99999999-1")
    for move in (
        lambda: world.people.seek(row, None, ADA, beyond),
        lambda: world.people.resume(row, ADA, beyond),
    ):
        with pytest.raises(
            InvalidValueError,
            match=f"position '99999999-1': the store has reached {world.store.head()} only",
        ):
            move()
    assert snapshot_of(world, row) == "0"


def test_a_subscription_that_is_forgotten_holds_retention_back_no_longer_and_is_gone(
    world: World,
) -> None:
    row = consumed(world, 0)
    world.change(version=1)
    assert needs(world.engine)["bronze.orders"].subscription == "silver"
    forgotten = world.people.forget(row, ADA)
    assert [consumer.completed for consumer in forgotten] == [1]
    assert needs(world.engine) == {}
    assert (
        world.ledger.subscriptions(),
        world.ledger.subscription("silver"),
        overview(world.ledger),
        world.ledger.executions(),
    ) == ([], None, [], [])
    kept = world.people.history(row)[0]
    assert (
        kept.action,
        kept.who,
        kept.before["checkpoints"][0][1]["sources"]["bronze.orders"][1],
    ) == (Action.FORGET, "ada", "0")


def test_a_subscription_whose_sensor_is_at_work_is_not_forgotten(world: World) -> None:
    row = consumed(world, 0)
    world.ledger.note_tick([row], world.store.now())
    with pytest.raises(
        ConsumerConflictError, match="the sensor of silver ticked less than 2 minutes ago"
    ):
        world.people.forget(row, ADA)
    assert world.people.history(row) == []
    with writing(world.engine) as connection:
        connection.execute(
            sa.update(lc_subscription).values(ticked_ts=world.store.now() - 3 * TICK_NOTE_MS)
        )
    assert world.people.forget(row, ADA)


MINUTE = 60_000  # milliseconds


def said(world: World, subscription: Subscription, minutes_ago: int) -> str:
    """The first reason at the end of a past minute; 0 is now."""
    return world.decide(subscription, at_ms=ended(world, minutes_ago)).reasons[0]


def ended(world: World, minutes_ago: int) -> int:
    return world.store.now() - minutes_ago * MINUTE + (MINUTE // 2 if minutes_ago else 0)


def test_an_execution_was_open_from_its_claim_to_its_completion(world: World) -> None:
    subscription = a_subscription()
    world.change(version=0)
    execution = one(world.fire(subscription))
    world.let_pass(MINUTE)
    world.ledger.complete(execution, None)
    assert said(world, subscription, 1) == "execution 1 was open"
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
        "1 event arrived (1 of bronze.orders)",
        "paused: month end",
        "1 event arrived (1 of bronze.orders)",
    ]


def test_a_consumer_stood_where_it_was_before_somebody_put_it_elsewhere(world: World) -> None:
    subscription = a_subscription()
    row = world.evaluator.activate(subscription)
    world.change(version=0)
    world.ledger.complete(one(world.fire(subscription)), None)
    world.let_pass(MINUTE)
    world.people.seek(
        row, "", ADA, world.evaluator.checkpoint_at(subscription, StartFrom("beginning"))
    )
    world.let_pass(MINUTE)
    world.people.resume(row, ADA, world.evaluator.checkpoint_at(subscription, StartFrom("now")))
    assert [world.decide(subscription, at_ms=ended(world, ago)).fires for ago in (2, 1, 0)] == [
        False,
        True,
        False,
    ]
