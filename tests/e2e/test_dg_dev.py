"""The same code location under `dg dev`."""

from pathlib import Path

import pytest

from tests.support.dagster_dev import LAKE, dagster_dev
from tests.support.processes import REPOSITORY, program

pytestmark = [pytest.mark.tier3, pytest.mark.e2e]


def test_dg_dev_serves_the_lake_under_the_same_name_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    with dagster_dev(
        "dg-dev",
        [*program("dg"), "dev"],
        tmp_path,
        {"lakechime_dagster"},
        REPOSITORY,
        LAKECHIME_LAKE=LAKE,
    ) as running:
        sensors = running.sensors("lakechime_dagster")
        assert {"silver_orders", "gold_orders_of_day", "shop__events"} <= set(sensors)
        assert sensors["silver_orders"]["sensorState"]["status"] == "RUNNING"
        running.service.interrupt()
        assert not running.service.left_over()
