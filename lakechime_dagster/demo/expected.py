"""What the flights lake must hold, recomputed from the raw files by another engine.

The SQL here is DuckDB's own and says again what `flights.py` declares: two texts, two engines, one result.
"""

import datetime as dt
from collections.abc import Mapping

import duckdb
import pyarrow as pa

from lakechime_dagster.demo.announced import GATE_CHANGED
from lakechime_dagster.demo.data import SCHEMAS
from lakechime_dagster.demo.plan import TABLES, Written, content_of

CHANGED = pa.schema([("origin", pa.string()), ("airline", pa.string()), ("notice", pa.int64())])  # of the events GATE_CHANGED

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


def build_expected(written: Written, followed: Mapping[str, pa.Table] | None = None) -> duckdb.DuckDBPyConnection:
    """A database in memory with every table of the lake, `schema.table` named `schema_table`.

    Args:
        written: what the replay has written into the bronze tables.
        followed: the tables of the database that the lake follows, by their names there; none where it follows none.
    """
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for table in TABLES:
        parts = [content_of(partition, content) for partition, content in written.contents.items() if partition[0] == table]
        connection.register("rows", pa.concat_tables([SCHEMAS[table].empty_table(), *parts]).combine_chunks())
        connection.table("rows").create(relation_name(table))
        connection.unregister("rows")
    days: list[dt.date] = written.complete_days
    connection.register("days", pa.table({"flight_date": pa.array(days, pa.date32())}))
    connection.table("days").create("complete_days")
    connection.unregister("days")
    told = [line.event for line in written.airport_lines() if line.event is not None and line.event["type"] == GATE_CHANGED]
    connection.register("told", pa.Table.from_pylist([{name: one[name] for name in CHANGED.names} for one in told], schema=CHANGED))
    connection.table("told").create("gate_changed")
    connection.unregister("told")
    for statement in (SILVER_FLIGHTS, ROUTE_HOUR, DAILY_DELAYS, AIRLINE_SCORECARD, GATE_CHANGES):
        connection.execute(statement)
    for name, rows in (followed or {}).items():
        connection.register("rows", rows)
        connection.table("rows").create(relation_name(f"cdc.{name}"))
        connection.unregister("rows")
    if followed:
        connection.execute(LATE_PASSENGERS)
    return connection


def relation_name(table: str) -> str:
    """The name of a lake table in the database of `build_expected`."""
    return table.replace(".", "_")
