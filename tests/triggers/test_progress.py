"""How far consumers are behind, by the store alone."""

from lakechime_dagster.dce.engine import reading
from lakechime_dagster.triggers.consumers import SourceLag
from lakechime_dagster.triggers.progress import MESSAGES, ConsumerLag, consumer_lags, overview
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.support.world import World, a_subscription, elsewhere

ORDERS = "bronze.orders"


def lags(world: World) -> dict[tuple[str, str], ConsumerLag]:
    with reading(world.engine) as connection:
        return {
            (one.consumer, one.source): one for one in consumer_lags(connection, world.deployment)
        }


def amounts(world: World, consumer: str = "silver", source: str = ORDERS) -> dict[str, int]:
    return dict(lags(world)[consumer, source].amounts)


def test_what_a_consumer_has_not_consumed_is_counted_by_source(world: World) -> None:
    subscription = a_subscription("silver", ORDERS, "bronze.people")
    world.evaluator.activate(subscription)
    assert amounts(world) == {"events": 0, "versions": 0}
    first = world.change(ORDERS, 1, partition=("2024-01-01",))
    world.change(ORDERS, 1, partition=("2024-01-02",))
    world.change(ORDERS, 2)
    assert amounts(world) == {"events": 3, "versions": 2}
    assert lags(world)["silver", ORDERS].since_ts == first.event_ts
    assert amounts(world, source="bronze.people") == {"events": 0, "versions": 0}

    (execution,) = world.fire(subscription)
    assert amounts(world) == {"events": 3, "versions": 2}  # until it is complete
    world.change(ORDERS, 3)
    world.ledger.complete(execution, None)
    assert amounts(world) == {"events": 1, "versions": 1}
    world.tick_of_the_sensor(subscription)
    assert lags(world)["silver", ORDERS] == ConsumerLag(
        consumer="silver", source=ORDERS, amounts={"events": 0, "versions": 0}
    )


def test_what_starts_nothing_is_consumed_and_a_mark_matters_to_who_asks_for_its_tags(
    world: World,
) -> None:
    plain, tagged = (
        a_subscription("plain"),
        a_subscription("tagged", trigger=SnapshotTrigger([ORDERS], tags={"ok": "yes"})),
    )
    for subscription in (plain, tagged):
        world.evaluator.activate(subscription)
    world.change(ORDERS, 1)
    world.tick_of_the_sensor(tagged)
    assert (amounts(world, "plain")["events"], amounts(world, "tagged")["events"]) == (1, 0)
    world.change(ORDERS, tags={"ok": "yes"})
    assert (amounts(world, "plain")["events"], amounts(world, "tagged")["events"]) == (1, 1)


def test_a_source_is_behind_by_what_the_last_look_at_it_reported(world: World) -> None:
    row = world.evaluator.activate(a_subscription("bronze.changes", trigger=SnapshotTrigger(())))
    assert lags(world) == {}
    world.ledger.note_source(row, SourceLag(unread=12, unit="events", since_ms=5, completed=1))
    assert lags(world) == {
        ("bronze.changes", MESSAGES): ConsumerLag(
            consumer="bronze.changes", source=MESSAGES, amounts={"events": 12}, since_ts=5
        )
    }


def test_an_overview_counts_what_waits_is_open_and_is_blocked(world: World) -> None:
    world.change("bronze.orders", 1)
    (execution,) = world.fire(a_subscription("open"))
    world.tick_of_the_sensor(a_subscription("completed"))
    world.change("bronze.orders", 2)
    world.change("bronze.other", 1)
    attempt = execution
    while (following := world.ledger.lose(attempt, "no space", immediately=True)) is not None:
        attempt = following
    elsewhere(world, "production").evaluator.activate(a_subscription("other"))
    seen = {
        subscription.row.name: (
            subscription.consumers,
            subscription.open,
            subscription.blocked,
            subscription.waiting,
        )
        for subscription in overview(world.ledger)
    }
    assert seen == {"open": (1, 1, 1, 2), "completed": (1, 0, 0, 1)}
