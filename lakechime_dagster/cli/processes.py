"""Child processes of `lakechime dev`: each in a group of its own, its lines shown with a prefix, ended as a whole."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ENDS = ((signal.SIGINT, 12.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0))  # signal, seconds to wait for its effect
LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Child:
    """A running child."""

    name: str
    process: subprocess.Popen[str]

    @property
    def code(self) -> int | None:
        """Its exit code, None while it runs."""
        return self.process.poll()


def start_child(name: str, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], show: Callable[[str], None]) -> Child:
    """Start a child in its own session, so that a Ctrl-C of the terminal reaches it through us only.

    The caller must have handlers for its signals: a handled signal has its default effect again in the child, an
    ignored one, as a background job of a script has it, would stay ignored.
    """
    process = subprocess.Popen(
        list(command), cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        encoding="utf-8", errors="replace", start_new_session=True,
    )  # fmt: skip
    child = Child(name, process)
    threading.Thread(target=_show_lines, args=(child, show), daemon=True).start()
    return child


def end_children(children: Sequence[Child], ends: Sequence[tuple[signal.Signals, float]] = ENDS) -> None:
    """End all children with everything they started: asked first, then told, then killed."""
    for number, seconds in ends:
        for child in children:
            _signal_group(child, number)
        end = time.monotonic() + seconds
        while any(_lives(child) for child in children) and time.monotonic() < end:
            time.sleep(LOOK_SECONDS)
        if not any(_lives(child) for child in children):
            return


def _show_lines(child: Child, show: Callable[[str], None]) -> None:
    assert child.process.stdout is not None  # it is a pipe
    for line in child.process.stdout:
        show(f"{child.name:<8}| {line.rstrip()}")


def _lives(child: Child) -> bool:
    """Whether the child or something of its group still runs."""
    child.process.poll()  # takes note of its end, so that it is no zombie in its group
    try:
        os.killpg(child.process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return child.process.returncode is None
    return child.process.returncode is None or sys.platform != "darwin"


def _signal_group(child: Child, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.process.pid, number)
