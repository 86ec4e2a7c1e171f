"""The sensor that launches the maintenance of tables: a run per table at each point of its schedule."""

import json
from collections.abc import Mapping
from datetime import datetime

import dagster as dg

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.resources.keys import asset_key
from lakechime_dagster.resources.names import MAINTENANCE_TAG, dagster_name, maintenance_name
from lakechime_dagster.resources.platform import open_platform
from lakechime_dagster.triggers.grid import Schedule, from_milliseconds

INTERVAL_SECONDS = 30
UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def maintenance_sensor(job: str, schedules: Mapping[str, Schedule]) -> dg.SensorDefinition:
    """The sensor that launches this job for tables, by the schedule of each.

    A table is first maintained at the first point after the sensor has seen it. Points that it missed are made up for by one
    run, and so are those that come while a run of the table has not ended.
    """

    @dg.sensor(
        name=dagster_name(job),
        job_name=job,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Launches the maintenance of tables as their schedules say.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        try:
            now = from_milliseconds(open_platform().store.now())
        except LakeChimeError as error:
            return dg.SensorResult(skip_reason=str(error))
        before: dict[str, str] = json.loads(context.cursor) if context.cursor else {}
        points = {table: str(schedule.last(now)) for table, schedule in schedules.items()}
        due = [table for table, point in points.items() if before.get(table, point) != point]
        running = [table for table in due if _is_running(context.instance, table)]
        requests = [_request(table, points[table]) for table in due if table not in running]
        cursor = json.dumps(points | {table: before[table] for table in running})
        return dg.SensorResult(run_requests=requests, cursor=cursor, skip_reason=None if requests else _why(running, schedules, now))

    return sensor


def _request(table: str, point: str) -> dg.RunRequest:
    name = maintenance_name(table)
    return dg.RunRequest(run_key=f"{name}@{point}", asset_selection=[asset_key(name)], tags={MAINTENANCE_TAG: table})


def _is_running(instance: dg.DagsterInstance, table: str) -> bool:
    return bool(instance.get_runs(dg.RunsFilter(tags={MAINTENANCE_TAG: table}, statuses=UNFINISHED), limit=1))


def _why(running: list[str], schedules: Mapping[str, Schedule], now: datetime) -> str:
    if running:
        return f"due, but the last run has not ended: {', '.join(running)}"
    coming = min((point for schedule in schedules.values() if (point := schedule.next(now)) is not None), default=None)
    return f"the next one is due at {coming:%Y-%m-%d %H:%M} UTC" if coming else "every schedule has ended"
