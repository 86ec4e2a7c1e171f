"""The loop from outside: a commit, its event by the command line, a run, rows, the event of the
target, the next run.
"""

import datetime as dt
import json
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.e2e import stock
from tests.support.dagster_dev import DagsterDev
from tests.support.refreshes import read_rows

pytestmark = [pytest.mark.e2e, pytest.mark.spark]


def test_a_change_registered_by_the_command_line_becomes_rows_and_the_event_of_the_target(
    shop: DagsterDev, orders: dict[str, Any]
) -> None:
    assert orders["run"]["status"] == "SUCCESS"
    target = shop.home / "warehouse" / "silver" / "orders"
    assert read_rows(target) == [(1, dt.date(2024, 5, 1), 10), (2, dt.date(2024, 5, 1), 20)]
    (refused,) = read_rows(f"{target}__quarantine")
    assert any("amount is positive" in str(cell) for cell in refused)
    events = shop.lakechime("dce", "list", "--table", "silver.orders")["events"]
    assert [event["snapshot_id"] for event in events] == [str(DeltaTable(str(target)).version())]


def test_a_stock_asset_gets_exactly_the_events_of_its_execution(
    shop: DagsterDev, orders: dict[str, Any]
) -> None:
    run = shop.await_run("features")
    assert run["status"] == "SUCCESS"
    lines = [json.loads(line) for line in (shop.home / stock.FEATURES).read_text().splitlines()]
    (line,) = [line for line in lines if line["execution"] == run["tags"]["lakechime/execution"]]
    events = shop.lakechime("dce", "list", "--table", "silver.orders")["events"]
    assert line["snapshots"] == [event["snapshot_id"] for event in events]
    handed = json.loads(line["env"]["LAKECHIME_DCES"])
    assert [event["snapshot_id"] for event in handed] == line["snapshots"]
    assert line["env"]["LAKECHIME_EXECUTION"] == line["execution"]
