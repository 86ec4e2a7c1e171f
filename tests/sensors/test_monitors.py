"""The sensor of monitors: one run for all tables that are due, and no comparison where databases may not be asked."""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakechime_dagster.lake import CDCMerge, Debezium, JsonLines, Monitor, change_table
from lakechime_dagster.lake.change_tables import ChangeTable
from lakechime_dagster.sensors.monitors import monitors_sensor
from lakechime_dagster.store.events import SqlDCEStore
from lakechime_dagster.triggers import every

HOURLY = Monitor(database="$SHOP", table="shop.orders", every=every(hours=1))


def a_table(name: str, monitor: Monitor | None) -> ChangeTable:
    return change_table(name, source=JsonLines("in"), envelope=Debezium(), merge=CDCMerge(keys=("id",)), monitor=monitor)


TABLES = [a_table("shop.orders", HOURLY), a_table("shop.items", None), a_table("shop.by_hand", Monitor())]


@dataclass
class Ticking:
    """The sensor, its cursor, an instance, and the store's clock."""

    instance: dg.DagsterInstance
    monkeypatch: pytest.MonkeyPatch
    cursor: str | None = None

    def at(self, moment: str) -> Any:
        """What a tick at a moment of UTC asks for."""
        now = int(dt.datetime.fromisoformat(moment + "+00:00").timestamp() * 1000)
        self.monkeypatch.setattr(SqlDCEStore, "now", lambda _: now)
        with dg.build_sensor_context(instance=self.instance, cursor=self.cursor) as context:
            result = monitors_sensor("shop__monitors", TABLES).evaluate_tick(context)
        self.cursor = result.cursor
        return result

    def launched(self, moment: str) -> list[list[str]]:
        requests = self.at(moment).run_requests
        return [[f"{key.asset_key.to_user_string()} {key.name}" for key in request.asset_check_keys] for request in requests]


@pytest.fixture
def ticking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upgraded_sqlite: Path) -> Any:
    monkeypatch.setenv("LAKECHIME_HOME", str(tmp_path))
    monkeypatch.delenv("LAKECHIME_STORE_URL", raising=False)
    (tmp_path / "dce.sqlite").write_bytes(upgraded_sqlite.read_bytes())
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        yield Ticking(instance, monkeypatch)


def test_a_run_looks_at_all_tables_that_are_due_and_at_those_without_a_monitor_every_quarter_of_an_hour(ticking: Ticking) -> None:
    assert ticking.at("2013-01-02T00:31").skip_message == "the next look is due at 2013-01-02 00:45 UTC"
    assert ticking.launched("2013-01-02T00:46") == [["shop/items keeps_up"]]
    assert ticking.launched("2013-01-02T00:59") == []
    assert ticking.launched("2013-01-02T01:00") == [["shop/orders keeps_up", "shop/orders same_as_database", "shop/items keeps_up"]]


def test_where_databases_may_not_be_asked_tables_are_not_compared(ticking: Ticking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKECHIME_SOURCE_QUERIES", "off")
    ticking.at("2013-01-02T00:31")
    assert ticking.launched("2013-01-02T01:00") == [["shop/orders keeps_up", "shop/items keeps_up"]]


def test_a_table_that_is_due_waits_for_the_run_that_has_not_ended(ticking: Ticking, monkeypatch: pytest.MonkeyPatch) -> None:
    ticking.at("2013-01-02T00:31")
    run = ticking.instance.create_run_for_job(a_job(), status=dg.DagsterRunStatus.STARTED)
    assert "due, but the last run has not ended: shop.items" in ticking.at("2013-01-02T00:46").skip_message
    ticking.instance.report_run_canceled(run)
    assert ticking.launched("2013-01-02T00:47") == [["shop/items keeps_up"]]


def a_job() -> dg.JobDefinition:
    @dg.op
    def nothing() -> None: ...

    @dg.job(name="shop__monitors")
    def job() -> None:
        nothing()

    return job
