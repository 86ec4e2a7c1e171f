"""The flights lake: Spark computes from it what DuckDB computes from the raw files."""

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession

from lakechime_dagster.demo.data import FIRST_DAY, FLEET_TYPES, SCHEMAS, rows_of
from lakechime_dagster.demo.flights import (
    FAIL_DAY,
    FAIL_SWITCH,
    FAILING_ATTEMPTS,
    GATE_CHANGED,
    KAFKA,
    fleet,
    flights_lake,
    silver_flights,
)
from lakechime_dagster.demo.plan import FLIGHTS, TABLES, WEATHER, Plan
from lakechime_dagster.demo.reservations import tables_after
from lakechime_dagster.demo.verify import (
    Finding,
    build_expected,
    relation_name,
    verify,
    warehouse_location,
)
from lakechime_dagster.formats.hive import HiveLog
from lakechime_dagster.spark.hive import HiveTarget
from lakechime_dagster.spark.session import sql_over
from lakechime_dagster.tables.tables import RefreshMode
from tests.support.iceberg import IcebergWorld
from tests.support.metastore import Metastore

REPORTED = "gates.gate__changed"
# whose tables are proven in test_event_tables
EVENTS = {"airport", "airport_other", "gates", "crews"}
HOURS = 40  # one day complete, the next one under way: late, misread and poisoned rows among them


@pytest.fixture
def frames(spark: SparkSession) -> dict[str, DataFrame]:
    """The bronze tables as the replay leaves them after some hours."""
    with build_expected(Plan(days=2).written(HOURS)) as connection:
        return {
            table: spark.createDataFrame(connection.table(relation_name(table)).to_arrow_table())
            for table in (*TABLES, fleet.name)
        }


@pytest.mark.spark
def test_spark_computes_what_duckdb_computes_from_the_raw_files(
    spark: SparkSession, frames: dict[str, DataFrame], metastore: Metastore, tmp_path: Path
) -> None:
    plan = Plan(days=2)
    changed = [
        line.event
        for line in plan.written(HOURS).airport_lines()
        if line.event and line.event["type"] == GATE_CHANGED
    ]
    frames[REPORTED] = spark.createDataFrame(pa.Table.from_pylist(changed))
    complete = pa.table({"flight_date": pa.array(plan.written(HOURS).complete_days, pa.date32())})
    frames["silver.flights"] = silver_flights(
        frames[FLIGHTS].dropna(subset="carrier"), frames[WEATHER]
    )
    world = IcebergWorld.within(tmp_path)
    location, followed = warehouse_location(tmp_path), tables_after(plan, HOURS)
    for name, rows in followed.items():
        frames[f"cdc.{name}"] = spark.createDataFrame(rows.drop_columns("changed_at"))
        write_deltalake(location(f"cdc.{name}"), rows)
    for table in flights_lake(KAFKA, has_metastore=True).computed:
        if table.sql is not None:
            computed = sql_over(
                spark, table.name, table.sql, {name: frames[name] for name in table.inputs}
            )
            # the trigger gives only complete days
            is_daily = table.refresh is RefreshMode.PARTITIONS
            frames[table.name] = (
                computed.join(spark.createDataFrame(complete), "flight_date", "left_semi")
                if is_daily
                else computed
            )
    log = HiveLog(metastore.url, "flights.fleet")
    log.create(FLEET_TYPES, fleet.levels.as_dict(), str(tmp_path / "flights" / "fleet"))
    HiveTarget(name=fleet.name, log=log).replace_all(frames.pop(fleet.name))
    for name, frame in frames.items():
        if not name.startswith("cdc.") and name != REPORTED:
            is_iceberg = name == "gold.daily_delays"
            write = (
                world.fill
                if is_iceberg
                else lambda name, rows: write_deltalake(location(name), rows)
            )
            write(name, frame.toArrow())
    checks = verify(location, plan.written(HOURS), followed, catalog=world.properties, fleet=log)
    computed = [check for check in checks if check.table.partition(".")[0] not in EVENTS]
    assert {
        check.table: str(check) for check in computed if check.finding is not Finding.EQUAL
    } == {}
    assert len(computed) == 13


@pytest.mark.spark
def test_the_switch_makes_the_first_attempts_at_one_day_fail(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = {str(FIRST_DAY): FIRST_DAY, FAIL_DAY: FIRST_DAY.fromisoformat(FAIL_DAY)}
    flights = {name: spark.createDataFrame(rows_of(FLIGHTS, day, 9)) for name, day in days.items()}
    weather = spark.createDataFrame(SCHEMAS[WEATHER].empty_table())
    # which reports a run its attempt
    assert "context" in {one.name for one in silver_flights.injected}
    monkeypatch.setenv(FAIL_SWITCH, "1")
    assert silver_flights(flights[str(FIRST_DAY)], weather).count() > 0
    with pytest.raises(
        RuntimeError, match=f"{FAIL_DAY} fails on purpose, attempt 1 of {FAILING_ATTEMPTS}"
    ):
        silver_flights(flights[FAIL_DAY], weather)
    later = SimpleNamespace(
        run=SimpleNamespace(tags={"lakechime/attempt": str(FAILING_ATTEMPTS + 1)})
    )
    assert silver_flights(flights[FAIL_DAY], weather, later).count() > 0
    monkeypatch.delenv(FAIL_SWITCH)
    assert silver_flights(flights[FAIL_DAY], weather).count() > 0
