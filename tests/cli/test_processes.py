"""Children of `lakechime dev`: their lines, their groups, their end."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import Queue

import pytest

from lakechime_dagster.cli.dev import Child, end_children, start_child

QUICK = ((signal.SIGINT, 0.3), (signal.SIGTERM, 0.3), (signal.SIGKILL, 10.0))


@pytest.fixture
def lines() -> "Queue[str]":
    """The lines of children, to be awaited."""
    return Queue()


@pytest.fixture(autouse=True)
def _handled_interrupt() -> Iterator[None]:
    """What `lakechime dev` does too: a handled signal is not ignored by children, however these
    tests were started.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def children() -> Iterator[list[Child]]:
    """What a test started; ended whatever happens."""
    started: list[Child] = []
    yield started
    for child in started:
        with suppress(ProcessLookupError):
            os.killpg(child.process.pid, signal.SIGKILL)
        child.process.wait()


def start(children: list[Child], lines: "Queue[str]", folder: Path, code: str) -> Child:
    script = folder / "child.py"
    script.write_text(code)
    child = start_child(
        "kid", [sys.executable, str(script)], cwd=folder, env=os.environ, show=lines.put
    )
    children.append(child)
    return child


def group_is_alive(child: Child) -> bool:
    child.process.poll()
    try:
        os.killpg(child.process.pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_child_that_hears_is_only_asked(
    children: list[Child], lines: "Queue[str]", tmp_path: Path
) -> None:
    code = (
        "import signal, sys\ntry:\n    print('up', flush=True)\n    signal.pause()\nexcept "
        "KeyboardInterrupt:\n    sys.exit(7)"
    )
    child = start(children, lines, tmp_path, code)
    assert lines.get(timeout=30) == "kid     | up"
    end_children([child])
    assert child.code == 7


def test_a_child_that_does_not_hear_is_killed_with_all_that_it_started(
    children: list[Child], lines: "Queue[str]", tmp_path: Path
) -> None:
    grandchild = tmp_path / "grandchild.py"
    deaf = "for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)"
    grandchild.write_text(f"import signal\n{deaf}\nprint('both up', flush=True)\nsignal.pause()")
    code = (
        f"import signal, subprocess, sys\nchild = subprocess.Popen([sys.executable, "
        f"{str(grandchild)!r}])\nsignal.pause()"
    )
    child = start(children, lines, tmp_path, code)
    assert lines.get(timeout=30) == "kid     | both up"
    end_children([child], QUICK)
    assert not group_is_alive(child)


def test_an_ignored_interrupt_is_not_inherited(tmp_path: Path) -> None:
    """A background job of a script ignores SIGINT; what it starts through us does not, once we
    handle it.
    """
    code = f"""
import os, queue, signal, sys
lines = queue.Queue()
sys.path.insert(0, {str(Path.cwd())!r})
from pathlib import Path
from lakechime_dagster.cli.dev import end_children, start_child
signal.signal(signal.SIGINT, lambda *_: None)
kid = "import signal, sys; print('handler', signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
child = start_child("kid", [sys.executable, "-c", kid], cwd=Path("."), env=os.environ, show=lines.put)
print(lines.get(timeout=30)); child.process.wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert done.stdout == "kid     | handler True\n", done.stderr
