"""The sensor that launches the checks of groups whether each event is in its table: one run for all that are due."""

from collections.abc import Iterable

import dagster as dg

from lakechime_dagster.lake.events import EventGroup
from lakechime_dagster.resources.keys import verify_check_key
from lakechime_dagster.sensors.checks import checks_sensor


def verify_sensor(job: str, groups: Iterable[EventGroup]) -> dg.SensorDefinition:
    """The sensor that launches this job for groups, as their `verify=` says."""
    by_name = {group.name: group for group in groups}
    schedules = {name: group.options.verify for name, group in by_name.items() if group.options.verify is not None}
    about = "Looks whether each event of groups is in the table of its type once, as their declarations say."
    return checks_sensor(job, schedules, about, lambda _, due: [verify_check_key(by_name[name]) for name in due])
