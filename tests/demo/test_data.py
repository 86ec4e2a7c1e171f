"""The raw data: all of it, with keys that hold."""

import datetime as dt
from importlib import metadata

import duckdb
import pyarrow as pa
import pytest

from lakechime_dagster.demo.data import DAYS, FIRST_DAY, HOURS, rows, rows_of
from lakechime_dagster.demo.flights import silver_flights
from lakechime_dagster.demo.verify import BRONZE_KEYS
from lakechime_dagster.errors import NotFoundError


def test_every_flight_and_every_weather_report_is_there() -> None:
    assert rows("bronze.flights").num_rows == 336_776
    assert rows("bronze.weather").num_rows == 26_115


@pytest.mark.parametrize(
    ("table", "keys"),
    [("bronze.flights", silver_flights.keys), *BRONZE_KEYS.items()],
)
def test_keys_are_unique_over_the_whole_year(table: str, keys: tuple[str, ...]) -> None:
    with duckdb.connect() as connection:
        relation = connection.from_arrow(rows(table))
        assert relation.select(*map(duckdb.ColumnExpression, keys)).distinct().count("*").fetchone() == (rows(table).num_rows,)


@pytest.mark.parametrize("table", ["bronze.flights", "bronze.weather"])
def test_a_partition_has_the_rows_of_its_hour_alone(table: str) -> None:
    hours = [(FIRST_DAY + dt.timedelta(days=n), hour) for n in range(DAYS) for hour in range(HOURS)]
    assert [one for one in hours if hours_in(rows_of(table, *one)) - {one}] == []


def hours_in(found: pa.Table) -> set[tuple[dt.date, int]]:
    return set(zip(found["flight_date"].to_pylist(), found["hour"].to_pylist(), strict=True))


def test_without_the_data_the_answer_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "files", lambda _: None)
    rows.cache_clear()
    with pytest.raises(NotFoundError, match=r"install lakechime-dagster\[demo\]"):
        rows("bronze.flights")
