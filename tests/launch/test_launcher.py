"""Runs launched as forks: what they find imported, how they end, and which are none."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test
from dagster._core.workspace.context import WorkspaceProcessContext, WorkspaceRequestContext
from dagster._core.workspace.load_target import GrpcServerTarget, PythonFileTarget, WorkspaceLoadTarget

from lakechime_dagster.launch.launcher import PROCESS_TAG
from tests.support.processes import Service, await_found, environment, free_port

YAML = """
telemetry: {enabled: false}
run_launcher: {module: lakechime_dagster.launch, class: ForkedRunLauncher}
"""
JOBS = Path(__file__).with_name("jobs.py")
SAID = r"preloaded: (\w+), parent: (\d+)"
STARTED = r"Started process for run \(pid: (\d+)\)"
THREADS = "import lakechime_dagster.launch.preloaded; print(open('/proc/self/status').read().split('Threads:')[1].split()[0])"


@dataclass(frozen=True)
class Launching:
    """An instance, and a workspace of one code location."""

    instance: dg.DagsterInstance
    workspace: WorkspaceRequestContext

    def launch(self, job: str) -> str:
        """Launch a job; the id of its run."""
        (location,) = self.workspace.code_locations
        found = next(iter(location.get_repositories().values())).get_full_job(job)
        run = create_run_for_test(
            self.instance, job_name=job, remote_job_origin=found.get_remote_origin(), job_code_origin=found.get_python_origin(),
            status=dg.DagsterRunStatus.NOT_STARTED,
        )  # fmt: skip
        return self.instance.launch_run(run.run_id, self.workspace).run_id

    def launch_waiting(self) -> tuple[str, int]:
        """A run in the middle of its step, and its process."""
        run_id = self.launch("waits")
        self.await_message(run_id, "I wait")
        return run_id, int(self.await_message(run_id, STARTED)[1])

    def await_end(self, run_id: str) -> dg.DagsterRunStatus:
        """How a run ended."""
        return await_found(lambda: run.status if (run := self.run(run_id)).is_finished else None, f"the end of {run_id}", 120)

    def await_message(self, run_id: str, pattern: str) -> re.Match[str]:
        """A line of a run's log."""

        def found() -> re.Match[str] | None:
            return re.search(pattern, "\n".join(one.message for one in self.instance.all_logs(run_id)))

        return await_found(found, pattern, 120)

    def run(self, run_id: str) -> dg.DagsterRun:
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        return run


@contextmanager
def launching_from(home: Path, target: WorkspaceLoadTarget) -> Iterator[Launching]:
    (home / "dagster.yaml").write_text(YAML)
    with dg.DagsterInstance.from_config(str(home)) as instance, WorkspaceProcessContext(instance, target) as process:
        yield Launching(instance, process.create_request_context())


@pytest.fixture(scope="module")
def launching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launching]:
    target = PythonFileTarget(python_file=str(JOBS), attribute=None, working_directory=str(JOBS.parent), location_name="here")
    with launching_from(tmp_path_factory.mktemp("launching"), target) as found:
        yield found


def test_a_run_finds_imported_what_runs_import(launching: Launching) -> None:
    said = []
    for run_id in (launching.launch("says"), launching.launch("says")):
        assert launching.await_end(run_id) is dg.DagsterRunStatus.SUCCESS
        said.append(launching.await_message(run_id, SAID).groups())
    assert said[0] == said[1]  # one process forks them
    assert said[0][0] == "True"


def test_what_is_preloaded_has_one_thread(tmp_path: Path) -> None:
    """A fork has but the thread that forks: what others held then is held for ever."""
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=True, env=environment(tmp_path))
    assert done.stdout.split() == ["1"]


def test_a_run_whose_process_was_killed_has_failed(launching: Launching) -> None:
    run_id, process = launching.launch_waiting()
    os.kill(process, signal.SIGKILL)
    assert launching.await_end(run_id) is dg.DagsterRunStatus.FAILURE
    launching.await_message(run_id, f"The run's process {process} ended with SIGKILL before the run did")


def test_a_run_that_is_terminated_is_interrupted(launching: Launching) -> None:
    run_id, _ = launching.launch_waiting()
    with dg.DagsterInstance.from_ref(launching.instance.get_ref()) as elsewhere:  # as the process of the UI has it
        assert elsewhere.run_launcher.terminate(run_id)
    launching.await_message(run_id, "I clean up")
    assert launching.await_end(run_id) is dg.DagsterRunStatus.CANCELED
    assert not launching.instance.run_launcher.terminate(run_id)


@pytest.mark.parametrize(
    ("tag", "problem"),
    [
        ("{host} {pid} 1", "its process {pid} has ended"),  # the number is another process's now
        ("{host} 4194305 {begun}", "its process 4194305 has ended"),  # beyond the greatest of Linux
        ("elsewhere {pid} {begun}", "its process {pid} is on elsewhere, and this is {host}"),
    ],
)  # fmt: skip
def test_a_process_that_is_not_the_runs_is_left_alone(launching: Launching, tag: str, problem: str) -> None:
    run_id, process = launching.launch_waiting()
    begun = launching.run(run_id).tags[PROCESS_TAG].split(" ")[2]
    known = {"host": socket.gethostname(), "pid": process, "begun": begun}
    launching.instance.add_run_tags(run_id, {PROCESS_TAG: tag.format(**known)})
    assert not launching.instance.run_launcher.terminate(run_id)
    launching.await_message(run_id, f"The run was not interrupted: {problem.format(**known)}.")
    os.kill(process, signal.SIGKILL)
    assert launching.await_end(run_id) is dg.DagsterRunStatus.FAILURE


def test_a_run_of_a_code_location_on_the_network_is_its_servers(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "dagster", "api", "grpc", "-f", str(JOBS), "-h", "127.0.0.1", "-p", str(port)]
    server = Service("server", command, cwd=tmp_path, log=tmp_path / "server.log", env=environment(tmp_path), port=port)
    server.start()
    try:
        await_found(lambda: server.is_ready, "the server listens", 120)
        with launching_from(tmp_path, GrpcServerTarget(host="127.0.0.1", port=port, socket=None, location_name="there")) as launching:
            run_id = launching.launch("says")
            assert launching.await_end(run_id) is dg.DagsterRunStatus.SUCCESS
            assert PROCESS_TAG not in launching.run(run_id).tags
            assert launching.await_message(run_id, SAID).groups() == ("False", str(server.pid))
    finally:
        server.end()
