"""Compares the tables of the airports' events with the generated lines, by Python's own reader of JSON.

A row is brought back to its event: each column to its field, a sibling's value to the field of its column, and what is in
`_rescued` to where it was. Every event must be in the table of its type once, by `_src`.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from lakechime_dagster import SourceTable
from lakechime_dagster.demo.airport import Line, file_of
from lakechime_dagster.demo.announced import FOLDER, announced_tables
from lakechime_dagster.demo.findings import Difference, Finding, Row, TableCheck
from lakechime_dagster.demo.plan import Written
from lakechime_dagster.lake.event_names import SIBLING, field_of
from lakechime_dagster.lake.events import EventGroup, EventStream, checked_groups, owner_of

STREAM = "airport.events"
TIMES = "number of rows"
TECHNICAL = ("_src", "_ingested_at", "_hash", "_schema_version", "_rescued")


def verify_events(location: Callable[[str], str], written: Written) -> tuple[TableCheck, ...]:
    """The checks of the stream's table, and of the table of each type that was told of so far.

    Rows of files that were written since are left out, so that a replay that goes on makes no difference.
    """
    lines = list(written.airport_lines())
    checks = [_check(STREAM, location(STREAM), {line.source: _of_line(line) for line in lines}, written, _of_bronze)]
    for table, told in _by_table(lines).items():
        checks.append(_check(table, location(table), told, written, event_of_row))
    return tuple(checks)


def event_of_row(row: Row) -> dict[str, Any]:
    """The event that a row of a type's table means, without what is null in it."""
    event = _without_null({name: value for name, value in row.items() if name not in TECHNICAL})
    for rescued in json.loads(row["_rescued"] or "[]"):
        *parents, name = [part.replace("~1", "/").replace("~0", "~") for part in rescued["p"].split("/")[1:]]
        inner = event
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[name] = rescued["v"]
    return event


def _by_table(lines: Iterable[Line]) -> dict[str, dict[str, Row]]:
    """The events of each table by their `_src`."""
    declared = announced_tables(Path(FOLDER))
    (stream,) = (one for one in declared if isinstance(one, EventStream))
    groups = checked_groups(stream, [one for one in declared if isinstance(one, EventGroup)])
    tables: dict[str, dict[str, Row]] = {one.name: {} for one in declared if isinstance(one, SourceTable)}
    for line in lines:
        if line.event is not None:
            kind = line.event["type"]
            name = owner_of(groups, kind).table(kind).name
            tables.setdefault(name, {})[line.source] = _without_null(line.event)
    return tables


def _check(table: str, location: str, told: Mapping[str, Row], written: Written, meaning: Callable[[Row], dict[str, Any]]) -> TableCheck:
    if not DeltaTable.is_deltatable(location):
        finding = Finding.MISSING if told else Finding.EQUAL
        return TableCheck(table=table, finding=finding, expected_rows=len(told), actual_rows=0)
    query = QueryBuilder().register("rows", DeltaTable(location)).execute("SELECT * FROM rows")
    end = file_of(written.hours)
    rows = [row for row in pa.table(query).to_pylist() if row["_src"] < end]
    times = Counter(row["_src"] for row in rows)
    there = {row["_src"]: meaning(row) for row in rows}
    difference = _first_difference(told, there, times)
    reason = "" if difference is None else _why_behind(told, there, times)
    finding = Finding.EQUAL if difference is None else Finding.BEHIND if reason else Finding.DIFFERS
    return TableCheck(table=table, finding=finding, expected_rows=len(told), actual_rows=len(rows), difference=difference, reason=reason)


def _first_difference(told: Mapping[str, Row], there: Mapping[str, Row], times: Mapping[str, int]) -> Difference | None:
    for source in sorted({*told, *there}, key=_in_order):
        expected, actual = told.get(source), there.get(source)
        key = {"_src": source}
        if times.get(source, 0) > 1:
            return Difference(key=key, expected={TIMES: 1 if expected is not None else 0}, actual={TIMES: times[source]})
        if expected is None or actual is None:
            return Difference(key=key, expected=expected, actual=actual)
        cells = [name for name in {**expected, **actual} if expected.get(name) != actual.get(name)]
        if cells:
            wanted, found = ({name: one.get(name) for name in cells} for one in (expected, actual))
            return Difference(key=key, expected=wanted, actual=found)
    return None


def _why_behind(told: Mapping[str, Row], there: Mapping[str, Row], times: Mapping[str, int]) -> str:
    """Why a difference may just be events on their way: only those after the last one that is there are missing."""
    last = max(map(_in_order, there), default=("", -1))
    come = {source: row for source, row in told.items() if _in_order(source) <= last}
    if not there or _first_difference(come, there, times) is not None:
        return ""
    return f"it has no events after {last[0]}"


def _in_order(source: str) -> tuple[str, int]:
    """The order in which lines come: by file, and where they begin."""
    name, _, at = source.partition("@")
    return name, int(at)


def _of_line(line: Line) -> Row:
    event = line.event
    return {"payload": line.text, "type": event and event["type"], "producer": event and event["airline"], "refused": event is None}


def _of_bronze(row: Row) -> dict[str, Any]:
    return {"payload": row["payload"], "type": row["type"], "producer": row["producer"], "refused": row["reason"] is not None}


def _without_null(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of an event by their names, of columns and siblings too; null is as if the field were missing."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        inner = _without_null(value) if isinstance(value, dict) else value
        if inner is not None and inner != {}:
            found[field_of(name.partition(SIBLING)[0])] = inner
    return found
