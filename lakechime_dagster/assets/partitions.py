"""Partition levels as Dagster partitions definitions, shared lake-wide."""

import dagster as dg

from lakechime_dagster.dce.partition import LevelType, PartitionLevels
from lakechime_dagster.lake.lake import Lake, Table, writer_of
from lakechime_dagster.lake.tables import LakeTable, SourceTable
from lakechime_dagster.triggers.flow import is_hourly
from lakechime_dagster.triggers.model import PartitionTrigger

HOUR_FORMAT = "%Y-%m-%d-%H"


def partitions_of(lake: Lake, table: Table) -> dg.PartitionsDefinition | None:
    """The partitions that Dagster shows of a table; None where it is run as a whole, or a source's levels are not times.

    A computed table has them when its trigger fires by partition, dynamic ones where its levels are not times; a source that
    others write when its levels are a date, or a date and an hour, and some trigger says when the lake's time begins.
    """
    if not table.levels or (isinstance(table, LakeTable) and not isinstance(table.trigger, PartitionTrigger)):
        return None
    if isinstance(table, SourceTable) and writer_of(lake, table) is not None:
        return None
    span = lake.span
    if span is not None and table.levels.types == (LevelType.DATE,):
        end = span.end.isoformat() if span.end else None
        return dg.DailyPartitionsDefinition(span.start.isoformat(), end_date=end, end_offset=0 if end else span.days_ahead)
    if span is not None and is_hourly(table.levels):
        end = f"{span.end}-00" if span.end else None
        return dg.HourlyPartitionsDefinition(
            f"{span.start}-00", end_date=end, fmt=HOUR_FORMAT, timezone="UTC", end_offset=0 if end else span.hours_ahead
        )
    if isinstance(table, LakeTable):
        return dg.DynamicPartitionsDefinition(name=f"{lake.name}__{'__'.join(table.levels.names)}")
    return None


def levels_text(levels: PartitionLevels) -> str:
    """The levels for people: `flight_date (date), hour (int)`."""
    return ", ".join(f"{name} ({kind.value})" for name, kind in zip(levels.names, levels.types, strict=True))
