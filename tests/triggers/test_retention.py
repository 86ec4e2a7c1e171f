"""What retention leaves: what consumers need, until a tick has looked at it."""

from concurrent.futures import Future, ThreadPoolExecutor, wait

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.engine import reading
from lakechime_dagster.dce.events import Position
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.settings import load_settings
from lakechime_dagster.triggers.consumers import Checkpoint, Execution
from lakechime_dagster.triggers.progress import Expired, expire, needed_after, needs
from lakechime_dagster.triggers.registry import By, ConsumerRow
from lakechime_dagster.triggers.schedule import every
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.support.world import World, a_subscription, elsewhere, ticked

ORDERS = "bronze.orders"


FAR = 32_503_680_000_000  # the year 3000


def test_a_completed_consumer_needs_what_came_after_its_checkpoint(world: World) -> None:
    event = world.change(ORDERS, 1)
    world.tick_of_the_sensor(a_subscription())
    later = world.change(ORDERS, 2)
    assert event.position <= needs(world.engine)[ORDERS].position < later.position


def test_the_most_needy_subscription_of_all_deployments_counts_and_is_named(world: World) -> None:
    world.change(ORDERS, 1)
    world.tick_of_the_sensor(a_subscription("quick"))
    elsewhere(world, "production").evaluator.activate(a_subscription("slow"))
    need = needs(world.engine)[ORDERS]
    assert (need.deployment, need.subscription, need.position) == (
        "production",
        "slow",
        Position.ORIGIN,
    )


@pytest.mark.services
def test_expiry_waits_for_a_consumer_that_is_being_put_back_and_leaves_its_events(
    postgres_engine: Engine,
) -> None:
    world = World(postgres_engine)
    world.change(ORDERS, 1)
    world.tick_of_the_sensor(a_subscription())
    row = world.evaluator.activate(a_subscription())
    expiring: list[Future[Expired]] = []

    def beginning(connection: Connection, consumer: ConsumerRow) -> Checkpoint:
        expiring.append(pool.submit(expire, postgres_engine, FAR, needed=needed_after))
        while not expiring[0].done() and not waits_for_a_lock(postgres_engine):
            wait(expiring, timeout=0.01)
        return Checkpoint()

    with ThreadPoolExecutor(1) as pool:
        world.people.seek(row, None, By(who="me", reason="replay"), beginning)
    assert (expiring[0].result().compacted, expiring[0].result().held_back) == (0, 1)
    assert world.decide(a_subscription()).fires


def waits_for_a_lock(engine: Engine) -> bool:
    """Whether some transaction of the engine's database waits for another."""
    waiting = (
        "SELECT EXISTS (SELECT FROM pg_locks JOIN pg_database ON oid = database WHERE datname = "
        "current_database() AND NOT granted)"
    )
    with reading(engine) as connection:
        return connection.execute(sa.text(waiting)).scalar_one()


COMPLETE = {"complete": "true"}


class NoRuns:
    """Dagster without a run."""

    def of_attempt(self, execution: Execution) -> None:
        return None

    def report_lost(self, run_id: str, reason: str) -> None:
        raise AssertionError(run_id)


def sensor_ticks(world: World, subscription: Subscription) -> None:
    platform = Platform(load_settings(), world.store, world.ledger, world.evaluator)
    assert ticked(platform, subscription, NoRuns()).launches == ()


def compacted(world: World) -> int:
    checkpoints = {table: need.position for table, need in needs(world.engine).items()}
    return expire(world.engine, FAR, needed=checkpoints, dry_run=True).compacted


def test_events_that_do_not_have_the_tags_are_not_needed_once_they_were_looked_at(
    world: World,
) -> None:
    subscription = a_subscription(trigger=SnapshotTrigger(ORDERS, tags=COMPLETE))
    world.evaluator.activate(subscription)
    world.change(version=0)
    assert compacted(world) == 0
    sensor_ticks(world, subscription)
    assert compacted(world) == 1


def test_a_tick_of_the_declaration_before_does_not_move_the_new_one_on(world: World) -> None:
    before = a_subscription(trigger=SnapshotTrigger(ORDERS, tags={"by": "web"}))
    after = a_subscription(trigger=SnapshotTrigger(ORDERS, tags=COMPLETE))
    world.change(version=0, tags=COMPLETE)
    row = world.evaluator.activate(before)
    found = world.evaluator.evaluate(before, row)
    world.evaluator.activate(after)
    world.evaluator.looked_through([row], found.through)
    assert world.decide(after).fires


def test_an_event_that_waits_for_its_grid_point_stays_needed(world: World) -> None:
    subscription = a_subscription(trigger=SnapshotTrigger(ORDERS, every(days=3_650)))
    world.evaluator.activate(subscription)
    world.change(version=0)
    sensor_ticks(world, subscription)
    assert compacted(world) == 0
