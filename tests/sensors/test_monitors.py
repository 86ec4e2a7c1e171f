"""The sensor of monitors: one run for all tables that are due, and no comparison where databases may not be asked."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from lakechime_dagster.sensors.schedules import monitors_sensor
from lakechime_dagster.tables.cdc import CDCMerge, ChangeTable, change_table
from lakechime_dagster.tables.databases import Debezium, Monitor
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.triggers.schedule import every
from tests.support.scheduled import Ticking, ticking_in

HOURLY = Monitor(database="$SHOP", table="shop.orders", every=every(hours=1))


def a_table(name: str, monitor: Monitor | None) -> ChangeTable:
    return change_table(name, source=JsonLines("in"), envelope=Debezium(), merge=CDCMerge(keys=("id",)), monitor=monitor)


TABLES = [a_table("shop.orders", HOURLY), a_table("shop.items", None), a_table("shop.by_hand", Monitor())]


@pytest.fixture
def ticking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upgraded_sqlite: Path) -> Iterator[Ticking]:
    with ticking_in(tmp_path, upgraded_sqlite, monitors_sensor("shop__monitors", TABLES), monkeypatch) as ticking:
        yield ticking


def launched(ticking: Ticking, moment: str) -> list[list[str]]:
    requests = ticking.at(moment).run_requests
    return [[f"{key.asset_key.to_user_string()} {key.name}" for key in request.asset_check_keys] for request in requests]


def test_a_run_looks_at_all_tables_that_are_due_and_at_those_without_a_monitor_every_quarter_of_an_hour(ticking: Ticking) -> None:
    assert ticking.at("2013-01-02T00:31").skip_message == "the next one is due at 2013-01-02 00:45 UTC"
    assert launched(ticking, "2013-01-02T00:46") == [["shop/items keeps_up"]]
    assert launched(ticking, "2013-01-02T00:59") == []
    assert launched(ticking, "2013-01-02T01:00") == [["shop/orders keeps_up", "shop/orders same_as_database", "shop/items keeps_up"]]


def test_a_table_that_is_due_waits_for_the_run_that_has_not_ended(ticking: Ticking, monkeypatch: pytest.MonkeyPatch) -> None:
    ticking.at("2013-01-02T00:31")
    run = ticking.instance.create_run_for_job(a_job(), status=dg.DagsterRunStatus.STARTED)
    assert "due, but the last run has not ended: shop.items" in ticking.at("2013-01-02T00:46").skip_message
    ticking.instance.report_run_canceled(run)
    assert launched(ticking, "2013-01-02T00:47") == [["shop/items keeps_up"]]


def a_job() -> dg.JobDefinition:
    @dg.op
    def nothing() -> None: ...

    @dg.job(name="shop__monitors")
    def job() -> None:
        nothing()

    return job
