"""Dagster's daemon with one point: it dies after it has made a run of a request, before it launches
it.
"""

from importlib.metadata import entry_points
from typing import Any

import dagster as dg

from lakechime_dagster.runtime.names import CONSUMER_TAG
from tests.crash.points import Point, Switch


def install(switch: Switch) -> None:
    original = dg.DagsterInstance.submit_run

    def submit_run(self: dg.DagsterInstance, run_id: str, workspace: Any) -> dg.DagsterRun:
        run = self.get_run_by_id(run_id)
        switch.die(Point.AFTER_RUN_REQUEST, run.tags.get(CONSUMER_TAG, "") if run else "")
        return original(self, run_id, workspace)

    dg.DagsterInstance.submit_run = submit_run


if __name__ == "__main__":
    install(Switch.of_environment())
    (command,) = entry_points(group="console_scripts", name="dagster-daemon")
    command.load()()
