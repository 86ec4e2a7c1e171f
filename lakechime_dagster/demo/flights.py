"""The flights lake: every flight out of New York in 2013, joined with the weather, summed up by route, day and airline.

The airports' events come into tables of their own, see `announced`. With LAKECHIME_DEMO_CDC=1 the lake follows a database of
reservations too, see `followed`.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lakechime_dagster import (
    Asset,
    Lake,
    LakeTable,
    PartitionCondition,
    PartitionTrigger,
    SnapshotTrigger,
    SourceTable,
    Storage,
    every,
    spark_table,
    sql_table,
    tick,
)
from lakechime_dagster.demo.announced import FOLDER, announced_tables
from lakechime_dagster.demo.followed import followed_tables, kafka_address
from lakechime_dagster.settings import load_settings

if TYPE_CHECKING:
    from dagster import AssetExecutionContext
    from pyspark.sql import DataFrame

HOUR = {"flight_date": "date", "hour": "int"}
FAIL_SWITCH = "LAKECHIME_DEMO_FAIL"  # set to 1, the first attempts of silver.flights at FAIL_DAY fail, to be watched healing
FAIL_DAY = "2013-01-02"
FAILING_ATTEMPTS = 2

flights = SourceTable(
    "bronze.flights",
    storage=Storage(partitioned_by=HOUR),
    asset=Asset(owner="team:ops", description="Flights by their scheduled hour of departure, as the airports report them."),
)
weather = SourceTable(
    "bronze.weather",
    storage=Storage(partitioned_by=HOUR),
    asset=Asset(
        owner="team:ops",
        description="Hourly weather at the three airports; (origin, time_hour) is unique, the local hour is not when clocks go back.",
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
    asset=Asset(expect={"air time is positive": "air_time IS NULL OR air_time > 0"}, watermark="time_hour", owner="team:ops"),
)
def silver_flights(flights: "DataFrame", weather: "DataFrame", context: "AssetExecutionContext | None" = None) -> "DataFrame":
    """Flights with the weather of their hour."""
    attempt = int(context.run.tags.get("lakechime/attempt", "1")) if context is not None else 1
    is_failing = os.environ.get(FAIL_SWITCH) == "1" and attempt <= FAILING_ATTEMPTS
    if is_failing and not flights.where(f"flight_date = DATE'{FAIL_DAY}'").isEmpty():
        raise RuntimeError(f"{FAIL_DAY} fails on purpose, attempt {attempt} of {FAILING_ATTEMPTS} that do while {FAIL_SWITCH}=1")
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
    storage=Storage(partitioned_by={"flight_date": "date"}),
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


def flights_lake(kafka: str | None, airport: Path = Path(FOLDER)) -> Lake:
    """The lake; with the address of a Kafka broker it has the branch that follows a database too.

    `airport` is the folder in which the airports' events come.
    """
    branches = [*announced_tables(airport), *(followed_tables(kafka) if kafka else ())]
    return Lake("flights", [flights, weather, *computed, *branches])


lake = flights_lake(kafka_address(os.environ), load_settings().home / FOLDER)
