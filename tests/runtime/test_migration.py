"""A migration of a table on a real metastore, Iceberg catalog and Spark: what it copies, what it
refuses, and that it goes on wherever it was killed.
"""

import datetime as dt
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.dce.events import EventQuery, OperationType, TableFormat
from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.runtime import migration as module
from lakechime_dagster.runtime.migration import Move, WrittenOnBothError
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.runtime.reconcile import reconcile
from lakechime_dagster.spark.driver import Driver
from lakechime_dagster.spark.inputs import source_of
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.tables import SourceTable
from tests.support.iceberg import tagged
from tests.support.metastore import HiveTable, Metastore
from tests.support.tables import write

pytestmark = [pytest.mark.spark, pytest.mark.tier2]

FIRST, SECOND, THIRD = (f"2024-05-0{day}" for day in (1, 2, 3))
ICEBERG, HIVE = TableFormat.ICEBERG, TableFormat.HIVE


@dataclass
class Sides:
    """A Hive table of the lake, and the Iceberg table beside it."""

    platform: Platform
    hive: HiveTable
    spark: SparkSession
    is_named: bool = True  # as Spark names the folders of partitions

    @property
    def table(self) -> SourceTable:
        storage = Storage(format="hive", partitioned_by={"day": "date"})
        return SourceTable(self.hive.name, storage=storage)

    @property
    def move(self) -> Move:
        return Move(self.platform, Lake("shop", [self.table]), self.table)

    def put(self, day: str, *ids: int) -> None:
        """Rows that a writer of the Hive table adds."""
        folder = self.hive.at(f"day={day}" if self.is_named else day)
        is_new = not folder.exists()
        self.hive.write(folder.name, rows=pa.table({"id": pa.array(ids, pa.int64())}))
        if is_new:
            self.hive.add(day, at=folder)

    def put_iceberg(self, day: str, *ids: int, **tags: str) -> None:
        """Rows that a writer of the Iceberg table adds, with tags of its commit."""
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog("lakechime", **self.platform.settings.iceberg_catalog)
        days = pa.array([dt.date.fromisoformat(day)] * len(ids), pa.date32())
        rows = pa.table({"id": pa.array(ids, pa.int64()), "day": days})
        catalog.load_table(self.hive.name).append(rows, snapshot_properties=tagged(**tags))

    def begin(self) -> Move:
        self.move.begin(ICEBERG)
        self.move.copy(lambda: self.spark)
        return self.move

    def rows(self, side: TableFormat) -> list[tuple[str, int]]:
        frame, _ = source_of(self.spark, self.move._log(side)).read_snapshot(None)
        found = frame.selectExpr("CAST(day AS STRING) AS day", "id").collect()
        return sorted((one["day"] or "", one["id"]) for one in found)

    def files(self) -> set[str]:
        """Those of the Iceberg table."""
        frame, _ = source_of(self.spark, self.move._log(ICEBERG)).read_snapshot(None)
        return {one["_file"] for one in frame.select("_file").collect()}

    def events(self) -> list[tuple[str, TableFormat, OperationType]]:
        """The changes that triggers see."""
        reconcile(self.platform, [self.table])
        found = self.platform.store.fetch(EventQuery(table=self.hive.name))
        return [
            (
                str((one.event.partition or [""])[0]),
                one.event.table_format,
                one.event.operation_type,
            )
            for one in found
        ]


@pytest.fixture
def platform(home: object, metastore: Metastore, monkeypatch: pytest.MonkeyPatch) -> Platform:
    monkeypatch.setenv("LAKECHIME_METASTORE", metastore.url)
    return open_platform()


@pytest.fixture
def sides(platform: Platform, hive_table: HiveTable, spark_driver: Driver) -> Sides:
    hive_table.create("day date")
    return Sides(platform, hive_table, spark_driver.spark.newSession())


def test_files_become_those_of_the_new_table_where_they_lie(sides: Sides) -> None:
    sides.put(FIRST, 1, 2)
    sides.put("__HIVE_DEFAULT_PARTITION__", 3)
    sides.begin()
    files = sides.files()
    assert {str(sides.hive.folder / "h") in one for one in files} == {True}
    assert sides.rows(ICEBERG) == sides.rows(HIVE)
    sides.put(FIRST, 4)
    sides.move.switch(lambda: sides.spark, ICEBERG)
    assert sides.rows(ICEBERG) == sides.rows(HIVE)
    assert [kind for _, kind, _ in sides.events()] == [HIVE] * 3


def test_files_of_other_folders_are_copied(sides: Sides) -> None:
    sides.is_named = False
    sides.put(FIRST, 1)
    sides.begin()
    files = sides.files()
    assert {"@iceberg" in one for one in files} == {True}
    assert sides.rows(ICEBERG) == [(FIRST, 1)]


def test_a_table_goes_back_with_what_was_written_meanwhile(sides: Sides) -> None:
    sides.put(FIRST, 1)
    sides.begin().switch(lambda: sides.spark, ICEBERG)
    sides.put_iceberg(FIRST, 2)
    sides.put_iceberg(SECOND, 3)
    assert sides.move.plan(ICEBERG)["state"] == "switched"
    sides.move.switch(lambda: sides.spark, HIVE)
    sides.put(THIRD, 4)
    assert sides.rows(HIVE) == [(FIRST, 1), (FIRST, 2), (SECOND, 3), (THIRD, 4)]
    assert Counter(sides.events()) == Counter(
        [
            (FIRST, HIVE, OperationType.APPEND),
            (FIRST, ICEBERG, OperationType.APPEND),
            (SECOND, ICEBERG, OperationType.APPEND),
            (THIRD, HIVE, OperationType.APPEND),
        ]
    )
    with pytest.raises(LakeChimeError, match="its name stands for the hive table; --switch first"):
        sides.move.finish()


def test_a_partition_keeps_the_tags_of_the_commit_that_it_is_copied_from(sides: Sides) -> None:
    sides.put(FIRST, 1)
    sides.begin()
    sides.put_iceberg(SECOND, 2, complete="true")
    sides.move.copy(lambda: sides.spark)
    complete = EventQuery(table=sides.hive.name, tags={"complete": "true"})
    (marker,) = sides.platform.store.fetch(complete)
    assert (marker.event.partition, marker.event.is_marker) == ((SECOND,), True)
    assert [day for day, *_ in sides.events()] == [FIRST, SECOND, SECOND]


def test_a_partition_that_was_written_on_both_sides_is_taken_from_the_one_that_is_named(
    sides: Sides,
) -> None:
    sides.put(FIRST, 1)
    sides.begin()
    sides.put(FIRST, 2)
    sides.put_iceberg(FIRST, 3)
    with pytest.raises(WrittenOnBothError, match=f"partition {FIRST} changed on both sides"):
        sides.move.switch(lambda: sides.spark, ICEBERG)
    assert "changed on both sides" in sides.move.plan(ICEBERG)["hindrances"][0]
    sides.move.switch(lambda: sides.spark, ICEBERG, take=ICEBERG)
    assert sides.rows(HIVE) == sides.rows(ICEBERG) == [(FIRST, 1), (FIRST, 3)]


def test_what_cannot_be_is_refused(sides: Sides) -> None:
    sides.put(FIRST, 1)
    with pytest.raises(LakeChimeError, match="a table is migrated to iceberg or delta"):
        sides.move.begin(HIVE)
    sides.begin()
    with pytest.raises(LakeChimeError, match="its migration to iceberg is open"):
        sides.move.begin(TableFormat.DELTA)
    sides.move.switch(lambda: sides.spark, ICEBERG)
    sides.put(SECOND, 2)
    with pytest.raises(LakeChimeError, match=f"partition {SECOND} of the hive table changed"):
        sides.move.finish()
    sides.move.copy(lambda: sides.spark)
    sides.move.finish()
    assert sides.move.plan(ICEBERG)["state"] == "done"
    with pytest.raises(LakeChimeError, match="is a table of iceberg already"):
        sides.move.begin(ICEBERG)


def test_an_unpartitioned_delta_table_moves_whole_and_back(
    platform: Platform, spark_driver: Driver
) -> None:
    spark = spark_driver.spark.newSession()
    whole = SourceTable("bronze.whole")
    move = Move(platform, Lake("shop", [whole]), whole)

    def put(*ids: int) -> None:
        write(platform.location("bronze.whole"), pa.table({"id": pa.array(ids, pa.int64())}))

    def ids(side: TableFormat) -> list[int]:
        frame, _ = source_of(spark, move._log(side)).read_snapshot(None)
        return sorted(one["id"] for one in frame.collect())

    put(1)
    move.begin(ICEBERG)
    put(2)
    move.switch(lambda: spark, ICEBERG)
    put(3)
    with pytest.raises(LakeChimeError, match="the whole table of the delta table changed"):
        move.finish()
    move.copy(lambda: spark)
    assert ids(ICEBERG) == [1, 2, 3]
    move.switch(lambda: spark, TableFormat.DELTA)
    put(4)
    reconcile(platform, [move.table])
    events = platform.store.fetch(EventQuery(table="bronze.whole"))
    formats = [one.event.table_format for one in events]
    assert formats == [TableFormat.DELTA] * 2 + [ICEBERG, TableFormat.DELTA]
    assert ids(TableFormat.DELTA) == [1, 2, 3, 4]


class KilledError(Exception):
    """The process ends here."""


def test_a_migration_goes_on_wherever_it_was_killed(
    platform: Platform,
    metastore: Metastore,
    spark_driver: Driver,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = [0]

    def struck(effect: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            found = effect(*args, **kwargs)
            left[0] -= 1
            if left[0] == 0:
                raise KilledError
            return found

        return wrapped

    for name in ("begun", "noted", "switched", "finished"):
        monkeypatch.setattr(module, name, struck(getattr(module, name)))
    monkeypatch.setattr(Move, "_write", struck(Move._write))

    def until_done(command: Callable[[], Any]) -> None:
        try:
            command()
        except KilledError:
            command()

    at, spark = 0, spark_driver.spark.newSession()  # which has this platform's catalog
    while left[0] <= 0:
        at += 1
        sides = Sides(platform, HiveTable(metastore, tmp_path / str(at)), spark)
        sides.hive.create("day date")
        sides.put(FIRST, 1)
        reconcile(platform, [sides.table])
        left[0] = at
        move = sides.move

        def copied(move: Move = move) -> None:
            move.begin(ICEBERG)
            move.copy(lambda: spark)

        def finished(move: Move = move) -> None:
            if move.migration is not None:
                move.finish()

        until_done(copied)
        sides.put(FIRST, 2)
        sides.put_iceberg(SECOND, 3)
        until_done(partial(move.switch, lambda: spark, ICEBERG))
        until_done(finished)
        assert sides.rows(ICEBERG) == sides.rows(HIVE) == [(FIRST, 1), (FIRST, 2), (SECOND, 3)]
        assert sides.events() == [
            (FIRST, HIVE, OperationType.APPEND),
            (FIRST, HIVE, OperationType.APPEND),
            (SECOND, HIVE, OperationType.APPEND),
        ]
    assert at > 8
