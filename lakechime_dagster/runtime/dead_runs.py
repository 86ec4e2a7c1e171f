"""Runs whose process is gone, as somebody found who is not Dagster."""

from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    pass


def end_dead_run(instance: dg.DagsterInstance, run_id: str, reason: str) -> None:
    """Report a run failed whose process is gone; one that has ended is left alone.

    Dagster's own monitoring cannot tell: its default launcher has no health check. `report_run_failed` is not part
    of its public interface; this function is the one checkpoint that knows it.
    """
    run = instance.get_run_by_id(run_id)
    if run is not None and not run.is_finished:
        instance.report_run_failed(run, reason)
