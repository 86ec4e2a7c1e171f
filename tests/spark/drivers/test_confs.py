"""Confs follow from the settings, and what the settings say last wins."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.spark.drivers.confs import build_confs, revision_of
from tests.support.spark import small_settings

FILES = "spark.sql.streaming.checkpointFileManagerClass"


def confs_of(driver: str, **others: object) -> dict[str, str]:
    return build_confs(small_settings(driver, **others), work=Path("/work"), warehouse=Path("/warehouse"), jars=[Path("/jars/delta.jar")])


@pytest.mark.parametrize("driver", ["warm", "local"])
def test_a_driver_of_this_machine_is_sized_by_its_cores_and_listens_to_it_only(driver: str) -> None:
    confs = confs_of(driver, cores=3)
    assert confs["spark.master"] == "local[3]"
    assert confs["spark.sql.shuffle.partitions"] == confs["spark.sql.limit.initialNumPartitions"] == "3"
    assert confs["spark.driver.bindAddress"] == "127.0.0.1"
    assert confs["spark.sql.session.timeZone"] == "UTC"
    assert "spark.jars" not in confs


def test_a_cluster_gets_the_jars_and_can_reach_the_driver() -> None:
    confs = confs_of("spark://cluster:7077")
    assert confs["spark.master"] == "spark://cluster:7077"
    assert confs["spark.jars"] == "file:///jars/delta.jar"
    assert "spark.driver.bindAddress" not in confs
    assert not {"spark.sql.limit.initialNumPartitions", "spark.broadcast.blockSize", FILES} & confs.keys()


@pytest.mark.spark
def test_a_version_that_a_driver_of_this_machine_writes_has_its_checksum(spark: SparkSession, tmp_path: Path) -> None:
    """Written by other means than Spark's own, which start a process for each name that they look at."""
    spark.range(1).write.format("delta").save(str(tmp_path / "table"))
    assert (tmp_path / "table" / "_delta_log" / "00000000000000000000.crc").is_file()
    assert str(spark.conf.get(FILES)).endswith(".FileSystemBasedCheckpointFileManager")


def test_a_users_conf_wins() -> None:
    assert confs_of("local", conf={"spark.sql.shuffle.partitions": "64"})["spark.sql.shuffle.partitions"] == "64"


def test_a_warm_driver_of_other_confs_has_another_revision() -> None:
    settings, other = small_settings("warm"), small_settings("warm", conf={"spark.sql.ansi.enabled": "false"})
    assert revision_of(settings, "4.1.3") == revision_of(small_settings("warm", idle_minutes=5), "4.1.3")
    assert len({revision_of(settings, "4.1.3"), revision_of(other, "4.1.3"), revision_of(settings, "4.1.4")}) == 3
