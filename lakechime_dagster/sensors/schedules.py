"""Sensors that look at something at an interval: polls of sources, schedules, and the reload of
external assets.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import dagster as dg

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lineage.external import NotReloadedError, look_outside, reload_outside
from lakechime_dagster.runtime.names import (
    MAINTENANCE_TAG,
    asset_key,
    dagster_name,
    maintenance_name,
    monitor_check_keys,
    verify_check_key,
)
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.sensors.tick import instance_of
from lakechime_dagster.settings import load_settings
from lakechime_dagster.tables.cdc import CDCTable
from lakechime_dagster.tables.databases import UNDECLARED
from lakechime_dagster.tables.events import EventGroup
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.triggers.schedule import Schedule, from_milliseconds

Look = Callable[[dg.SensorEvaluationContext], dg.SensorResult]


def looking_sensor(
    name: str, seconds: int, description: str, look: Look, job: str | None = None
) -> dg.SensorDefinition:
    """The sensor of this name, at most every so many seconds; with `job` it launches that one.

    Where the store or a setting does not let it look, the reason is that of the error, and its
    cursor stays.
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


RELOAD_SECONDS = 60
UNSET = (
    "it shows what it read when it was loaded last: set LAKECHIME_WEBSERVER_URL to have it reloaded"
)


def outside_sensor(lake: Lake) -> dg.SensorDefinition:
    """The sensor of a lake; its cursor is the digest of what the location was last reloaded for."""

    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        settings = load_settings()
        looked = look_outside(settings, lake)
        if looked.digest == context.cursor:
            return dg.SensorResult(skip_reason=looked.sentence, cursor=context.cursor)
        if not settings.webserver_url:
            return dg.SensorResult(skip_reason=f"{looked.sentence}; {UNSET}", cursor=context.cursor)
        try:
            reload_outside(settings.webserver_url)
        except NotReloadedError as error:
            return dg.SensorResult(skip_reason=f"{looked.sentence}; {error}", cursor=context.cursor)
        return dg.SensorResult(
            skip_reason=f"{looked.sentence}; the location was reloaded", cursor=looked.digest
        )

    about = (
        "Has the code location `outside` reloaded when other dashboards, people or data sets are "
        "in use."
    )
    return looking_sensor(f"{lake.name}__outside", RELOAD_SECONDS, about, look)


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
    """The tables whose schedules have reached another point since the sensor saw them; one that it
    sees first is not due.

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
        return [
            table for table, point in self.points.items() if self.before.get(table, point) != point
        ]

    def cursor(self, *waiting: str) -> str:
        """The cursor after the tick; these tables are still due then."""
        return json.dumps({**self.points, **{table: self.before[table] for table in waiting}})


def unfinished(instance: dg.DagsterInstance, job: str, tags: Mapping[str, str]) -> bool:
    """Whether a run of a job with these tags has not ended."""
    return bool(
        instance.get_runs(
            dg.RunsFilter(job_name=job, tags=dict(tags), statuses=UNFINISHED), limit=1
        )
    )


def next_point(schedules: Mapping[str, Schedule], now: datetime) -> str:
    """When the next of them is due, in words."""
    upcoming = min(
        (point for schedule in schedules.values() if (point := schedule.next(now)) is not None),
        default=None,
    )
    return (
        f"the next one is due at {upcoming:%Y-%m-%d %H:%M} UTC"
        if upcoming
        else "every schedule has ended"
    )


def not_ended(tables: list[str]) -> str:
    return f"due, but the last run has not ended: {', '.join(tables)}"


# of what is due, with its point
RequestsOf = Callable[[Platform, Mapping[str, str]], list[dg.RunRequest]]


def scheduled_sensor(
    job: str,
    schedules: Mapping[str, Schedule],
    description: str,
    requests_of: RequestsOf,
    tags_of: Callable[[str], Mapping[str, str]] = lambda table: {},
) -> dg.SensorDefinition:
    """The sensor that launches this job for those whose schedule has reached a point; `tags_of`
    says which of its runs are of one.

    What is scheduled is first launched at the first point after the sensor has seen it; points that
    it missed, and those that pass while a run has not ended, are made up for by one run.
    """

    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        platform = open_platform()
        now = from_milliseconds(platform.store.now())
        due = Due.by(schedules, now, context.cursor)
        running = [
            table for table in due.tables if unfinished(instance_of(context)(), job, tags_of(table))
        ]
        ready = {table: due.points[table] for table in due.tables if table not in running}
        requests = requests_of(platform, ready) if ready else []
        why = None if requests else not_ended(running) if running else next_point(schedules, now)
        return dg.SensorResult(run_requests=requests, cursor=due.cursor(*running), skip_reason=why)

    return looking_sensor(job, INTERVAL_SECONDS, description, look, job)


def _checking(
    job: str, due: Mapping[str, str], keys: list[dg.AssetCheckKey]
) -> list[dg.RunRequest]:
    """One run of the checks of all that is due."""
    return [
        dg.RunRequest(
            run_key=f"{job}@" + ",".join(f"{name}@{point}" for name, point in due.items()),
            asset_check_keys=keys,
        )
    ]


def monitors_sensor(job: str, tables: Iterable[CDCTable]) -> dg.SensorDefinition:
    """The sensor that launches this job for tables, as their monitors say; where databases may not
    be asked, none is compared.
    """
    watched = {table.name: table for table in tables}
    schedules = {
        name: every
        for name, table in watched.items()
        if (every := (table.monitor or UNDECLARED).every) is not None
    }

    def requests_of(platform: Platform, due: Mapping[str, str]) -> list[dg.RunRequest]:
        may_compare = platform.settings.may_ask_sources
        return _checking(
            job,
            due,
            [
                key
                for table in due
                for key in monitor_check_keys(watched[table], may_compare=may_compare)
            ],
        )

    about = (
        "Checks whether CDC tables keep up with their database, and are the same, as their "
        "monitors say."
    )
    return scheduled_sensor(job, schedules, about, requests_of)


def verify_sensor(job: str, groups: Iterable[EventGroup]) -> dg.SensorDefinition:
    """The sensor that launches this job for groups, as their `verify=` says."""
    by_name = {group.name: group for group in groups}
    schedules = {
        name: group.options.verify
        for name, group in by_name.items()
        if group.options.verify is not None
    }
    about = (
        "Checks whether each event of groups is in the table of its type once, as their "
        "declarations say."
    )
    return scheduled_sensor(
        job,
        schedules,
        about,
        lambda _, due: _checking(job, due, [verify_check_key(by_name[name]) for name in due]),
    )


def maintenance_sensor(job: str, schedules: Mapping[str, Schedule]) -> dg.SensorDefinition:
    """The sensor that launches this job for tables, a run for each."""

    def requests_of(platform: Platform, due: Mapping[str, str]) -> list[dg.RunRequest]:
        names = {maintenance_name(table): table for table in due}
        return [
            dg.RunRequest(
                run_key=f"{name}@{due[table]}",
                asset_selection=[asset_key(name)],
                tags={MAINTENANCE_TAG: table},
            )
            for name, table in names.items()
        ]

    about = "Launches the maintenance of tables as their schedules say."
    return scheduled_sensor(
        job, schedules, about, requests_of, lambda table: {MAINTENANCE_TAG: table}
    )
