"""A real Kafka broker, and Kafka Connect with Debezium beside it, on loopback."""

import base64
import json
import os
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from lakechime_dagster.spark.java import find_java
from tests.support.processes import Service, await_found, free_port

USER, PASSWORD = "lake", "s3cret-of-kafka"  # who may come in at the secured listener
_SMALL = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LISTENERS = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", "SECURED": "SASL_PLAINTEXT"}


@dataclass(frozen=True)
class Kafka:
    """A running broker, which is its own controller.

    Attributes:
        address: For clients of any kind.
        secured: For clients that log in by SASL PLAIN as `USER`.
        service: Its process, which may be killed and started again.
    """

    address: str
    secured: str
    service: Service


@contextmanager
def kafka_broker(folder: Path, jars: Path) -> Iterator[Kafka]:
    """A broker of its own folder and ports."""
    folder.mkdir()
    ports = {listener: free_port() for listener in _LISTENERS}
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{ports['CONTROLLER']}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": ",".join(f"{listener}://127.0.0.1:{port}" for listener, port in ports.items()),
        "listener.security.protocol.map": ",".join(f"{listener}:{protocol}" for listener, protocol in _LISTENERS.items()),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secured.plain.sasl.jaas.config": (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        ),
        "log.dirs": f"{folder}/data",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }
    file = _write_properties(folder / "server.properties", properties)
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    storage = _java(jars, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(file))
    with (folder / "format.log").open("wb") as log:
        subprocess.run(storage, check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment())
    with _started("kafka", _java(jars, "kafka.Kafka", str(file)), folder, ports["PLAINTEXT"]) as service:
        await_found(lambda: _is_ready(service), "Kafka listens", 60)
        yield Kafka(f"127.0.0.1:{ports['PLAINTEXT']}", f"127.0.0.1:{ports['SECURED']}", service)


@dataclass(frozen=True)
class Connect:
    """A Kafka Connect worker, spoken to by its REST interface."""

    url: str
    service: Service

    def create(self, name: str, config: Mapping[str, str]) -> None:
        self._ask("POST", "/connectors", {"name": name, "config": config})
        await_found(lambda: self._tasks(name), f"a task of {name}", 60)

    def delete(self, name: str) -> None:
        """Ends a connector; what it has read is in Kafka then, because a task flushes its producer when it stops."""
        self._ask("DELETE", f"/connectors/{name}")

    def forget(self, name: str) -> None:
        """Removes the offsets of a connector, as one does to make it begin anew; it stands still afterwards."""
        self._ask("PUT", f"/connectors/{name}/stop")
        await_found(lambda: self._ask("GET", f"/connectors/{name}/status")["connector"]["state"] == "STOPPED", f"{name} stopped", 30)
        self._ask("DELETE", f"/connectors/{name}/offsets")

    def resume(self, name: str) -> None:
        self._ask("PUT", f"/connectors/{name}/resume")
        await_found(lambda: self._tasks(name), f"a task of {name}", 60)

    def expect_health(self, name: str) -> None:
        """Raises what a failed task says."""
        for task in self._tasks(name):
            if task["state"] == "FAILED":
                raise RuntimeError(f"the task of {name} failed: {task['trace']}")

    def answers(self) -> bool:
        with suppress(URLError, ConnectionError, TimeoutError), urlopen(f"{self.url}/connectors", timeout=5) as answer:
            return answer.status == 200
        return False

    def _tasks(self, name: str) -> list[dict[str, Any]]:
        return self._ask("GET", f"/connectors/{name}/status")["tasks"]

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data=data, method=method, headers={"Content-Type": "application/json"})
        try:
            with urlopen(request, timeout=60) as answer:
                text = answer.read()
        except HTTPError as error:
            if method == "GET" and error.code == 404:  # a connector that was posted a moment ago
                return {"tasks": [], "connector": {"state": "UNKNOWN"}}
            raise RuntimeError(f"{method} {path}: {error.code} {error.read().decode()}") from error
        return json.loads(text) if text else None


@contextmanager
def connect_worker(folder: Path, jars: Path, kafka: Kafka) -> Iterator[Connect]:
    """A standalone worker with Debezium's connectors."""
    folder.mkdir()
    port = free_port()
    properties = {
        "bootstrap.servers": kafka.address,
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "offset.storage.file.filename": f"{folder}/offsets",
        "offset.flush.interval.ms": "1000",
        "listeners": f"http://127.0.0.1:{port}",
    }
    file = _write_properties(folder / "worker.properties", properties)
    command = _java(jars, "org.apache.kafka.connect.cli.ConnectStandalone", str(file))
    with _started("connect", command, folder, port) as service:
        connect = Connect(f"http://127.0.0.1:{port}", service)
        await_found(lambda: _is_ready(service) and connect.answers(), "Kafka Connect answers", 120)
        yield connect


@contextmanager
def _started(name: str, command: list[str], folder: Path, port: int) -> Iterator[Service]:
    service = Service(name, command, cwd=folder, env=_environment(), port=port)
    service.start()
    try:
        yield service
    finally:
        service.end()


def _is_ready(service: Service) -> bool:
    if not service.is_running:
        raise RuntimeError(f"{service.name} ended: {service.tail()}")
    return service.is_ready


def _java(jars: Path, *arguments: str) -> list[str]:
    return [str(find_java().executable), *_SMALL, "-cp", f"{jars}/*", *arguments]


def _environment() -> dict[str, str]:
    """Without the options of the tests' Spark drivers, which have other classes."""
    return {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}


def _write_properties(file: Path, properties: Mapping[str, str]) -> Path:
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), encoding="utf-8")
    return file
