"""The sensor that launches the checks of tables that follow a database: one run for all that are due."""

from collections.abc import Iterable, Sequence

import dagster as dg

from lakechime_dagster.lake.change_tables import ChangeTable
from lakechime_dagster.lake.monitors import UNDECLARED
from lakechime_dagster.resources.keys import monitor_check_keys
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.sensors.checks import checks_sensor


def monitors_sensor(job: str, tables: Iterable[ChangeTable]) -> dg.SensorDefinition:
    """The sensor that launches this job for tables, as their monitors say; where databases may not be asked, none is compared."""
    watched = {table.name: table for table in tables}
    schedules = {name: every for name, table in watched.items() if (every := (table.monitor or UNDECLARED).every) is not None}

    def keys_of(platform: Platform, due: Sequence[str]) -> list[dg.AssetCheckKey]:
        may_compare = platform.settings.may_ask_sources
        return [key for table in due for key in monitor_check_keys(watched[table], may_compare=may_compare)]

    about = "Looks whether tables that follow a database keep up, and are the same, as their monitors say."
    return checks_sensor(job, schedules, about, keys_of)
