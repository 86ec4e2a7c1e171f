"""What a correct declaration says, and how the decorated function stays a function."""

from pathlib import Path
from typing import Any

import pytest

from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.options import Read, ReadMode
from lakechime_dagster.tables.tables import LakeTable, RefreshMode
from lakechime_dagster.triggers.triggers import SnapshotTrigger
from tests.lake.tables import MINUTELY, REJOIN, flights, joined, make_table, weather


def test_a_decorated_function_stays_callable_with_plain_frames() -> None:
    silver = make_table(compute=joined, keys=["flight"], reads={"flights": REJOIN, "weather": weather.snapshot()}, trigger=MINUTELY)
    assert silver("f", "w") == ("f", "w")
    assert silver(weather="w", flights="f") == ("f", "w")
    assert silver.__name__ == "joined"
    assert silver.__doc__ == joined.__doc__


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
