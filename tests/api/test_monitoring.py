"""The dashboard and the alarms are what the code says, and a real Prometheus finds a series for each of their expressions."""

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.api.metrics import serve
from lakechime_dagster.api.monitoring import ALARMS, PANELS, files, rules
from lakechime_dagster.schema.results import TypeResult
from lakechime_dagster.store import ledger_schema
from lakechime_dagster.store.engine import writing
from lakechime_dagster.store.event_measures import measures
from lakechime_dagster.store.event_schema import event_type
from lakechime_dagster.store.event_types import SqlEventTypes
from lakechime_dagster.triggers.lanes import LaneState
from tests.api.test_metrics import new_type, settle
from tests.store.test_event_types import result
from tests.support.missing import missing
from tests.support.processes import Service, await_found, environment, free_port
from tests.support.world import World, a_flow

FOLDER = Path(__file__).parents[2] / "docs" / "monitoring"
HOUR_MS = 3_600_000


def test_the_files_are_what_the_code_says() -> None:
    assert {file.name: file.read_text(encoding="utf-8") for file in FOLDER.iterdir()} == files()


@pytest.mark.services
def test_promtool_finds_nothing_wrong_with_the_alarms() -> None:
    installed("promtool")
    done = subprocess.run(["promtool", "check", "rules", str(FOLDER / "alarms.yml")], capture_output=True, text=True, check=False)
    assert (done.returncode, f"{len(ALARMS)} rules found" in done.stdout) == (0, True), done.stderr


@pytest.mark.services
def test_every_panel_has_a_series_and_every_alarm_fires_and_recovers(sqlite_engine: Engine, prometheus: "Prometheus") -> None:
    types, world = SqlEventTypes(sqlite_engine, "test"), World(sqlite_engine)
    types.learn("shop", [new_type("buy"), new_type("sell")])
    waits = TypeResult(type="sell", table="sell", start=0, end=0, rows=5, pending=5, waits="frozen")
    settle(types, "e1", result(5, step=1), waits, refused={"not_json": 1}, seconds={"write": 1.0})
    row = world.ledger.ensure_flow(replace(a_flow(), name="shop"))
    world.ledger.settle(world.claim(row), None)
    for version in (0, 1):
        world.change(version=version)
    with writing(sqlite_engine) as connection:
        connection.execute(sa.update(ledger_schema.flow).values(ticked_ts=ledger_schema.flow.c.activated_ts))
    for panel in PANELS:
        await_found(lambda panel=panel: prometheus.series(panel.expression), f"a series of {panel.title}", 30)

    world.let_pass(HOUR_MS)
    with writing(sqlite_engine) as connection:
        connection.execute(sa.update(ledger_schema.flow).values(ticked_ts=ledger_schema.flow.c.activated_ts))
        connection.execute(sa.update(ledger_schema.lane).values(state=LaneState.HELD))
    late = {"LakechimeGroupFailed", "LakechimeGroupLate", "LakechimeTypeWaits", "LakechimeLaneHeld", "LakechimeNoTick"}
    await_found(lambda: prometheus.firing() == late, "what is late is told", 30)

    now = measures(types).now
    with writing(sqlite_engine) as connection:
        connection.execute(sa.update(ledger_schema.flow).values(ticked_ts=now))
        connection.execute(sa.update(ledger_schema.lane).values(state=LaneState.ACTIVE))
        connection.execute(sa.update(event_type).where(event_type.c.behind_ts.is_not(None)).values(behind_ts=now - HOUR_MS))
    claimed = world.claim(row, 1_000)
    world.ledger.settle(claimed, None)
    settle(types, "e2", replace(waits, rows=0, pending=0, error="no room"))
    with writing(sqlite_engine) as connection:
        connection.execute(sa.update(event_type).where(event_type.c.type == "sell").values(pending=0))
    await_found(lambda: prometheus.firing() == {"LakechimeTypeLate"}, "the type alone is late", 30)
    settle(types, "e3", replace(result(6, step=1), type="sell", table="sell"))
    await_found(lambda: prometheus.firing() == set(), "all is well", 30)


class Prometheus:
    """A Prometheus that answers at a port of loopback."""

    def __init__(self, port: int) -> None:
        self._port = port

    def series(self, expression: str) -> list[dict[str, Any]]:
        return self._ask("query?" + urllib.parse.urlencode({"query": expression}))["result"]

    def firing(self) -> set[str]:
        return {one["labels"]["alertname"] for one in self._ask("alerts")["alerts"] if one["state"] == "firing"}

    def _ask(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/{path}") as answer:
            return json.load(answer)["data"]


@pytest.fixture
def prometheus(sqlite_engine: Engine, tmp_path: Path) -> Iterator[Prometheus]:
    """A Prometheus that reads the metrics of the store every half second, with alarms that need not hold for long."""
    installed("prometheus")
    types, at, port = SqlEventTypes(sqlite_engine, "test"), free_port(), free_port()
    server = serve(lambda: measures(types), "127.0.0.1", at)
    document = rules()
    for one in document["groups"][0]["rules"]:
        one["for"] = "0s"
    (tmp_path / "alarms.yml").write_text(json.dumps(document))
    scrape = {"job_name": "lakechime", "static_configs": [{"targets": [f"127.0.0.1:{at}"]}]}
    often = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"}
    (tmp_path / "prometheus.yml").write_text(json.dumps({"global": often, "rule_files": ["alarms.yml"], "scrape_configs": [scrape]}))
    where = [f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    command = ["prometheus", f"--config.file={tmp_path / 'prometheus.yml'}", *where]
    service = Service("prometheus", command, cwd=tmp_path, env=environment(tmp_path), port=port)
    service.start()
    try:
        await_found(lambda: service.is_ready, "Prometheus answers", 30)
        yield Prometheus(port)
    finally:
        service.end()
        server.shutdown()
        server.server_close()


def installed(program: str) -> None:
    if shutil.which(program) is None:
        missing(f"there is no {program}", "install Debian's package prometheus")
