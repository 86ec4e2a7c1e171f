"""A sensor that looks at something at an interval."""

from collections.abc import Callable

import dagster as dg

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.runtime.names import dagster_name

Look = Callable[[dg.SensorEvaluationContext], dg.SensorResult]


def looking_sensor(name: str, seconds: int, description: str, look: Look, job: str | None = None) -> dg.SensorDefinition:
    """The sensor of this name, at most every so many seconds; with `job` it launches that one.

    Where the store or a setting does not let it look, the reason is that of the error, and its cursor stays.
    """

    @dg.sensor(
        name=dagster_name(name),
        job_name=job,
        minimum_interval_seconds=seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=description,
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        try:
            return look(context)
        except LakeChimeError as error:
            return dg.SensorResult(skip_reason=str(error))

    return sensor
