"""A backfill as Dagster's UI launches it: it goes by the consumers, each partition is reported as
materialised, and it ends.

It waits a minute for Dagster's daemon.
"""

from typing import Any

import pytest

from tests.support.dagster_dev import DagsterDev
from tests.support.processes import await_found

pytestmark = [pytest.mark.tier3, pytest.mark.e2e, pytest.mark.spark]

TABLE, DAYS = "gold.orders_of_day", ["2024-05-01", "2024-05-02", "2024-05-03"]
LAUNCH = """mutation Launch($given: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $given) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
STATUS = (
    "query Status($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on "
    "PartitionBackfill { status } } }"
)
RUNS = """query Runs($filter: RunsFilter) { runsOrError(filter: $filter) { ... on Runs { results { status tags { key value }
  assetMaterializations { partition } } } } }"""


def test_a_backfill_that_dagster_launches_does_what_is_there_and_reports_all_partitions(
    shop: DagsterDev, orders: dict[str, Any]
) -> None:
    """No day is said to be complete, which a person may run all the same; each still fires when it
    is.
    """
    given = {"assetSelection": [{"path": TABLE.split(".")}], "partitionNames": DAYS}
    launched = shop.graphql(LAUNCH, given=given)["launchPartitionBackfill"]
    ended = await_found(
        lambda: ended_as(shop, launched["backfillId"]), f"{launched} has ended", 240, pause=1
    )
    assert ended == "COMPLETED_SUCCESS"
    wanted = {"tags": [{"key": "dagster/backfill", "value": launched["backfillId"]}]}
    runs = shop.graphql(RUNS, filter=wanted)["runsOrError"]["results"]
    assert {one["partition"] for run in runs for one in run["assetMaterializations"]} == {*DAYS}
    done = [
        one for one in shop.lakechime("execution", "show")["executions"] if one["trigger"] == TABLE
    ]
    assert {(one["key"], one["state"], one["cause"]) for one in done} == {
        (f"day={day}", "COMPLETED", "manual") for day in DAYS
    }
    assert shop.lakechime("trigger", "show", TABLE)["decision"] == "not_yet"


def ended_as(shop: DagsterDev, backfill_id: str) -> str | None:
    status = shop.graphql(STATUS, id=backfill_id)["partitionBackfillOrError"]["status"]
    return None if status in ("REQUESTED", "FAILING", "CANCELING") else status
