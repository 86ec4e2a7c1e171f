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


def test_the_local_hour_is_no_key_of_weather_when_clocks_go_back() -> None:
    twice = rows_of("bronze.weather", dt.date(2013, 11, 3), 1)
    assert sorted(twice["origin"].to_pylist()) == ["EWR", "EWR", "JFK", "JFK", "LGA", "LGA"]
    assert len(set(twice["time_hour"].to_pylist())) == 2


def test_some_hours_have_no_weather_and_one_does_not_exist() -> None:
    days = [FIRST_DAY + dt.timedelta(days=n) for n in range(DAYS)]
    empty = [(day, hour) for day in days for hour in range(HOURS) if not rows_of("bronze.weather", day, hour).num_rows]
    assert len(empty) == 47
    assert (dt.date(2013, 3, 10), 2) in empty


def test_partitions_together_are_the_table() -> None:
    days = [FIRST_DAY + dt.timedelta(days=n) for n in range(DAYS)]
    assert sum(rows_of("bronze.flights", day, hour).num_rows for day in days for hour in range(HOURS)) == 336_776


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
