"""Compares the tables of the flights lake with what the raw files say, cell by cell, in an engine that is not Spark."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from duckdb_extensions import import_extension

from lakechime_dagster import LakeTable
from lakechime_dagster.demo.expected import build_expected, relation_name
from lakechime_dagster.demo.findings import Difference, Finding, Row, TableCheck
from lakechime_dagster.demo.flights import flights_lake
from lakechime_dagster.demo.followed import KAFKA
from lakechime_dagster.demo.plan import Written
from lakechime_dagster.demo.verify_events import verify_events
from lakechime_dagster.errors import LakeChimeError, TableUnreadableError
from lakechime_dagster.lake.change_tables import BronzeTable, ChangeTable
from lakechime_dagster.lake.lake import Table
from lakechime_dagster.lake.own_columns import HIDDEN
from lakechime_dagster.triggers.lanes import CommitStamp

BRONZE_KEYS = {
    "bronze.flights": ("flight_date", "hour", "carrier", "flight", "origin", "sched_dep_time"),
    "bronze.weather": ("origin", "time_hour"),
}


def verify(location: Callable[[str], str], written: Written, followed: Mapping[str, pa.Table] | None = None) -> tuple[TableCheck, ...]:
    """Compare every table of the lake, inputs first, with what must follow from what the replay has written.

    Args:
        location: the path at which a table of that name lies.
        written: what the replay has written so far, `ReplayState.plan.written(ReplayState.ticks)`.
        followed: what it has written so far into the database that the lake follows; None where it follows none.
    """
    lake = flights_lake(None if followed is None else KAFKA)
    connection = build_expected(written, followed)
    try:
        load_delta(connection)
        checks = {check.table: check for check in verify_events(location, written)}
        for table in lake.tables:
            if table.name not in checks and not isinstance(table, BronzeTable):  # as it came; the tables that it means are compared
                checks[table.name] = _check(connection, table, location, checks)
        return tuple(checks.values())
    finally:
        connection.close()


def warehouse_location(warehouse: str | Path) -> Callable[[str], str]:
    """Where tables without a location of their own lie: `<warehouse>/<schema>/<table>`."""
    return lambda table: str(Path(warehouse).joinpath(*table.split(".")))


def load_delta(connection: duckdb.DuckDBPyConnection) -> None:
    """Give DuckDB its reader of Delta tables, from the installed package, without a download."""
    try:
        import_extension("delta")
        connection.execute("LOAD delta")
    except (duckdb.Error, OSError) as error:
        raise LakeChimeError(f"DuckDB cannot load its Delta reader; install lakechime-dagster[demo] ({type(error).__name__})") from None


def _check(
    connection: duckdb.DuckDBPyConnection, declared: Table, location: Callable[[str], str], checked: Mapping[str, TableCheck]
) -> TableCheck:
    table = declared.name
    expected = connection.table(relation_name(table))
    expected_rows = _count(expected)
    if not DeltaTable.is_deltatable(location(table)):
        finding = Finding.EQUAL if expected_rows == 0 else Finding.MISSING
        return TableCheck(table=table, finding=finding, expected_rows=expected_rows, actual_rows=0)
    try:
        actual = _read(connection, table, location(table), expected.columns)
        difference = _first_difference(_keys(declared), expected, actual)
    except duckdb.Error as error:
        raise TableUnreadableError(f"{table} cannot be read at {location(table)} ({type(error).__name__})") from None
    actual_rows = _count(actual)
    if difference is None:
        return TableCheck(table=table, finding=Finding.EQUAL, expected_rows=expected_rows, actual_rows=actual_rows)
    if isinstance(declared, ChangeTable):
        reason = _why_changes_miss(expected, actual)
    else:
        reason = _why_behind(declared, difference, location, checked)
    finding = Finding.BEHIND if reason else Finding.DIFFERS
    return TableCheck(
        table=table, finding=finding, expected_rows=expected_rows, actual_rows=actual_rows, difference=difference, reason=reason
    )


def _read(connection: duckdb.DuckDBPyConnection, table: str, location: str, columns: list[str]) -> duckdb.DuckDBPyRelation:
    """The rows of a Delta table with the expected columns, copied so that both sides stay as they are."""
    scanned = connection.table_function("delta_scan", [location])
    missing = [column for column in columns if column not in scanned.columns]
    extra = [column for column in scanned.columns if column not in (*columns, HIDDEN)]
    if missing or extra:
        problem = f"has no column {missing[0]!r}" if missing else f"has a column {extra[0]!r} that it should not have"
        raise TableUnreadableError(f"{table} {problem}")
    name = f"actual_{relation_name(table)}"
    scanned.select(*map(duckdb.ColumnExpression, columns)).create(name)
    return connection.table(name)


def _first_difference(keys: tuple[str, ...], expected: duckdb.DuckDBPyRelation, actual: duckdb.DuckDBPyRelation) -> Difference | None:
    lost = _first_row(expected.except_(actual), keys)  # EXCEPT ALL: a row that is there twice counts
    surplus = _first_row(actual.except_(expected), keys)
    if lost is None and surplus is None:
        return None
    first = min((row for row in (lost, surplus) if row is not None), key=lambda row: _sortable(row, keys))
    key = {name: first[name] for name in keys}
    both = _with_key(expected, key), _with_key(actual, key)
    should, there = (_first_row(relation, keys) for relation in both)
    if should is None or there is None:
        return Difference(key=key, expected=should, actual=there)
    cells = [name for name in should if should[name] != there[name]]
    if not cells:
        should, there = ({"number of rows": _count(relation)} for relation in both)
        cells = ["number of rows"]
    return Difference(key=key, expected={name: should[name] for name in cells}, actual={name: there[name] for name in cells})


def _first_row(relation: duckdb.DuckDBPyRelation, keys: tuple[str, ...]) -> Row | None:
    ordered = relation.sort(*(duckdb.ColumnExpression(key).nulls_first() for key in keys)).limit(1)
    row = ordered.fetchone()
    return None if row is None else dict(zip(ordered.columns, row, strict=True))


def _with_key(relation: duckdb.DuckDBPyRelation, key: Row) -> duckdb.DuckDBPyRelation:
    for name, value in key.items():
        column = duckdb.ColumnExpression(name)
        relation = relation.filter(column.isnull() if value is None else column == duckdb.ConstantExpression(value))
    return relation


def _why_changes_miss(expected: duckdb.DuckDBPyRelation, actual: duckdb.DuckDBPyRelation) -> str:
    """Why a difference from the database may just be changes on their way: the newest one is not there yet."""
    newest, there = (relation.max("changed_at").fetchone() for relation in (expected, actual))
    return f"its newest change is of {there[0]}, the database's of {newest[0]}" if newest and there and newest != there else ""


def _why_behind(declared: Table, difference: Difference, location: Callable[[str], str], checked: Mapping[str, TableCheck]) -> str:
    """Why a difference may just be work to be done: an input is not equal itself, or has commits not consumed yet."""
    if not isinstance(declared, LakeTable):
        return ""
    unequal = [name for name in declared.inputs if name in checked and checked[name].finding is not Finding.EQUAL]
    if unequal:
        return f"its input {unequal[0]} is not equal either"
    if declared.levels:
        return f"its partition {next(iter(difference.key.values()))} was not computed yet" if difference.actual is None else ""
    ends = _consumed(location(declared.name))
    for name in declared.inputs:
        version = DeltaTable(location(name)).version()
        if name in ends and int(ends[name]) < version:
            return f"it has consumed {name} up to commit {ends[name]} of {version}"
    return ""


def _consumed(location: str) -> dict[str, str]:
    """Per source, the snapshot that the newest stamped commit of a table says it has consumed."""
    for stamp in _stamps(location):
        return {name: place.snapshot_id for name, place in stamp.end.sources.items() if place.snapshot_id is not None}
    return {}


def _stamps(location: str) -> Iterator[CommitStamp]:
    for commit in DeltaTable(location).history():
        stamp = CommitStamp.from_text(commit.get("userMetadata"))
        if stamp is not None:
            yield stamp


def _keys(declared: Table) -> tuple[str, ...]:
    return declared.keys if isinstance(declared, LakeTable | ChangeTable) else BRONZE_KEYS[declared.name]


def _count(relation: duckdb.DuckDBPyRelation) -> int:
    row = relation.count("*").fetchone()
    return int(row[0]) if row else 0


def _sortable(row: Row, keys: tuple[str, ...]) -> list[tuple[bool, Any]]:
    """A row's key in an order that puts null first, as the engine's sort does."""
    return [(row[key] is not None, row[key]) for key in keys]
