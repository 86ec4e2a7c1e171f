"""Sensors that launch maintenance, monitors and verification when they are due."""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.sensors.schedules import maintenance_sensor, monitors_sensor, verify_sensor
from lakechime_dagster.tables.cdc import CDCMerge, CDCTable, cdc_table
from lakechime_dagster.tables.databases import Database, Debezium, Monitor
from lakechime_dagster.tables.events import GroupOptions, event_group, event_stream
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.triggers.schedule import every

SCHEDULES = {
    "silver.orders": every(hours=1),
    "gold.totals": every(days=1, start="2013-01-02T03:00"),
}
HOURLY = Monitor(database=Database("$SHOP", "shop.orders"), every=every(hours=1))
GAME = event_stream("game", source=JsonLines("in"))
GROUPS = [
    event_group("shop", GAME, match="shop.*", options=GroupOptions(verify=every(days=1))),
    event_group("jump", GAME, match="jump.*", options=GroupOptions(verify=every(hours=6))),
    event_group("by_hand", GAME),
]


def a_table(name: str, monitor: Monitor | None) -> CDCTable:
    return cdc_table(
        name,
        source=JsonLines("in"),
        envelope=Debezium(),
        merge=CDCMerge(keys=("id",)),
        monitor=monitor,
    )


TABLES = [
    a_table("shop.orders", HOURLY),
    a_table("shop.items", None),
    a_table("shop.by_hand", Monitor()),
]


@dataclass
class Ticking:
    """A sensor, its cursor, an instance, and the store's clock."""

    sensor: dg.SensorDefinition
    instance: dg.DagsterInstance
    monkeypatch: pytest.MonkeyPatch
    cursor: str | None = None

    def at(self, moment: str) -> Any:
        """What a tick at a moment of UTC asks for."""
        now = int(dt.datetime.fromisoformat(moment + "+00:00").timestamp() * 1000)
        self.monkeypatch.setattr(DCEStore, "now", lambda _: now)
        with dg.build_sensor_context(instance=self.instance, cursor=self.cursor) as context:
            result = self.sensor.evaluate_tick(context)
        self.cursor = result.cursor
        return result

    def launched(self, moment: str) -> list[list[str]]:
        """The tables, or the checks, of each run that a tick asks for."""
        return [
            [
                f"{one.asset_key.to_user_string()} {one.name}"
                for one in request.asset_check_keys or ()
            ]
            or [one.to_user_string() for one in request.asset_selection]
            for request in self.at(moment).run_requests
        ]

    def runs(self, job: str, **tags: str) -> dg.DagsterRun:
        """A run of the sensor's job that has not ended."""

        @dg.op
        def nothing() -> None: ...

        definition = dg.GraphDefinition(name=job, node_defs=[nothing]).to_job()
        return self.instance.create_run_for_job(
            definition, tags=tags, status=dg.DagsterRunStatus.STARTED
        )


@pytest.fixture
def ticking(
    home: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> Callable[[dg.SensorDefinition], Ticking]:
    return lambda sensor: Ticking(sensor, instance, monkeypatch)


def test_a_table_is_launched_at_each_point_of_its_own_schedule(
    ticking: Callable[..., Ticking],
) -> None:
    keeping = ticking(maintenance_sensor("shop__maintenance", SCHEDULES))
    assert (
        keeping.at("2013-01-02T00:30").skip_message == "the next one is due at 2013-01-02 01:00 UTC"
    )
    assert keeping.launched("2013-01-02T00:59") == []
    assert keeping.launched("2013-01-02T01:00") == [["silver/orders__maintenance"]]
    assert keeping.launched("2013-01-02T01:30") == []
    assert keeping.launched("2013-01-02T03:00") == [
        ["silver/orders__maintenance"],
        ["gold/totals__maintenance"],
    ]


def test_while_a_run_of_a_table_has_not_ended_it_is_not_launched_again(
    ticking: Callable[..., Ticking],
) -> None:
    keeping = ticking(maintenance_sensor("shop__maintenance", SCHEDULES))
    keeping.at("2013-01-02T00:30")
    (request,) = keeping.at("2013-01-02T01:00").run_requests
    run = keeping.runs("shop__maintenance", **request.tags)
    waits = keeping.at("2013-01-02T02:00")
    assert (waits.run_requests, waits.skip_message) == (
        [],
        "due, but the last run has not ended: silver.orders",
    )
    keeping.instance.report_run_canceled(run)
    assert keeping.launched("2013-01-02T02:01") == [["silver/orders__maintenance"]]
    assert keeping.launched("2013-01-02T02:02") == []


def test_all_tables_that_are_due_are_compared_and_those_without_a_monitor_every_quarter_of_an_hour(
    ticking: Callable[..., Ticking],
) -> None:
    comparing = ticking(monitors_sensor("shop__monitors", TABLES))
    assert (
        comparing.at("2013-01-02T00:31").skip_message
        == "the next one is due at 2013-01-02 00:45 UTC"
    )
    assert comparing.launched("2013-01-02T00:46") == [["shop/items keeps_up"]]
    assert comparing.launched("2013-01-02T00:59") == []
    run = comparing.runs("shop__monitors")
    assert "due, but the last run has not ended: " in comparing.at("2013-01-02T01:00").skip_message
    comparing.instance.report_run_canceled(run)
    assert comparing.launched("2013-01-02T01:01") == [
        ["shop/orders keeps_up", "shop/orders same_as_database", "shop/items keeps_up"]
    ]


def test_groups_that_are_due_are_verified_and_none_that_names_no_time(
    ticking: Callable[..., Ticking],
) -> None:
    verifying = ticking(verify_sensor("game__verify", GROUPS))
    assert (
        verifying.at("2013-01-02T00:31").skip_message
        == "the next one is due at 2013-01-02 06:00 UTC"
    )
    assert verifying.launched("2013-01-02T06:01") == [["jump each_event_once"]]
    assert verifying.launched("2013-01-02T06:02") == []
    assert verifying.launched("2013-01-03T00:00") == [
        ["shop each_event_once", "jump each_event_once"]
    ]
