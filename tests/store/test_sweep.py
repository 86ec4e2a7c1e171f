"""Sweeps over many subscriptions: nothing that a look found is forgotten when an evaluation fails, and resting subscriptions move on."""

import datetime as dt

import pytest
import sqlalchemy as sa

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.dce.schema import metadata
from lakechime_dagster.errors import StoreUnreachableError
from lakechime_dagster.triggers import schema
from lakechime_dagster.triggers.conditions import PartitionCondition
from lakechime_dagster.triggers.decision import Decision
from lakechime_dagster.triggers.evaluation import Evaluator
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.sweep import Sweep
from lakechime_dagster.triggers.triggers import PartitionTrigger
from tests.support.world import World, a_subscription

pytestmark = pytest.mark.dialect

ORDERS = "bronze.orders"


def hourly(now: dt.datetime) -> Subscription:
    """A subscription whose only grid point is the hour that has begun."""
    condition = PartitionCondition.of(ORDERS, {"hour": tick("+0h", "%Y-%m-%dT%H")}, PartitionLevels.of({"hour": "string"}))
    return Subscription(name="hourly", trigger=PartitionTrigger(condition, every(hours=1, start=f"{now:%Y-%m-%dT%H:00}")))


def test_a_grid_point_that_came_is_not_forgotten_when_its_evaluation_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    now = dt.datetime.fromtimestamp(world.store.now() / 1000, dt.timezone.utc)
    sweep = Sweep(world.evaluator, [hourly(now)])
    before = now - dt.timedelta(hours=1)
    world.change(version=0, partition=[f"{now:%Y-%m-%dT%H}"])
    rests = {"hourly": Decision(trigger="hourly", fires=False, reasons=("nothing new",))}
    with monkeypatch.context() as patched:
        patched.setattr("lakechime_dagster.triggers.sweep.from_milliseconds", lambda milliseconds: before)
        patched.setattr(Evaluator, "evaluate_all", lambda *_: rests)
        assert sweep.decisions() == {}

    def fails(*_: object) -> None:
        raise StoreUnreachableError("the database is locked")

    with monkeypatch.context() as patched:
        patched.setattr(Evaluator, "evaluate_all", fails)
        with pytest.raises(StoreUnreachableError):
            sweep.decisions()
    assert sweep.decisions()["hourly"].fires


def test_a_subscription_whose_keys_cannot_be_resolved_says_so_and_hinders_no_other(world: World) -> None:
    day = PartitionLevels.of({"day": "date"})
    good, bad = (
        Subscription(name=name, trigger=PartitionTrigger(PartitionCondition.of(ORDERS, {"day": tick("-1d", form)}, day), days))
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
    """Make the store anew, as deleting its file or its database does."""
    with writing(world.engine) as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(sa.delete(table))
        if connection.dialect.name == "sqlite":
            connection.execute(sa.text("DELETE FROM sqlite_sequence"))


def test_a_store_that_was_made_anew_is_looked_at_from_its_beginning(world: World) -> None:
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
    assert {name: decision.fires for name, decision in sweep.decisions().items()} == {"a": True, "b": True}
    assert [len(world.fire(subscription)) for subscription in subscriptions] == [1, 1]


def test_a_subscription_that_the_ledger_lost_is_activated_again(world: World) -> None:
    subscriptions = [a_subscription(name) for name in ("a", "b")]
    sweep = Sweep(world.evaluator, subscriptions)
    assert sweep.decisions() == {}
    with writing(world.engine) as connection:
        connection.execute(sa.delete(schema.subscription).where(schema.subscription.c.name == "b"))
    sweep.reread()
    world.change(version=0)
    assert sorted(sweep.decisions()) == ["a", "b"]
    assert [row.name for row in world.ledger.subscriptions()] == ["a", "b"]
