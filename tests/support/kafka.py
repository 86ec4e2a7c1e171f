"""The Kafka broker of the tests, which also has a listener with a login, and Kafka Connect beside
it.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from lakechime_dagster.demo import servers
from lakechime_dagster.demo.servers import LOOK_SECONDS, Connect, Server
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.spark.jvm import find_java
from tests.support.processes import free_port

USER, PASSWORD = "lake", "s3cret-of-kafka"  # who may come in at the secured listener
_LOGIN = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.secured.plain.sasl.jaas.config": (
        f"org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'user_{USER}="{PASSWORD}";'
    ),
}


@dataclass(frozen=True)
class Kafka:
    """A running broker, which is its own controller.

    Attributes:
        address: For clients of any kind.
        secured: For clients that log in by SASL PLAIN as `USER`.
        server: Its process.
    """

    address: str
    secured: str
    server: Server


@contextmanager
def kafka_broker(folder: Path, jars: Path) -> Iterator[Kafka]:
    """A broker of its own folder and ports."""
    port, secured = free_port(), free_port()
    listeners = {"SECURED": (secured, "SASL_PLAINTEXT")}
    with servers.kafka_broker(
        folder, jars, find_java(), port, listeners=listeners, settings=_LOGIN
    ) as server:
        yield Kafka(f"127.0.0.1:{port}", f"127.0.0.1:{secured}", server)


class Worker(Connect):
    """A running worker, whose connectors a test creates and looks at."""

    def create(self, name: str, config: Mapping[str, str]) -> None:
        self._ask("POST", "/connectors", {"name": name, "config": config})
        self._await(lambda: self.tasks(name), f"a task of {name}")

    def delete(self, name: str) -> None:
        """Ends a connector; what it has read is in Kafka then, because a task flushes its producer
        when it stops.
        """
        self._ask("DELETE", f"/connectors/{name}")

    def forget(self, name: str) -> None:
        """Removes the offsets of a connector, as one does to make it start again; it stands still
        afterwards.
        """
        self._ask("PUT", f"/connectors/{name}/stop")
        self._await(
            lambda: (
                self._ask("GET", f"/connectors/{name}/status")["connector"]["state"] == "STOPPED"
            ),
            f"{name} stopped",
        )
        self._ask("DELETE", f"/connectors/{name}/offsets")

    def resume(self, name: str) -> None:
        self._ask("PUT", f"/connectors/{name}/resume")
        self._await(lambda: self.tasks(name), f"a task of {name}")

    def expect_health(self, name: str) -> None:
        """Raises what a failed task says."""
        for task in self.tasks(name):
            if task["state"] == "FAILED":
                raise LakeChimeError(f"the task of {name} failed: {task['trace']}")

    def tasks(self, name: str) -> list[dict[str, Any]]:
        """What a connector's tasks do; none yet where it was posted a moment ago."""
        return self._ask("GET", f"/connectors/{name}/status")["tasks"]

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(
            self.url + path, data=data, method=method, headers={"Content-Type": "application/json"}
        )
        try:
            with urlopen(request, timeout=60) as answer:
                text = answer.read()
        except HTTPError as error:
            if method == "GET" and error.code == 404:
                return {"tasks": [], "connector": {"state": "UNKNOWN"}}
            raise LakeChimeError(
                f"Kafka Connect refuses {method} {path}: {error.code} {error.read().decode()}"
            ) from error
        return json.loads(text) if text else None

    def _await(self, found: Any, what: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not found():
            if time.monotonic() > end:
                raise LakeChimeError(
                    f"Kafka Connect has not {what} within {seconds:.0f} s; {self.server.log} says "
                    f"why"
                )
            time.sleep(LOOK_SECONDS)


@contextmanager
def connect_worker(folder: Path, jars: Path, broker: Kafka) -> Iterator[Worker]:
    """A standalone worker with Debezium's connectors."""
    with servers.connect_worker(folder, jars, find_java(), broker.address) as worker:
        yield Worker(worker.url, worker.server)
