"""The sensor that sends alarms of failing checks."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import dagster as dg

from lakechime_dagster.errors import ConsumerBlockedError
from lakechime_dagster.runtime.alarms import (
    Alarm,
    AlarmNotSentError,
    alike,
    failing,
    grown,
    recovered,
    send,
)
from lakechime_dagster.runtime.platform import open_platform
from lakechime_dagster.sensors.schedules import looking_sensor
from lakechime_dagster.sensors.tick import FAILED, instance_of
from lakechime_dagster.tables.names import destinations

INTERVAL_SECONDS = 30
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
