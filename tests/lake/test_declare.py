"""What a correct declaration says, and how the decorated function stays a function."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.tables.declare import spark_table, sql_table
from lakechime_dagster.tables.options import Asset, Read, ReadMode, Storage
from lakechime_dagster.tables.tables import LakeTable, RefreshMode, SourceTable
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.triggers import PartitionTrigger, SnapshotTrigger
from tests.lake.tables import HOUR, MINUTELY, REJOIN, flights, joined, make_table, weather

HERE = Path(__file__).parent


def test_a_decorated_function_stays_callable_with_plain_frames() -> None:
    silver = make_table(compute=joined, keys=["flight"], reads={"flights": REJOIN, "weather": weather.snapshot()}, trigger=MINUTELY)
    assert silver("f", "w") == ("f", "w")
    assert silver(weather="w", flights="f") == ("f", "w")
    assert silver.__name__ == "joined"
    assert silver.__doc__ == joined.__doc__


def test_a_declaration_describes_itself_by_its_docstring() -> None:
    silver = make_table(compute=joined, keys=["flight"], reads={"flights": REJOIN, "weather": weather.snapshot()})
    assert silver.description == "Flights with the weather of their hour."


def test_declarations_are_values_that_hash() -> None:
    assert flights == SourceTable("bronze.flights", storage=Storage(partitioned_by=PartitionLevels.of(HOUR)), asset=Asset(owner="team:ops"))
    assert len({flights, weather, make_table(), make_table()}) == 3
    assert flights.levels.as_dict() == HOUR


def test_a_trigger_without_tables_waits_for_what_is_read() -> None:
    silver = make_table(compute=joined, keys=["flight"], reads={"flights": REJOIN, "weather": weather.snapshot()}, trigger=MINUTELY)
    assert silver.trigger is not None
    assert silver.trigger.tables == ("bronze.flights", "bronze.weather")


@pytest.mark.parametrize(("refresh", "read"), [("rows", flights.changes()), ("full", flights.changes()), ("full", flights.snapshot())])
def test_an_input_whose_change_is_ignored_does_not_wake(refresh: str, read: Read) -> None:
    reads = {"flights": read, "weather": weather.snapshot(on_change="ignore")}
    silver = make_table(compute=joined, reads=reads, refresh=refresh, trigger=MINUTELY)
    assert silver.trigger is not None
    assert silver.trigger.tables == ("bronze.flights",)


def test_a_snapshot_wakes_a_full_refresh_without_further_words() -> None:
    reads = {"flights": flights.snapshot(), "weather": weather.snapshot()}
    full = make_table(compute=joined, reads=reads, refresh="full", trigger=MINUTELY)
    assert full.trigger is not None
    assert full.trigger.tables == ("bronze.flights", "bronze.weather")


def test_the_inputs_of_a_table_include_the_rejoined_one() -> None:
    silver = make_table(compute=joined, keys=["flight"], reads={"flights": REJOIN, "weather": weather.snapshot()})
    assert silver.inputs == ("bronze.flights", "bronze.weather")


def test_context_config_and_resources_are_injected_by_signature() -> None:
    class Limits:
        """Stands for a config class."""

    def compute(context, flights: Any, config: Limits, slack: "Slack") -> Any:  # type: ignore[no-untyped-def]  # noqa: F821
        return flights

    table = make_table(compute=compute)
    assert [injection.name for injection in table.injected] == ["context", "config", "slack"]
    assert table.injected[1].annotation is Limits


def test_sql_dependencies_are_read_from_the_sql() -> None:
    daily = sql_table("gold.daily", sql="WITH f AS (SELECT * FROM bronze.flights) SELECT * FROM f JOIN bronze.weather USING (origin)")
    assert daily.inputs == ("bronze.flights", "bronze.weather")
    assert daily.refresh is RefreshMode.FULL


def test_a_sql_file_lies_beside_the_declaring_module(tmp_path: Path) -> None:
    (tmp_path / "daily.sql").write_text(
        "-- Flights per day.\n-- Of all airports.\nSELECT flight_date FROM bronze.flights", encoding="utf-8"
    )
    code = 'from pathlib import Path\nfrom lakechime_dagster import sql_table\ndaily = sql_table("gold.daily", Path("daily.sql"))'
    module = {"__file__": str(tmp_path / "my_lake.py"), "__name__": "my_lake"}
    exec(compile(code, module["__file__"], "exec"), module)
    daily: Any = module["daily"]
    assert isinstance(daily, LakeTable)
    assert daily.description == "Flights per day.\nOf all airports."
    assert daily.inputs == ("bronze.flights",)


def test_tables_of_the_sql_that_the_trigger_does_not_name_are_read_whole() -> None:
    sql = "SELECT f.* FROM bronze.flights f JOIN bronze.planes p USING (tailnum)"
    table = sql_table("silver.f", sql=sql, refresh="rows", trigger=SnapshotTrigger(flights))
    assert {read.table: read.mode for read in table.reads.values()} == {
        "bronze.flights": ReadMode.CHANGES,
        "bronze.planes": ReadMode.SNAPSHOT,
    }


def test_single_reads_of_sql_can_be_said_otherwise() -> None:
    sql = "SELECT f.* FROM bronze.flights f JOIN bronze.weather w USING (origin)"
    table = sql_table("silver.f", sql=sql, refresh="rows", reads=[weather.snapshot(on_change="ignore")], trigger=MINUTELY)
    assert table.trigger is not None
    assert table.trigger.tables == ("bronze.flights",)


def test_affected_keys_learn_which_source_columns_give_the_key() -> None:
    sql = """
        SELECT f.origin, upper(f.dest) AS target, date_trunc('month', w.day) AS month, count(*) AS n
        FROM bronze.flights f JOIN bronze.weather w ON f.origin = w.origin AND f.day = w.day
        GROUP BY 1, target, date_trunc('month', w.day)"""
    table = sql_table(
        "gold.n", sql=sql, keys=["origin", "target", "month"], refresh="affected_keys", reads=[weather.snapshot(on_change="ignore")]
    )
    given = {"origin": {"f.origin": "origin"}, "target": {"f.dest": "dest"}, "month": {"w.day": "day"}}
    assert table.key_columns == {"bronze.flights": given}


def test_the_branches_of_a_union_give_the_partition_column_by_its_place() -> None:
    sql = "SELECT origin AS o, flight_date FROM bronze.flights UNION ALL SELECT city, flight_date AS day FROM bronze.weather"
    table = sql_table("gold.f", sql=sql, refresh="partitions", storage=Storage(partitioned_by={"flight_date": "date"}))
    assert table.inputs == ("bronze.flights", "bronze.weather")


def test_a_partition_trigger_may_wait_for_tables_that_are_not_read() -> None:
    gate = PartitionTrigger([weather.partitions(flight_date=tick("-1d"), hour=range(24))], every(days=1, start="2013-01-02"))
    table = make_table(refresh="partitions", partitioned_by={"flight_date": "date"}, trigger=gate)
    assert table.trigger is gate


def test_partitions_asks_for_exactly_the_declared_levels() -> None:
    with pytest.raises(DeclarationError, match=r"bronze\.flights, partitions: has no level 'day'; its levels are flight_date, hour"):
        flights.partitions(day=tick("-1d"), hour=range(24))


def test_everything_that_dagster_takes_passes_through() -> None:
    table = make_table(dagster={"tags": {"tier": "1"}}, fresh_within=dt.timedelta(hours=1), watermark="day", kinds=["spark"])
    assert table.dagster["tags"] == {"tier": "1"}
    assert table.kinds == ("spark",)


def test_calling_a_table_of_sql_says_where_its_text_is() -> None:
    table = sql_table("gold.f", sql="SELECT * FROM bronze.flights")
    with pytest.raises(DeclarationError, match="is written in SQL"):
        table()


def test_spark_table_reads_rows_by_default() -> None:
    @spark_table("silver.f", reads={"flights": flights.changes()})
    def silver(flights: Any) -> Any:
        return flights

    assert silver.refresh is RefreshMode.ROWS
