"""The sensor that launches the checks of tables that follow a database: one run for all that are due."""

from collections.abc import Iterable

import dagster as dg

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lake.change_tables import ChangeTable
from lakechime_dagster.lake.monitors import UNDECLARED
from lakechime_dagster.resources.keys import monitor_check_keys
from lakechime_dagster.resources.names import dagster_name
from lakechime_dagster.resources.platform import open_platform
from lakechime_dagster.sensors.due import INTERVAL_SECONDS, Due, next_point, not_ended, unfinished
from lakechime_dagster.triggers.grid import from_milliseconds


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
        due = Due.by(schedules, now, context.cursor)
        if not due.tables:
            return dg.SensorResult(skip_reason=next_point(schedules, now), cursor=due.cursor())
        if unfinished(context.instance, job=job):
            return dg.SensorResult(skip_reason=not_ended(due.tables), cursor=due.cursor(*due.tables))
        may_compare = platform.settings.may_ask_sources
        keys = [key for table in due.tables for key in monitor_check_keys(watched[table], may_compare=may_compare)]
        request = dg.RunRequest(run_key=f"{job}@" + ",".join(f"{table}@{due.points[table]}" for table in due.tables), asset_check_keys=keys)
        return dg.SensorResult(run_requests=[request], cursor=due.cursor())

    return sensor
