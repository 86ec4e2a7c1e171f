"""Partitions of a Hive table that are replaced: what readers and capture find of them, and when."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakechime_dagster.dce.events import OperationType
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.errors import ConsumerConflictError, DeclarationError, TableUnreadableError
from lakechime_dagster.formats import hive
from lakechime_dagster.formats.hive import HiveLog
from lakechime_dagster.spark.commit import commit
from lakechime_dagster.spark.hive import HiveTarget
from lakechime_dagster.spark.job import Outcome
from lakechime_dagster.tables.tables import RefreshMode
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, ConsumerId
from tests.support.metastore import HiveTable, Metastore, Polls, found
from tests.support.refreshes import DAYS as FLOWN
from tests.support.refreshes import Source, Subscription, flights_source, make_subscription
from tests.support.spark import run_client, small_settings

pytestmark = [pytest.mark.spark, pytest.mark.tier2]
APPEND, UPDATE, DELETE = OperationType.APPEND, OperationType.UPDATE, OperationType.DELETE
DAYS = [f"2024-05-0{day}" for day in (1, 2, 3, 4, 5)]
DAY = "2013-01-01"
PER_DAY = "SELECT day, count(*) AS flights, sum(delay) AS delay FROM flights GROUP BY day"
NOWHERE = "__HIVE_DEFAULT_PARTITION__"


@pytest.fixture
def table(metastore: Metastore, tmp_path: Path) -> HiveTable:
    return HiveTable(metastore, tmp_path, {"id": "bigint", "note": "varchar(10)"})


def filled(table: HiveTable, *days: str) -> HiveTable:
    """A table by day, with a row in each of these: 1, 2 and so on."""
    table.create("day date")
    for number, day in enumerate(days, start=1):
        table.write(day, rows=pa.table({"id": [number]}))
        table.add(day)
    return table


def target(table: HiveTable, named: PartitionLevels | None = None) -> HiveTarget:
    return HiveTarget(name=table.name, log=HiveLog(table.metastore.url, table.name, named=named))


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def rows_in(spark: SparkSession, table: HiveTable) -> list[tuple[Any, ...]]:
    return rows_of(target(table).read(spark).select("id", "day").selectExpr("id", "string(day)"))


def test_partitions_are_swapped_and_only_these_are_changes(
    spark: SparkSession, table: HiveTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hive, "BATCH", 2)
    polls = Polls(filled(table, *DAYS[:4], NOWHERE))
    polls.events()
    files = sorted(table.folder.rglob("*.parquet"))
    rows = spark.sql(
        "SELECT * FROM VALUES (11, DATE '2024-05-01'), (12, DATE '2024-05-01'), "
        "(13, DATE '2024-05-04'), (14, DATE '2024-05-05'), (15, null), (16, DATE '2024-05-03') "
        "AS t (id, day)"
    )
    partitions = [(day,) for day in (DAYS[0], DAYS[1], DAYS[3], DAYS[4], None)]
    target(table).replace_partitions(rows, partitions)
    expected = [(11, DAYS[0]), (12, DAYS[0]), (13, DAYS[3]), (14, DAYS[4]), (15, None)]
    assert rows_in(spark, table) == [*expected, (3, DAYS[2])]
    assert set(files) < set(table.folder.rglob("*.parquet"))
    events = polls.events()
    assert found(events) == [
        (DAYS[0], UPDATE),
        (DAYS[1], DELETE),
        (DAYS[3], UPDATE),
        (DAYS[4], APPEND),
        (None, UPDATE),
    ]
    assert polls.found(lists_all=True) == []
    target(table).replace_partitions(rows.limit(0), partitions[:1])
    assert rows_in(spark, table) == [*expected[2:], (3, DAYS[2])]
    target(table).replace_all(rows)
    assert rows_in(spark, table) == [*expected, (16, DAYS[2])]
    assert found(polls.events()) == [
        (DAYS[0], UPDATE),
        *[(day, UPDATE) for day in DAYS[2:]],
        (None, UPDATE),
    ]


@dataclass(frozen=True)
class EndingLog(HiveLog):
    """Of a writer that ends when it has written."""

    def swap(self, written: Any, replaced: Any = None, parameters: Any = None) -> None:
        raise SystemExit


def test_a_writer_that_ends_before_the_swap_has_changed_nothing(
    spark: SparkSession, table: HiveTable
) -> None:
    polls = Polls(filled(table, *DAYS[:2]))
    polls.events()
    rows = spark.sql("SELECT 11L AS id, DATE '2024-05-01' AS day")
    ending = HiveTarget(name=table.name, log=EndingLog(table.metastore.url, table.name))
    with pytest.raises(SystemExit):
        ending.replace_partitions(rows, [(DAYS[0],)])
    assert len(list(table.folder.rglob("_lakechime/**/*.parquet"))) == 1
    assert rows_in(spark, table) == [(1, DAYS[0]), (2, DAYS[1])]
    assert polls.found(lists_all=True) == []
    target(table).replace_partitions(rows, [(DAYS[0],)])
    assert rows_in(spark, table) == [(11, DAYS[0]), (2, DAYS[1])]
    assert polls.found() == [(DAYS[0], UPDATE)]


def test_a_partition_is_found_however_its_values_are_spelled(
    spark: SparkSession, table: HiveTable
) -> None:
    table.create("day date", "hour int", "place string", "at timestamp")
    levels = PartitionLevels.of(
        {"place": "string", "day": "date", "at": "timestamp", "hour": "int"}
    )
    polls = Polls(table, levels)
    noon = "2024-05-01 12:00:00"
    for hour in ("3", "03", "4"):
        table.add(DAYS[0], hour, "a: b/ä", f"{noon}.0")
    polls.events()
    rows = spark.sql(
        f"SELECT 1 AS id, string('a: b/ä') AS PLACE, date('{DAYS[0]}') AS day, smallint(3) AS hour, "
        f"timestamp('{noon}') AS at"
    )
    at = rows.selectExpr("unix_micros(at)").collect()[0][0]
    target(table, levels).replace_partitions(rows, [("a: b/ä", DAYS[0], at, 3)])
    assert polls.found(lists_all=True) == [("a: b/ä", UPDATE)]
    names = [one.values for one in target(table).log.stored().folders["parquet"]]
    assert len(names) == 2
    assert target(table).read(spark).selectExpr("place", "hour", "string(at)").collect() == [
        ("a: b/ä", 3, noon)
    ]


def test_a_folder_is_read_by_its_path_as_by_its_url(spark: SparkSession, table: HiveTable) -> None:
    filled(table, *DAYS[:2])
    log, first = target(table).log, table.at(DAYS[0])
    for place in (str(first), f"file://{first}", f"file:{first}"):
        log.swap({(DAYS[1],): place}, ())
        assert rows_in(spark, table) == [(1, DAYS[0]), (1, DAYS[1])]


def test_rows_that_the_table_cannot_hold_are_refused(spark: SparkSession, table: HiveTable) -> None:
    filled(table, DAYS[0])
    day = f"date('{DAYS[0]}') AS day"
    with pytest.raises(
        DeclarationError, match=r"columns: price: the Hive table has no such column"
    ):
        target(table).replace_all(spark.sql(f"SELECT 1 AS id, 2 AS price, {day}"))
    with pytest.raises(DeclarationError, match=r"id is double, and bigint in the table, which"):
        target(table).replace_all(spark.sql(f"SELECT double(1) AS id, {day}"))
    assert rows_in(spark, table) == [(1, DAYS[0])]
    with table.metastore.client() as client:
        stored: Any = client.get_table(table.database, "h")
        stored.sd.numBuckets, stored.sd.bucketCols = 2, ["id"]
        client.alter_table(table.database, "h", stored)
    with pytest.raises(
        TableUnreadableError, match="its rows are in buckets, which are not written"
    ):
        target(table).replace_all(spark.sql(f"SELECT 1 AS id, {day}"))


def test_an_unpartitioned_table_is_swapped_whole(spark: SparkSession, table: HiveTable) -> None:
    polls = Polls(table.create(numRows="7"))
    table.write(rows=pa.table({"id": [1]}))
    polls.events()
    for number in (2, 3):
        target(table).replace_all(spark.sql(f"SELECT {number} AS id, string('x') AS note"))
        assert rows_of(target(table).read(spark)) == [(number, "x")]
        assert polls.found() == [(None, UPDATE)]
    assert len(list((table.folder / "h" / "_lakechime").iterdir())) == 2
    with table.metastore.client() as client:
        stored: Any = client.get_table(table.database, "h")
        assert "numRows" not in stored.parameters


def hive_subscription(
    spark: SparkSession, table: HiveTable, **fields: Any
) -> tuple[Subscription, Source]:
    """A subscription of a Delta table of flights by day that writes a Hive table by day."""
    source = flights_source(table.folder)
    log = HiveLog(table.metastore.url, table.name)
    by_day = {"keys": ("day",), "partitioned_by": ("day",), "refresh": RefreshMode.PARTITIONS}
    made = make_subscription(
        spark, table.folder, {"flights": source}, sql=PER_DAY, log=log, **{**by_day, **fields}
    )
    return made, source


def test_executions_replace_the_partitions_that_differ_once(
    spark: SparkSession, table: HiveTable
) -> None:
    subscription, source = hive_subscription(spark, table)
    first, _ = subscription.attempt(1, 1)
    polls = Polls(table)
    assert polls.found() == [("2013-01-01", APPEND), ("2013-01-02", APPEND)]
    again, _ = subscription.attempt(1, 2)
    assert (first.outcome, again.outcome) == (Outcome.COMMITTED, Outcome.SKIPPED)
    assert (again.committed, first.partitions) == (first.committed, ((DAY,), ("2013-01-02",)))
    assert first.files == 2
    assert first.bytes
    subscription.run()
    source.write((FLOWN[1], 3, "JFK", 1))
    second = subscription.run()
    assert (second.partitions, polls.found()) == ((("2013-01-02",),), [("2013-01-02", UPDATE)])
    source.write((FLOWN[1], 3, "JFK", 1))
    source.delete("k = 3")
    assert subscription.run().partitions == (("2013-01-02",),)
    assert polls.found() == [("2013-01-02", UPDATE)]
    source.delete("k = 2")
    subscription.run()
    assert polls.found() == [("2013-01-02", DELETE)]
    assert rows_of(target(table).read(spark)) == [(1, 5, FLOWN[0])]
    with pytest.raises(ConsumerConflictError, match="is too late"):
        subscription.attempt(2, 1)


def test_a_consumer_of_a_key_finds_its_commit_in_its_partition_also_when_that_was_emptied(
    spark: SparkSession, table: HiveTable
) -> None:
    subscription, source = hive_subscription(spark, table)
    log = HiveLog(table.metastore.url, table.name)
    for number, day in enumerate(("2013-01-01", "2013-01-02"), start=1):
        subscription.consumer = ConsumerId("test", "subscription", day)
        subscription.attempt(number, 1, partitions=((day,),))
    source.delete(f"day = '{DAY}'")
    emptied = ConsumerId("test", "subscription", DAY)
    subscription.consumer = emptied
    done, _ = subscription.attempt(2, 1, partitions=((DAY,),))
    assert done.outcome is Outcome.COMMITTED
    assert log.committed(emptied, 2) == log.last_committed(emptied) == done.committed
    other = log.last_committed(ConsumerId("test", "subscription", "2013-01-02"))
    assert other is not None
    assert other.commit_metadata.number == 2
    assert log.last_committed(ConsumerId("test", "subscription", "2013-01-03")) is None
    assert [one.partition for one in log.events_of(other)] == [("2013-01-02",)]
    assert rows_of(target(table).read(spark)) == [(1, 7, FLOWN[1])]


def test_a_table_that_is_replaced_whole_is_left_alone_while_nothing_differs(
    spark: SparkSession, table: HiveTable
) -> None:
    fields = {"partitioned_by": (), "refresh": RefreshMode.FULL}
    subscription, source = hive_subscription(spark, table, **fields)
    polls = Polls(table)
    assert subscription.run().outcome is Outcome.COMMITTED
    assert polls.found() == [(None, APPEND)]
    source.optimize()
    assert subscription.run().outcome is Outcome.NOTHING
    assert subscription.run(may_complete_empty=False).outcome is Outcome.FENCED
    assert polls.found(lists_all=True) == []
    last = target(table).log.last_committed(subscription.consumer)
    assert last is not None
    assert last.commit_metadata.number == 3


def test_a_consumer_of_a_key_that_leaves_no_rows_finds_its_commit(
    spark: SparkSession, table: HiveTable
) -> None:
    written, empty = (
        target(filled(table, DAYS[0])),
        spark.sql("SELECT 1L AS id, null AS day LIMIT 0"),
    )
    metadata = CommitMetadata(
        consumer=ConsumerId("test", "subscription", DAY), number=1, attempt=1, end=Checkpoint()
    )
    assert commit(spark, written, metadata, lambda: lambda: written.replace_all(empty)) is not None
    assert rows_in(spark, table) == []


CODE = """
    from lakechime_dagster.formats.hive import HiveLog
    from lakechime_dagster.spark.hive import HiveTarget

    with open_here() as driver:
        spark = driver.spark
        spark.sql(f"create database swapped location '{home}/swapped'")
        created = {
            "native": "(id bigint, Day date) using parquet partitioned by (Day)",
            "serde": "(id bigint) partitioned by (day date) stored as orc",
            "whole": "(id bigint, day date) using parquet",
        }
        for table, columns in created.items():
            name = f"swapped.{table}"
            spark.sql(f"create table {name} {columns}")
            for day in (1, 2):
                spark.sql(f"insert into {name} values ({day}, date '2024-05-0{day}')")
            rows = spark.sql("select 3L as id, date '2024-05-02' as day")
            target = HiveTarget(name=name, log=HiveLog("METASTORE", name))
            before = spark.table(name)
            before.collect()
            if table == "whole":
                target.replace_all(rows)
                spark.sql(f"refresh table {name}")
            else:
                target.replace_partitions(rows, [("2024-05-02",)])
            say(table, *sorted(f"{row[0]}:{row[1]}" for row in spark.table(name).collect()))
            say(table, *sorted(f"{row[0]}:{row[1]}" for row in before.collect()))
            files = [str(one) for one in (home / "swapped").rglob("_lakechime/**/part*")]
            say(table, *{one.rpartition(".")[2] for one in files if f"/{table}/" in one})
            spark.sql(f"insert into {name} values (4, date '2024-05-02')")
            say(table, spark.table(name).count())
            if table != "whole":
                spark.sql(f"msck repair table {name}")
                say(table, spark.sql(f"show partitions {name}").count())
"""


def test_a_spark_with_the_metastore_as_its_catalog_reads_what_was_swapped(
    metastore: Metastore, spark_jars: Path, tmp_path: Path
) -> None:
    settings = small_settings(
        conf={
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.hive.metastore.uris": metastore.url,
        }
    )
    code = CODE.replace("METASTORE", metastore.url)
    old, new = "1:2024-05-01 2:2024-05-02", "3:2024-05-02"
    assert run_client(code, tmp_path, spark_jars, settings) == [
        *(f"native {one}" for one in (f"1:2024-05-01 {new}", old, "parquet", 3, 2)),
        *(f"serde {one}" for one in (f"1:2024-05-01 {new}", old, "orc", 3, 2)),
        *(f"whole {one}" for one in (new, old, "parquet", 2)),
    ]
