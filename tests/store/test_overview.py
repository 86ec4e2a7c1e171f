"""Subscriptions at a glance."""

from lakechime_dagster.triggers.progress import overview
from tests.support.world import World, a_subscription, elsewhere


def test_an_overview_counts_what_waits_is_open_and_is_held(world: World) -> None:
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
        subscription.row.name: (subscription.consumers, subscription.open, subscription.held, subscription.waiting)
        for subscription in overview(world.ledger)
    }
    assert seen == {"open": (1, 1, 1, 2), "completed": (1, 0, 0, 1)}


def test_events_of_a_table_of_that_name_in_another_cluster_do_not_wait(world: World) -> None:
    for name, cluster in (("here", ""), ("there", "west")):
        world.evaluator.activate(a_subscription(name, cluster=cluster))
    for version, cluster in enumerate(("", "west", "west", "east")):
        world.change("bronze.orders", version, cluster=cluster)
    assert {subscription.row.name: subscription.waiting for subscription in overview(world.ledger)} == {"here": 1, "there": 2}
