"""The flights lake: every flight out of New York in 2013, with events and a replicated reservation
database.
"""

import datetime as dt
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.settings import load_settings
from lakechime_dagster.tables.cdc import CDCMerge, CDCTable, cdc_table
from lakechime_dagster.tables.databases import Database, Debezium, Monitor
from lakechime_dagster.tables.declare import spark_table, sql_table
from lakechime_dagster.tables.events import EventGroup, EventStream, event_group, event_stream
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Asset, Storage
from lakechime_dagster.tables.sources import JsonLines, KafkaTopic
from lakechime_dagster.tables.tables import LakeTable, SourceTable
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.triggers import (
    PartitionCondition,
    PartitionTrigger,
    SnapshotTrigger,
)

if TYPE_CHECKING:
    from dagster import AssetExecutionContext
    from pyspark.sql import DataFrame


FOLDER = "airport"  # in the home folder, where the replay writes the files of the stream
GATE_CHANGED = "gate.changed"


def event_tables(folder: Path) -> list[EventStream | EventGroup | SourceTable | LakeTable]:
    """The branch of events from files in this folder; passengers' are of `airport_other`, the group
    of all other types.
    """
    airport = event_stream(
        "airport",
        source=JsonLines(str(folder), every=every(minutes=2)),
        producer_field="$.airline",
        asset=Asset(
            owner="team:ops",
            description="Events of gates, crews and passengers as the airports emit them.",
        ),
    )
    gates = event_group("gates", airport, match="gate.*", owner="team:ops")
    crews = event_group("crews", airport, match="crew.*", owner="team:ops")
    return [airport, gates, crews, gates.table(GATE_CHANGED), gate_changes()]


def gate_changes() -> LakeTable:
    """The table that sums up a type that no declaration describes."""
    return sql_table(
        "gold.gate_changes",
        sql="""
            -- How often each airline's gates change at each airport, and how many minutes before.
            SELECT origin, airline,
                   count(*) AS changes,
                   min(notice) AS shortest_notice
            FROM gates.gate__changed
            GROUP BY origin, airline
        """,
        keys=["origin", "airline"],
        refresh="affected_keys",
        trigger=SnapshotTrigger(every=every(minutes=1)),
        asset=Asset(owner="team:analytics"),
    )


# set to 1, or to the address that Kafka is to have, the lake has this branch
CDC_SWITCH = "LAKECHIME_DEMO_CDC"
# the database that tables are compared with; `lakechime dev` sets it for Dagster
READER_URL = "LAKECHIME_DEMO_READER"
# an hour is booked in seconds, and the tables are asked for every minute
MINUTES_BEHIND = dt.timedelta(minutes=5)
KAFKA = "127.0.0.1:29092"
PREFIX, DATABASE = "airline", "reservations"  # of the topics: airline.reservations.bookings

ABOUT = {
    "airlines": (
        "carrier",
        "The airlines, as the reservation system knows them now; one is renamed on the second day.",
    ),
    "planes": ("tailnum", "The planes; each is entered in the hour of its first flight."),
    "bookings": (
        "booking",
        (
            "The bookings as they are now: made, reissued under another number, boarded, cancelled, "
            "deleted."
        ),
    ),
}


def kafka_address(environment: Mapping[str, str]) -> str | None:
    """Where Kafka is to be, or None where the lake has no such branch.

    Raises:
        InvalidValueError: the switch is neither on nor off, nor an address of this machine.
    """
    value = environment.get(CDC_SWITCH, "").strip()
    if value in ("", "0"):
        return None
    if value == "1":
        return KAFKA
    if not re.fullmatch(r"127\.0\.0\.1:\d{1,5}", value):
        raise InvalidValueError(CDC_SWITCH, value, f"is neither 1 nor an address such as {KAFKA}")
    return value


def cdc_tables(kafka: str) -> list[CDCTable | LakeTable]:
    """The tables of the branch, whose messages are in topics of this broker."""
    return [*(_cdc_table(name, kafka) for name in ABOUT), late_passengers()]


def _cdc_table(name: str, kafka: str) -> CDCTable:
    key, description = ABOUT[name]
    return cdc_table(
        f"cdc.{name}",
        source=KafkaTopic(f"{PREFIX}.{DATABASE}.{name}", bootstrap=kafka, every=every(minutes=1)),
        envelope=Debezium(),
        merge=CDCMerge(keys=(key,)),
        monitor=Monitor(
            database=Database(f"${READER_URL}", f"{DATABASE}.{name}"),
            every=every(minutes=10),
            within=MINUTES_BEHIND,
        ),
        asset=Asset(owner="team:sales", description=description),
    )


def late_passengers() -> LakeTable:
    """The table that joins what the database says with what the airports say."""
    return sql_table(
        "gold.late_passengers",
        sql=Path("late_passengers.sql"),
        keys=["carrier"],
        refresh="full",
        trigger=SnapshotTrigger(every=every(minutes=1)),
        asset=Asset(owner="team:analytics"),
    )


HOUR = {"flight_date": "date", "hour": "int"}
# set to 1, the first attempts of silver.flights at FAIL_DAY fail, to be watched healing
FAIL_SWITCH = "LAKECHIME_DEMO_FAIL"
FAIL_DAY = "2013-01-02"
FAILING_ATTEMPTS = 2

flights = SourceTable(
    "bronze.flights",
    storage=Storage(partitioned_by=HOUR),
    asset=Asset(
        owner="team:ops",
        description="Flights by their scheduled hour of departure, as the airports report them.",
    ),
)
weather = SourceTable(
    "bronze.weather",
    storage=Storage(partitioned_by=HOUR),
    asset=Asset(
        owner="team:ops",
        description=(
            "Hourly weather at the three airports; (origin, time_hour) is unique, the local hour "
            "is not when clocks go back."
        ),
    ),
)


@spark_table(
    "silver.flights",
    keys=["flight_date", "carrier", "flight", "origin", "sched_dep_time"],
    reads={
        "flights": flights.changes(rejoin=weather, on=["origin", "time_hour"]),
        "weather": weather.snapshot(),
    },
    trigger=SnapshotTrigger(every=every(minutes=1)),
    asset=Asset(
        expect={"air time is positive": "air_time IS NULL OR air_time > 0"},
        watermark="time_hour",
        owner="team:ops",
    ),
)
def silver_flights(
    flights: "DataFrame", weather: "DataFrame", context: "AssetExecutionContext | None" = None
) -> "DataFrame":
    """Flights with the weather of their hour."""
    attempt = int(context.run.tags.get("lakechime/attempt", "1")) if context is not None else 1
    is_failing = os.environ.get(FAIL_SWITCH) == "1" and attempt <= FAILING_ATTEMPTS
    if is_failing and not flights.where(f"flight_date = DATE'{FAIL_DAY}'").isEmpty():
        raise RuntimeError(
            f"{FAIL_DAY} fails on purpose, attempt {attempt} of {FAILING_ATTEMPTS} that do while "
            f"{FAIL_SWITCH}=1"
        )
    return flights.join(weather.drop("flight_date", "hour"), ["origin", "time_hour"], "left")


route_hour = sql_table(
    "gold.route_hour",
    sql="""
        -- Delays of each route by hour of the day.
        SELECT origin, dest, hour,
               count(*) AS flights,
               count(*) - count(dep_delay) AS cancelled,
               avg(dep_delay) AS avg_dep_delay,
               max(dep_delay) AS max_dep_delay
        FROM silver.flights
        GROUP BY origin, dest, hour
    """,
    keys=["origin", "dest", "hour"],
    refresh="affected_keys",
    trigger=SnapshotTrigger(every=every(minutes=1)),
    asset=Asset(owner="team:analytics"),
)


def whole_day(table: SourceTable) -> PartitionCondition:
    """All 24 hours of the day before the tick."""
    return table.partitions(flight_date=tick("-1d"), hour=range(24))


daily_delays = sql_table(
    "gold.daily_delays",
    sql=Path("daily_delays.sql"),
    keys=["flight_date", "origin"],
    refresh="partitions",
    trigger=PartitionTrigger(
        [whole_day(flights), whole_day(weather)],
        every(days=1, start="2013-01-02", until="2014-01-01"),
        tags={"complete": "true"},
        late="refire",
    ),
    storage=Storage(format="iceberg", partitioned_by={"flight_date": "date"}),
    asset=Asset(owner="team:analytics"),
)

airline_scorecard = sql_table(
    "gold.airline_scorecard",
    sql="""
        -- Each airline against the average of the day and the airport, over all days that are complete.
        SELECT f.carrier,
               count(*) AS flights,
               count(*) - count(f.dep_delay) AS cancelled,
               avg(f.dep_delay) AS avg_dep_delay,
               count_if(f.dep_delay > d.avg_dep_delay) AS worse_than_the_day,
               count_if(f.dep_delay > 15) / nullif(count(f.dep_delay), 0) AS late_share
        FROM silver.flights f
        JOIN gold.daily_delays d ON f.flight_date = d.flight_date AND f.origin = d.origin
        GROUP BY f.carrier
    """,
    keys=["carrier"],
    refresh="full",
    trigger=SnapshotTrigger(every=every(minutes=1)),
    asset=Asset(owner="team:analytics"),
)

computed: list[LakeTable] = [silver_flights, route_hour, daily_delays, airline_scorecard]


fleet = SourceTable(
    "bronze.fleet",
    storage=Storage(format="hive", partitioned_by={"flight_date": "date"}),
    asset=Asset(
        owner="team:ops",
        description="The planes in service on each day, as the maintenance exports them at night.",
    ),
)

daily_seats = sql_table(
    "gold.daily_seats",
    sql="""
        -- The seats that left each airport on a day, as far as the planes are known.
        SELECT f.flight_date,
               f.origin,
               count(*) AS flights,
               count(p.tailnum) AS known_planes,
               sum(p.seats) AS seats
        FROM bronze.flights f
        LEFT JOIN bronze.fleet p ON f.flight_date = p.flight_date AND f.tailnum = p.tailnum
        WHERE f.carrier IS NOT NULL
        GROUP BY f.flight_date, f.origin
    """,
    keys=["flight_date", "origin"],
    refresh="partitions",
    trigger=PartitionTrigger(
        [whole_day(flights), fleet.partitions(flight_date=tick("-1d"))],
        every(days=1, start="2013-01-02", until="2014-01-01"),
        tags={"complete": "true"},
        late="refire",
    ),
    storage=Storage(partitioned_by={"flight_date": "date"}),
    asset=Asset(owner="team:analytics"),
)


def flights_lake(
    kafka: str | None, airport: Path = Path(FOLDER), *, has_metastore: bool = False
) -> Lake:
    """The lake; with the address of a Kafka broker it has the branch that replicates a database
    too, and with a metastore that of the Hive table.

    `airport` is the folder of the airports' events.
    """
    branches = [*event_tables(airport), *(cdc_tables(kafka) if kafka else ())]
    in_hive = [fleet, daily_seats] if has_metastore else []
    return Lake("flights", [flights, weather, *computed, *in_hive, *branches])


_settings = load_settings()
lake = flights_lake(
    kafka_address(os.environ), _settings.home / FOLDER, has_metastore=bool(_settings.metastore)
)
