"""The stream of the flights lake, taken by Spark: its tables are the generated lines, each event
once.
"""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakechime_dagster.dce.store import DCEStore
from lakechime_dagster.demo.flights import FOLDER, event_tables, lake
from lakechime_dagster.demo.plan import Plan
from lakechime_dagster.demo.replay import Replayer
from lakechime_dagster.demo.verify import (
    Finding,
    TableCheck,
    event_of_row,
    verify_events,
    warehouse_location,
)
from lakechime_dagster.tables.events import EventStream
from tests.support.stores import fresh_memory
from tests.support.streams import Stream

HOURS = 24
TABLES = [
    "airport.events",
    "airport_other.passenger__boarded",
    "airport_other.passenger__rebooked",
    "crews.crew__checked_in",
    "crews.crew__swapped",
    "gates.gate__assigned",
    "gates.gate__changed",
]


def checks(location: Callable[[str], str], hours: int = HOURS) -> dict[str, TableCheck]:
    return {check.table: check for check in verify_events(location, Plan(days=2).written(hours))}


@pytest.fixture
def reported(spark: SparkSession, tmp_path: Path) -> Callable[[str], str]:
    """A warehouse whose tables of events are at the end of the first day, in two executions."""
    (stream,) = (one for one in event_tables(Path(FOLDER)) if isinstance(one, EventStream))
    streams = [
        Stream(spark, tmp_path, group, stream=stream, groups=lake.groups) for group in lake.groups
    ]
    for hours in (14, HOURS - 14):
        Replayer(
            tmp_path,
            DCEStore(fresh_memory()),
            tmp_path / "replay.json",
            days=2,
            airport=tmp_path / "in",
        ).run(hours=hours)
        streams[0].ingest()
        for number, one in enumerate(streams):
            one.complete(
                one.execute(execution=f"{number}/{hours}").run(), one.end(), f"{number}/{hours}"
            )
    return warehouse_location(tmp_path)


def rows(location: str) -> pa.Table:
    return DeltaTable(location).to_pyarrow_table()


@pytest.mark.spark
def test_each_event_is_in_the_table_of_its_type_once_and_whole(
    reported: Callable[[str], str],
) -> None:
    found = checks(reported)
    assert {name: str(one) for name, one in found.items() if one.finding is not Finding.EQUAL} == {}
    assert sorted(found) == TABLES
    drifted = rows(reported("crews.crew__checked_in"))
    assert {"desk", "desk__v_string"} <= {*drifted.column_names}
    assert any(
        "case" in (one or "")
        for one in rows(reported("gates.gate__assigned"))["_rescued"].to_pylist()
    )
    later, earlier = checks(reported, HOURS + 12), checks(reported, 12)
    assert {name for name, one in later.items() if one.finding is Finding.EQUAL} == {
        "airport_other.passenger__rebooked"
    }
    assert {one.finding for one in later.values()} == {Finding.EQUAL, Finding.DIFFERS}
    assert {one.finding for one in earlier.values()} == {Finding.EQUAL}


def test_a_row_is_brought_back_to_its_event() -> None:
    row = {
        "_src": "a@0",
        "desk": None,
        "desk__v_string": "D7",
        "a_x20_b": {"c": 1, "d": None},
        "_rescued": '[{"p":"/Desk","v":2,"r":"case"}]',
    }
    assert event_of_row(row) == {"desk": "D7", "a b": {"c": 1}, "Desk": 2}
