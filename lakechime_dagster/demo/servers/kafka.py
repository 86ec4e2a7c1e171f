"""A Kafka broker, which is its own controller, on loopback."""

import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lakechime_dagster.demo.servers.server import Server, environment, free_port, listens, write_properties
from lakechime_dagster.spark.drivers.java import Java

SMALL = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SINGLE = {  # what a cluster of one broker cannot have more of
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


@contextmanager
def kafka_broker(
    folder: Path, jars: Path, java: Java, port: int, *, listeners: Mapping[str, tuple[int, str]] | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Server]:  # fmt: skip
    """A broker that keeps its topics in a folder, found at a port of 127.0.0.1.

    Args:
        folder: made where it is not there.
        jars: those of `ensure_server_jars`.
        java: that runs it.
        port: of clients without a login.
        listeners: further ones, by name their port and security protocol.
        settings: further ones of the broker.

    Raises:
        LakeChimeError: it does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ports = {"PLAINTEXT": (port, "PLAINTEXT"), "CONTROLLER": (free_port(), "PLAINTEXT"), **(listeners or {})}
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{ports['CONTROLLER'][0]}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, (port, _) in ports.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, (_, protocol) in ports.items()),
        "log.dirs": f"{folder}/data",
        **SINGLE,
        **(settings or {}),
    }
    file = write_properties(folder / "server.properties", properties)
    if not (folder / "data" / "meta.properties").exists():
        format_storage(folder, file, jars, java, uuid.uuid4())
    server = Server("kafka", java_command(java, jars, "kafka.Kafka", str(file)), folder)
    try:
        server.start(lambda: listens(port))
        yield server
    finally:
        server.end()


def java_command(java: Java, jars: Path, *arguments: str) -> list[str]:
    """A Java program of these jars, in a small heap."""
    return [str(java.executable), *SMALL, "-cp", f"{jars}/*", *arguments]


def format_storage(folder: Path, properties: Path, jars: Path, java: Java, cluster: uuid.UUID) -> None:
    """Prepare the folder of a broker of a new cluster; its id is in hex, since one in base64 may begin as an option does."""
    command = java_command(java, jars, "kafka.tools.StorageTool", "format", "-t", cluster.hex, "-c", str(properties))
    with (folder / "format.log").open("wb") as log:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment())
