"""The flights lake: what it declares, and that Spark computes from it what DuckDB computes from the raw files."""

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession

from lakechime_dagster.demo.announced import GATE_CHANGED
from lakechime_dagster.demo.data import FIRST_DAY, SCHEMAS, rows_of
from lakechime_dagster.demo.expected import build_expected, relation_name
from lakechime_dagster.demo.findings import Finding
from lakechime_dagster.demo.flights import FAIL_DAY, FAIL_SWITCH, FAILING_ATTEMPTS, flights_lake, lake, silver_flights
from lakechime_dagster.demo.followed import KAFKA
from lakechime_dagster.demo.plan import FLIGHTS, TABLES, WEATHER, Plan
from lakechime_dagster.demo.reservations import folded
from lakechime_dagster.demo.verify import verify, warehouse_location
from lakechime_dagster.lake import LakeTable, RefreshMode
from lakechime_dagster.spark.sql_binder import sql_over
from lakechime_dagster.triggers import Late, PartitionTrigger

TOLD = "gates.gate__changed"
EVENTS = {"airport", "airport_other", "gates", "crews"}  # whose tables are proven in test_announced
HOURS = 40  # one day complete, the next one under way: late, misread and poisoned rows among them


def test_the_lake_has_each_refresh_mode_and_a_table_downstream_of_two() -> None:
    assert {table.refresh for table in lake.computed} == set(RefreshMode)
    assert lake.graph()["gold.airline_scorecard"] == ("silver.flights", "gold.daily_delays")
    assert [table.name for table in lake.sources] == ["bronze.flights", "bronze.weather", "gates.gate__changed"]


def test_a_day_is_summed_up_when_both_tables_have_all_its_hours_and_again_when_late_rows_come() -> None:
    trigger = lake.table("gold.daily_delays").trigger  # type: ignore[union-attr]
    assert isinstance(trigger, PartitionTrigger)
    assert trigger.late is Late.REFIRE
    first = trigger.key_at(trigger.every.first)
    assert len(first.atoms) == 48
    assert first.text == f"flight_date={FIRST_DAY}"


def test_changed_weather_and_changed_flights_both_wake_silver() -> None:
    silver = lake.table("silver.flights")
    assert isinstance(silver, LakeTable)
    assert silver.trigger is not None
    assert silver.trigger.tables == (FLIGHTS, WEATHER)


@pytest.fixture
def frames(spark: SparkSession) -> dict[str, DataFrame]:
    """The bronze tables as the replay leaves them after some hours."""
    with build_expected(Plan(days=2).written(HOURS)) as connection:
        return {table: spark.createDataFrame(connection.table(relation_name(table)).to_arrow_table()) for table in TABLES}


@pytest.mark.spark
def test_spark_computes_what_duckdb_computes_from_the_raw_files(spark: SparkSession, frames: dict[str, DataFrame], tmp_path: Path) -> None:
    plan = Plan(days=2)
    changed = [line.event for line in plan.written(HOURS).airport_lines() if line.event and line.event["type"] == GATE_CHANGED]
    frames[TOLD] = spark.createDataFrame(pa.Table.from_pylist(changed))
    complete = pa.table({"flight_date": pa.array(plan.written(HOURS).complete_days, pa.date32())})
    frames["silver.flights"] = silver_flights(frames[FLIGHTS].dropna(subset="carrier"), frames[WEATHER])
    location, followed = warehouse_location(tmp_path), folded(plan, HOURS)
    for name, rows in followed.items():
        frames[f"cdc.{name}"] = spark.createDataFrame(rows.drop_columns("changed_at"))
        write_deltalake(location(f"cdc.{name}"), rows)
    for table in flights_lake(KAFKA).computed:
        if table.sql is not None:
            computed = sql_over(spark, table.name, table.sql, {name: frames[name] for name in table.inputs})
            is_daily = table.refresh is RefreshMode.PARTITIONS  # the trigger gives only complete days
            frames[table.name] = computed.join(spark.createDataFrame(complete), "flight_date", "left_semi") if is_daily else computed
    for name, frame in frames.items():
        if not name.startswith("cdc.") and name != TOLD:
            write_deltalake(location(name), frame.toArrow())
    checks = verify(location, plan.written(HOURS), followed)
    computed = [check for check in checks if check.table.partition(".")[0] not in EVENTS]
    assert {check.table: str(check) for check in computed if check.finding is not Finding.EQUAL} == {}
    assert len(computed) == 11


@pytest.mark.spark
def test_the_switch_makes_the_first_attempts_at_one_day_fail(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    days = {str(FIRST_DAY): FIRST_DAY, FAIL_DAY: FIRST_DAY.fromisoformat(FAIL_DAY)}
    flights = {name: spark.createDataFrame(rows_of(FLIGHTS, day, 9)) for name, day in days.items()}
    weather = spark.createDataFrame(SCHEMAS[WEATHER].empty_table())
    assert "context" in {one.name for one in silver_flights.injected}  # which tells a run its attempt
    monkeypatch.setenv(FAIL_SWITCH, "1")
    assert silver_flights(flights[str(FIRST_DAY)], weather).count() > 0
    with pytest.raises(RuntimeError, match=f"{FAIL_DAY} fails on purpose, attempt 1 of {FAILING_ATTEMPTS}"):
        silver_flights(flights[FAIL_DAY], weather)
    later = SimpleNamespace(run=SimpleNamespace(tags={"lakechime/attempt": str(FAILING_ATTEMPTS + 1)}))
    assert silver_flights(flights[FAIL_DAY], weather, later).count() > 0
    monkeypatch.delenv(FAIL_SWITCH)
    assert silver_flights(flights[FAIL_DAY], weather).count() > 0
