"""One run for many partitions: a consumer that is busy hinders no other key."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakechime_dagster.assets.report import Report, nothing_new
from lakechime_dagster.assets.subscriptions import subscription_of
from lakechime_dagster.assets.tables import each_key, table_asset
from lakechime_dagster.dce.events import DataChangeEvent, SnapshotId
from lakechime_dagster.errors import ConsumerConflictError, NotFoundError
from lakechime_dagster.runtime.names import run_tags
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.runtime.resource import (
    LakeChimeResource,
    NothingNewError,
    declare_subscription,
)
from lakechime_dagster.runtime.spark import SparkResource
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.tables import SourceTable
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import PartitionTrigger

DAYS = [f"2013-01-0{day}" for day in (1, 2, 3)]


class Reached(SparkResource):
    """Spark that finds nothing to do, and says for which partitions it was asked."""

    def refresh(self, running: Any, job: Any, log: Any, write_as: Any, observer: Any) -> Any:
        reached.append(running.execution.partition_key)
        raise NothingNewError("nothing to do")


class Broken(SparkResource):
    """Spark that dies."""

    def refresh(self, running: Any, job: Any, log: Any, write_as: Any, observer: Any) -> Any:
        raise RuntimeError("killed")


reached: list[str] = []


def test_a_backfill_names_the_partitions_that_the_grid_does_not_have_and_does_the_others() -> None:
    done = nothing_new("nothing came")

    def materialise(key: str | None) -> Report:
        if key == DAYS[1]:
            raise NotFoundError(f"no grid point for {key}")
        return done

    with pytest.raises(
        ConsumerConflictError,
        match="1 of 3 partitions were left out, the others are done: no grid point for 2013-01-02",
    ):
        each_key(DAYS, materialise)
    with pytest.raises(NotFoundError):
        each_key(DAYS[1:2], materialise)


@dataclass(frozen=True)
class Days:
    """A table by days, each of which can be computed, with Spark that finds nothing to do, or
    fails.
    """

    platform: Platform
    subscription: Subscription
    asset: dg.AssetsDefinition

    def arrive(self, *days: str) -> None:
        events = [
            DataChangeEvent(
                table="bronze.orders", partition=(day,), snapshot_id=SnapshotId(day[-1])
            )
            for day in days
        ]
        self.platform.store.register(events)

    def run(self, spark: SparkResource, **options: Any) -> dg.ExecuteInProcessResult:
        return dg.materialize(
            [self.asset], resources={"lakechime": LakeChimeResource(), "spark": spark}, **options
        )


@pytest.fixture
def days(home: Path) -> Days:
    orders = SourceTable("bronze.orders", storage=Storage(partitioned_by={"day": "date"}))
    daily = sql_table(
        "gold.daily",
        sql="SELECT day FROM bronze.orders",
        refresh="partitions",
        trigger=PartitionTrigger(
            orders.partitions(day=tick("-1d")),
            every(days=1, start="2013-01-02", until="2013-01-04"),
        ),
        storage=Storage(partitioned_by={"day": "date"}),
    )
    subscription = declare_subscription(subscription_of(daily))
    reached.clear()
    return Days(
        open_platform(),
        subscription,
        table_asset(Lake("shop", [orders, daily]), daily, subscription),
    )


RANGE = {
    "dagster/asset_partition_range_start": DAYS[0],
    "dagster/asset_partition_range_end": DAYS[-1],
}


def test_a_backfill_goes_on_past_a_busy_consumer_and_names_it_in_the_end(days: Days) -> None:
    platform, subscription = days.platform, days.subscription
    days.arrive(*DAYS[:1])
    row = platform.evaluator.activate(subscription)
    [busy] = platform.evaluator.fire(
        subscription, row, platform.evaluator.evaluate(subscription, row), lambda consumer: None
    )
    platform.ledger.begin(busy.execution_id, "another-run")
    days.arrive(*DAYS[1:])
    with pytest.raises(ConsumerConflictError, match="1 of 3 partitions were left out"):
        days.run(Reached(), tags=RANGE)
    assert reached == DAYS[1:]


def test_each_partition_of_a_backfill_of_dagster_is_materialised_though_nothing_is_to_be_done(
    days: Days,
) -> None:
    """Dagster takes what a run of its backfill did not materialise for failed, with all that is
    downstream.
    """
    done = days.run(Reached(), tags=RANGE | {"dagster/backfill": "theirs"})
    assert {one.partition for one in done.get_asset_materialization_events()} == {*DAYS}
    assert reached == []


def test_the_next_attempt_of_a_run_of_a_backfill_of_dagster_is_of_it_too(days: Days) -> None:
    days.arrive(*DAYS)
    failed = days.run(
        Broken(), partition_key=DAYS[0], tags={"dagster/backfill": "theirs"}, raise_on_error=False
    )
    platform = days.platform
    (execution,) = platform.ledger.open_executions(platform.evaluator.activate(days.subscription))
    assert (failed.success, execution.run_id) == (False, failed.run_id)
    following = platform.ledger.lose(execution, "killed")
    assert following is not None
    assert (following.attempt, run_tags(following)["dagster/backfill"]) == (2, "theirs")
    row = platform.evaluator.activate(days.subscription)
    other = platform.evaluator.fire(
        days.subscription,
        row,
        platform.evaluator.evaluate(days.subscription, row),
        lambda consumer: None,
    )
    assert {"dagster/backfill" in run_tags(one) for one in other} == {False}
