"""Sweeps over many flows: nothing that a look found is forgotten when an evaluation fails, and resting flows move on."""

import datetime as dt

import pytest

from lakechime_dagster.dce.partition import PartitionLevels
from lakechime_dagster.errors import StoreUnreachableError
from lakechime_dagster.store.evaluation import Evaluator
from lakechime_dagster.store.sweep import Sweep
from lakechime_dagster.triggers import PartitionCondition, PartitionTrigger, every, tick
from lakechime_dagster.triggers.decision import Decision
from lakechime_dagster.triggers.flow import Flow
from tests.support.world import World

ORDERS = "bronze.orders"


def hourly(now: dt.datetime) -> Flow:
    """A flow whose only grid point is the hour that has begun."""
    condition = PartitionCondition.of(ORDERS, {"hour": tick("+0h", "%Y-%m-%dT%H")}, PartitionLevels.of({"hour": "string"}))
    return Flow(name="hourly", trigger=PartitionTrigger(condition, every(hours=1, start=f"{now:%Y-%m-%dT%H:00}")))


def test_a_grid_point_that_came_is_not_forgotten_when_its_evaluation_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    now = dt.datetime.fromtimestamp(world.store.now() / 1000, dt.UTC)
    flow = hourly(now)
    sweep = Sweep(world.evaluator, [flow])
    before = now - dt.timedelta(hours=1)
    monkeypatch.setattr("lakechime_dagster.store.sweep.from_milliseconds", lambda milliseconds: before)
    world.change(version=0, partition=[f"{now:%Y-%m-%dT%H}"])
    monkeypatch.setattr(Evaluator, "evaluate", lambda self, *_: Decision(trigger="hourly", fires=False, reasons=("nothing new",)))
    assert sweep.decisions() == {}
    monkeypatch.undo()

    def fails(*_: object) -> None:
        raise StoreUnreachableError("the database is locked")

    with monkeypatch.context() as patched:
        patched.setattr(Evaluator, "evaluate", fails)
        with pytest.raises(StoreUnreachableError):
            sweep.decisions()
    assert sweep.decisions()["hourly"].fires


def test_a_flow_whose_keys_cannot_be_resolved_says_so_and_hinders_no_other(world: World) -> None:
    day = PartitionLevels.of({"day": "date"})
    good, bad = (
        Flow(name=name, trigger=PartitionTrigger(PartitionCondition.of(ORDERS, {"day": tick("-1d", form)}, day), days))
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
