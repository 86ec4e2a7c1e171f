"""A tick that finds nothing moves on, so that events which can never match do not hold retention back."""

from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.sensors.tick import run_tick
from lakechime_dagster.settings import load_settings
from lakechime_dagster.triggers.consumers import Execution
from lakechime_dagster.triggers.retention import expire, needs
from lakechime_dagster.triggers.schedule import every
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.support.world import World, a_subscription

ORDERS = "bronze.orders"
FAR = 32_503_680_000_000  # the year 3000
COMPLETE = {"complete": "true"}


class NoRuns:
    """Dagster without a run."""

    def of_attempt(self, execution: Execution) -> None:
        return None

    def report_lost(self, run_id: str, reason: str) -> None:
        raise AssertionError(run_id)


def sensor_ticks(world: World, subscription: Subscription) -> None:
    platform = Platform(load_settings(), world.store, world.ledger, world.evaluator)
    assert run_tick(platform, subscription, NoRuns()).launches == ()


def folded(world: World) -> int:
    checkpoints = {table: need.position for table, need in needs(world.engine).items()}
    return expire(world.engine, FAR, needed=checkpoints, dry_run=True).folded


def test_events_that_do_not_have_the_tags_are_not_needed_once_they_were_looked_at(world: World) -> None:
    subscription = a_subscription(trigger=SnapshotTrigger(ORDERS, tags=COMPLETE))
    world.evaluator.activate(subscription)
    world.change(version=0)
    assert folded(world) == 0
    sensor_ticks(world, subscription)
    assert folded(world) == 1


def test_a_tick_of_the_declaration_before_does_not_move_the_new_one_on(world: World) -> None:
    before = a_subscription(trigger=SnapshotTrigger(ORDERS, tags={"by": "web"}))
    after = a_subscription(trigger=SnapshotTrigger(ORDERS, tags=COMPLETE))
    world.change(version=0, tags=COMPLETE)
    row = world.evaluator.activate(before)
    found = world.evaluator.evaluate(before, row)
    world.evaluator.activate(after)
    world.evaluator.looked_through(row, found.through)
    assert world.decide(after).fires


def test_an_event_that_waits_for_its_grid_point_stays_needed(world: World) -> None:
    subscription = a_subscription(trigger=SnapshotTrigger(ORDERS, every(days=3_650)))
    world.evaluator.activate(subscription)
    world.change(version=0)
    sensor_ticks(world, subscription)
    assert folded(world) == 0
