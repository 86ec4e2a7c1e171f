"""Partition levels as Dagster partitions definitions, shared lake-wide."""

import datetime as dt

import dagster as dg

from lakechime_dagster.dce.partition import LevelType, PartitionLevels
from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lake.tables import LakeTable, Table
from lakechime_dagster.triggers.flow import is_hourly
from lakechime_dagster.triggers.model import PartitionTrigger

HOUR_FORMAT = "%Y-%m-%d-%H"


def partitions_of(lake: Lake, table: Table) -> dg.PartitionsDefinition | None:
    """The partitions that Dagster shows of a table; None where it is run as a whole, or its levels are not times.

    A computed table has them when its trigger fires by partition; a source when its levels are a date, or a date and
    an hour, and some trigger says when the lake's time begins.
    """
    if isinstance(table, LakeTable) and not isinstance(table.trigger, PartitionTrigger):
        return None
    span = time_span(lake)
    if span is None or not table.levels:
        return None
    start, end = span
    if table.levels.types == (LevelType.DATE,):
        return dg.DailyPartitionsDefinition(start_date=start.isoformat(), end_date=end.isoformat() if end else None)
    if is_hourly(table.levels):
        return dg.HourlyPartitionsDefinition(
            start_date=f"{start}-00", end_date=f"{end}-00" if end else None, fmt=HOUR_FORMAT, timezone="UTC"
        )
    if isinstance(table, LakeTable):
        return dg.DynamicPartitionsDefinition(name=f"{lake.name}__{'__'.join(table.levels.names)}")
    return None


def time_span(lake: Lake) -> tuple[dt.date, dt.date | None] | None:
    """The first day that any partition trigger of the lake speaks of, and the day after the last one, if there is one."""
    triggers = [table.trigger for table in lake.targets if isinstance(table.trigger, PartitionTrigger)]
    days = [day for trigger in triggers for day in (_first_day(trigger),) if day is not None]
    if not days:
        return None
    ends = [trigger.every.until.date() if trigger.every.until else None for trigger in triggers]
    last = None if None in ends else max(end for end in ends if end is not None)
    return min(days), last


def _first_day(trigger: PartitionTrigger) -> dt.date | None:
    values = dict(trigger.key_at(trigger.every.first).values)
    for condition in trigger.conditions:
        for name, kind in zip(condition.levels.names, condition.levels.types, strict=True):
            if kind is LevelType.DATE and name in values:
                return dt.date.fromisoformat(str(values[name]))
    return None


def levels_text(levels: PartitionLevels) -> str:
    """The levels for people: `flight_date (date), hour (int)`."""
    return ", ".join(f"{name} ({kind.value})" for name, kind in zip(levels.names, levels.types, strict=True))
