"""The sensor of maintenance: a run per table at each point of its schedule, and never two of one table at a time."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from lakechime_dagster.sensors.schedules import maintenance_sensor
from lakechime_dagster.triggers.schedule import every
from tests.support.scheduled import Ticking, ticking_in

SCHEDULES = {"silver.orders": every(hours=1), "gold.totals": every(days=1, start="2013-01-02T03:00")}
KEPT = {name: dg.AssetKey([*name.split(".")[:-1], name.split(".")[-1] + "__maintenance"]) for name in SCHEDULES}


@pytest.fixture
def ticking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upgraded_sqlite: Path) -> Iterator[Ticking]:
    with ticking_in(tmp_path, upgraded_sqlite, maintenance_sensor("shop__maintenance", SCHEDULES), monkeypatch) as ticking:
        yield ticking


def launched(ticking: Ticking, moment: str) -> list[list[dg.AssetKey]]:
    return [list(request.asset_selection) for request in ticking.at(moment).run_requests]


def test_a_table_is_launched_at_each_point_of_its_own_schedule(ticking: Ticking) -> None:
    assert ticking.at("2013-01-02T00:30").skip_message == "the next one is due at 2013-01-02 01:00 UTC"
    assert launched(ticking, "2013-01-02T00:59") == []
    assert launched(ticking, "2013-01-02T01:00") == [[KEPT["silver.orders"]]]
    assert launched(ticking, "2013-01-02T01:30") == []
    assert launched(ticking, "2013-01-02T03:00") == [[KEPT["silver.orders"]], [KEPT["gold.totals"]]]


def test_while_a_run_of_a_table_has_not_ended_it_is_not_launched_again(ticking: Ticking) -> None:
    ticking.at("2013-01-02T00:30")
    (request,) = ticking.at("2013-01-02T01:00").run_requests
    run = ticking.instance.create_run_for_job(_job(), tags=request.tags, status=dg.DagsterRunStatus.STARTED)
    waits = ticking.at("2013-01-02T02:00")
    assert (waits.run_requests, waits.skip_message) == ([], "due, but the last run has not ended: silver.orders")
    ticking.instance.report_run_canceled(run)
    assert launched(ticking, "2013-01-02T02:01") == [[KEPT["silver.orders"]]]
    assert launched(ticking, "2013-01-02T02:02") == []


def _job() -> dg.JobDefinition:
    @dg.op
    def keep() -> None: ...

    @dg.job
    def shop__maintenance() -> None:
        keep()

    return shop__maintenance
