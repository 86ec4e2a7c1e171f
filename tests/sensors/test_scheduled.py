"""Sensors that launch maintenance, monitors and verification when they are due."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from lakechime_dagster.sensors.schedules import maintenance_sensor, monitors_sensor, verify_sensor
from lakechime_dagster.tables.cdc import CDCMerge, ChangeTable, change_table
from lakechime_dagster.tables.databases import Debezium, Monitor
from lakechime_dagster.tables.events import GroupOptions, event_group, event_stream
from lakechime_dagster.tables.sources import JsonLines
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


HOURLY = Monitor(database="$SHOP", table="shop.orders", every=every(hours=1))


def a_table(name: str, monitor: Monitor | None) -> ChangeTable:
    return change_table(name, source=JsonLines("in"), envelope=Debezium(), merge=CDCMerge(keys=("id",)), monitor=monitor)


TABLES = [a_table("shop.orders", HOURLY), a_table("shop.items", None), a_table("shop.by_hand", Monitor())]


@pytest.fixture
def ticking_monitors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upgraded_sqlite: Path) -> Iterator[Ticking]:
    with ticking_in(tmp_path, upgraded_sqlite, monitors_sensor("shop__monitors", TABLES), monkeypatch) as ticking_monitors:
        yield ticking_monitors


def launched_monitors(ticking_monitors: Ticking, moment: str) -> list[list[str]]:
    requests = ticking_monitors.at(moment).run_requests
    return [[f"{key.asset_key.to_user_string()} {key.name}" for key in request.asset_check_keys] for request in requests]


def test_a_run_looks_at_all_tables_that_are_due_and_at_those_without_a_monitor_every_quarter_of_an_hour(ticking_monitors: Ticking) -> None:
    assert ticking_monitors.at("2013-01-02T00:31").skip_message == "the next one is due at 2013-01-02 00:45 UTC"
    assert launched_monitors(ticking_monitors, "2013-01-02T00:46") == [["shop/items keeps_up"]]
    assert launched_monitors(ticking_monitors, "2013-01-02T00:59") == []
    assert launched_monitors(ticking_monitors, "2013-01-02T01:00") == [["shop/orders keeps_up", "shop/orders same_as_database", "shop/items keeps_up"]]


def test_a_table_that_is_due_waits_for_the_run_that_has_not_ended(ticking_monitors: Ticking, monkeypatch: pytest.MonkeyPatch) -> None:
    ticking_monitors.at("2013-01-02T00:31")
    run = ticking_monitors.instance.create_run_for_job(a_job(), status=dg.DagsterRunStatus.STARTED)
    assert "due, but the last run has not ended: shop.items" in ticking_monitors.at("2013-01-02T00:46").skip_message
    ticking_monitors.instance.report_run_canceled(run)
    assert launched_monitors(ticking_monitors, "2013-01-02T00:47") == [["shop/items keeps_up"]]


def a_job() -> dg.JobDefinition:
    @dg.op
    def nothing() -> None: ...

    @dg.job(name="shop__monitors")
    def job() -> None:
        nothing()

    return job


GAME = event_stream("game", source=JsonLines("in"))


GROUPS = [
    event_group("shop", GAME, match="shop.*", options=GroupOptions(verify=every(days=1))),
    event_group("jump", GAME, match="jump.*", options=GroupOptions(verify=every(hours=6))),
    event_group("by_hand", GAME),
]


@pytest.fixture
def ticking_verify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upgraded_sqlite: Path) -> Iterator[Ticking]:
    with ticking_in(tmp_path, upgraded_sqlite, verify_sensor("game__verify", GROUPS), monkeypatch) as ticking_verify:
        yield ticking_verify


def launched_verify(ticking_verify: Ticking, moment: str) -> list[list[str]]:
    requests = ticking_verify.at(moment).run_requests
    return [[f"{key.asset_key.to_user_string()} {key.name}" for key in request.asset_check_keys] for request in requests]


def test_a_run_looks_at_the_groups_that_are_due_and_at_none_that_says_no_time(ticking_verify: Ticking) -> None:
    assert ticking_verify.at("2013-01-02T00:31").skip_message == "the next one is due at 2013-01-02 06:00 UTC"
    assert launched_verify(ticking_verify, "2013-01-02T06:01") == [["jump each_event_once"]]
    assert launched_verify(ticking_verify, "2013-01-02T06:02") == []
    assert launched_verify(ticking_verify, "2013-01-03T00:00") == [["shop each_event_once", "jump each_event_once"]]
