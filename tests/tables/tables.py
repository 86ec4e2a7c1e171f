"""The small lake that the tests of declarations vary."""

from collections.abc import Callable
from typing import Any

from lakechime_dagster.tables.declare import spark_table
from lakechime_dagster.tables.options import Asset, Read, Storage
from lakechime_dagster.tables.tables import LakeTable, SourceTable
from lakechime_dagster.triggers.schedule import every
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.support.declaring import grouped

HOUR = {"flight_date": "date", "hour": "int"}
flights = SourceTable(
    "bronze.flights", storage=Storage(partitioned_by=HOUR), asset=Asset(owner="team:ops")
)
weather = SourceTable("bronze.weather", storage=Storage(partitioned_by=HOUR))
planes = SourceTable("bronze.planes")
REJOIN = flights.changes(rejoin=weather, on=["origin", "time_hour"])
MINUTELY = SnapshotTrigger(every=every(minutes=1))


def joined(flights: Any, weather: Any) -> Any:
    """Flights with the weather of their hour."""
    return (flights, weather)


def one(flights: Any) -> Any:
    return flights


def make_table(
    name: str = "silver.flights", compute: Callable[..., Any] | None = None, **declared: Any
) -> LakeTable:
    """A computed table of which only what matters is named."""
    reads: dict[str, Read] = declared.pop("reads", {"flights": flights.changes()})
    return spark_table(name, reads=reads, **grouped(**declared))(compute or one)
