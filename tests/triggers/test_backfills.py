"""Orders over a real ledger: held until what their inputs' orders made can be read, taken by the
next claim, closed by its end.
"""

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.dce.engine import TransactionId, writing
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.errors import ConsumerConflictError
from lakechime_dagster.triggers.backfills import Backfills
from lakechime_dagster.triggers.consumers import BackfillRequest, Execution, RequestState, Span
from lakechime_dagster.triggers.evaluation import Sweep
from lakechime_dagster.triggers.ledger import Claim
from lakechime_dagster.triggers.registry import By
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import PartitionCondition, PartitionTrigger
from tests.support.world import World, a_subscription, checkpoint, nothing_committed, one

ME = By(who="me", reason="a column was wrong")


SPAN = Span(tables=("bronze.requests",), column="day", since="2013-01-01", until="2013-01-02")


SILVER = a_subscription("silver", "bronze.requests", reads=("bronze.requests",))


GOLD = a_subscription("gold", "silver.requests", reads=("silver.requests",))


def daily(**fields: Any) -> Subscription:
    """A subscription per day that ignores what comes late."""
    condition = PartitionCondition.of(
        "bronze.requests", {"day": tick("-1d")}, PartitionLevels.of({"day": "date"})
    )
    return Subscription(
        name="daily",
        trigger=PartitionTrigger(
            condition, every(days=1, start="2013-01-02", until="2013-01-04"), **fields
        ),
    )


def caught_up(world: World, *subscriptions: Subscription) -> None:
    """What the subscriptions read is there, and consumed."""
    world.change("bronze.requests", 0, partition=["2013-01-01"])
    world.change("silver.requests", 0)
    for subscription in subscriptions:
        for execution in world.fire(subscription):
            world.ledger.complete(execution, None)


def order(world: World, *orders: BackfillRequest, most: int = 4) -> str:
    return Backfills(world.ledger).request(orders, {}, ME, max_in_flight=most)


def chain(world: World) -> str:
    """A backfill of silver, and of gold which reads it."""
    return order(
        world,
        BackfillRequest(number=0, subscription="silver", span=SPAN),
        BackfillRequest(number=1, subscription="gold", waits_for=(0,), span=SPAN),
    )


def states(world: World, backfill: str) -> list[RequestState]:
    return [one.state for one in Backfills(world.ledger).requests(backfill)]


def complete(world: World, execution: Execution) -> None:
    world.ledger.complete(execution, None)


def test_a_consumer_runs_for_an_order_though_nothing_came_and_its_end_closes_the_order(
    world: World,
) -> None:
    caught_up(world, SILVER)
    assert not world.decide(SILVER).fires
    backfill = order(world, BackfillRequest(number=0, subscription="silver", span=SPAN))
    assert world.decide(SILVER).reasons == (f"requested by backfill {backfill}",)
    execution = one(world.fire(SILVER))
    assert (execution.number, execution.backfill, execution.ranges()) == (2, backfill, {})
    assert [one.span for one in Backfills(world.ledger).requests_of(execution.execution_id)] == [
        SPAN
    ]
    assert states(world, backfill) == [RequestState.TAKEN]
    complete(world, execution)
    assert states(world, backfill) == [RequestState.DONE]
    assert not world.decide(SILVER).fires


def test_nothing_claims_a_consumer_while_an_order_of_its_input_is_open(world: World) -> None:
    caught_up(world, SILVER, GOLD)
    backfill = chain(world)
    world.change("silver.requests", 1)
    held = f"backfill {backfill} requested it, after silver"
    assert world.decide(GOLD).reasons == (held, "1 event waits (1 of silver.requests)")
    assert world.fire(GOLD) == []
    execution = one(world.fire(SILVER))
    assert world.decide(GOLD).reasons[0] == held
    world.change("silver.requests", 2)
    complete(world, execution)
    assert one(world.fire(GOLD)).ranges()["silver.requests"].end == "2"


def test_an_order_that_came_after_the_look_is_not_passed_by_a_claim(world: World) -> None:
    caught_up(world, SILVER)
    row = world.evaluator.activate(SILVER)
    consumer = world.ledger.consumers(row)[""]
    backfill = order(world, BackfillRequest(number=0, subscription="silver", span=SPAN))
    with pytest.raises(ConsumerConflictError, match="since it was evaluated"):
        world.ledger.claim(row, consumer, Claim(end=checkpoint(9)))
    assert states(world, backfill) == [RequestState.WAITING]


def test_a_claim_never_reads_up_to_before_what_the_order_of_its_input_made(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest position is read after it is seen that no order of an input is open, never
    before.
    """
    caught_up(world, SILVER, GOLD)
    chain(world)
    silver = one(world.fire(SILVER))
    row = world.evaluator.activate(GOLD)
    order_of_reading: list[str] = []
    look, read = type(world.evaluator).requests, type(world.evaluator).end_of
    monkeypatch.setattr(
        type(world.evaluator),
        "requests",
        lambda *given: order_of_reading.append("requests") or look(*given),
    )
    monkeypatch.setattr(
        type(world.evaluator),
        "end_of",
        lambda *given, **named: order_of_reading.append("end") or read(*given, **named),
    )
    complete(world, silver)
    world.evaluator.fire(GOLD, row, world.evaluator.evaluate(GOLD, row), nothing_committed)
    assert order_of_reading == ["requests", "end"]


def test_the_next_attempt_of_a_lost_one_still_has_the_order_and_takes_no_other(
    world: World,
) -> None:
    caught_up(world, SILVER)
    first = order(world, BackfillRequest(number=0, subscription="silver", span=SPAN))
    execution = one(world.fire(SILVER))
    second = order(world, BackfillRequest(number=0, subscription="silver", span=SPAN))
    following = world.ledger.lose(execution, "killed")
    assert following is not None
    assert (following.attempt, following.backfill) == (2, first)
    complete(world, following)
    assert (states(world, first), states(world, second)) == (
        [RequestState.DONE],
        [RequestState.WAITING],
    )


def test_an_execution_that_a_person_gives_up_ends_its_order_and_lets_the_readers_go_on(
    world: World,
) -> None:
    caught_up(world, SILVER, GOLD)
    backfill = chain(world)
    world.people.skip(one(world.fire(SILVER)), ME)
    assert states(world, backfill) == [RequestState.SKIPPED, RequestState.WAITING]
    assert one(world.fire(GOLD)).backfill == backfill


def test_of_claims_at_once_no_more_than_may_be_in_flight_take_an_order(world: World) -> None:
    others = [a_subscription(f"s{number}", "bronze.requests") for number in range(2)]
    caught_up(world, *others)
    order(
        world,
        *(
            BackfillRequest(number=number, subscription=subscription.name, span=SPAN)
            for number, subscription in enumerate(others)
        ),
        most=1,
    )
    rows = [world.evaluator.activate(subscription) for subscription in others]
    looks = [
        (row, world.ledger.consumers(row)[""], world.evaluator.requests(row, "").ids)
        for row in rows
    ]
    [first, second] = [
        (row, consumer, Claim(end=checkpoint(9), requests=ids)) for row, consumer, ids in looks
    ]
    world.ledger.claim(*first)
    with pytest.raises(ConsumerConflictError, match="has 1 consumers in flight"):
        world.ledger.claim(*second)


def test_a_decision_that_was_made_before_an_order_claims_nothing_that_is_blocked_back(
    world: World,
) -> None:
    caught_up(world, SILVER, GOLD)
    world.change("silver.requests", 1)
    row, decision = world.evaluator.activate(GOLD), world.decide(GOLD)
    assert decision.fires
    chain(world)
    assert world.evaluator.fire(GOLD, row, decision, nothing_committed) == []


def test_cancelling_drops_what_is_not_taken(world: World) -> None:
    caught_up(world, SILVER, GOLD)
    backfill = chain(world)
    execution = one(world.fire(SILVER))
    assert Backfills(world.ledger).cancel(backfill, ME) == 1
    assert states(world, backfill) == [RequestState.TAKEN, RequestState.CANCELLED]
    assert not world.decide(GOLD).fires
    complete(world, execution)
    assert states(world, backfill) == [RequestState.DONE, RequestState.CANCELLED]
    assert Backfills(world.ledger).cancel(backfill, ME) == 0


def test_a_fired_key_is_run_once_more_with_what_came_late_though_it_ignores_that(
    world: World,
) -> None:
    subscription = daily()
    caught_up(world, subscription)
    world.change("bronze.requests", 1, partition=["2013-01-01"])
    assert not world.decide(subscription).fires
    backfill = order(world, BackfillRequest(number=0, subscription="daily", key="day=2013-01-01"))
    assert (
        world.decide(subscription).reasons[0]
        == f"day=2013-01-01 is requested by backfill {backfill}"
    )
    execution = one(world.fire(subscription))
    assert (execution.number, execution.backfill) == (2, backfill)
    complete(world, execution)
    assert world.fire(subscription) == []


def of_day(day: str, *, waits_for: tuple[int, ...] = (0,)) -> BackfillRequest:
    """An order of a key whose partition was not there when it was planned."""
    return BackfillRequest(
        number=1,
        subscription="daily",
        key=f"day={day}",
        waits_for=waits_for,
        state=RequestState.LATER,
    )


def test_a_key_that_is_complete_while_its_input_is_ordered_fires_after_it(world: World) -> None:
    """It ignores what comes late, so that it would miss what the order of its input makes."""
    subscription = daily()
    caught_up(world, subscription, SILVER)
    backfill = order(
        world, BackfillRequest(number=0, subscription="silver", span=SPAN), of_day("2013-01-02")
    )
    world.change("bronze.requests", 1, partition=["2013-01-02"])
    assert (
        f"day=2013-01-02: backfill {backfill} requested it, after silver"
        in world.decide(subscription).reasons
    )
    silver = one(world.fire(SILVER))
    assert world.fire(subscription) == []
    complete(world, silver)
    assert Backfills(world.ledger).backfill(backfill).is_open is False
    execution = one(world.fire(subscription))
    assert (execution.consumer.key, execution.backfill) == ("day=2013-01-02", "")
    assert states(world, backfill) == [RequestState.DONE, RequestState.CANCELLED]


def test_a_key_that_was_looked_at_before_a_backfill_that_is_done_by_now_is_not_claimed_up_to_then(
    world: World,
) -> None:
    subscription = daily()
    caught_up(world, subscription, SILVER)
    world.change("bronze.requests", 1, partition=["2013-01-02"])
    row = world.evaluator.activate(subscription)
    consumer = world.ledger.ensure_consumer(row, "day=2013-01-02", None, ())
    order(world, BackfillRequest(number=0, subscription="silver", span=SPAN), of_day("2013-01-02"))
    complete(world, one(world.fire(SILVER)))
    with pytest.raises(ConsumerConflictError, match="since it was evaluated"):
        world.ledger.claim(row, consumer, Claim(end=checkpoint(9)))
    assert one(world.fire(subscription)).consumer.key == "day=2013-01-02"


def test_nobody_waits_for_a_key_that_may_never_fire_and_cancelling_drops_its_order(
    world: World,
) -> None:
    subscription = daily()
    caught_up(world, subscription, GOLD)
    backfill = order(
        world,
        of_day("2013-01-02", waits_for=()),
        BackfillRequest(number=2, subscription="gold", waits_for=(1,), span=SPAN),
    )
    assert one(world.fire(GOLD)).backfill == backfill
    assert Backfills(world.ledger).cancel(backfill, ME) == 1
    assert states(world, backfill) == [RequestState.CANCELLED, RequestState.TAKEN]


def test_a_subscription_that_rested_is_decided_when_it_is_ordered_and_again_when_it_is_free(
    world: World,
) -> None:
    caught_up(world, SILVER, GOLD)
    # which is decided together with all that read nothing else
    other = a_subscription("other", "bronze.requests")
    world.tick_of_the_sensor(other)
    sweep = Sweep(world.evaluator, [SILVER, GOLD, other])
    while sweep.decisions():
        pass
    backfill = chain(world)
    order(world, BackfillRequest(number=0, subscription="other"))
    found = sweep.decisions()
    assert {name: decision.fires for name, decision in found.items()} == {
        "silver": True,
        "gold": False,
        "other": True,
    }
    [execution] = world.evaluator.fire(
        SILVER, sweep.rows["silver"], found["silver"], nothing_committed
    )
    assert not sweep.decisions()["gold"].fires
    complete(world, execution)
    assert sweep.decisions()["gold"].reasons == (f"requested by backfill {backfill}",)


def test_a_subscription_that_is_forgotten_holds_no_request(world: World) -> None:
    caught_up(world, SILVER, GOLD)
    backfill = chain(world)
    world.people.forget(world.evaluator.activate(SILVER), ME)
    assert states(world, backfill) == [RequestState.CANCELLED, RequestState.WAITING]
    assert one(world.fire(GOLD)).backfill == backfill


@pytest.mark.services
def test_a_consumer_waits_until_what_the_order_of_its_input_made_can_be_read(
    postgres_engine: Engine,
) -> None:
    """A transaction that began before holds back the source: until it ends, the newest position is
    before the input's commit.
    """
    world = World(postgres_engine)
    caught_up(world, SILVER, GOLD)
    chain(world)
    execution = one(world.fire(SILVER))
    with writing(postgres_engine) as other:
        other.execute(sa.select(TransactionId()))
        world.change("silver.requests", 1)
        complete(world, execution)
        assert world.fire(GOLD) == []
    assert one(world.fire(GOLD)).ranges()["silver.requests"].end == "1"
