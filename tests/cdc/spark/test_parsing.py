"""How the messages of an execution are handed to workers."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.cdc.spark_parse import spread
from lakechime_dagster.dce.snapshots import SnapshotRange
from lakechime_dagster.formats.delta import DeltaLog
from lakechime_dagster.spark.ranges import RangeRead, read_range
from tests.support.orders import order
from tests.support.replica import Replica

pytestmark = pytest.mark.spark


def test_the_messages_of_one_file_are_read_by_all_cores_each_those_of_neighbours(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Replica(spark, tmp_path, ("id",))
    for start in (0, 100):
        table.send([order(number, at=number + 1) for number in range(start, start + 100)])
    read = range_of(spark, table)
    assert read.changes is not None
    parts = (
        spread(read.changes.select("topic_id", "partition", "offset"), read).rdd.glom().collect()
    )
    spans = sorted(
        (min(row.offset for row in part), max(row.offset for row in part), len(part))
        for part in parts
    )
    assert len(spans) == spark.sparkContext.defaultParallelism > 1
    assert sum(count for *_, count in spans) == 100
    assert all(last - first + 1 == count for first, last, count in spans)


def range_of(spark: SparkSession, table: Replica) -> RangeRead:
    """The newest commit of the bronze table, which has one file."""
    log = DeltaLog(table.bronze, "orders__changes")
    newest = table.end().sources["orders__changes"].snapshot_id
    assert newest is not None
    before = table.end(int(newest) - 1).sources["orders__changes"].snapshot_id
    return read_range(
        spark,
        log,
        SnapshotRange(
            table=log.table, table_uid=log.uid, start=before, end=newest, start_uid=log.uid
        ),
    )
