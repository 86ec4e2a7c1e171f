"""What a run of a table that follows a database asks of Spark, as it is declared."""

import datetime as dt

import pytest
from sqlalchemy import Engine

from lakechime_dagster.assets.cdc import cdc_job_of
from lakechime_dagster.assets.subscriptions import subscription_of
from lakechime_dagster.runtime.execution import RunningExecution
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.tables.cdc import MAX_COMMITS, CDCMerge, Drift, SourceSchema, cdc_table
from lakechime_dagster.tables.databases import Debezium
from lakechime_dagster.tables.sources import JsonLines
from tests.support.world import World


@pytest.fixture
def world(sqlite_engine: Engine) -> World:
    return World(sqlite_engine)


def test_a_run_merges_as_is_declared(world: World, platform: Platform) -> None:
    table = cdc_table(
        "shop.orders",
        source=JsonLines("in"),
        envelope=Debezium(),
        merge=CDCMerge(
            keys=("id",),
            ignore_null_updates=True,
            allowed_lateness=dt.timedelta(hours=2),
            max_continuous_empty_commits=3,
        ),
        schema=SourceSchema(on_drift="evolve"),
    )
    subscription = subscription_of(table)
    world.change("shop.orders__changes", version=0)
    (execution,) = world.fire(subscription)
    job = cdc_job_of(table, RunningExecution(platform, subscription, execution))
    assert (job.merge, job.on_drift) == (table.merge, Drift.EVOLVE)
    assert job.bronze.range is not None
    assert (job.bronze.range.start, job.bronze.range.end) == (None, "0")


def test_a_followed_table_takes_so_many_commits_of_its_messages_at_most(world: World) -> None:
    table = cdc_table(
        "shop.orders", source=JsonLines("in"), envelope=Debezium(), merge=CDCMerge(keys=("id",))
    )
    world.change("shop.orders__changes", version=0)
    (first,) = world.fire(subscription_of(table))
    world.ledger.complete(first, None)
    for version in range(1, MAX_COMMITS + 2):
        world.change("shop.orders__changes", version=version)
    (execution,) = world.fire(subscription_of(table))
    assert execution.ranges()["shop.orders__changes"].end == str(MAX_COMMITS)
    assert not subscription_of(table.bronze).trigger.is_bounded
