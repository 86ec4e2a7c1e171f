"""The warm driver as a client sees it: the check that it answers, and who is attached."""

import fcntl
import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import mkstemp
from typing import IO

from py4j.protocol import Py4JError

from lakechime_dagster.lock import locked
from lakechime_dagster.settings import SparkSettings
from lakechime_dagster.spark.drivers.confs import revision_of
from lakechime_dagster.spark.drivers.jvm import Gateway, is_alive
from lakechime_dagster.spark.drivers.session import Connection, connect
from lakechime_dagster.spark.drivers.warm_file import WarmFile

ANSWER_SECONDS = 20  # long, for a busy machine; a dead driver refuses at once
START_SECONDS = 120


@dataclass(frozen=True)
class Unattached:
    """Why there is no warm driver to use, as the rest of a sentence that begins with `because`."""

    reason: str


@dataclass(frozen=True)
class Presence:
    """The open, locked file by which the host counts this client."""

    path: Path
    stream: IO[str]

    def end(self) -> None:
        self.path.unlink(missing_ok=True)
        self.stream.close()


@dataclass(frozen=True, kw_only=True)
class Warm:
    """An attached client."""

    connection: Connection
    host_pid: int
    presence: Presence

    def leave(self) -> None:
        self.presence.end()


def warm_lock(home: Path) -> Path:
    """Held while a client attaches and while the host retires a JVM: neither sees the other half-way."""
    return home / "spark" / "warm.lock"


def wake_file(home: Path) -> Path:
    """Made by a client that finds the warm driver asleep."""
    return home / "spark" / "wake"


def clients_folder(home: Path, host_pid: int, generation: int) -> Path:
    return home / "spark" / "clients" / f"{host_pid}-{generation}"


def attach(home: Path, settings: SparkSettings) -> Warm | Unattached:
    """Attaches this process to the warm driver of this home, waiting for one that is just starting or wakes up."""
    found = _await_up(home)
    if isinstance(found, Unattached):
        return found
    try:
        with locked(warm_lock(home), ANSWER_SECONDS):
            return _attach(home, settings)
    except TimeoutError:
        return Unattached(f"another client has been attaching for {ANSWER_SECONDS} s")


def _attach(home: Path, settings: SparkSettings) -> Warm | Unattached:
    found = WarmFile.read(home)
    if found is None:
        return Unattached("the warm driver has just ended")
    if found.revision != revision_of(settings, version("pyspark")):
        return Unattached("the warm driver was started with other settings or versions; start it again")
    gateway = Gateway(found.port, found.secret)
    if (trouble := probe(gateway)) is not None:
        return Unattached(f"the warm driver of process {found.host_pid} {trouble}")
    presence = _sign_in(clients_folder(home, found.host_pid, found.generation))
    try:
        connection = connect(gateway, is_shared=True)
    except (Py4JError, OSError, ValueError):
        presence.end()
        return Unattached(f"the warm driver of process {found.host_pid} did not let us in")
    return Warm(connection=connection, host_pid=found.host_pid, presence=presence)


def probe(gateway: Gateway) -> str | None:
    """What is wrong with the gateway at this port, or None if it answers and takes the secret."""
    try:
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=ANSWER_SECONDS) as channel:
            channel.sendall(f"A\n{gateway.secret}\n".encode())
            answer = channel.recv(64)
    except TimeoutError:
        return f"did not answer within {ANSWER_SECONDS} s"
    except OSError:
        return "cannot be reached"
    return None if answer.startswith(b"!yv") else "refused our secret"


def present_clients(folder: Path) -> int:
    """How many live processes are attached; what killed ones left is removed."""
    present = 0
    for path in folder.glob("client-*"):
        with suppress(OSError), path.open("a") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                present += 1
            else:
                path.unlink(missing_ok=True)
    return present


def attachments(folder: Path) -> int:
    """How many clients this JVM has had."""
    try:
        return (folder / "attached").stat().st_size
    except FileNotFoundError:
        return 0


def _await_up(home: Path) -> WarmFile | Unattached:
    end = time.monotonic() + START_SECONDS
    while (found := WarmFile.read(home)) is not None and is_alive(found.host_pid) and not found.is_up and time.monotonic() < end:
        if found.is_asleep:
            wake_file(home).touch()
        time.sleep(0.05)
    if found is None:
        return Unattached("no warm driver runs")
    if not is_alive(found.host_pid):
        return Unattached(f"the warm driver of process {found.host_pid} has died")
    return found if found.is_up else Unattached(f"the warm driver of process {found.host_pid} is still starting")


def _sign_in(folder: Path) -> Presence:
    """An open and locked file in this folder: it counts from the moment it has its name until we close it or die."""
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = mkstemp(prefix=".client-", dir=folder)
    os.close(handle)
    path = Path(name).with_name(f"client-{os.getpid()}-{Path(name).name.removeprefix('.client-')}")
    stream = Path(name).open("a")  # noqa: SIM115 - open, and so locked, for as long as this process is attached
    fcntl.flock(stream, fcntl.LOCK_EX)
    Path(name).rename(path)
    with (folder / "attached").open("a") as count:
        count.write(".")
    return Presence(path, stream)
