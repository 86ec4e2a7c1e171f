"""Sensors that launch checks by schedules: one run for all that are due."""

from collections.abc import Callable, Mapping, Sequence

import dagster as dg

from lakechime_dagster.resources.platform import Platform, open_platform
from lakechime_dagster.sensors.due import INTERVAL_SECONDS, Due, next_point, not_ended, unfinished
from lakechime_dagster.sensors.looking import looking_sensor
from lakechime_dagster.sensors.runs import instance_of
from lakechime_dagster.triggers.grid import Schedule, from_milliseconds

KeysOf = Callable[[Platform, Sequence[str]], list[dg.AssetCheckKey]]


def checks_sensor(job: str, schedules: Mapping[str, Schedule], description: str, keys_of: KeysOf) -> dg.SensorDefinition:
    """The sensor that launches this job with the checks of those whose schedule has come to a point.

    What is scheduled is first looked at at the first point after the sensor has seen it; points that it missed, and those that come
    while a run has not ended, are made up for by one run.
    """

    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        platform = open_platform()
        now = from_milliseconds(platform.store.now())
        due = Due.by(schedules, now, context.cursor)
        if not due.tables:
            return dg.SensorResult(skip_reason=next_point(schedules, now), cursor=due.cursor())
        if unfinished(instance_of(context)(), job=job):
            return dg.SensorResult(skip_reason=not_ended(due.tables), cursor=due.cursor(*due.tables))
        run_key = f"{job}@" + ",".join(f"{name}@{due.points[name]}" for name in due.tables)
        request = dg.RunRequest(run_key=run_key, asset_check_keys=keys_of(platform, due.tables))
        return dg.SensorResult(run_requests=[request], cursor=due.cursor())

    return looking_sensor(job, INTERVAL_SECONDS, description, look, job)
