"""What a run of a table that follows a database asks of Spark, as it is declared."""

import datetime as dt

import pytest
from sqlalchemy import Engine

from lakechime_dagster.assets.flows import MAX_COMMITS, change_job_of, flow_of
from lakechime_dagster.lake import CDCMerge, Debezium, Drift, JsonLines, change_table
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.resources.running import RunningExecution
from tests.support.world import World


@pytest.fixture
def world(sqlite_engine: Engine) -> World:
    return World(sqlite_engine)


def test_a_run_merges_as_is_declared(world: World, platform: Platform) -> None:
    table = change_table(
        "shop.orders", source=JsonLines("in"), envelope=Debezium(), merge=CDCMerge(keys=("id",), ignore_null_updates=True),
        on_drift="evolve", allowed_lateness=dt.timedelta(hours=2), max_continuous_empty_commits=3,
    )  # fmt: skip
    flow = flow_of(table)
    world.change("shop.orders__changes", version=0)
    (execution,) = world.fire(flow)
    job = change_job_of(table, RunningExecution(platform, flow, execution))
    assert (job.merge, job.on_drift, job.allowed_lateness) == (table.merge, Drift.EVOLVE, dt.timedelta(hours=2))
    assert job.max_continuous_empty_commits == 3
    assert job.bronze.range is not None
    assert (job.bronze.range.start, job.bronze.range.end) == (None, "0")


def test_a_followed_table_takes_so_many_commits_of_its_messages_at_most(world: World) -> None:
    table = change_table("shop.orders", source=JsonLines("in"), envelope=Debezium(), merge=CDCMerge(keys=("id",)))
    world.change("shop.orders__changes", version=0)
    (first,) = world.fire(flow_of(table))
    world.ledger.settle(first, None)
    for version in range(1, MAX_COMMITS + 2):
        world.change("shop.orders__changes", version=version)
    (execution,) = world.fire(flow_of(table))
    assert execution.ranges()["shop.orders__changes"].end == str(MAX_COMMITS)
    assert flow_of(table.bronze).max_commits is None
