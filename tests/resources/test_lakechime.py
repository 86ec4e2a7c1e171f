"""Runs that a person launches: they claim what waits for a lane, also where no snapshot tells that something came."""

import pytest

from lakechime_dagster.dce.partition import PartitionLevels
from lakechime_dagster.resources.lakechime import NothingNewError, adopted
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.triggers import PartitionCondition, PartitionTrigger, SnapshotTrigger, every, tick
from lakechime_dagster.triggers.flow import Flow
from tests.support.world import World, a_flow

HIVE = "hive.orders"
DAY = PartitionLevels.of({"day": "date"})


def daily(**fields: object) -> Flow:
    """A flow for two days of a table without snapshots, one of which may run at a time."""
    condition = PartitionCondition.of(HIVE, {"day": tick("-1d")}, DAY)
    trigger = PartitionTrigger(condition, every(days=1, start="2013-01-02", until="2013-01-03"), max_in_flight=1, **fields)  # type: ignore[arg-type]
    return Flow(name="daily", trigger=trigger, target_levels=DAY, job="nightly")


def test_a_manual_run_claims_the_events_of_a_table_without_snapshots_once(world: World, platform: Platform) -> None:
    flow = a_flow("nightly", HIVE, job="nightly")
    with pytest.raises(NothingNewError):
        adopted(platform, flow, "run-0", None)
    event = world.change(HIVE, table_format="HIVE", partition=["a"])
    execution = adopted(platform, flow, "run-1", None)
    assert execution.start.position < event.position <= execution.end.position
    world.ledger.settle(execution, None)
    with pytest.raises(NothingNewError, match="nothing came for nightly since step 1"):
        adopted(platform, flow, "run-2", None)


def test_a_manual_run_claims_a_mark_that_brings_the_tags(world: World, platform: Platform) -> None:
    flow = a_flow("nightly", trigger=SnapshotTrigger("bronze.orders", tags={"complete": "true"}))
    world.change(version=0, tags={"complete": "true"})
    world.ledger.settle(adopted(platform, flow, "run-1", None), None)
    world.change(tags={"complete": "true"})
    assert adopted(platform, flow, "run-2", None).step == 2


def test_a_manual_run_of_a_day_claims_it_when_it_is_there_although_another_one_runs(world: World, platform: Platform) -> None:
    flow = daily()
    for day in ("2013-01-01", "2013-01-02"):
        with pytest.raises(NothingNewError):
            adopted(platform, flow, "run-0", day)
        world.change(HIVE, table_format="HIVE", partition=[day])
    assert adopted(platform, flow, "run-1", "2013-01-01").lane.key == "day=2013-01-01"
    second = adopted(platform, flow, "run-2", "2013-01-02")
    world.ledger.settle(second, None)
    with pytest.raises(NothingNewError):
        adopted(platform, flow, "run-3", "2013-01-02")
    world.change(HIVE, table_format="HIVE", partition=["2013-01-02"])
    assert adopted(platform, flow, "run-4", "2013-01-02").step == 2
