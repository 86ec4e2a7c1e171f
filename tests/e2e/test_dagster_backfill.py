"""A backfill that a person launches in Dagster's UI: it goes by the lanes, each partition is told as materialised, and it ends."""

from typing import Any

import pytest

from tests.support.dagster_dev import DagsterDev
from tests.support.processes import await_found

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

TABLE, DAYS = "gold.orders_of_day", ["2024-05-01", "2024-05-02", "2024-05-03"]
LAUNCH = """mutation Launch($given: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $given) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
STATUS = "query Status($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status } } }"
RUNS = """query Runs($filter: RunsFilter) { runsOrError(filter: $filter) { ... on Runs { results { status tags { key value }
  assetMaterializations { partition } } } } }"""


def test_a_backfill_that_dagster_launches_does_what_waits_and_tells_all_partitions(shop: DagsterDev, orders: dict[str, Any]) -> None:
    shop.lakechime("trigger", "pause", TABLE, "--reason", "a backfill of Dagster is to do it")
    try:
        shop.lakechime("dce", "complete", "bronze.orders", "--partition", '["2024-05-01"]')
        given = {"assetSelection": [{"path": TABLE.split(".")}], "partitionNames": DAYS}
        launched = shop.graphql(LAUNCH, given=given)["launchPartitionBackfill"]
        ended = await_found(lambda: ended_as(shop, launched["backfillId"]), f"{launched} has ended", 240, pause=1)
    finally:
        shop.lakechime("trigger", "resume", TABLE, "--reason", "done")
    assert ended == "COMPLETED_SUCCESS"
    wanted = {"tags": [{"key": "dagster/backfill", "value": launched["backfillId"]}]}
    runs = shop.graphql(RUNS, filter=wanted)["runsOrError"]["results"]
    assert {one["partition"] for run in runs for one in run["assetMaterializations"]} == {*DAYS}
    executions = [one for one in shop.lakechime("execution", "list")["executions"] if one["trigger"] == TABLE]
    assert {one["state"] for one in executions} == {"SETTLED"}


def ended_as(shop: DagsterDev, backfill_id: str) -> str | None:
    status = shop.graphql(STATUS, id=backfill_id)["partitionBackfillOrError"]["status"]
    return None if status in ("REQUESTED", "FAILING", "CANCELING") else status
