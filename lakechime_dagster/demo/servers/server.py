"""A server: a process in a group of its own, logged to a file, found ready by asking it, ended by its id with all that it started."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from lakechime_dagster.errors import LakeChimeError

LOOK_SECONDS = 0.1
END_SECONDS = 30.0  # for what it has to write; then it is killed


class Server:
    """A server that is started, asked whether it is ready, ended or killed, and started again."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, log: Path | None = None) -> None:
        self.name = name
        self.command = list(command)
        self.folder = folder
        self.log = log or folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, answers: Callable[[], bool], seconds: float = 120) -> None:
        """Start it, and wait until it answers.

        Raises:
            LakeChimeError: it ended, or does not answer in time; its log says why.
        """
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, cwd=self.folder, env=environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        end = time.monotonic() + seconds
        while not answers():
            if not self.is_running:
                raise LakeChimeError(f"{self.name} ended with exit code {self.process.poll()}; {self.log} says why:\n{self.tail(5)}")
            if time.monotonic() > end:
                raise LakeChimeError(f"{self.name} does not answer within {seconds:.0f} s; {self.log} says why:\n{self.tail(5)}")
            time.sleep(LOOK_SECONDS)

    def kill(self) -> None:
        """End it at once, as a power failure does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Let it write what it must, and end it; by force what of its group is there after that."""
        if self.process is None:
            return
        if self.is_running:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(END_SECONDS)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def tail(self, lines: int = 40) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""


def environment() -> dict[str, str]:
    """This process's without the options of Spark's drivers, which have other classes."""
    return {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}


def free_port() -> int:
    """A port of loopback that nobody uses."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def listens(port: int) -> bool:
    """Whether something listens at a port of loopback."""
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


def write_properties(file: Path, properties: Mapping[str, str]) -> Path:
    """A file of settings as Java reads it, for nobody else's eyes."""
    file.touch(mode=0o600)
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), encoding="utf-8")
    return file
