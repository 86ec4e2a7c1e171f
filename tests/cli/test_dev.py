"""`lakechime dev` and `lakechime demo`: what they write and refuse, that one Ctrl-C ends all children,
and how a replay goes on.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import Queue

import pytest
import yaml

from lakechime_dagster.cli.demo import DEMO_LAKE
from lakechime_dagster.cli.dev import (
    Child,
    dagster_yaml,
    end_children,
    is_noise,
    start_child,
    workspace_text,
    write_dagster_home,
)
from lakechime_dagster.demo.servers import PROGRAMS
from lakechime_dagster.lock import locked
from tests.support.cli import Cli

ROOT = Path(__file__).resolve().parents[2]
NO_SPARK = {"LAKECHIME_SPARK_DRIVER": "spark://127.0.0.1:1"}  # nothing is started for it


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Running:
    """A `lakechime dev` of its own; lines are awaited, not slept for."""

    def __init__(self, folder: Path, home: Path, port: int) -> None:
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("LAKECHIME_", "DAGSTER_"))
        }
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "lakechime_dagster.cli.main",
                "dev",
                "--port",
                str(port),
                "--speed",
                "6",
            ],
            cwd=folder,
            text=True,
            env=clean | NO_SPARK | {"LAKECHIME_HOME": str(home), "LAKECHIME_LAKE": DEMO_LAKE},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # as a background job of a script has it
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )
        self.lines: list[str] = []
        self.news = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self.news:
                self.lines.append(line)
                self.news.notify_all()

    def await_line(self, text: str, seconds: float = 240) -> str:
        """The first line with this text."""

        def found() -> str | None:
            return next((line for line in self.lines if text in line), None)

        with self.news:
            line = self.news.wait_for(found, seconds)
        assert line, "".join(self.lines[-40:])
        return line

    def descendants(self) -> dict[int, str]:
        """All processes below it, by id, with their commands."""
        table = subprocess.run(
            ["ps", "-axwwo", "pid=,ppid=,args="], capture_output=True, text=True, check=True
        ).stdout
        rows = [line.split(None, 2) for line in table.splitlines()]
        family, commands = {self.process.pid}, {}
        while grown := {int(pid) for pid, parent, *_ in rows if int(parent) in family} - family:
            family |= grown
            commands |= {
                int(pid): args[0] if args else "" for pid, _, *args in rows if int(pid) in grown
            }
        return commands


@pytest.fixture
def start_dev(tmp_path: Path) -> Iterator[Callable[[Path, int], Running]]:
    """Starts deployments that end with the test, whatever happens."""
    started: list[Running] = []

    def start(folder: Path, port: int) -> Running:
        started.append(Running(folder, tmp_path / "home", port))
        return started[-1]

    yield start
    for running in started:
        running.process.terminate()
        running.process.wait(60)


@pytest.mark.e2e
def test_one_interrupt_ends_everything_that_was_started(
    tmp_path: Path, start_dev: Callable[[Path, int], Running]
) -> None:
    port = free_port()
    running = start_dev(tmp_path, port)
    running.await_line(f"The UI is at http://127.0.0.1:{port}")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=60) as answer:
        assert answer.status == 200
    running.await_line("replay  | 2013-01-01 05:00")
    page = (
        running.await_line("lineage is shown and taken at ").partition(" at ")[2].partition(",")[0]
    )
    with urllib.request.urlopen(f"{page}/around?table=gold.daily_delays", timeout=60) as answer:
        assert "bronze.weather" in answer.read().decode()
    family = running.descendants()
    replayers = [pid for pid, command in family.items() if "demo --speed" in command]
    assert len(replayers) == 1, (family, running.lines[-20:])
    os.kill(replayers[0], signal.SIGKILL)
    running.await_line("replay ended with exit code -9; the rest continues")
    family |= running.descendants()
    assert len(family) >= 4, family
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(90) == 0
    assert {pid: command for pid, command in family.items() if lives(pid)} == {}
    assert not [line for line in running.lines if "Traceback" in line]


@pytest.mark.e2e
def test_the_end_of_dagster_is_the_end_with_an_error(
    tmp_path: Path, start_dev: Callable[[Path, int], Running]
) -> None:
    (tmp_path / "workspace.yaml").write_text("load_from: [nonsense]\n")
    running = start_dev(tmp_path, free_port())
    running.await_line("error: Dagster ended by itself with exit code")
    assert running.process.wait(90) == 1


def test_the_dagster_home_gets_the_projects_file_else_the_packages(tmp_path: Path) -> None:
    write_dagster_home(tmp_path / "home", tmp_path)
    written = tmp_path / "home" / "dagster.yaml"
    assert yaml.safe_load(written.read_text()) == yaml.safe_load(dagster_yaml())
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    write_dagster_home(tmp_path / "home", tmp_path)
    assert yaml.safe_load(written.read_text()) == {"telemetry": {"enabled": False}}


def test_the_workspace_of_an_installed_package_imports_from_the_project(tmp_path: Path) -> None:
    folder = tmp_path / "it's: a #folder"
    locations = [
        location["python_module"]
        for location in yaml.safe_load(workspace_text(folder))["load_from"]
    ]
    assert locations == [
        {
            "module_name": f"lakechime_dagster.{module}",
            "working_directory": str(folder),
            "location_name": name,
        }
        for name, module in (("lakechime_dagster", "definitions"), ("outside", "outside"))
    ]
    own, _ = yaml.safe_load(workspace_text(folder, "shop.definitions"))["load_from"]
    assert (own["python_module"]["module_name"], own["python_module"]["location_name"]) == (
        "shop.definitions",
        "shop",
    )


def test_a_second_deployment_in_the_same_home_is_refused(lakechime: Cli) -> None:
    with locked(lakechime.home / "dev.lock"):
        answer = lakechime("dev", "--port", str(free_port()))
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("error: another `lakechime dev` runs in ")


def test_a_database_whose_programs_are_missing_is_refused_at_once(
    lakechime_fresh: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKECHIME_DEMO_CDC", "1")
    monkeypatch.setenv("PATH", "")
    answer = lakechime_fresh("dev", "--port", str(free_port()))
    assert (answer.code, answer.out) == (1, "")
    assert re.fullmatch(
        r"error: mariadbd and mariadb-install-db not found on PATH; install MariaDB's server .+\n",
        answer.err,
    )
    assert not (lakechime_fresh.home / "dce.sqlite").exists()


@pytest.mark.skipif(
    any(shutil.which(program) is None for program in PROGRAMS), reason="needs MariaDB to get so far"
)
def test_a_port_that_kafka_cannot_have_is_reported_with_another_one(
    lakechime: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        monkeypatch.setenv("LAKECHIME_DEMO_CDC", f"127.0.0.1:{taken}")
        answer = lakechime("dev", "--port", str(free_port()))
    assert answer.code == 1
    assert answer.err == (
        f"error: port {taken} of 127.0.0.1, at which Kafka is to be, is in use; end what uses it, "
        f"or choose another one with "
        f"LAKECHIME_DEMO_CDC=127.0.0.1:{taken + 1}\n"
    )


def test_lines_that_say_nothing_new_are_left_out() -> None:
    news = [
        "dagster - DEBUG - job - 93b8 - 292 - RUN_START - Started execution",
        "dagster.daemon.SensorDaemon - INFO - Launching run for silver_flights",
    ]
    noise = [
        "dagster.daemon.SensorDaemon - INFO - Checking for new runs for sensor: silver_flights",
        "dagster.daemon.SensorDaemon - INFO - Sensor silver_flights skipped: nothing came",
        "dagster - DEBUG - job - 93b8 - 292 - execution - STEP_START - Started",
        "dagster.daemon - INFO - 4 runs are currently in progress. Maximum is 4, won't launch more.",
    ]
    assert [is_noise(line) for line in news + noise] == [False, False, True, True, True, True]


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


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


@pytest.mark.tier2
def test_a_replay_goes_on_where_it_stopped_and_verify_finds_the_computed_tables_missing(
    lakechime: Cli,
) -> None:
    nothing = lakechime("demo", "--verify", "--json")
    assert (nothing.code, nothing.json["error"]["type"]) == (3, "NotFoundError")
    would = lakechime("demo", "--days", "2", "--hours", "6", "--dry-run", "--json")
    assert (would.json["replayed"], would.json["dry_run"], would.json["of"]) == (
        0,
        True,
        2 * 24 + 34,
    )
    first = lakechime("demo", "--days", "2", "--hours", "6", "--json").json
    assert first == {"ticks": 6, "of": 82, "replayed": 6, "dry_run": False}
    assert lakechime("demo", "--hours", "2").out.endswith("2 hours replayed; 8 of 82 are done\n")
    other = lakechime("demo", "--seed", "7", "--json")
    assert (other.code, other.json["error"]["field"]) == (1, "replay")
    found = lakechime("demo", "--verify", "--json")
    tables = {one["table"]: one["finding"] for one in found.json["tables"]}
    assert (found.code, found.json["equal"]) == (1, False)
    assert (tables["bronze.flights"], tables["bronze.weather"], tables["silver.flights"]) == (
        "equal",
        "equal",
        "missing",
    )
    marks = lakechime(
        "dce", "list", "--table", "bronze.weather", "--tag", "complete=true", "--json"
    ).json["events"]
    assert [mark["partition"][1] for mark in marks] == list(range(8))
