"""Flows at a glance."""

from lakechime_dagster.store.overview import overview
from tests.support.world import World, a_flow, elsewhere


def test_an_overview_counts_what_waits_is_open_and_is_held(world: World) -> None:
    world.change("bronze.orders", 1)
    (execution,) = world.fire(a_flow("open"))
    world.tick_of_the_sensor(a_flow("settled"))
    world.change("bronze.orders", 2)
    world.change("bronze.other", 1)
    attempt = execution
    while (following := world.ledger.lose(attempt, "no space", immediately=True)) is not None:
        attempt = following
    elsewhere(world, "production").evaluator.activate(a_flow("other"))
    seen = {flow.row.name: (flow.lanes, flow.open, flow.held, flow.waiting) for flow in overview(world.ledger)}
    assert seen == {"open": (1, 1, 1, 2), "settled": (1, 0, 0, 1)}
