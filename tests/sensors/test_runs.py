"""Dagster's instance as the sensors use it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.lineage.columns import ColumnRef, Consumer, ConsumerKind, Read
from lakechime_dagster.lineage.recording import keep_reads
from lakechime_dagster.sensors.schedules import outside_sensor
from lakechime_dagster.sensors.tick import instance_of
from tests.cli.weather_lake import lake
from tests.support.cli import Cli


def home(folder: Path) -> dg.DagsterInstance:
    folder.mkdir()
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    return dg.DagsterInstance.from_config(str(folder))


def tick(instance: dg.DagsterInstance) -> dg.SensorEvaluationContext:
    """What a sensor is given in the process of a code location: a reference, of which a context
    makes an instance of its own.
    """
    return dg.SensorEvaluationContext(
        instance_ref=instance.get_ref(),
        last_tick_completion_time=None,
        last_run_key=None,
        cursor=None,
        log_key=None,
        repository_name=None,
    )


def test_ticks_of_a_process_share_an_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = home(tmp_path / "one")
    opened = instance_of(tick(instance))()
    instance.add_dynamic_partitions("types", ["a"])
    monkeypatch.setattr(dg.DagsterInstance, "from_ref", None)  # what a second opening would call
    assert instance_of(tick(instance))() is opened
    assert opened.get_dynamic_partitions("types") == ["a"]


@pytest.mark.tier2
def test_ticks_of_two_deployments_do_not(tmp_path: Path) -> None:
    one, other = home(tmp_path / "one"), home(tmp_path / "other")
    one.add_dynamic_partitions("types", ["a"])
    assert instance_of(tick(one))().get_dynamic_partitions("types") == ["a"]
    assert instance_of(tick(other))().get_dynamic_partitions("types") == []


LOADED = {
    "__typename": "WorkspaceLocationEntry",
    "locationOrLoadError": {"__typename": "RepositoryLocation"},
}


@contextmanager
def webserver(answer: Any) -> Iterator[tuple[str, list[Any]]]:
    """What answers GraphQL so, with what it was asked."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            body = (
                answer
                if isinstance(answer, bytes)
                else json.dumps({"data": {"reloadRepositoryLocation": answer}}).encode()
            )
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.tier2
def test_it_is_loaded_again_once_for_each_change_and_said_where_it_cannot_be(
    lakechime: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform, cursor = lakechime.platform, None

    def tick() -> str:
        nonlocal cursor
        with (
            dg.DagsterInstance.ephemeral(str(tmp_path)) as instance,
            dg.build_sensor_context(instance=instance, cursor=cursor) as context,
        ):
            result = outside_sensor(lake).evaluate_tick(context)
        cursor = result.cursor or cursor
        return result.skip_message or ""

    def read(name: str) -> None:
        who = Consumer(ConsumerKind.DASHBOARD, "superset", name)
        with writing(platform.store.engine) as connection:
            keep_reads(
                connection,
                [Read(consumer=who, refs=(ColumnRef("gold.daily"),), at_ms=platform.store.now())],
            )

    read("Sales")
    assert "set LAKECHIME_WEBSERVER_URL" in tick()
    with webserver(LOADED) as (url, asked):
        monkeypatch.setenv("LAKECHIME_WEBSERVER_URL", url)
        assert tick() == (
            "1 that read the lake and 0 data sets that it does not declare are shown; the "
            "location was reloaded"
        )
        assert [one["variables"] for one in asked] == [{"location": "outside"}]
        read("Sales")
        assert (tick().startswith("1 that read the lake"), len(asked)) == (True, 1)
        read("Costs")
        assert (tick().startswith("2 that read the lake"), len(asked)) == (True, 2)
    read("Third")
    assert "does not answer" in tick()
    with webserver(LOADED) as (url, asked):
        monkeypatch.setenv("LAKECHIME_WEBSERVER_URL", url)
        assert (tick().endswith("the location was reloaded"), len(asked)) == (True, 1)
