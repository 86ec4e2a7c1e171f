"""Partition levels as Dagster partitions definitions, shared lake-wide."""

import datetime as dt
import itertools

import dagster as dg

from lakechime_dagster.dce.partition import LevelType, PartitionLevels, typed_value
from lakechime_dagster.lake.lake import Lake, Table
from lakechime_dagster.lake.named_types import writer_of
from lakechime_dagster.lake.tables import LakeTable, SourceTable
from lakechime_dagster.triggers.flow import is_hourly
from lakechime_dagster.triggers.model import PartitionTrigger

HOUR_FORMAT = "%Y-%m-%d-%H"
DAY, HOUR = dt.timedelta(days=1), dt.timedelta(hours=1)


def partitions_of(lake: Lake, table: Table) -> dg.PartitionsDefinition | None:
    """The partitions that Dagster shows of a table; None where it is run as a whole, or a source's levels are not times.

    A computed table has them when its trigger fires by partition, dynamic ones where its levels are not times; a source that
    others write when its levels are a date, or a date and an hour, and some trigger says when the lake's time begins.
    """
    if not table.levels or (isinstance(table, LakeTable) and not isinstance(table.trigger, PartitionTrigger)):
        return None
    if isinstance(table, SourceTable) and writer_of(lake, table) is not None:
        return None
    span = time_span(lake)
    if span is not None and table.levels.types == (LevelType.DATE,):
        start, end = span
        return dg.DailyPartitionsDefinition(
            start_date=start.isoformat(), end_date=end.isoformat() if end else None, end_offset=0 if end else _ahead(lake, DAY)
        )
    if span is not None and is_hourly(table.levels):
        start, end = span
        return dg.HourlyPartitionsDefinition(
            start_date=f"{start}-00", end_date=f"{end}-00" if end else None, fmt=HOUR_FORMAT, timezone="UTC",
            end_offset=0 if end else _ahead(lake, HOUR),
        )  # fmt: skip
    if isinstance(table, LakeTable):
        return dg.DynamicPartitionsDefinition(name=f"{lake.name}__{'__'.join(table.levels.names)}")
    return None


def time_span(lake: Lake) -> tuple[dt.date, dt.date | None] | None:
    """The first day that any partition trigger of the lake speaks of, and the day after the last one, if there is one."""
    days: list[dt.date] = []
    last: list[dt.date | None] = []
    for trigger, levels in _partition_triggers(lake):
        first = _window(trigger, levels, trigger.every.first, DAY)
        if first is not None:
            days.append(first.date())
            point = trigger.every.last(dt.datetime.max.replace(tzinfo=dt.UTC)) if trigger.every.until else None
            newest = _window(trigger, levels, point, DAY) if point else None
            last.append(newest.date() + DAY if newest else None)
    if not days:
        return None
    ends = [end for end in last if end is not None]
    return min(days), max(ends) if len(ends) == len(last) else None


def _ahead(lake: Lake, width: dt.timedelta) -> int:
    """How many windows that are not over yet when a trigger fires for them; a point's zone may save daylight, so two seasons are asked."""
    ahead = [dt.timedelta(0)]
    for trigger, levels in _partition_triggers(lake):
        for days, minutes in itertools.product((0, 182), (0, 1439)):
            moment = trigger.every.first + dt.timedelta(days=days, minutes=minutes)
            window = _window(trigger, levels, moment, width)
            ahead += [window + width - moment] if window is not None else []
    return -(-max(ahead) // width)


def _partition_triggers(lake: Lake) -> list[tuple[PartitionTrigger, PartitionLevels]]:
    """Each partition trigger with the levels of its table, by which its keys name partitions."""
    return [(table.trigger, table.levels) for table in lake.targets if isinstance(table.trigger, PartitionTrigger)]


def _window(trigger: PartitionTrigger, target: PartitionLevels, moment: dt.datetime, width: dt.timedelta) -> dt.datetime | None:
    """Where the newest window of a day or an hour begins that the key of a moment speaks of; None for a key without a date.

    The date is that of the target's level where the key has it, else that of the first condition with one.
    """
    values = dict(trigger.key_at(moment).values)
    for levels in (target, *[condition.levels for condition in trigger.conditions]):
        for name, kind in zip(levels.names, levels.types, strict=True):
            if kind is LevelType.DATE and values.get(name) is not None:
                day = dt.datetime.fromisoformat(str(typed_value(name, values[name], kind))).replace(tzinfo=dt.UTC)
                if width == DAY:
                    return day
                hour = values.get(levels.names[1]) if is_hourly(levels) else None
                return day + (hour if isinstance(hour, int) else 23) * HOUR
    return None


def levels_text(levels: PartitionLevels) -> str:
    """The levels for people: `flight_date (date), hour (int)`."""
    return ", ".join(f"{name} ({kind.value})" for name, kind in zip(levels.names, levels.types, strict=True))
