"""The runs of a Dagster instance, as a tick asks for them."""

import threading
from collections.abc import Callable

import dagster as dg

from lakechime_dagster.resources.dead_runs import end_dead_run
from lakechime_dagster.resources.names import ATTEMPT_TAG, EXECUTION_TAG
from lakechime_dagster.sensors.tick import RunFact, RunState
from lakechime_dagster.triggers.lanes import Execution

OpenInstance = Callable[[], dg.DagsterInstance]  # opened by the first call
FAILED = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_kept: list[tuple[object, dg.DagsterInstance]] = []  # by what refers to them; a process has one but in tests
_keeping = threading.Lock()


def instance_of(context: dg.SensorEvaluationContext) -> OpenInstance:
    """The instance of a tick, opened at most once a process, and never closed.

    A context opens one of its own, for which Dagster reads all its migrations three times: longer than all else of a tick.
    """
    ref = context.instance_ref
    if ref is None:  # the context was given an instance
        return lambda: context.instance

    def opened() -> dg.DagsterInstance:
        with _keeping:
            found = next((instance for known, instance in _kept if known == ref), None)
            if found is None:
                found = dg.DagsterInstance.from_ref(ref)
                _kept.append((ref, found))
            return found

    return opened


class DagsterRuns:
    """Finds the run of an attempt: the one that began it, else the newest one launched with its tags.

    The instance is opened by the first question: that takes longer than a tick that has nothing to ask.
    """

    def __init__(self, instance: OpenInstance) -> None:
        self.instance = instance

    def of_attempt(self, execution: Execution) -> RunFact | None:
        run = self.instance().get_run_by_id(execution.run_id) if execution.run_id else None
        if run is None:
            tags = {EXECUTION_TAG: execution.execution_id, ATTEMPT_TAG: str(execution.attempt)}
            run = next(iter(self.instance().get_runs(filters=dg.RunsFilter(tags=tags), limit=1)), None)
        return RunFact(run.run_id, state_of(run.status), self._started(run)) if run is not None else None

    def _started(self, run: dg.DagsterRun) -> int | None:
        record = self.instance().get_run_record_by_id(run.run_id) if run.status is dg.DagsterRunStatus.STARTED else None
        return int(record.start_time * 1000) if record is not None and record.start_time is not None else None

    def report_lost(self, run_id: str, reason: str) -> None:
        end_dead_run(self.instance(), run_id, reason)


def state_of(status: dg.DagsterRunStatus) -> RunState:
    """A run that has not ended is live, whatever it waits for."""
    if status is dg.DagsterRunStatus.SUCCESS:
        return RunState.SUCCEEDED
    return RunState.FAILED if status in FAILED else RunState.LIVE
