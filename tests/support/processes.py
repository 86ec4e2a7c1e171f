"""Processes of the product as a test runs them: in a session of their own, logged to a file, ended
with all they started.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil

# a machine that is busy with other things needs more
PATIENCE = float(os.environ.get("LAKECHIME_TEST_PATIENCE", "1"))
REPOSITORY = Path(__file__).parents[2]
Found = TypeVar("Found")


class Service:
    """A program that is started, found ready by its port, killed, and started again on the same
    port.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        port: int | None = None,
        log: Path | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.cwd = cwd
        self.env = dict(env)
        self.port = port
        self.log = log or cwd / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.groups: list[int] = []
        self.starts = 0

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def is_ready(self) -> bool:
        return self.is_running and (self.port is None or is_listening(self.port))

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.cwd,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_default_interrupt,
            )
        self.groups.append(self.process.pid)
        self.starts += 1

    def kill(self) -> None:
        """End the program alone, at once; what it started goes on."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def interrupt(self, seconds: float = 60) -> int:
        """Send Ctrl-C to the program and its group as a terminal does, and wait for its exit
        code.
        """
        os.killpg(self.pid, signal.SIGINT)
        assert self.process is not None
        return self.process.wait(seconds)

    def end(self) -> None:
        """End the program, and by force everything that it has ever started and that still runs."""
        if self.is_running:
            with suppress(subprocess.TimeoutExpired):
                self.interrupt(30)
        for group in self.groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        if self.process is not None:
            self.process.wait(30)

    def left_over(self, seconds: float = 30) -> list[str]:
        """What still works in its home some time after it ended: the command lines of processes
        with its environment.
        """
        home = self.env["LAKECHIME_HOME"]
        end = time.monotonic() + seconds * PATIENCE
        while (found := processes_of(home)) and time.monotonic() < end:
            time.sleep(0.2)
        return found

    def tail(self, lines: int = 40) -> str:
        """The last lines of its log, for the message of a failed test."""
        return (
            "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
            if self.log.exists()
            else ""
        )


def environment(home: Path, **wishes: str) -> dict[str, str]:
    """The variables of a process that works in this home, whatever the environment of the tests
    says of others.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LAKECHIME_", "DAGSTER_"))
    }
    own = {
        "LAKECHIME_HOME": str(home),
        "DAGSTER_HOME": str(home / "dagster"),
        "LAKECHIME_SPARK_MEMORY": "1g",
        "LAKECHIME_SPARK_CORES": "2",
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONUNBUFFERED": "1",
        "NO_COLOR": "1",
    }
    return inherited | own | wishes


def program(name: str) -> list[str]:
    """A console script of this environment."""
    return [str(Path(sys.executable).with_name(name))]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def is_listening(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


def is_alive(pid: int) -> bool:
    """Whether a process runs, or is stopped; one that has ended and is not waited for does not."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def processes_of(home: str) -> list[str]:
    """The command lines of the processes that work in a home."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if (
                process.status() != psutil.STATUS_ZOMBIE
                and process.environ().get("LAKECHIME_HOME") == home
            ):
                found.append(" ".join(process.cmdline()))
    return found


def await_found(
    look: Callable[[], Found | None],
    what: str,
    seconds: float,
    meanwhile: Callable[[], object] = lambda: None,
    pause: float = 0.2,
) -> Found:
    """What `look` finds; asked again and again until it finds something, with `meanwhile` in
    between.
    """
    end = time.monotonic() + seconds * PATIENCE
    while not (found := look()):
        assert time.monotonic() < end, f"not within {seconds * PATIENCE:.0f} s: {what}"
        meanwhile()
        time.sleep(pause)
    return found


def _default_interrupt() -> None:
    """A shell starts what it puts into the background with Ctrl-C ignored, which is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
