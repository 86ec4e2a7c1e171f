"""The servers of the demo's database: what is reported of one that does not start, and that nothing of
it is left.
"""

import sys
import uuid
from pathlib import Path

import pytest

from lakechime_dagster.demo.servers import (
    Server,
    format_storage,
    free_port,
    listens,
    write_properties,
)
from lakechime_dagster.spark.jvm import find_java
from tests.support.processes import await_found


def python(code: str, folder: Path) -> Server:
    return Server("sample", [sys.executable, "-c", code], folder)


def test_a_server_is_killed_and_started_again_at_its_port_and_ends_with_all_that_it_started(
    tmp_path: Path,
) -> None:
    port = free_port()
    child = (
        f"import socket, signal; s = socket.create_server(('127.0.0.1', {port})); signal.pause()"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    server = python(child, tmp_path)
    server.start(lambda: listens(port))
    server.kill()
    assert not listens(port)
    server.command[2] = parent
    server.start(lambda: listens(port))
    server.end()
    await_found(lambda: not listens(port), "the end of what it started", 10)
    server.end()


@pytest.mark.services
def test_a_cluster_whose_id_begins_with_a_dash_in_base64_is_no_option_of_the_storage_tool(
    tmp_path: Path, stack_jars: Path
) -> None:
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": f"{tmp_path}/data",
    }
    file = write_properties(tmp_path / "server.properties", properties)
    format_storage(tmp_path, file, stack_jars, find_java(), uuid.UUID(bytes=b"\xf8" * 16))
    assert (tmp_path / "data" / "meta.properties").exists(), (tmp_path / "format.log").read_text()
