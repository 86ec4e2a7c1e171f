"""A Kafka Connect worker with Debezium's connectors, spoken to by its REST interface, on loopback."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from lakechime_dagster.demo.servers.kafka import java_command
from lakechime_dagster.demo.servers.server import LOOK_SECONDS, Server, free_port, write_properties
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.spark.drivers.java import Java

JSON = "org.apache.kafka.connect.json.JsonConverter"


@dataclass(frozen=True)
class Connect:
    """A running worker."""

    url: str
    server: Server

    def create(self, name: str, config: Mapping[str, str]) -> None:
        self._ask("POST", "/connectors", {"name": name, "config": config})
        self._await(lambda: self.tasks(name), f"a task of {name}")

    def delete(self, name: str) -> None:
        """Ends a connector; what it has read is in Kafka then, because a task flushes its producer when it stops."""
        self._ask("DELETE", f"/connectors/{name}")

    def forget(self, name: str) -> None:
        """Removes the offsets of a connector, as one does to make it begin anew; it stands still afterwards."""
        self._ask("PUT", f"/connectors/{name}/stop")
        self._await(lambda: self._ask("GET", f"/connectors/{name}/status")["connector"]["state"] == "STOPPED", f"{name} stopped")
        self._ask("DELETE", f"/connectors/{name}/offsets")

    def resume(self, name: str) -> None:
        self._ask("PUT", f"/connectors/{name}/resume")
        self._await(lambda: self.tasks(name), f"a task of {name}")

    def expect_health(self, name: str) -> None:
        """Raises what a failed task says."""
        for task in self.tasks(name):
            if task["state"] == "FAILED":
                raise LakeChimeError(f"the task of {name} failed: {task['trace']}")

    def answers(self) -> bool:
        with suppress(URLError, ConnectionError, TimeoutError), urlopen(f"{self.url}/connectors", timeout=5) as answer:
            return answer.status == 200
        return False

    def tasks(self, name: str) -> list[dict[str, Any]]:
        """What a connector's tasks do; none yet where it was posted a moment ago."""
        return self._ask("GET", f"/connectors/{name}/status")["tasks"]

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data=data, method=method, headers={"Content-Type": "application/json"})
        try:
            with urlopen(request, timeout=60) as answer:
                text = answer.read()
        except HTTPError as error:
            if method == "GET" and error.code == 404:
                return {"tasks": [], "connector": {"state": "UNKNOWN"}}
            raise LakeChimeError(f"Kafka Connect refuses {method} {path}: {error.code} {error.read().decode()}") from error
        return json.loads(text) if text else None

    def _await(self, found: Any, what: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not found():
            if time.monotonic() > end:
                raise LakeChimeError(f"Kafka Connect has not {what} within {seconds:.0f} s; {self.server.log} says why")
            time.sleep(LOOK_SECONDS)


@contextmanager
def connect_worker(
    folder: Path, jars: Path, java: Java, kafka: str, *, connectors: Mapping[str, Mapping[str, str]] | None = None
) -> Iterator[Connect]:
    """A standalone worker, which keeps its offsets in a folder and forgets all connectors but those that it starts with.

    Args:
        folder: made where it is not there.
        jars: those of `ensure_server_jars`.
        java: that runs it.
        kafka: the address of the broker.
        connectors: by name the settings of those that it starts with, each time.

    Raises:
        LakeChimeError: it does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    properties = {
        "bootstrap.servers": kafka,
        "key.converter": JSON,
        "value.converter": JSON,
        "offset.storage.file.filename": f"{folder}/offsets",
        "offset.flush.interval.ms": "1000",
        "listeners": f"http://127.0.0.1:{port}",
    }
    files = [write_properties(folder / "worker.properties", properties)]
    for name, settings in (connectors or {}).items():
        files.append(write_properties(folder / f"{name}.properties", {"name": name, **settings}))
    command = java_command(java, jars, "org.apache.kafka.connect.cli.ConnectStandalone", *map(str, files))
    connect = Connect(f"http://127.0.0.1:{port}", Server("connect", command, folder))
    try:
        connect.server.start(connect.answers)
        yield connect
    finally:
        connect.server.end()
