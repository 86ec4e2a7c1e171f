"""Refreshing by increments gives what computing everything again gives, and every row is counted."""

import datetime as dt
import json
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.dce.snapshots import Verdict
from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.formats.iceberg import IcebergLog
from lakechime_dagster.spark import ranges, session
from lakechime_dagster.spark import refresh as refresh_module
from lakechime_dagster.spark.job import Counts, Outcome
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.options import ReadMode
from lakechime_dagster.tables.tables import RefreshMode
from lakechime_dagster.triggers.consumers import Span
from tests.support.iceberg import IcebergWorld
from tests.support.refreshes import (
    DAYS,
    FLIGHTS,
    Source,
    balanced,
    flights_source,
    make_subscription,
    read_rows,
)

pytestmark = pytest.mark.spark

WEATHER = pa.schema([("origin", pa.string()), ("wind", pa.int64())])
ORIGINS = ["JFK", "LGA", "EWR"]

TOTALS = "SELECT origin, count(*) AS flights, sum(delay) AS delay FROM flights GROUP BY origin"
DAILY = """
SELECT f.day, f.origin, count(*) AS flights, max(w.wind) AS wind
FROM flights f LEFT JOIN weather w ON f.origin = w.origin GROUP BY f.day, f.origin
"""


def with_weather(flights: DataFrame, weather: DataFrame) -> DataFrame:
    return (
        flights.join(weather, "origin", "left")
        .where("delay >= 0")
        .select("k", "day", "origin", "delay", "wind")
    )


def weather_source(folder: Path) -> Source:
    source = Source(folder / "weather", WEATHER)
    source.write(("JFK", 10), ("LGA", 20))
    return source


def any_change(dice: random.Random) -> tuple[Any, ...]:
    """One commit of a producer, drawn at random."""
    return dice.choice(
        [
            ("add", dice.choice(DAYS), dice.choice(ORIGINS), dice.randint(-2, 9)),
            ("delay", dice.randint(0, 4), dice.randint(-2, 9)),
            ("move", dice.randint(0, 4), dice.choice(DAYS), dice.choice(ORIGINS)),
            ("drop", dice.randint(0, 4)),
            ("weather", dice.choice(ORIGINS), dice.randint(0, 50)),
            ("optimize",),
        ]
    )


def change(flights: Source, weather: Source, key: int, action: tuple[Any, ...]) -> None:
    """One commit of a producer; keys stay unique."""
    match action:
        case ("add", day, origin, delay):
            flights.write((day, key, origin, delay))
        case ("delay", residue, delay):
            flights.update({"delay": str(delay)}, f"k % 5 = {residue}")
        case ("move", residue, day, origin):
            flights.update(
                {"day": f"CAST('{day}' AS DATE)", "origin": f"'{origin}'"}, f"k % 5 = {residue}"
            )
        case ("drop", residue):
            flights.delete(f"k % 5 = {residue}")
        case ("weather", origin, wind):
            weather.delete(f"origin = '{origin}'")
            weather.write((origin, wind))
        case _:
            flights.optimize()


@pytest.mark.parametrize("target", ["delta", "iceberg"])
def test_increments_in_every_mode_end_where_a_computation_of_everything_ends(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """A history drawn again on each run; `--randomly-seed=N`, N as printed above the tests, draws
    it again.

    What is wanted of a table is few values first, which are literals of a plan, and then too many
    for that.
    """
    # a session keeps the first catalog of Iceberg that it gets under a name
    spark = spark.newSession()
    folder, dice = tmp_path, random.Random(random.getrandbits(32))
    history = [[any_change(dice) for _ in range(6)] for _ in range(2)]
    flights, weather = flights_source(folder), weather_source(folder)
    flights.write(*[(DAYS[i % 3], 10 + i, ORIGINS[i % 2], i) for i in range(6)])
    alone, both = {"flights": flights}, {"flights": flights, "weather": weather}
    rejoin = {
        "flights": {"rejoin": "weather", "on": ("origin",)},
        "weather": {"mode": ReadMode.SNAPSHOT},
    }
    subscriptions = {
        "rows": make_subscription(
            spark, folder / "rows", both, with_weather, keys=("k",), inputs=rejoin
        ),
        "groups": make_subscription(
            spark,
            folder / "groups",
            alone,
            sql=TOTALS,
            keys=("origin",),
            refresh=RefreshMode.AFFECTED_KEYS,
        ),
        "days": make_subscription(
            spark,
            folder / "days",
            both,
            sql=DAILY,
            partitioned_by=("day",),
            refresh=RefreshMode.PARTITIONS,
        ),
        "full": make_subscription(
            spark, folder / "full", alone, sql=TOTALS, keys=("origin",), refresh=RefreshMode.FULL
        ),
    }
    for name, subscription in subscriptions.items():
        if target == "iceberg":
            log = IcebergLog(IcebergWorld.within(folder).properties, f"shop.{name}")
            subscription.job = replace(subscription.job, log=log)
        balanced(subscription.run())
    key = 100
    for commits in history:
        for action in commits:
            change(flights, weather, key, action)
            key += 1
        for subscription in subscriptions.values():
            balanced(subscription.run())
        for module in (session, ranges):
            monkeypatch.setattr(module, "MAX_LITERALS", 1)
        assert {
            name: subscription.rows for name, subscription in subscriptions.items()
        } == recomputed(spark, both), history


def recomputed(spark: SparkSession, sources: dict[str, Source]) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of each subscription's table, by its definition over everything there is."""
    now = {
        alias: spark.read.format("delta").load(str(source.location))
        for alias, source in sources.items()
    }
    for alias, frame in now.items():
        frame.createOrReplaceTempView(alias)
    try:
        everything = {
            "rows": with_weather(**now),
            "groups": spark.sql(TOTALS),
            "days": spark.sql(DAILY),
            "full": spark.sql(TOTALS),
        }
        return {
            name: sorted((tuple(row) for row in frame.collect()), key=repr)
            for name, frame in everything.items()
        }
    finally:
        for alias in now:
            spark.catalog.dropTempView(alias)


@pytest.mark.tier1
def test_bad_rows_go_to_quarantine_once_and_their_neighbours_are_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    flights = flights_source(
        tmp_path,
        (DAYS[0], 1, "JFK", 5),
        (DAYS[0], None, "JFK", 6),
        (DAYS[0], 2, "JFK", 7),
        (DAYS[0], 2, "JFK", 8),
    )
    flights.write(
        (DAYS[0], 3, "JFK", 9),
        (DAYS[0], 3, "JFK", 9),
        (DAYS[0], 4, "JFK", -1),
        (DAYS[0], 5, "JFK", None),
    )
    subscription = make_subscription(
        spark,
        tmp_path,
        {"flights": flights},
        lambda flights: flights,
        keys=("k",),
        expect={"not early": "delay >= 0"},
    )
    result = balanced(subscription.run())
    counts = result.counts
    assert (counts.returned, counts.inserted, counts.deduplicated, counts.quarantined) == (
        8,
        2,
        1,
        5,
    )
    assert [row[1] for row in subscription.rows] == [1, 3]
    held = read_rows(f"{subscription.job.location}__quarantine")
    assert sorted(
        (row[3], json.loads(row[4])["k"]) for row in held if json.loads(row[4])["k"] is not None
    ) == [
        ("another row has the same key (k) and other values", 2),
        ("another row has the same key (k) and other values", 2),
        ("not early: delay >= 0", 4),
        ("not early: delay >= 0", 5),
    ]
    assert {row[:3] for row in held} == {(str(subscription.consumer), 1, "e1")}
    assert not [table for table in spark.catalog.listTables() if table.name.startswith("lakechime")]


def test_a_second_attempt_that_read_further_adds_only_new_rows_to_quarantine(
    spark: SparkSession, tmp_path: Path
) -> None:
    flights = flights_source(tmp_path, (DAYS[0], None, "JFK", 1))
    subscription = make_subscription(
        spark, tmp_path, {"flights": flights}, lambda flights: flights, keys=("k",)
    )
    assert subscription.attempt(1, 1)[0].outcome is Outcome.NOTHING
    flights.write((DAYS[0], None, "JFK", 2))
    second, _ = subscription.attempt(1, 2, may_complete_empty=False)
    assert second.outcome is Outcome.FENCED
    assert sorted(
        json.loads(row[4])["delay"] for row in read_rows(f"{subscription.job.location}__quarantine")
    ) == [1, 2]
    late, _ = subscription.attempt(1, 1)
    assert (late.outcome, late.notes) == (Outcome.SKIPPED, ("skipped: attempt 2 committed",))


def test_the_watermark_never_goes_back_but_in_a_table_that_is_replaced(
    spark: SparkSession, tmp_path: Path
) -> None:
    flights = flights_source(tmp_path, (DAYS[2], 1, "JFK", 5))
    subscription = make_subscription(
        spark, tmp_path, {"flights": flights}, lambda flights: flights, keys=("k",), watermark="day"
    )
    newest = subscription.run().watermark
    flights.write((DAYS[0], 2, "JFK", 5))
    late = subscription.run()
    assert late.committed
    assert (late.watermark, late.committed.commit_metadata.watermark) == (newest, newest)
    flights.delete("k = 1")
    assert subscription.run(refresh=RefreshMode.FULL).watermark == 1356998400000


def test_a_range_that_may_not_be_read_incrementally_replaces_the_target_and_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    flights = flights_source(tmp_path)
    subscription = make_subscription(
        spark, tmp_path, {"flights": flights}, lambda flights: flights, keys=("k",)
    )
    subscription.run()
    for i in range(3):
        flights.write((DAYS[0], 10 + i, "EWR", i))
    flights.delete("k = 1")
    DeltaTable(str(flights.location)).create_checkpoint()
    for version in (0, 1, 2):
        (flights.location / "_delta_log" / f"{version:020d}.json").unlink()
    result = balanced(subscription.run())
    assert result.replaced
    assert result.sources[0].verdict is Verdict.EXPIRED
    assert "flights is EXPIRED (the log was cleaned up past commit 1)" in result.notes[0]
    assert [row[1] for row in subscription.rows] == [10, 11, 12, 2]


def test_a_target_without_keys_appends_and_is_replaced_when_rows_change(
    spark: SparkSession, tmp_path: Path
) -> None:
    flights = flights_source(tmp_path)
    subscription = make_subscription(
        spark, tmp_path, {"flights": flights}, lambda flights: flights.where("delay > 5")
    )
    balanced(subscription.run())
    flights.write((DAYS[0], 3, "EWR", 9))
    appended = balanced(subscription.run())
    assert (appended.replaced, appended.counts.inserted) == (False, 1)
    flights.update({"delay": "6"}, "k = 1")
    replaced = balanced(subscription.run())
    assert (replaced.replaced, replaced.counts.inserted, replaced.counts.unchanged) == (True, 1, 2)
    assert "without keys" in replaced.notes[0]
    assert [row[1] for row in subscription.rows] == [1, 3, 2]


@pytest.mark.parametrize("keys", [(), ("k",)], ids=["unkeyed", "keyed"])
def test_a_consumer_that_was_put_back_to_the_beginning_replaces_what_it_wrote(
    spark: SparkSession, tmp_path: Path, keys: tuple[str, ...]
) -> None:
    flights = flights_source(tmp_path)
    subscription = make_subscription(
        spark, tmp_path, {"flights": flights}, lambda flights: flights, keys=keys
    )
    subscription.run()
    flights.delete("k = 1")
    subscription.checkpoint = {}
    again = balanced(subscription.run())
    assert (again.replaced, again.counts.deleted) == (True, 1)
    assert again.notes == ("flights is read again from the beginning: the target is replaced",)
    assert [row[1] for row in subscription.rows] == [2]


def test_a_target_that_was_dropped_under_its_consumer_is_computed_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    flights = flights_source(tmp_path)
    subscription = make_subscription(
        spark, tmp_path, {"flights": flights}, lambda flights: flights, keys=("k",)
    )
    subscription.run()
    shutil.rmtree(subscription.job.location)
    flights.write((DAYS[2], 3, "EWR", 9))
    whole = balanced(subscription.run(has_committed=True))
    assert (whole.replaced, whole.counts.inserted) == (True, 3)
    assert "no longer holds what its consumer has committed" in whole.notes[0]
    flights.write((DAYS[2], 4, "EWR", 9))
    assert (balanced(subscription.run(has_committed=True)).replaced, len(subscription.rows)) == (
        False,
        4,
    )


def test_a_consumer_that_has_written_nothing_yet_leaves_what_others_wrote(
    spark: SparkSession, tmp_path: Path
) -> None:
    flights, target = flights_source(tmp_path), Source(tmp_path / "target", FLIGHTS)
    target.write((DAYS[0], 9, "SFO", 0))
    subscription = make_subscription(
        spark, tmp_path, {"flights": flights}, lambda flights: flights, keys=("k",)
    )
    assert balanced(subscription.run()).replaced is False
    assert sorted(row[1] for row in subscription.rows) == [1, 2, 9]


def test_an_input_that_the_consumer_has_not_read_before_is_added_to_what_it_wrote(
    spark: SparkSession, tmp_path: Path
) -> None:
    flights, more = flights_source(tmp_path), Source(tmp_path / "more", FLIGHTS)
    more.write((DAYS[0], 3, "EWR", 9))
    subscription = make_subscription(
        spark, tmp_path, {"flights": flights}, sql="SELECT k FROM flights"
    )
    subscription.run()
    both = make_subscription(
        spark,
        tmp_path,
        {"flights": flights, "more": more},
        sql="SELECT k FROM flights UNION ALL SELECT k FROM more",
    )
    both.number, both.checkpoint, both.position = (
        subscription.number,
        subscription.checkpoint,
        subscription.position,
    )
    flights.write((DAYS[0], 4, "EWR", 9))
    added = balanced(both.run())
    assert (added.replaced, added.counts.inserted) == (False, 2)
    assert both.rows == [(1,), (2,), (3,), (4,)]


def test_fired_partitions_are_recomputed_and_nothing_beside_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    flights, weather = flights_source(tmp_path), weather_source(tmp_path)
    subscription = make_subscription(
        spark,
        tmp_path,
        {"flights": flights, "weather": weather},
        sql=DAILY,
        partitioned_by=("day",),
        refresh=RefreshMode.PARTITIONS,
    )
    subscription.run()
    flights.update({"origin": "'EWR'"}, "true")
    result = balanced(subscription.run(partitions=(("2013-01-02",), ("2013-01-03",))))
    assert (result.partitions, result.replaced) == ((("2013-01-02",),), False)
    assert [row[:2] for row in subscription.rows] == [(DAYS[0], "JFK"), (DAYS[1], "EWR")]
    again, _ = subscription.attempt(3, 1, partitions=(("2013-01-02",),))
    assert again.outcome is Outcome.NOTHING
    flights.delete("day = '2013-01-02'")
    emptied = balanced(subscription.run(partitions=(("2013-01-02",),)))
    assert emptied.counts.deleted == 1
    assert [row[:2] for row in subscription.rows] == [(DAYS[0], "JFK")]


@pytest.mark.parametrize("keys", [(), ("day", "k")], ids=["unkeyed", "keyed"])
def test_two_partitions_that_are_first_filled_at_once_are_both_there(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...]
) -> None:
    flights = flights_source(tmp_path)
    subscription = make_subscription(
        spark,
        tmp_path,
        {"flights": flights},
        lambda flights: flights,
        keys=keys,
        partitioned_by=("day",),
        refresh=RefreshMode.PARTITIONS,
    )
    compared = refresh_module._difference

    def overtaken(*args: Any, **wishes: Any) -> Any:
        spark.sql(
            f"INSERT INTO delta.`{subscription.job.location}` VALUES (DATE'{DAYS[1]}', 2, 'LGA', 7)"
        )
        return compared(*args, **wishes)

    monkeypatch.setattr(refresh_module, "_difference", overtaken)
    assert balanced(subscription.run(partitions=(("2013-01-01",),))).counts.deleted == 0
    assert [row[:2] for row in subscription.rows] == [(DAYS[0], 1), (DAYS[1], 2)]


def test_partitions_of_an_hour_that_the_clocks_repeat_are_two(
    spark: SparkSession, tmp_path: Path
) -> None:
    # 01:30 in New York, both
    hours = [dt.datetime(2013, 11, 3, hour, 30, tzinfo=dt.timezone.utc) for hour in (5, 6)]
    source = Source(
        tmp_path / "hourly", pa.schema([("at", pa.timestamp("us", "UTC")), ("k", pa.int64())])
    )
    source.write((hours[0], 1), (hours[1], 2))
    subscription = make_subscription(
        spark,
        tmp_path,
        {"hourly": source},
        lambda hourly: hourly,
        partitioned_by=("at",),
        refresh=RefreshMode.PARTITIONS,
    )
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        subscription.run()
        source.update({"k": "k + 10"}, "true")
        balanced(subscription.run())
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    assert sorted(row[1] for row in subscription.rows) == [11, 12]


def test_a_full_table_that_did_not_differ_is_left_alone_unless_asked(
    spark: SparkSession, tmp_path: Path
) -> None:
    flights = flights_source(tmp_path)
    subscription = make_subscription(
        spark,
        tmp_path,
        {"flights": flights},
        sql=TOTALS,
        keys=("origin",),
        refresh=RefreshMode.FULL,
    )
    subscription.run()
    flights.write((DAYS[0], 3, "JFK", 0))
    flights.delete("k = 3")
    assert subscription.run().outcome is Outcome.NOTHING
    assert subscription.run(always_write=True).outcome is Outcome.COMMITTED


def test_a_full_table_whose_column_changes_its_type_is_replaced(
    spark: SparkSession, tmp_path: Path
) -> None:
    flights = flights_source(tmp_path)
    subscription = make_subscription(
        spark,
        tmp_path,
        {"flights": flights},
        sql="SELECT k, origin AS what FROM flights",
        keys=("k",),
        refresh=RefreshMode.FULL,
    )
    subscription.run()
    flights.write((DAYS[0], 3, "JFK", 0))
    subscription.job = replace(subscription.job, sql="SELECT k, delay AS what FROM flights")
    result = balanced(subscription.run())
    assert (result.replaced, result.counts.inserted, result.counts.deleted) == (True, 3, 2)
    assert subscription.rows == [(1, 5), (2, 7), (3, 0)]
    flights.write((DAYS[0], 4, "JFK", 1))
    assert balanced(subscription.run()).counts.inserted == 1


@pytest.mark.parametrize(
    ("mode", "keys", "changed"),
    [
        (RefreshMode.ROWS, ("k",), 1),
        (RefreshMode.PARTITIONS, (), 1),
        (RefreshMode.PARTITIONS, ("k",), 2),
        (RefreshMode.FULL, (), 1),
    ],
)
def test_the_empty_string_is_null_in_a_partition_column(
    spark: SparkSession, tmp_path: Path, mode: RefreshMode, keys: tuple[str, ...], changed: int
) -> None:
    flights = flights_source(
        tmp_path, (DAYS[0], 1, "", 5), (DAYS[0], 2, None, 6), (DAYS[0], 3, "JFK", 7)
    )
    subscription = make_subscription(
        spark,
        tmp_path,
        {"flights": flights},
        sql="SELECT k, origin, delay FROM flights",
        keys=keys,
        partitioned_by=("origin",),
        refresh=mode,
    )
    subscription.run()
    flights.update({"delay": "9"}, f"k = {changed}")
    assert balanced(subscription.run()).counts.changed == (1 if keys else 2)
    assert subscription.rows[changed - 1] == (changed, None, 9)
    assert [row[0] for row in subscription.rows] == [1, 2, 3]
    again, _ = subscription.attempt(
        3,
        1,
        **(
            {"partitions": (("",), (None,))}
            if mode is RefreshMode.PARTITIONS
            else {"refresh": RefreshMode.FULL}
        ),
    )
    assert again.outcome is Outcome.NOTHING


def test_the_empty_string_in_a_key_by_which_the_target_is_partitioned_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    flights = flights_source(tmp_path, (DAYS[0], 1, "", 5), (DAYS[0], 3, "JFK", 7))
    subscription = make_subscription(
        spark,
        tmp_path,
        {"flights": flights},
        sql=TOTALS,
        keys=("origin",),
        partitioned_by=("origin",),
        refresh=RefreshMode.AFFECTED_KEYS,
    )
    assert balanced(subscription.run()).counts.quarantined == 1
    flights.update({"delay": "9"}, "true")
    result = balanced(subscription.run())
    assert (result.counts.quarantined, result.counts.updated, result.counts.deleted) == (1, 1, 0)
    assert subscription.rows == [("JFK", 1, 9)]


def test_groups_by_a_term_follow_the_rows_whose_term_it_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    flights = flights_source(tmp_path, (DAYS[0], 1, "JFK", 5), (DAYS[0], 3, "LGA", 7))
    sql = (
        "SELECT concat('O''', f.origin) AS checkpoint, sum(delay) AS delay FROM flights f GROUP BY "
        "1"
    )
    table = sql_table("gold.checkpoints", sql=sql, keys=["checkpoint"], refresh="affected_keys")
    inputs = {"flights": {"key_columns": table.key_columns["flights"]}}
    subscription = make_subscription(
        spark,
        tmp_path,
        {"flights": flights},
        sql=sql,
        keys=table.keys,
        refresh=table.refresh,
        inputs=inputs,
    )
    subscription.run()
    flights.update({"delay": "9"}, "k = 1")
    result = balanced(subscription.run())
    assert (result.counts.updated, result.counts.unchanged, result.replaced) == (1, 0, False)
    assert subscription.rows == [("O'JFK", 9), ("O'LGA", 7)]


def test_a_source_with_a_map_is_followed(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema(
        [("k", pa.int64()), ("v", pa.string()), ("tags", pa.map_(pa.string(), pa.string()))]
    )
    source = Source(tmp_path / "tagged", schema)
    source.write((1, "a", {"x": "1"}), (2, "b", {}), (None, "c", {"y": "2"}))
    subscription = make_subscription(
        spark,
        tmp_path,
        {"tagged": source},
        sql="SELECT k, v, tags['x'] AS x FROM tagged",
        keys=("k",),
    )
    subscription.run()
    source.update({"v": "'z'"}, "true")
    result = balanced(subscription.run())
    assert (result.counts.updated, result.counts.quarantined) == (2, 1)
    assert subscription.rows == [(1, "z", "1"), (2, "z", None)]


@pytest.mark.parametrize("declared", [(), ("k.id",)], ids=["looked up", "guaranteed key"])
def test_column_names_may_hold_dots(
    spark: SparkSession, tmp_path: Path, declared: tuple[str, ...]
) -> None:
    source = Source(tmp_path / "dotted", pa.schema([("k.id", pa.int64()), ("v.text", pa.string())]))
    source.write((1, "a"), (2, "b"), (None, "c"))
    sql = "SELECT `k.id`, `v.text` FROM dotted"
    subscription = make_subscription(
        spark,
        tmp_path,
        {"dotted": source},
        sql=sql,
        keys=("k.id",),
        inputs={"dotted": {"keys": declared}},
    )
    assert balanced(subscription.run()).counts.quarantined == 1
    source.write((1, "z"), (3, "c"), (None, "d"), mode="overwrite")
    result = balanced(subscription.run())
    assert (
        result.counts.inserted,
        result.counts.updated,
        result.counts.deleted,
        result.counts.quarantined,
    ) == (1, 1, 1, 1)
    assert subscription.rows == [(1, "z"), (3, "c")]


def test_names_of_partition_columns_may_hold_dots(spark: SparkSession, tmp_path: Path) -> None:
    source = Source(tmp_path / "dotted", pa.schema([("k.id", pa.int64()), ("v.text", pa.string())]))
    source.write((1, "a"), (2, "b"))
    sql = "SELECT `k.id`, `v.text` FROM dotted"
    subscription = make_subscription(
        spark,
        tmp_path,
        {"dotted": source},
        sql=sql,
        partitioned_by=("v.text",),
        refresh=RefreshMode.PARTITIONS,
    )
    subscription.run()
    source.write((3, "b"), (4, "a"), mode="overwrite")
    assert balanced(subscription.run()).counts.changed == 4
    assert subscription.rows == [(3, "b"), (4, "a")]


def test_a_function_that_returns_no_frame_is_a_declaration_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    flights = flights_source(tmp_path)
    subscription = make_subscription(
        spark, tmp_path, {"flights": flights}, lambda flights: flights.count(), keys=("k",)
    )
    with pytest.raises(DeclarationError, match="returned a int; return a DataFrame"):
        subscription.run()


def test_a_key_that_has_no_value_in_the_type_of_the_target_goes_to_quarantine(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(tmp_path / "texts", pa.schema([("k", pa.string()), ("v", pa.string())]))
    source.write(("1", "a"), ("2", "b"))
    subscription = make_subscription(
        spark,
        tmp_path,
        {"texts": source},
        sql="SELECT try_cast(k AS bigint) AS k, v FROM texts",
        keys=("k",),
    )
    subscription.run()
    source.write(("3", "c"), ("abc", "poison"))
    source.delete("k = '1'")
    counts = balanced(subscription.run()).counts
    assert (counts.inserted, counts.deleted, counts.quarantined) == (1, 1, 1)
    assert subscription.rows == [(2, "b"), (3, "c")]


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
