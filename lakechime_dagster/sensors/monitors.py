"""The sensor that launches the checks of tables that follow a database: one run for all that are due."""

import json
from collections.abc import Iterable
from datetime import datetime

import dagster as dg

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lake.change_tables import ChangeTable
from lakechime_dagster.lake.monitors import UNDECLARED
from lakechime_dagster.resources.keys import monitor_check_keys
from lakechime_dagster.resources.names import dagster_name
from lakechime_dagster.resources.platform import open_platform
from lakechime_dagster.sensors.maintenance import UNFINISHED
from lakechime_dagster.triggers.grid import Schedule, from_milliseconds

INTERVAL_SECONDS = 30


def monitors_sensor(job: str, tables: Iterable[ChangeTable]) -> dg.SensorDefinition:
    """The sensor that launches this job for tables, as their monitors say.

    A table is first looked at at the first point after the sensor has seen it; points that it missed, and those that come
    while a run has not ended, are made up for by one run. Where databases may not be asked, tables are not compared.
    """
    watched = {table.name: table for table in tables}
    schedules = {name: every for name, table in watched.items() if (every := (table.monitor or UNDECLARED).every) is not None}

    @dg.sensor(
        name=dagster_name(job),
        job_name=job,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Looks whether tables that follow a database keep up, and are the same, as their monitors say.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        try:
            platform = open_platform()
            now = from_milliseconds(platform.store.now())
        except LakeChimeError as error:
            return dg.SensorResult(skip_reason=str(error))
        before: dict[str, str] = json.loads(context.cursor) if context.cursor else {}
        points = {table: str(schedule.last(now)) for table, schedule in schedules.items()}
        due = [table for table, point in points.items() if before.get(table, point) != point]
        if not due:
            return dg.SensorResult(skip_reason=_coming(schedules.values(), now), cursor=json.dumps(points))
        if context.instance.get_runs(dg.RunsFilter(job_name=job, statuses=UNFINISHED), limit=1):
            return dg.SensorResult(skip_reason=f"due, but the last run has not ended: {', '.join(due)}", cursor=json.dumps(points | before))
        may_compare = platform.settings.may_ask_sources
        keys = [key for table in due for key in monitor_check_keys(watched[table], may_compare=may_compare)]
        request = dg.RunRequest(run_key=f"{job}@" + ",".join(f"{table}@{points[table]}" for table in due), asset_check_keys=keys)
        return dg.SensorResult(run_requests=[request], cursor=json.dumps(points))

    return sensor


def _coming(schedules: Iterable[Schedule], now: datetime) -> str:
    coming = min((point for schedule in schedules if (point := schedule.next(now)) is not None), default=None)
    return f"the next look is due at {coming:%Y-%m-%d %H:%M} UTC" if coming else "every schedule has ended"
