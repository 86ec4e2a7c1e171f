"""What users write triggers with: schedules, values of the tick, and the two triggers."""

from lakechime_dagster.triggers.conditions import PartitionCondition, TableName
from lakechime_dagster.triggers.grid import Schedule, every
from lakechime_dagster.triggers.model import Late, PartitionTrigger, SnapshotTrigger
from lakechime_dagster.triggers.tick import hours_of, tick

__all__ = ["Late", "PartitionCondition", "PartitionTrigger", "Schedule", "SnapshotTrigger", "TableName", "every", "hours_of", "tick"]
