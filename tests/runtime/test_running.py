"""What a run is handed: the events of its execution."""

import json

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.runtime.execution import RunningExecution, kept
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import PartitionCondition, PartitionTrigger
from tests.support.world import World, a_subscription


@pytest.fixture
def world(sqlite_engine: Engine) -> World:
    return World(sqlite_engine)


def test_the_runs_of_two_days_are_handed_the_events_of_their_own_day(
    world: World, platform: Platform
) -> None:
    condition = PartitionCondition.of(
        "bronze.orders", {"day": tick("-1d")}, PartitionLevels.of({"day": "date"})
    )
    subscription = Subscription(
        name="daily",
        trigger=PartitionTrigger(condition, every(days=1, start="2013-01-02", until="2013-01-03")),
    )
    arrived = [
        world.change(version=version, partition=[day])
        for version, day in enumerate(("2013-01-01", "2013-01-02"))
    ]
    first, second = (
        RunningExecution(platform, subscription, execution)
        for execution in world.fire(subscription)
    )
    assert (first.events, second.events) == ([arrived[0]], [arrived[1]])
    assert json.loads(first.env()["LAKECHIME_DCES"])[0]["partition"] == ["2013-01-01"]


def test_the_error_of_a_run_is_not_hidden_by_one_of_the_store_that_should_keep_it(
    world: World, platform: Platform
) -> None:
    world.change(version=0)
    (claimed,) = world.fire(a_subscription())
    running = RunningExecution(
        platform, a_subscription(), world.ledger.begin(claimed.execution_id, "run-1")
    )
    said: list[str] = []
    with writing(world.engine) as connection:
        connection.execute(sa.text("DROP TABLE lc_attempt"))
    with pytest.raises(RuntimeError, match="the disk is full"), kept(running, None, said.append):
        raise RuntimeError("the disk is full")
    assert ["the error of attempt 1 could not be kept" in sentence for sentence in said] == [True]
