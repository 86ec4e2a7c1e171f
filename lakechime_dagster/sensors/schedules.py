"""Sensors that look at something at an interval: schedules, the reload of external assets, and
alarms of failing checks.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import dagster as dg

from lakechime_dagster.errors import ConsumerBlockedError, LakeChimeError
from lakechime_dagster.lineage.external import NotReloadedError, look_outside, reload_outside
from lakechime_dagster.runtime.alarms import (
    Alarm,
    AlarmNotSentError,
    alike,
    failing,
    grown,
    recovered,
    send,
)
from lakechime_dagster.runtime.names import (
    MAINTENANCE_TAG,
    asset_key,
    dagster_name,
    maintenance_name,
    monitor_check_keys,
    verify_check_key,
)
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.sensors.tick import FAILED, instance_of
from lakechime_dagster.settings import load_settings
from lakechime_dagster.tables.cdc import CDCTable
from lakechime_dagster.tables.databases import UNDECLARED
from lakechime_dagster.tables.events import EventGroup
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.names import destinations
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


DRY = "dry run: set LAKECHIME_ALARMS to send, or to URLs of apprise, to notify somebody"


def alarms_sensor(
    lake: str, checks: Iterable[dg.AssetCheckKey], alarms: Sequence[str]
) -> dg.SensorDefinition:
    """The sensor of these checks of a lake. A check that is running, or never ran, is left as it
    was.
    """
    watched = {
        f"{key.asset_key.to_user_string().replace('/', '.')} {key.name}": key for key in checks
    }

    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        opened = {
            name: Alarm(**one)
            for name, one in json.loads(context.cursor or "{}").items()
            if name in watched
        }
        platform = open_platform()
        now = platform.store.now()
        urls = destinations(alarms, platform.settings.alarms, os.environ)
        found = {
            name: state
            for name, key in watched.items()
            if (state := _state(instance_of(context)(), key)) is not None
        }
        notifying = Notifying(opened, urls, context.log.info)
        notifying.go_through(found, now)
        cursor = json.dumps({name: asdict(one) for name, one in notifying.opened.items()})
        return dg.SensorResult(skip_reason=notifying.summary, cursor=cursor)

    about = "Notifies people of checks that fail, each once until it gets worse or passes again."
    return looking_sensor(f"{lake}__alarms", INTERVAL_SECONDS, about, look)


class Notifying:
    """The alarms that are open, and who is notified of new ones and of those that recovered."""

    def __init__(self, opened: Mapping[str, Alarm], urls: Sequence[str], log: Any) -> None:
        self.opened = dict(opened)
        self._urls, self._log, self._problems = urls, log, list[str]()

    def go_through(self, found: Mapping[str, tuple[bool, str, str]], now_ms: int) -> None:
        """Go through what checks say now; what cannot be sent is tried again by the next tick."""
        begun, worse, over = list[Alarm](), list[Alarm](), list[Alarm]()
        for name, (passed, severity, text) in found.items():
            before = self.opened.get(name)
            if passed:
                over += [before] if before is not None else []
                continue
            table, _, check = name.rpartition(" ")
            new = Alarm(table=table, check=check, severity=severity, text=text, since_ms=now_ms)
            alarm = (before or new).now(severity, text)
            if before is None:
                begun.append(alarm)
            elif alarm.has_grown(before):
                worse.append(alarm)
            else:
                self.opened[name] = alarm
        for title, alarms in ((failing, begun), (grown, worse)):
            for several in alike(alarms):
                if self._send(title(several), several[0].text):
                    self.opened |= {one.name: one for one in several}
        for several in alike(over):
            if self._send(recovered(several), f"It had failed: {several[0].text}"):
                self.opened = {name: one for name, one in self.opened.items() if one not in several}

    def _send(self, title: str, body: str) -> bool:
        self._log(f"{title}: {body}" if self._urls else f"{title}: {body} ({DRY})")
        try:
            if self._urls:
                self._problems += send(self._urls, title, body)
        except AlarmNotSentError as error:
            self._problems.append(str(error))
            return False
        return True

    @property
    def summary(self) -> str:
        state = [f"failing: {', '.join(sorted(self.opened))}" if self.opened else "no check fails"]
        return "; ".join([*state, *self._problems, *([] if self._urls else [DRY])])


def _state(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> tuple[bool, str, str] | None:
    """Whether the newest run of a check passed, its severity and what it says; None while that is
    not known.
    """
    record = instance.get_latest_asset_check_evaluation_record(key)
    if record is None:
        return None
    evaluation = record.event.asset_check_evaluation if record.event is not None else None
    if evaluation is None:
        run = instance.get_run_by_id(record.run_id)
        is_over = run is not None and run.status in FAILED
        return (
            (
                False,
                "ERROR",
                (
                    f"the check itself failed in run "
                    f"{record.run_id}{_blocked(instance, record.run_id, key)}"
                ),
            )
            if is_over
            else None
        )
    shown = ", ".join(
        f"{name} {one.value}"
        for name, one in evaluation.metadata.items()
        if isinstance(one.value, int | float)
    )
    return (
        evaluation.passed,
        evaluation.severity.value,
        evaluation.description or shown or "it fails",
    )


def _blocked(instance: dg.DagsterInstance, run_id: str, key: dg.AssetCheckKey) -> str:
    """Why the consumer of a check's table is BLOCKED, in our own words: other errors may quote
    rows, and people outside read this.
    """
    for record in instance.get_records_for_run(
        run_id, of_type=dg.DagsterEventType.STEP_FAILURE
    ).records:
        failed = record.event_log_entry.dagster_event
        if failed is None or failed.step_key != "__".join(key.asset_key.path):
            continue
        error = failed.step_failure_data.error
        while error is not None:
            if error.cls_name == ConsumerBlockedError.__name__:
                return f": {error.message.partition(': ')[2].strip()}"
            error = error.cause
    return ""
