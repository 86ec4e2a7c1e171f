"""One run for many partitions: a lane that is busy hinders no other key."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakechime_dagster.assets.flows import flow_of
from lakechime_dagster.assets.report import Report, nothing_new
from lakechime_dagster.assets.table import each_key, table_asset
from lakechime_dagster.dce.event import DataChangeEvent, SnapshotId
from lakechime_dagster.errors import LaneConflictError, NotFoundError
from lakechime_dagster.lake import Lake, SourceTable, sql_table
from lakechime_dagster.resources.lakechime import LakeChimeResource, NothingNewError, declare_flow
from lakechime_dagster.resources.platform import open_platform
from lakechime_dagster.resources.spark import SparkResource
from lakechime_dagster.triggers import PartitionTrigger, every, tick

DAYS = [f"2013-01-0{day}" for day in (1, 2, 3)]


class Reached(SparkResource):
    """Spark that finds nothing to do, and says for which partitions it was asked."""

    def refresh(self, running: Any, job: Any, log: Any, write_as: Any) -> Any:
        reached.append(running.execution.partition_key)
        raise NothingNewError("nothing to do")


reached: list[str] = []


def test_a_backfill_names_the_partitions_that_the_grid_does_not_have_and_does_the_others() -> None:
    done = nothing_new("nothing came")

    def materialise(key: str | None) -> Report:
        if key == DAYS[1]:
            raise NotFoundError(f"no grid point for {key}")
        return done

    with pytest.raises(LaneConflictError, match="1 of 3 partitions were left out, the others are done: no grid point for 2013-01-02"):
        each_key(DAYS, materialise)
    with pytest.raises(NotFoundError):
        each_key(DAYS[1:2], materialise)


def test_a_backfill_goes_on_past_a_busy_lane_and_names_it_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upgraded_sqlite: Path
) -> None:
    monkeypatch.setenv("LAKECHIME_HOME", str(tmp_path))
    monkeypatch.delenv("LAKECHIME_STORE_URL", raising=False)
    (tmp_path / "dce.sqlite").write_bytes(upgraded_sqlite.read_bytes())
    orders = SourceTable("bronze.orders", partitioned_by={"day": "date"})
    daily = sql_table(
        "gold.daily", sql="SELECT day FROM bronze.orders", partitioned_by={"day": "date"}, refresh="partitions",
        trigger=PartitionTrigger(orders.partitions(day=tick("-1d")), every(days=1, start="2013-01-02", until="2013-01-04")),
    )  # fmt: skip
    flow, platform = declare_flow(flow_of(daily)), open_platform()
    platform.store.register([DataChangeEvent(table=orders.name, partition=(day,), snapshot_id=SnapshotId(day[-1])) for day in DAYS[:1]])
    row = platform.evaluator.activate(flow)
    [busy] = platform.evaluator.fire(flow, row, platform.evaluator.evaluate(flow, row), lambda lane: None)
    platform.ledger.begin(busy.execution_id, "another-run")
    platform.store.register([DataChangeEvent(table=orders.name, partition=(day,), snapshot_id=SnapshotId(day[-1])) for day in DAYS[1:]])
    ends = {"dagster/asset_partition_range_start": DAYS[0], "dagster/asset_partition_range_end": DAYS[-1]}
    resources = {"lakechime": LakeChimeResource(), "spark": Reached()}
    asset = table_asset(Lake("shop", [orders, daily]), daily, flow)
    reached.clear()
    with pytest.raises(LaneConflictError, match="1 of 3 partitions were left out"):
        dg.materialize([asset], resources=resources, tags=ends)
    assert reached == DAYS[1:]
