"""Reads audit tables: what arrived since the last time, as reads and writes of columns."""

import datetime as dt
import json
from collections.abc import Mapping
from typing import Any

from lakechime_dagster.dce.events import version_of
from lakechime_dagster.dce.snapshots import SnapshotPlace
from lakechime_dagster.errors import InvalidValueError, NotFoundError
from lakechime_dagster.lineage.facts import RunState
from lakechime_dagster.lineage.ingest_service import LineageIngest, Refused, TakenLines, parsed
from lakechime_dagster.lineage.reads import place_of_way
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.tables.lake import AuditLog, Lake, QueryLog


def read_query_log(
    platform: Platform, lake: Lake, one: AuditLog, ingest: LineageIngest, through: SnapshotPlace | None = None
) -> TakenLines:
    """Take the rows of an audit table that came since the last time; a row that cannot be read loses no other.

    With `through` no commit after that one is read, while the table is still the one of which it is.

    The place is a version of the table, kept in the transaction that keeps what its commit told; a table that was made anew is
    read from its beginning, which changes nothing of what it told before.

    Raises:
        TableUnreadableError: the table, or one of the declared columns, cannot be read.
    """
    from lakechime_dagster.formats.delta_rows import appended  # deltalake, for who reads a table

    table = lake.table(one.table)
    log = platform.log(one.table, table.location)
    total = TakenLines()
    if log.state() is None:
        return total
    uid = str(log.uid)
    kept = place_of_way(platform.store.engine, one.table)
    place = json.loads(kept) if kept else {}
    after = place.get("version") if place.get("uid") == uid else None
    number = 0
    last = version_of(through.snapshot_id) if through is not None and through.table_uid == uid else None
    for some in appended(log, after, tuple(one.columns.values()), last):
        told, refused = [], []
        for row in some.rows:
            number += 1
            try:
                told += ingest.told([document_of(row, one)])
            except InvalidValueError as error:
                refused.append(Refused(line=number, problem=str(error)))
        moved = json.dumps({"uid": uid, "version": some.through}) if some.is_last else None
        total.add(ingest.keep(told, one.table, len(refused), moved))
        total.refused += refused
    return total


def query_log_named(lake: Lake, name: str | None) -> tuple[AuditLog, ...]:
    """The declared audit tables, or the one of that name.

    Raises:
        NotFoundError: naming those that are declared.
    """
    if name is None:
        return lake.query_logs
    found = tuple(one for one in lake.query_logs if one.table == name)
    if not found:
        there = ", ".join(one.table for one in lake.query_logs) or "none"
        raise NotFoundError(f"the lake declares no audit table {name}; there are {there}")
    return found


def document_of(row: Mapping[str, Any], one: AuditLog) -> Any:
    """A row as the document that it stands for."""
    return _document(row, one) if isinstance(one, QueryLog) else parsed(str(row[one.event] or "").encode(errors="replace"))


def _document(row: Mapping[str, Any], one: QueryLog) -> dict[str, Any]:
    value = {name: row[column] for name, column in one.columns.items()}
    state = value.pop("state", None)
    is_done = one.state is None or str(state).upper() in {text.upper() for text in one.succeeded}
    at = value.pop("at")
    if at is None:
        raise InvalidValueError(one.at, None, "tells no time")
    given = {name: str(text) for name, text in value.items() if text not in (None, "")}
    task = given.get("task") or given.get("dashboard") or given.get("user") or one.table
    return {
        "sql": "",
        **given,
        "producer": one.table,
        "task": task,
        "dialect": one.dialect,
        "at": at if isinstance(at, int | str) else _zoned(at),
        "state": RunState.COMPLETE if is_done else RunState.FAIL,
    }


def _zoned(at: dt.datetime) -> dt.datetime:
    return at if at.tzinfo else at.replace(tzinfo=dt.timezone.utc)
