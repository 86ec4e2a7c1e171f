"""Compares the tables of the flights lake with what the raw files say."""

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from duckdb_extensions import import_extension
from pyiceberg.catalog import load_catalog

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.events import TableFormat
from lakechime_dagster.demo.airport import Line, file_of
from lakechime_dagster.demo.data import FIRST_DAY, FLEET, SCHEMAS
from lakechime_dagster.demo.flights import FOLDER, GATE_CHANGED, KAFKA, event_tables, flights_lake
from lakechime_dagster.demo.plan import FLIGHTS, TABLES, Written, content_of
from lakechime_dagster.errors import LakeChimeError, TableAbsentError, TableUnreadableError
from lakechime_dagster.tables.cdc import BronzeTable, CDCTable
from lakechime_dagster.tables.events import (
    VARIANT,
    EventGroup,
    EventStream,
    checked_groups,
    field_of,
    owner_of,
)
from lakechime_dagster.tables.lake import Table
from lakechime_dagster.tables.names import HIDDEN
from lakechime_dagster.tables.tables import LakeTable, SourceTable

if TYPE_CHECKING:
    from lakechime_dagster.formats.hive import HiveLog

# of the events GATE_CHANGED
CHANGED = pa.schema([("origin", pa.string()), ("airline", pa.string()), ("notice", pa.int64())])

SILVER_FLIGHTS = """
    CREATE TABLE silver_flights AS
    SELECT f.*, w.temp, w.dewp, w.humid, w.wind_dir, w.wind_speed, w.wind_gust, w.precip, w.pressure, w.visib
    FROM bronze_flights f
    LEFT JOIN bronze_weather w ON f.origin = w.origin AND f.time_hour = w.time_hour
    WHERE f.carrier IS NOT NULL
"""

ROUTE_HOUR = """
    CREATE TABLE gold_route_hour AS
    SELECT origin, dest, hour,
           count(*) AS flights,
           count(*) FILTER (dep_delay IS NULL) AS cancelled,
           sum(dep_delay)::DOUBLE / nullif(count(dep_delay), 0) AS avg_dep_delay,
           max(dep_delay) AS max_dep_delay
    FROM silver_flights
    GROUP BY ALL
"""

DAILY_DELAYS = """
    CREATE TABLE gold_daily_delays AS
    SELECT f.flight_date, f.origin,
           count(*) AS flights,
           count(*) FILTER (f.dep_delay IS NULL) AS cancelled,
           sum(f.dep_delay)::DOUBLE / nullif(count(f.dep_delay), 0) AS avg_dep_delay,
           sum(f.arr_delay)::DOUBLE / nullif(count(f.arr_delay), 0) AS avg_arr_delay,
           count(*) FILTER (f.dep_delay > 15) AS late,
           max(f.wind_speed) AS max_wind_speed,
           max(f.temp) AS max_temp,
           min(f.visib) AS min_visibility
    FROM silver_flights f
    SEMI JOIN complete_days d ON f.flight_date = d.flight_date
    GROUP BY ALL
"""

AIRLINE_SCORECARD = """
    CREATE TABLE gold_airline_scorecard AS
    SELECT f.carrier,
           count(*) AS flights,
           count(*) FILTER (f.dep_delay IS NULL) AS cancelled,
           sum(f.dep_delay)::DOUBLE / nullif(count(f.dep_delay), 0) AS avg_dep_delay,
           count(*) FILTER (f.dep_delay > d.avg_dep_delay) AS worse_than_the_day,
           count(*) FILTER (f.dep_delay > 15)::DOUBLE / nullif(count(f.dep_delay), 0) AS late_share
    FROM silver_flights f
    JOIN gold_daily_delays d USING (flight_date, origin)
    GROUP BY f.carrier
"""

DAILY_SEATS = """
    CREATE TABLE gold_daily_seats AS
    SELECT f.flight_date, f.origin,
           count(*) AS flights,
           count(p.tailnum) AS known_planes,
           sum(p.seats)::BIGINT AS seats
    FROM bronze_flights f
    SEMI JOIN exported_days d ON f.flight_date = d.flight_date
    LEFT JOIN bronze_fleet p ON f.flight_date = p.flight_date AND f.tailnum = p.tailnum
    WHERE f.carrier IS NOT NULL
    GROUP BY ALL
"""

GATE_CHANGES = """
    CREATE TABLE gold_gate_changes AS
    SELECT origin, airline, count(*) AS changes, min(notice) AS shortest_notice
    FROM gate_changed
    GROUP BY ALL
"""

LATE_PASSENGERS = """
    CREATE TABLE gold_late_passengers AS
    SELECT carrier,
           any_value(a.name) AS airline,
           sum(b.passengers)::BIGINT AS passengers,
           coalesce(sum(b.passengers) FILTER (f.dep_delay > 15), 0)::BIGINT AS late_passengers,
           sum(b.fare * b.passengers) AS paid,
           max(p.seats) AS seats_of_the_largest_plane
    FROM cdc_bookings b
    JOIN cdc_airlines a USING (carrier)
    JOIN silver_flights f USING (flight_date, carrier, flight, origin, sched_dep_time)
    LEFT JOIN cdc_planes p USING (tailnum)
    WHERE b.status = 'boarded'
    GROUP BY carrier
"""


def build_expected(
    written: Written, database: Mapping[str, pa.Table] | None = None
) -> duckdb.DuckDBPyConnection:
    """A database in memory with every table of the lake, `schema.table` named `schema_table`.

    Args:
        written: what the replay has written into the bronze tables.
        database: the tables of the database that the lake replicates, by name; none where it
            replicates none.
    """
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for table in TABLES:
        parts = [
            content_of(partition, content)
            for partition, content in written.contents.items()
            if partition[0] == table
        ]
        _create(
            connection,
            relation_name(table),
            pa.concat_tables([SCHEMAS[table].empty_table(), *parts]).combine_chunks(),
        )
    complete = written.complete_days
    exported = [day for day in written.days_of(FLIGHTS) if day in written.fleet]
    for name, days in (("complete_days", complete), ("exported_days", exported)):
        _create(connection, name, pa.table({"flight_date": pa.array(days, pa.date32())}))
    parts = [_of_day(export.rows, export.day) for export in written.fleet.values()]
    nothing = _of_day(FLEET.empty_table(), FIRST_DAY)
    _create(connection, "bronze_fleet", pa.concat_tables([nothing, *parts]))
    changed = [
        line.event
        for line in written.airport_lines()
        if line.event is not None and line.event["type"] == GATE_CHANGED
    ]
    _create(
        connection,
        "gate_changed",
        pa.Table.from_pylist(
            [{name: one[name] for name in CHANGED.names} for one in changed], schema=CHANGED
        ),
    )
    statements = (SILVER_FLIGHTS, ROUTE_HOUR, DAILY_DELAYS, AIRLINE_SCORECARD)
    for statement in (*statements, DAILY_SEATS, GATE_CHANGES):
        connection.execute(statement)
    for name, rows in (database or {}).items():
        _create(connection, relation_name(f"cdc.{name}"), rows)
    if database:
        connection.execute(LATE_PASSENGERS)
    return connection


def _create(connection: duckdb.DuckDBPyConnection, name: str, rows: pa.Table) -> None:
    connection.register("rows", rows)
    connection.table("rows").create(name)
    connection.unregister("rows")


def _of_day(rows: pa.Table, day: dt.date) -> pa.Table:
    """Rows of the fleet with the day of their partition."""
    return rows.append_column("flight_date", pa.array([day] * rows.num_rows, pa.date32()))


def relation_name(table: str) -> str:
    """The name of a lake table in the database of `build_expected`."""
    return table.replace(".", "_")


Row = Mapping[str, Any]  # column → cell


class Finding(StrEnum):
    """How a table compares; one that waits for a run differs too."""

    EQUAL = "equal"
    DIFFERS = "differs"
    MISSING = "missing"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first row, by key, that is not the same: only the cells that differ; no side where the
    row is absent.
    """

    key: Row
    expected: Row | None
    actual: Row | None

    def __str__(self) -> str:
        where = ", ".join(f"{name}={value}" for name, value in self.key.items())
        if self.actual is None:
            return f"{where}: is missing"
        if self.expected is None:
            return f"{where}: should not be there"
        cells = ", ".join(
            f"{name} is {self.actual[name]!r}, should be {value!r}"
            for name, value in self.expected.items()
        )
        return f"{where}: {cells}"


@dataclass(frozen=True, kw_only=True)
class TableCheck:
    """What the comparison of one table found."""

    table: str
    finding: Finding
    expected_rows: int
    actual_rows: int
    difference: Difference | None = None

    def __str__(self) -> str:
        rows = (
            f"{self.actual_rows} rows"
            if self.finding is Finding.EQUAL
            else f"{self.actual_rows} of {self.expected_rows} rows"
        )
        return f"{self.table}: {self.finding}, {rows}" + (
            f"; {self.difference}" if self.difference else ""
        )


STREAM = "airport.events"
TIMES = "number of rows"
TECHNICAL = ("_src", "_ingested_at", "_hash", "_schema_version", "_rescued")


def verify_events(location: Callable[[str], str], written: Written) -> tuple[TableCheck, ...]:
    """The checks of the stream's table, and of the table of each type that was emitted so far.

    Rows of newer files are left out, so that a running replay makes no difference.
    """
    lines = list(written.airport_lines())
    checks = [
        _check_events(
            STREAM,
            location(STREAM),
            {line.source: _of_line(line) for line in lines},
            written,
            _of_bronze,
        )
    ]
    for table, events in _by_table(lines).items():
        checks.append(_check_events(table, location(table), events, written, event_of_row))
    return tuple(checks)


def event_of_row(row: Row) -> dict[str, Any]:
    """The event that a row of a type's table means, without what is null in it."""
    event = _without_null({name: value for name, value in row.items() if name not in TECHNICAL})
    for rescued in json.loads(row["_rescued"] or "[]"):
        *parents, name = [
            part.replace("~1", "/").replace("~0", "~") for part in rescued["p"].split("/")[1:]
        ]
        inner = event
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[name] = rescued["v"]
    return event


def _by_table(lines: Iterable[Line]) -> dict[str, dict[str, Row]]:
    """The events of each table by their `_src`."""
    declared = event_tables(Path(FOLDER))
    (stream,) = (one for one in declared if isinstance(one, EventStream))
    groups = checked_groups(stream, [one for one in declared if isinstance(one, EventGroup)])
    tables: dict[str, dict[str, Row]] = {
        one.name: {} for one in declared if isinstance(one, SourceTable)
    }
    for line in lines:
        if line.event is not None:
            kind = line.event["type"]
            name = owner_of(groups, kind).table(kind).name
            tables.setdefault(name, {})[line.source] = _without_null(line.event)
    return tables


def _check_events(
    table: str,
    location: str,
    expected: Mapping[str, Row],
    written: Written,
    meaning: Callable[[Row], dict[str, Any]],
) -> TableCheck:
    if not DeltaTable.is_deltatable(location):
        finding = Finding.MISSING if expected else Finding.EQUAL
        return TableCheck(table=table, finding=finding, expected_rows=len(expected), actual_rows=0)
    query = QueryBuilder().register("rows", DeltaTable(location)).execute("SELECT * FROM rows")
    end = file_of(written.hours)
    rows = [row for row in pa.table(query).to_pylist() if row["_src"] < end]
    times = Counter(row["_src"] for row in rows)
    there = {row["_src"]: meaning(row) for row in rows}
    difference = _first_event_difference(expected, there, times)
    finding = Finding.EQUAL if difference is None else Finding.DIFFERS
    return TableCheck(
        table=table,
        finding=finding,
        expected_rows=len(expected),
        actual_rows=len(rows),
        difference=difference,
    )


def _first_event_difference(
    written: Mapping[str, Row], there: Mapping[str, Row], times: Mapping[str, int]
) -> Difference | None:
    for source in sorted({*written, *there}, key=_in_order):
        expected, actual = written.get(source), there.get(source)
        key = {"_src": source}
        if times.get(source, 0) > 1:
            return Difference(
                key=key,
                expected={TIMES: 1 if expected is not None else 0},
                actual={TIMES: times[source]},
            )
        if expected is None or actual is None:
            return Difference(key=key, expected=expected, actual=actual)
        cells = [name for name in {**expected, **actual} if expected.get(name) != actual.get(name)]
        if cells:
            wanted, found = ({name: one.get(name) for name in cells} for one in (expected, actual))
            return Difference(key=key, expected=wanted, actual=found)
    return None


def _in_order(source: str) -> tuple[str, int]:
    """The order of lines: by file, and by their offset in it."""
    name, _, at = source.partition("@")
    return name, int(at)


def _of_line(line: Line) -> Row:
    event = line.event
    return {
        "payload": line.text,
        "type": event and event["type"],
        "producer": event and event["airline"],
        "refused": event is None,
    }


def _of_bronze(row: Row) -> dict[str, Any]:
    return {
        "payload": row["payload"],
        "type": row["type"],
        "producer": row["producer"],
        "refused": row["reason"] is not None,
    }


def _without_null(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of an event by their names, of columns and variant columns too; null is as if the
    field were missing.
    """
    found: dict[str, Any] = {}
    for name, value in fields.items():
        inner = _without_null(value) if isinstance(value, dict) else value
        if inner is not None and inner != {}:
            found[field_of(name.partition(VARIANT)[0])] = inner
    return found


BRONZE_KEYS = {
    "bronze.flights": ("flight_date", "hour", "carrier", "flight", "origin", "sched_dep_time"),
    "bronze.weather": ("origin", "time_hour"),
    "bronze.fleet": ("flight_date", "tailnum"),
}


def verify(
    location: Callable[[str], str],
    written: Written,
    database: Mapping[str, pa.Table] | None = None,
    *,
    catalog: Mapping[str, str],
    fleet: "HiveLog | None" = None,
) -> tuple[TableCheck, ...]:
    """Compare every table of the lake, inputs first, with what must follow from what the replay has
    written.

    Args:
        location: the path at which a table of that name lies.
        written: what the replay has written so far, `ReplayState.plan.written(ReplayState.ticks)`.
        database: what it has written so far into the database that the lake replicates; None where
            it replicates none.
        catalog: the properties of the catalog of Iceberg tables.
        fleet: the log of the Hive table; None where the lake has none.
    """
    lake = flights_lake(None if database is None else KAFKA, has_metastore=fleet is not None)
    connection = build_expected(written, database)
    try:
        load_delta(connection)
        checks = {check.table: check for check in verify_events(location, written)}
        for table in lake.tables:
            # raw messages; the tables made of them are compared
            if table.name not in checks and not isinstance(table, BronzeTable):
                if table.format is TableFormat.ICEBERG:
                    actual = _iceberg(catalog, table.name)
                elif table.format is TableFormat.HIVE:
                    actual = fleet and _hive(fleet)
                else:
                    actual = _delta(location, table.name)
                checks[table.name] = _check(connection, table, actual)
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
        raise LakeChimeError(
            f"DuckDB cannot load its Delta reader; install lakechime-dagster[demo] "
            f"({type(error).__name__})"
        ) from None


# gives DuckDB the rows of a table
Scan = Callable[[duckdb.DuckDBPyConnection], duckdb.DuckDBPyRelation]


def _delta(location: Callable[[str], str], table: str) -> Scan | None:
    """How a Delta table is read; None of one that is not there."""
    path = location(table)
    if not DeltaTable.is_deltatable(path):
        return None
    return lambda connection: connection.table_function("delta_scan", [path])


def _iceberg(catalog: Mapping[str, str], table: str) -> Scan | None:
    """The same of an Iceberg table."""
    opened = load_catalog("lakechime", **catalog)
    if not opened.table_exists(table):
        return None
    rows = opened.load_table(table).scan().to_arrow()
    return lambda connection: connection.from_arrow(rows)


def _hive(log: "HiveLog") -> Scan | None:
    """The same of the Hive table of the fleet."""
    try:
        found = log.stored().folders
    except TableAbsentError:
        return None
    parts = [
        _of_day(pq.read_table(one.location), dt.date.fromisoformat(str(one.values[0])))
        for one in found.get("parquet", ())
    ]
    rows = pa.concat_tables([_of_day(FLEET.empty_table(), FIRST_DAY), *parts])
    return lambda connection: connection.from_arrow(rows)


def _check(connection: duckdb.DuckDBPyConnection, declared: Table, scan: Scan | None) -> TableCheck:
    table = declared.name
    expected = connection.table(relation_name(table))
    expected_rows = _count(expected)
    if scan is None:
        finding = Finding.EQUAL if expected_rows == 0 else Finding.MISSING
        return TableCheck(table=table, finding=finding, expected_rows=expected_rows, actual_rows=0)
    try:
        actual = _read(connection, table, scan, expected.columns)
        difference = _first_difference(_keys(declared), expected, actual)
    except duckdb.Error as error:
        raise TableUnreadableError(f"{table} cannot be read ({type(error).__name__})") from None
    finding = Finding.EQUAL if difference is None else Finding.DIFFERS
    return TableCheck(
        table=table,
        finding=finding,
        expected_rows=expected_rows,
        actual_rows=_count(actual),
        difference=difference,
    )


def _read(
    connection: duckdb.DuckDBPyConnection, table: str, scan: Scan, columns: list[str]
) -> duckdb.DuckDBPyRelation:
    """The rows of a table with the expected columns, copied so that both sides stay as they
    are.
    """
    scanned = scan(connection)
    missing = [column for column in columns if column not in scanned.columns]
    extra = [column for column in scanned.columns if column not in (*columns, HIDDEN)]
    if missing or extra:
        problem = (
            f"has no column {missing[0]!r}"
            if missing
            else f"has a column {extra[0]!r} that it should not have"
        )
        raise TableUnreadableError(f"{table} {problem}")
    name = f"actual_{relation_name(table)}"
    scanned.select(*map(duckdb.ColumnExpression, columns)).create(name)
    return connection.table(name)


def _first_difference(
    keys: tuple[str, ...], expected: duckdb.DuckDBPyRelation, actual: duckdb.DuckDBPyRelation
) -> Difference | None:
    # EXCEPT ALL: a row that is there twice counts
    lost = _first_row(expected.except_(actual), keys)
    surplus = _first_row(actual.except_(expected), keys)
    if lost is None and surplus is None:
        return None
    first = min(
        (row for row in (lost, surplus) if row is not None), key=lambda row: _sortable(row, keys)
    )
    key = {name: first[name] for name in keys}
    both = _with_key(expected, key), _with_key(actual, key)
    should, there = (_first_row(relation, keys) for relation in both)
    if should is None or there is None:
        return Difference(key=key, expected=should, actual=there)
    cells = [name for name in should if should[name] != there[name]]
    if not cells:
        should, there = ({"number of rows": _count(relation)} for relation in both)
        cells = ["number of rows"]
    return Difference(
        key=key,
        expected={name: should[name] for name in cells},
        actual={name: there[name] for name in cells},
    )


def _first_row(relation: duckdb.DuckDBPyRelation, keys: tuple[str, ...]) -> Row | None:
    ordered = relation.sort(*(duckdb.ColumnExpression(key).nulls_first() for key in keys)).limit(1)
    row = ordered.fetchone()
    return None if row is None else dict(zip(ordered.columns, row, strict=True))


def _with_key(relation: duckdb.DuckDBPyRelation, key: Row) -> duckdb.DuckDBPyRelation:
    for name, value in key.items():
        column = duckdb.ColumnExpression(name)
        relation = relation.filter(
            column.isnull() if value is None else column == duckdb.ConstantExpression(value)
        )
    return relation


def _keys(declared: Table) -> tuple[str, ...]:
    return (
        declared.keys if isinstance(declared, LakeTable | CDCTable) else BRONZE_KEYS[declared.name]
    )


def _count(relation: duckdb.DuckDBPyRelation) -> int:
    row = relation.count("*").fetchone()
    return int(row[0]) if row else 0


def _sortable(row: Row, keys: tuple[str, ...]) -> list[tuple[bool, Any]]:
    """A row's key in an order that puts null first, as the engine's sort does."""
    return [(row[key] is not None, row[key]) for key in keys]
