"""A real Prometheus beside a test, which reads what a store reports of streams of events."""

import json
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server

from lakechime_dagster.api.metrics import StoreCollector
from lakechime_dagster.silver.metrics import measures
from lakechime_dagster.silver.store import SqlEventTypes
from tests.support.missing import missing
from tests.support.processes import REPOSITORY, Service, await_found, environment, free_port

HOUR = "10s"  # in which an increase is reported
FOLDER = REPOSITORY / "docs" / "monitoring"


class Prometheus:
    """A Prometheus that answers at a port of loopback."""

    def __init__(self, port: int) -> None:
        self._port = port

    def series(self, expression: str) -> list[dict[str, Any]]:
        return self._ask("query?" + urllib.parse.urlencode({"query": expression}))["result"]

    def empty_panels(self) -> list[str]:
        """The titles of the dashboard's panels that show nothing."""
        panels = json.loads((FOLDER / "lakechime.json").read_text())["panels"]
        return [
            panel["title"]
            for panel in panels
            if not any(self.series(target["expr"]) for target in panel["targets"])
        ]

    def firing(self) -> set[str]:
        return {
            one["labels"]["alertname"]
            for one in self._ask("alerts")["alerts"]
            if one["state"] == "firing"
        }

    def _ask(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/{path}") as answer:
            return json.load(answer)["data"]


@contextmanager
def running_prometheus(
    types: SqlEventTypes, folder: Path, milliseconds: int = 500
) -> Iterator[Prometheus]:
    """One that reads the metrics of a store every so often, with alarms that need not hold, and
    hours that are short.
    """
    installed("prometheus")
    at, port = free_port(), free_port()
    registry = CollectorRegistry()
    registry.register(StoreCollector(lambda: measures(types)))
    server, _ = start_http_server(at, "127.0.0.1", registry)
    document = json.loads((FOLDER / "alarms.yml").read_text())  # JSON is YAML
    for one in document["groups"][0]["rules"]:
        one["for"] = "0s"
        one["expr"] = one["expr"].replace("[1h]", f"[{HOUR}]")
    (folder / "alarms.yml").write_text(json.dumps(document))
    scrape = {"job_name": "lakechime", "static_configs": [{"targets": [f"127.0.0.1:{at}"]}]}
    often = dict.fromkeys(
        ("scrape_interval", "scrape_timeout", "evaluation_interval"), f"{milliseconds}ms"
    )
    (folder / "prometheus.yml").write_text(
        json.dumps({"global": often, "rule_files": ["alarms.yml"], "scrape_configs": [scrape]})
    )
    where = [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", *where]
    service = Service("prometheus", command, cwd=folder, env=environment(folder), port=port)
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
