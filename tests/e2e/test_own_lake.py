"""Somebody else's lake: the one of the README, in a package of its own, served by what `make run`
calls.
"""

from pathlib import Path

import pytest

from tests.support.dagster_dev import dagster_dev
from tests.support.processes import REPOSITORY, program
from tests.test_examples import code_of

pytestmark = [pytest.mark.tier3, pytest.mark.e2e]


def test_lakechime_dev_runs_the_lake_that_is_named(tmp_path: Path) -> None:
    package = tmp_path / "elsewhere" / "my_package"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "lake.py").write_text(code_of("README.md", "Your own lake in ten lines"))
    wishes = {
        "LAKECHIME_LAKE": "my_package.lake:lake",
        # nothing is computed here, so no driver is started
        "LAKECHIME_SPARK_DRIVER": "spark://127.0.0.1:1",
        "PYTHONPATH": str(package.parent),
    }
    with dagster_dev(
        "lakechime-dev",
        [*program("lakechime"), "dev"],
        tmp_path,
        {"lakechime_dagster"},
        REPOSITORY,
        **wishes,
    ) as running:
        sensors = running.sensors("lakechime_dagster")
        assert set(sensors) == {"silver_orders", "shop__events", "shop__outside", "shop__alarms"}
        assert sensors["silver_orders"]["sensorState"]["status"] == "RUNNING"
        assert sensors["silver_orders"]["description"].startswith(
            "Launches after a change of bronze.orders, every minute."
        )
        assert [one["name"] for one in running.lakechime("trigger", "show")["triggers"]] == [
            "silver.orders"
        ]
        assert running.service.interrupt() == 0
        assert not running.service.left_over()
