"""What is due by schedules of tables, beside which a sensor's cursor keeps the points that it has seen."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import dagster as dg

from lakechime_dagster.triggers.grid import Schedule

INTERVAL_SECONDS = 30
UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


@dataclass(frozen=True)
class Due:
    """The tables whose schedules have come to another point since the sensor saw them; one that it sees first is not due.

    Attributes:
        points: The last point of each table's schedule, as text.
        before: The points that were seen.
    """

    points: Mapping[str, str]
    before: Mapping[str, str]

    @classmethod
    def by(cls, schedules: Mapping[str, Schedule], now: datetime, cursor: str | None) -> "Due":
        points = {table: str(schedule.last(now)) for table, schedule in schedules.items()}
        return cls(points, json.loads(cursor) if cursor else {})

    @property
    def tables(self) -> list[str]:
        return [table for table, point in self.points.items() if self.before.get(table, point) != point]

    def cursor(self, *waiting: str) -> str:
        """The cursor after the tick; these tables are still due then."""
        return json.dumps({**self.points, **{table: self.before[table] for table in waiting}})


def unfinished(instance: dg.DagsterInstance, *, job: str | None = None, tags: Mapping[str, str] | None = None) -> bool:
    """Whether a run of a job, or with these tags, has not ended."""
    return bool(instance.get_runs(dg.RunsFilter(job_name=job, tags=dict(tags or {}), statuses=UNFINISHED), limit=1))


def next_point(schedules: Mapping[str, Schedule], now: datetime) -> str:
    """When the next of them is due, in words."""
    coming = min((point for schedule in schedules.values() if (point := schedule.next(now)) is not None), default=None)
    return f"the next one is due at {coming:%Y-%m-%d %H:%M} UTC" if coming else "every schedule has ended"


def not_ended(tables: list[str]) -> str:
    return f"due, but the last run has not ended: {', '.join(tables)}"
