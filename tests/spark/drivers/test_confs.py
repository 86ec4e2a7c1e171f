"""Confs follow from the settings, and what the settings say last wins."""

import datetime as dt
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from lakechime_dagster.spark.jvm import build_confs, revision_of
from tests.support.spark import small_settings

LAST = "9999-12-31 23:59:59.999999"
FILES = "spark.sql.streaming.checkpointFileManagerClass"


def confs_of(driver: str, **others: object) -> dict[str, str]:
    return build_confs(
        small_settings(driver, **others),
        work=Path("/work"),
        warehouse=Path("/warehouse"),
        jars=[Path("/jars/delta.jar")],
    )


@pytest.mark.spark
def test_a_version_that_a_driver_of_this_machine_writes_has_its_checksum(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Written by other means than Spark's own, which start a process for each name that they look
    at.
    """
    spark.range(1).write.format("delta").save(str(tmp_path / "table"))
    assert (tmp_path / "table" / "_delta_log" / "00000000000000000000.crc").is_file()
    assert str(spark.conf.get(FILES)).endswith(".FileSystemBasedCheckpointFileManager")


@pytest.mark.spark
def test_other_programs_read_the_times_that_a_driver_writes(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also those that have no checkpoint in 64 bits of nanoseconds, as the endless ones of
    PostgreSQL.
    """
    table, moments = (
        str(tmp_path / "table"),
        ["0001-01-01 00:00:00", "1582-10-10 12:00:00", "2024-02-29 01:02:03.456789", LAST],
    )
    rows = spark.createDataFrame([(moment,) for moment in moments], "text string")
    times = [f"CAST(text AS {kind}) AS {kind}" for kind in ("timestamp", "timestamp_ntz")]
    rows.selectExpr(*times, "array(CAST(text AS timestamp)) AS several").coalesce(1).write.format(
        "delta"
    ).save(table)
    expected = [dt.datetime.fromisoformat(moment) for moment in moments]
    (file,) = (tmp_path / "table").glob("*.parquet")
    by_delta = pa.table(QueryBuilder().register("t", DeltaTable(table)).execute("select * from t"))
    by_duckdb = duckdb.sql(
        f"SELECT timestamp AT TIME ZONE 'UTC' AS timestamp, timestamp_ntz FROM "
        f"read_parquet('{file}')"
    )
    assert {
        pq.read_schema(file).field(name).type.unit for name in ("timestamp", "timestamp_ntz")
    } == {"us"}
    for found in (pq.read_table(file), by_delta, by_duckdb.to_arrow_table()):
        for name in ("timestamp", "timestamp_ntz"):
            assert sorted(one.replace(tzinfo=None) for one in found[name].to_pylist()) == expected
    assert (
        sorted(one[0].replace(tzinfo=None) for one in by_delta["several"].to_pylist()) == expected
    )


def test_a_users_conf_wins() -> None:
    assert (
        confs_of("local", conf={"spark.sql.shuffle.partitions": "64"})[
            "spark.sql.shuffle.partitions"
        ]
        == "64"
    )


def test_a_warm_driver_of_other_confs_has_another_revision() -> None:
    settings, other = (
        small_settings("warm"),
        small_settings("warm", conf={"spark.sql.ansi.enabled": "false"}),
    )
    assert revision_of(settings, "4.1.3") == revision_of(
        small_settings("warm", idle_minutes=5), "4.1.3"
    )
    assert (
        len(
            {
                revision_of(settings, "4.1.3"),
                revision_of(other, "4.1.3"),
                revision_of(settings, "4.1.4"),
            }
        )
        == 3
    )
