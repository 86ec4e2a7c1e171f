"""The panels of the dashboard and the alarms, each with its expression, as Grafana and Prometheus
read them.

`python -m lakechime_dagster.api.monitoring docs/monitoring` writes the files.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCREEN, WIDTH, HEIGHT = 24, 12, 8  # of Grafana's screen, and of a panel
SOURCE = {"type": "prometheus", "uid": "${source}"}


@dataclass(frozen=True)
class Panel:
    """A plot: one expression, with how its series are named; `unit` by Grafana's names, `width` of
    the screen's 24.
    """

    title: str
    expression: str
    legend: str
    unit: str = "short"
    width: int = WIDTH


@dataclass(frozen=True)
class Alarm:
    """Fires when its expression has had a series for so long; `hold` by Prometheus's spelling of
    durations.
    """

    name: str
    expression: str
    hold: str
    severity: str
    summary: str


TYPE, REASON, GROUP = "{{group}}: {{type}}", "{{group}}: {{reason}}", "{{group}}"
CONSUMER = "{{consumer}}: {{source}}"
LATE = 'lakechime_consumer_lag{unit="seconds"} > 900'
OF_GROUPS = 'label_replace(lakechime_group_open_seconds, "consumer", "$1", "group", "(.*)")'
PANELS = (
    Panel(
        "Lag of the 20 latest consumers",
        'topk(20, lakechime_consumer_lag{unit="seconds"})',
        CONSUMER,
        "s",
        width=8,
    ),
    Panel(
        "Unread events of 20 consumers",
        'topk(20, lakechime_consumer_lag{unit="events"})',
        CONSUMER,
        width=8,
    ),
    Panel(
        "Unread versions of 20 consumers",
        'topk(20, lakechime_consumer_lag{unit="versions"})',
        CONSUMER,
        width=8,
    ),
    Panel(
        "Events completed",
        "sum by (group, type) (rate(lakechime_type_events_total[5m]))",
        TYPE,
        "cps",
    ),
    Panel(
        "Rows written", "sum by (group) (rate(lakechime_type_rows_written_total[5m]))", GROUP, "cps"
    ),
    Panel(
        "Rows with something rescued",
        "sum by (group, type) (rate(lakechime_type_rows_rescued_total[5m]))",
        TYPE,
        "cps",
    ),
    Panel(
        "Rescued values by reason",
        "sum by (group, reason) (rate(lakechime_type_values_rescued_total[5m]))",
        REASON,
        "cps",
    ),
    Panel(
        "Events discarded",
        "sum by (group, type) (rate(lakechime_type_rows_discarded_total[5m]))",
        TYPE,
        "cps",
    ),
    Panel(
        "Events refused",
        "sum by (group, reason) (rate(lakechime_group_events_refused_total[5m]))",
        REASON,
        "cps",
    ),
    Panel("Events that wait", "lakechime_type_rows_pending", TYPE),
    Panel("Rows behind", "lakechime_type_lag_rows", TYPE),
    Panel("Lag of the 20 latest types", "topk(20, lakechime_type_lag_seconds)", TYPE, "s"),
    Panel(
        "Since the last commit", "time() - lakechime_type_last_commit_timestamp_seconds", TYPE, "s"
    ),
    Panel("State of groups", "lakechime_group_state == 1", "{{group}}: {{state}}"),
    Panel("Open executions", "lakechime_group_open_seconds", GROUP, "s"),
    Panel(
        "Seconds by phase",
        "sum by (group, phase) (rate(lakechime_group_phase_seconds_total[5m]))",
        "{{group}}: {{phase}}",
    ),
    Panel("Variations", "lakechime_type_variations", TYPE),
    Panel("Schema versions", "lakechime_type_schema_version", TYPE),
    Panel("Columns added in an hour", "increase(lakechime_type_columns_added_total[1h])", TYPE),
    Panel("Conflicts in an hour", "increase(lakechime_type_conflicts_total[1h])", TYPE),
    Panel("Failed executions in an hour", "increase(lakechime_type_failures_total[1h])", TYPE),
    Panel("Consumers", "lakechime_consumers", "{{state}}"),
    Panel("Since the last tick", "lakechime_tick_age_seconds", "tick", "s"),
)
ALARMS = (
    Alarm(
        "LakechimeGroupFailed",
        'lakechime_group_state{state="failed"} == 1',
        "5m",
        "critical",
        "Group {{ $labels.group }} is blocked or retried; lakechime status shows more.",
    ),
    Alarm(
        "LakechimeGroupLate",
        f"{LATE} and on (consumer) {OF_GROUPS}",
        "5m",
        "warning",
        "Group {{ $labels.consumer }} has not consumed what arrived {{ $value }} s ago.",
    ),
    Alarm(
        "LakechimeTypeLate",
        f'lakechime_type_lag_seconds > 900 unless on (group) label_replace({LATE}, "group", "$1", '
        f'"consumer", "(.*)")',
        "5m",
        "warning",
        "Type {{ $labels.type }} of {{ $labels.group }} has not been written for {{ $value }} s; "
        "lakechime schema show shows why.",
    ),
    Alarm(
        "LakechimeTypeWaits",
        "lakechime_type_rows_pending > 0",
        "15m",
        "warning",
        "{{ $value }} events of {{ $labels.type }} wait for a table; lakechime schema show {{ "
        "$labels.group }} shows why.",
    ),
    Alarm(
        "LakechimeTypeConflict",
        'increase(lakechime_type_conflicts_total{type!="(other)"}[1h]) > 0',
        "0m",
        "warning",
        "A field of {{ $labels.type }} of {{ $labels.group }} has values of another kind; "
        "lakechime schema show names its variant column.",
    ),
    Alarm(
        "LakechimeConsumerBlocked",
        'sum(lakechime_consumers{state="blocked"}) > 0',
        "5m",
        "critical",
        "{{ $value }} consumers wait for a person; lakechime status shows which.",
    ),
    Alarm(
        "LakechimeNoTick",
        "lakechime_tick_age_seconds > 300",
        "1m",
        "critical",
        "No trigger has been evaluated for {{ $value }} s: no daemon of Dagster runs, or all "
        "sensors are stopped.",
    ),
)


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it; it asks which Prometheus to read."""
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {
        "uid": "lakechime",
        "title": "LakeChime",
        "schemaVersion": 39,
        "refresh": "30s",
        "tags": ["lakechime"],
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source]},
        "panels": _panels(),
    }


def rules() -> dict[str, Any]:
    """The alarms as a file of Prometheus's rules, which is YAML, of which JSON is a part."""
    alarms = [
        {
            "alert": one.name,
            "expr": one.expression,
            "for": one.hold,
            "labels": {"severity": one.severity},
            "annotations": {"summary": one.summary},
        }
        for one in ALARMS
    ]
    return {"groups": [{"name": "lakechime", "rules": alarms}]}


def files() -> dict[str, str]:
    """The texts of both, by the names of their files."""
    return {
        name: json.dumps(document, indent=2) + "\n"
        for name, document in (("lakechime.json", dashboard()), ("alarms.yml", rules()))
    }


def _panels() -> list[dict[str, Any]]:
    """The panels beside each other, each row as full as it gets."""
    found: list[dict[str, Any]] = []
    x = y = 0
    for number, one in enumerate(PANELS, start=1):
        x, y = (x, y) if x + one.width <= SCREEN else (0, y + HEIGHT)
        found.append(_panel(number, one, {"x": x, "y": y, "w": one.width, "h": HEIGHT}))
        x += one.width
    return found


def _panel(number: int, one: Panel, position: Mapping[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "title": one.title,
        "type": "timeseries",
        "datasource": SOURCE,
        "gridPos": position,
        "fieldConfig": {"defaults": {"unit": one.unit}, "overrides": []},
        "targets": [
            {"refId": "A", "expr": one.expression, "legendFormat": one.legend, "datasource": SOURCE}
        ],
    }


if __name__ == "__main__":
    for name, text in files().items():
        (Path(sys.argv[1]) / name).write_text(text, encoding="utf-8")
