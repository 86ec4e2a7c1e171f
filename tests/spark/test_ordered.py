"""What a backfill orders is computed again beside what changed, and nothing else; equal outcomes
leave no commit.
"""

import datetime as dt
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.spark.job import Counts, Outcome
from lakechime_dagster.tables.options import ReadMode
from lakechime_dagster.tables.tables import RefreshMode
from lakechime_dagster.triggers.consumers import Span
from tests.support.refreshes import DAYS, Source, balanced, flights_source, make_subscription

pytestmark = pytest.mark.spark

FIRST_DAY = Span(tables=("flights",), column="DAY", since="2013-01-01", until="2013-01-02")
ROWS = [
    (DAYS[0], 1, "JFK", 5),
    (DAYS[0], 2, "LGA", 7),
    (DAYS[1], 3, "JFK", 9),
    (DAYS[2], 4, "EWR", 1),
]


def version(number: int) -> Callable[..., DataFrame]:
    """The code of a table; another version gives other values."""
    return lambda flights, **_: flights.select("k", "day", (F.col("delay") * number).alias("delay"))


def by_key(rows: list[tuple[Any, ...]]) -> dict[Any, Any]:
    return {row[0]: row[-1] for row in rows}


def test_rows_of_the_ordered_days_are_computed_again_with_what_came_and_a_second_time_nothing_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    flights = flights_source(tmp_path, *ROWS)
    subscription = make_subscription(spark, tmp_path, {"flights": flights}, version(1), keys=("k",))
    subscription.run()
    flights.write((DAYS[2], 5, "EWR", 3))
    flights.update({"delay": "6"}, "k = 1")  # which is both ordered and touched
    result = subscription.run(compute=version(10), ordered=(FIRST_DAY,))
    balanced(result)
    assert by_key(subscription.rows) == {1: 60, 2: 70, 3: 9, 4: 1, 5: 30}
    assert result.counts == Counts(rows_in=3, returned=3, inserted=1, updated=2)
    assert result.notes == (
        "taken again for a backfill: rows of flights with DAY >= 2013-01-01 and < 2013-01-02",
    )
    again = subscription.run(compute=version(10), ordered=(FIRST_DAY,))
    assert (again.outcome, again.committed, again.counts.unchanged) == (Outcome.NOTHING, None, 2)


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose time zone is another than the session's."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_new_york")
@pytest.mark.parametrize("zone", ["UTC", None], ids=["moment", "time of the clock"])
def test_ordered_times_are_those_of_the_session_wherever_the_machine_is(
    spark: SparkSession, tmp_path: Path, zone: str | None
) -> None:
    visits = Source(
        tmp_path / "visits", pa.schema([("k", pa.int64()), ("at", pa.timestamp("us", zone))])
    )
    tz = dt.timezone.utc if zone else None
    visits.write(*((hour, dt.datetime(2013, 1, 2, hour, tzinfo=tz)) for hour in (0, 5, 6, 23)))

    def marked(text: str) -> Callable[..., DataFrame]:
        return lambda visits: visits.select("k", F.lit(text).alias("by"))

    subscription = make_subscription(
        spark, tmp_path, {"visits": visits}, marked("old"), keys=("k",)
    )
    subscription.run()
    span = Span(tables=("visits",), column="at", since="2013-01-02", until="2013-01-02T06:00")
    subscription.run(compute=marked("new"), ordered=(span,))
    assert by_key(subscription.rows) == {0: "new", 5: "new", 6: "old", 23: "old"}
    subscription.run(
        compute=marked("newer"),
        ordered=(replace(span, since="2013-01-02T06", until="2013-01-02T23:00:00.5"),),
    )
    assert by_key(subscription.rows) == {0: "new", 5: "new", 6: "newer", 23: "newer"}


def test_groups_of_the_ordered_days_are_computed_whole_again_where_a_part_of_a_day_is_all_of_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    flights = flights_source(tmp_path, *ROWS)
    text = "SELECT origin, {} AS delay FROM flights GROUP BY origin"
    subscription = make_subscription(
        spark,
        tmp_path,
        {"flights": flights},
        sql=text.format("sum(delay)"),
        keys=("origin",),
        refresh=RefreshMode.AFFECTED_KEYS,
    )
    subscription.run()
    hours = replace(FIRST_DAY, since="2013-01-01T08:00", until="2013-01-01T20:00")
    subscription.run(sql=text.format("-sum(delay)"), ordered=(hours,))
    assert by_key(subscription.rows) == {"JFK": -14, "LGA": -7, "EWR": 1}


def test_partitions_and_whole_tables_are_computed_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    flights = flights_source(tmp_path, *ROWS)
    text = "SELECT day, {} AS delay FROM flights GROUP BY day"
    for mode, wanted in ((RefreshMode.PARTITIONS, [-12, 9, 1]), (RefreshMode.FULL, [-12, -9, -1])):
        subscription = make_subscription(
            spark,
            tmp_path / mode,
            {"flights": flights},
            sql=text.format("sum(delay)"),
            partitioned_by=("day",),
            refresh=mode,
        )
        subscription.run()
        subscription.run(sql=text.format("-sum(delay)"), ordered=(FIRST_DAY,))
        assert [delay for _, delay in subscription.rows] == wanted
    assert (
        subscription.run(sql=text.format("-sum(delay)"), ordered=(FIRST_DAY,)).outcome
        is Outcome.NOTHING
    )


@pytest.mark.parametrize(
    ("tables", "read", "wanted"),
    [
        # which has no day
        (("weather",), {"rejoin": "weather", "on": ("origin",)}, {1: 10, 2: 20, 3: 10, 4: None}),
        # read as a snapshot: what of it changed is not known
        (("weather",), {}, {1: 10, 2: 20, 3: 1, 4: None}),
    ],
    ids=["rejoined", "snapshot"],
)
def test_what_joins_an_ordered_table_is_computed_again(
    spark: SparkSession,
    tmp_path: Path,
    tables: tuple[str, ...],
    read: dict[str, Any],
    wanted: dict[int, int | None],
) -> None:
    weather = Source(
        tmp_path / "weather", pa.schema([("origin", pa.string()), ("wind", pa.int64())])
    )
    weather.write(("JFK", 1), ("LGA", 2))

    def joined(factor: int) -> Callable[..., DataFrame]:
        return lambda flights, weather: flights.join(weather, "origin", "left").select(
            "k", (F.col("wind") * factor).alias("wind")
        )

    sources = {"flights": flights_source(tmp_path, *ROWS), "weather": weather}
    subscription = make_subscription(
        spark,
        tmp_path,
        sources,
        joined(1),
        keys=("k",),
        inputs={"flights": read, "weather": {"mode": ReadMode.SNAPSHOT}},
    )
    subscription.run()
    subscription.run(
        compute=joined(10),
        ordered=(Span(tables=tables, column="day", since="2013-01-01", until="2013-01-02"),),
    )
    assert by_key(subscription.rows) == wanted
