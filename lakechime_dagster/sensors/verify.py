"""The sensor that launches the checks of groups whether each event is in its table: one run for all that are due."""

from collections.abc import Iterable

import dagster as dg

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lake.events import EventGroup
from lakechime_dagster.resources.keys import verify_check_key
from lakechime_dagster.resources.names import dagster_name
from lakechime_dagster.resources.platform import open_platform
from lakechime_dagster.sensors.due import INTERVAL_SECONDS, Due, next_point, not_ended, unfinished
from lakechime_dagster.triggers.grid import from_milliseconds


def verify_sensor(job: str, groups: Iterable[EventGroup]) -> dg.SensorDefinition:
    """The sensor that launches this job for groups, as their `verify=` says.

    A group is first looked at at the first point after the sensor has seen it; points that it missed, and those that come while a
    run has not ended, are made up for by one run.
    """
    by_name = {group.name: group for group in groups}
    schedules = {name: group.verify for name, group in by_name.items() if group.verify is not None}

    @dg.sensor(
        name=dagster_name(job),
        job_name=job,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Looks whether each event of groups is in the table of its type once, as their declarations say.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        try:
            now = from_milliseconds(open_platform().store.now())
        except LakeChimeError as error:
            return dg.SensorResult(skip_reason=str(error))
        due = Due.by(schedules, now, context.cursor)
        if not due.tables:
            return dg.SensorResult(skip_reason=next_point(schedules, now), cursor=due.cursor())
        if unfinished(context.instance, job=job):
            return dg.SensorResult(skip_reason=not_ended(due.tables), cursor=due.cursor(*due.tables))
        keys = [verify_check_key(by_name[name]) for name in due.tables]
        request = dg.RunRequest(run_key=f"{job}@" + ",".join(f"{name}@{due.points[name]}" for name in due.tables), asset_check_keys=keys)
        return dg.SensorResult(run_requests=[request], cursor=due.cursor())

    return sensor
