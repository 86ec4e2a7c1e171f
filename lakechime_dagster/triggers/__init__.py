"""What users write triggers with: schedules, values of the tick, and the two triggers."""

from lakechime_dagster.triggers.schedule import Schedule, every, hours_of, tick
from lakechime_dagster.triggers.triggers import (
    Late,
    PartitionCondition,
    PartitionTrigger,
    SnapshotTrigger,
    TableName,
)

__all__ = [
    "Late",
    "PartitionCondition",
    "PartitionTrigger",
    "Schedule",
    "SnapshotTrigger",
    "TableName",
    "every",
    "hours_of",
    "tick",
]
