"""Runs of a running Dagster that are killed while they work."""

import os
import re
import signal
from collections.abc import Callable

import dagster as dg

from tests.support.dagster_dev import DagsterDev
from tests.support.processes import await_found

ATTACHED = r"attached to the warm driver of process (\d+)"


def await_begun(running: DagsterDev, *consumers: str) -> tuple[str, str]:
    """A run of these consumers that begins from now on, once it has a driver of Spark, and the
    process of that one's host.
    """

    def at_work() -> list[str]:
        started = dg.RunsFilter(
            tags={"lakechime/consumer": list(consumers)}, statuses=[dg.DagsterRunStatus.STARTED]
        )
        return [run.run_id for run in running.instance.get_runs(started)]

    before = at_work()  # they may be about to end
    begun = await_found(
        lambda: [run for run in at_work() if run not in before],
        f"a run of {' or '.join(consumers)}",
        900,  # the one before may have hundreds of tables to make
        pause=0.1,
    )
    return begun[0], await_said(running, begun[0], ATTACHED)


def await_said(running: DagsterDev, run_id: str, pattern: str) -> str:
    """What a line of a run's log says in the group of a pattern."""

    def found() -> str | None:
        messages = [record.message for record in running.instance.all_logs(run_id)]
        return next((match[1] for text in messages if (match := re.search(pattern, text))), None)

    return await_found(found, f"{pattern} in the log of {run_id}", 300, pause=0.1)


def kill_run(
    running: DagsterDev, *consumers: str, when: Callable[[], object] = lambda: True
) -> str:
    """Kill the process of a run of these consumers that begins from now on, once something is so;
    its id.
    """
    run_id, _ = await_begun(running, *consumers)
    process = int(await_said(running, run_id, r"Started process for run \(pid: (\d+)\)"))
    await_found(when, f"the moment to kill {run_id}", 300, pause=0.02)
    os.kill(process, signal.SIGKILL)
    return run_id
