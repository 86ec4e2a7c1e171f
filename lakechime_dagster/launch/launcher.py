"""A run launcher that forks the process of a run, where Dagster's own starts an interpreter that imports all anew.

Dagster's has the code location's server start it, and three seconds of processor time go into imports before the step begins.
Here whoever launches, the daemon, has a fork server as Python's `multiprocessing` describes them, which imported that once.
The code of the lake is not among it: each run imports that itself, and so sees it as it is now.
"""

import multiprocessing
import os
import signal
import socket
import sys
import threading
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.launcher.base import LaunchRunContext
from dagster._grpc.types import ExecuteRunArgs
from dagster._serdes import serialize_value

from lakechime_dagster.resources.dead_runs import end_dead_run

if TYPE_CHECKING:
    from dagster._core.origin import JobPythonOrigin

PRELOADED = "lakechime_dagster.launch.preloaded"
PROCESS_TAG = ".dagster/lakechime_process"  # of a run: host, process and when that began; the prefix hides it in the UI


class ForkedRunLauncher(dg.DefaultRunLauncher):
    """Launches runs of code locations of this machine and of this Python as forks; all others, and all but on Linux, as Dagster does.

    A run whose process ends before the run does is failed at once. Whoever launches waits at its own end for the runs
    that it launched; where it is killed, they go on.
    """

    def __init__(self, inst_data: Any = None) -> None:
        super().__init__(inst_data)
        self._forks = multiprocessing.get_context("forkserver") if sys.platform == "linux" else None

    def launch_run(self, context: LaunchRunContext) -> None:
        code = _code_of_here(context.dagster_run)
        if self._forks is None or code is None:
            super().launch_run(context)
            return
        run_id = context.dagster_run.run_id
        arguments = ExecuteRunArgs(code, run_id, self._instance.get_ref(), set_exit_code_on_failure=True)
        self._forks.set_forkserver_preload([PRELOADED])
        process = self._forks.Process(target=_execute, args=(serialize_value(arguments),), name=f"run {run_id}")
        process.start()
        self._instance.add_run_tags(run_id, {PROCESS_TAG: f"{socket.gethostname()} {process.pid} {_begun(process.pid)}"})
        threading.Thread(target=self._watch, args=(run_id, process), name=process.name, daemon=True).start()
        self._run_ids.add(run_id)  # of which `join` awaits the ends

    def terminate(self, run_id: str) -> bool:
        """Interrupt the run's process as Ctrl-C does: its step may clean up behind itself. Whether there was one."""
        run = self._instance.get_run_by_id(run_id)
        if run is None or run.is_finished or PROCESS_TAG not in run.tags:
            return super().terminate(run_id)
        self._instance.report_run_canceling(run)
        host, pid, begun = run.tags[PROCESS_TAG].split(" ")
        if host != socket.gethostname():
            problem = f"its process {pid} is on {host}, and this is {socket.gethostname()}"
        elif not begun or _begun(pid) != begun:
            problem = f"its process {pid} has ended"
        else:
            os.kill(int(pid), signal.SIGINT)
            return True
        self._instance.report_engine_event(f"The run was not interrupted: {problem}.", run, cls=type(self))
        return False

    def _watch(self, run_id: str, process: ForkServerProcess) -> None:
        """Wait for the end of a run's process, and have the run fail if that has none of its own."""
        process.join()
        reason = f"The run's process {process.pid} ended with {_said(process.exitcode)} before the run did."
        if self.has_instance:
            end_dead_run(self._instance, run_id, reason)


def _code_of_here(run: dg.DagsterRun) -> "JobPythonOrigin | None":
    """Where the run's code is, if the server of its code location is on this machine and works with this Python."""
    if run.remote_job_origin is None or run.job_code_origin is None:
        return None
    code = run.job_code_origin.repository_origin
    server = run.remote_job_origin.repository_origin.code_location_origin
    is_remote = getattr(server, "port", None) is not None  # a socket's file, or a server of Dagster's own, is of this machine
    is_here = not is_remote and code.container_image is None and code.executable_path == sys.executable
    return run.job_code_origin if is_here else None


def _execute(arguments: str) -> None:
    """The whole life of a run's process: the command with which Dagster's other launchers begin one."""
    from dagster._cli.api import execute_run_command  # there already; the daemon has no need of it

    execute_run_command.main([arguments], standalone_mode=False)


def _begun(pid: int | str | None) -> str:
    """When a process of this machine began, in ticks since the machine did, as a process number is given again; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _said(code: int | None) -> str:
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
