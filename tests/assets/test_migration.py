"""A table moves from Hive to Iceberg and on to Delta, while data keep coming and consumers read it:
each of them gets every change once, and none is declared otherwise.
"""

import datetime as dt
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.dce.events import TableFormat
from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.runtime.migration import Move
from lakechime_dagster.runtime.platform import open_platform
from lakechime_dagster.runtime.reconcile import reconcile
from lakechime_dagster.runtime.resource import LAKECHIME
from lakechime_dagster.sensors.trigger import lakechime_sensor
from lakechime_dagster.spark.driver import Driver
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.tables import SourceTable
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.triggers import PartitionTrigger, SnapshotTrigger
from tests.assets.test_table import Location, shown
from tests.support.metastore import HiveTable
from tests.support.tables import write

pytestmark = [pytest.mark.spark, pytest.mark.tier2]

MAY = [dt.date(2024, 5, day) for day in range(1, 10)]
ROWS = pa.schema([("id", pa.int64()), ("day", pa.date32())])


def rows(day: dt.date, *ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "day": [day] * len(ids)}, schema=ROWS)


@dataclass
class Story:
    """A lake with three consumers of a table, and what happens to the table."""

    location: Location
    table: SourceTable
    hive: HiveTable
    spark: SparkSession
    fired: Counter[str] = field(default_factory=Counter[str])
    seen: list[str] = field(default_factory=list[str])

    @property
    def move(self) -> Move:
        return Move(self.location.platform, Lake("shop", [self.table]), self.table)

    def begin(self, to: TableFormat) -> None:
        self.move.begin(to)
        self.move.copy(lambda: self.spark)

    def write_hive(self, day: dt.date, *ids: int) -> None:
        """Files in the folder of a partition, which is added where it is new."""
        is_new = not self.hive.at(day.isoformat()).exists()
        self.hive.write(day.isoformat(), rows=rows(day, *ids).drop(["day"]))
        if is_new:
            self.hive.add(day.isoformat())

    def write_iceberg(self, day: dt.date, *ids: int) -> None:
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog("lakechime", **self.location.platform.settings.iceberg_catalog)
        catalog.load_table(self.table.name).append(rows(day, *ids))

    def write_delta(self, day: dt.date, *ids: int) -> None:
        path = self.location.platform.location(self.table.name)
        write(path, rows(day, *ids), partition_by=["day"])

    def tick(self) -> None:
        """Capture, and run whatever fires until nothing does."""
        platform = self.location.platform
        _, problems = reconcile(platform, [self.table])
        assert not problems
        for sensor, job in (("silver_rows", None), ("gold_total", None), ("by_day", "by_day")):
            while requests := self.location.tick(sensor).run_requests:
                for request in requests:
                    result = self.location.run(
                        job or "shop__tables",
                        tags=dict(request.tags),
                        partition_key=request.partition_key,
                        asset_selection=request.asset_selection,
                    )
                    assert result.success
                    if sensor == "silver_rows":
                        self.seen.append(shown(result)["range"])

    def ids(self) -> list[int]:
        return [one for _, one in self.location.rows("silver.rows")]

    def total(self) -> int:
        return self.location.rows("gold.total")[0][0]


@pytest.fixture
def story(
    home: Path,
    instance: dg.DagsterInstance,
    spark_driver: Driver,
    hive_table: HiveTable,
    monkeypatch: pytest.MonkeyPatch,
) -> Story:
    monkeypatch.setenv("LAKECHIME_METASTORE", hive_table.metastore.url)
    name = hive_table.create("day date").name
    table = SourceTable(name, storage=Storage(format="hive", partitioned_by={"day": "date"}))
    silver = sql_table(
        "silver.rows",
        sql=f"SELECT day, id FROM {name}",
        keys=["day", "id"],
        trigger=SnapshotTrigger(),
    )
    total = sql_table(
        "gold.total",
        sql=f"SELECT sum(id) AS total FROM {name}",
        refresh="full",
        trigger=SnapshotTrigger(),
    )
    fired = Counter[str]()

    @dg.op(required_resource_keys={"lakechime"})
    def note(context: dg.OpExecutionContext) -> None:
        with context.resources.lakechime.execution(context) as running:
            fired.update([running.execution.consumer.key])

    @dg.job(resource_defs={"lakechime": LAKECHIME})
    def by_day() -> None:
        note()

    trigger = PartitionTrigger(
        [table.partitions(day=tick("-1d"))], every(days=1, start="2024-05-02", until="2024-05-11")
    )
    definitions = dg.Definitions.merge(
        build_definitions(Lake("shop", [table, silver, total])),
        dg.Definitions(jobs=[by_day], sensors=[lakechime_sensor("by_day", trigger, job=by_day)]),
    )
    location = Location(instance, definitions, open_platform())
    return Story(location, table, hive_table, spark_driver.spark.newSession(), fired)


def test_a_table_moves_from_hive_to_iceberg_and_on_to_delta_and_no_consumer_notices(
    story: Story,
) -> None:
    story.write_hive(MAY[0], 1, 2)
    story.tick()
    assert (story.ids(), story.total()) == ([1, 2], 3)

    story.begin(TableFormat.ICEBERG)
    story.write_hive(MAY[1], 3)  # the old writer goes on
    story.tick()
    assert story.ids() == [1, 2, 3]
    story.write_iceberg(MAY[2], 4)  # and a first one has moved
    story.tick()
    assert story.ids() == [1, 2, 3], "what is beside the table triggers nothing"
    story.move.switch(lambda: story.spark, TableFormat.ICEBERG)
    story.write_hive(MAY[3], 5)  # a late writer still writes the old one
    story.tick()
    assert story.ids() == [1, 2, 3, 4]
    story.write_iceberg(MAY[0], 6)
    story.move.copy(lambda: story.spark)
    story.tick()
    assert (story.ids(), story.total()) == ([1, 2, 6, 3, 4, 5], 21)
    story.move.finish()

    story.begin(TableFormat.DELTA)
    story.write_iceberg(MAY[4], 7)
    story.move.switch(lambda: story.spark, TableFormat.DELTA)
    story.write_delta(MAY[5], 8)
    story.tick()
    story.write_delta(MAY[5], 9)
    story.tick()
    story.move.finish()
    assert (story.ids(), story.total()) == ([1, 2, 6, 3, 4, 5, 7, 8, 9], 45)
    assert story.fired == Counter(dict.fromkeys(story.fired, 1))
    assert len(story.fired) == 6
    assert all("whole" not in one for one in story.seen[1:]), story.seen
