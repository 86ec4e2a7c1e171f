"""The sensor that launches the maintenance of tables: a run per table at each point of its schedule."""

from collections.abc import Mapping

import dagster as dg

from lakechime_dagster.resources.keys import asset_key
from lakechime_dagster.resources.names import MAINTENANCE_TAG, maintenance_name
from lakechime_dagster.resources.platform import open_platform
from lakechime_dagster.sensors.due import INTERVAL_SECONDS, Due, next_point, not_ended, unfinished
from lakechime_dagster.sensors.looking import looking_sensor
from lakechime_dagster.sensors.runs import instance_of
from lakechime_dagster.triggers.grid import Schedule, from_milliseconds


def maintenance_sensor(job: str, schedules: Mapping[str, Schedule]) -> dg.SensorDefinition:
    """The sensor that launches this job for tables, by the schedule of each.

    A table is first maintained at the first point after the sensor has seen it. Points that it missed are made up for by one
    run, and so are those that come while a run of the table has not ended.
    """

    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        now = from_milliseconds(open_platform().store.now())
        due = Due.by(schedules, now, context.cursor)
        running = [table for table in due.tables if unfinished(instance_of(context)(), tags={MAINTENANCE_TAG: table})]
        requests = [_request(table, due.points[table]) for table in due.tables if table not in running]
        why = None if requests else not_ended(running) if running else next_point(schedules, now)
        return dg.SensorResult(run_requests=requests, cursor=due.cursor(*running), skip_reason=why)

    return looking_sensor(job, INTERVAL_SECONDS, "Launches the maintenance of tables as their schedules say.", look, job)


def _request(table: str, point: str) -> dg.RunRequest:
    name = maintenance_name(table)
    return dg.RunRequest(run_key=f"{name}@{point}", asset_selection=[asset_key(name)], tags={MAINTENANCE_TAG: table})
