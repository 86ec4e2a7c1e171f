"""What the inputs of an execution give before anything is computed."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakechime_dagster.dce.events import SnapshotId
from lakechime_dagster.errors import TableUnreadableError
from lakechime_dagster.spark.inputs import open_inputs
from lakechime_dagster.spark.job import InputJob, TableJob
from lakechime_dagster.tables.options import ReadMode
from tests.support.refreshes import Source, open_log

pytestmark = pytest.mark.spark


def make_source(folder: Path) -> Source:
    """A table of two commits, a row each."""
    source = Source(folder / "names", pa.schema([("k", pa.int64()), ("name", pa.string())]))
    source.write((1, "one"))
    source.write((2, "two"))
    return source


def clean_up(source: Source) -> None:
    DeltaTable(str(source.location)).vacuum(
        retention_hours=0, dry_run=False, enforce_retention_duration=False
    )


def pinned_at(source: Source, version: int) -> TableJob:
    pinned = SnapshotId(str(version))
    names = InputJob(
        alias="names",
        table="names",
        location=str(source.location),
        mode=ReadMode.SNAPSHOT,
        pinned=pinned,
    )
    return TableJob(name="target", location="", inputs=(names,))


@pytest.mark.parametrize("way", ["overwritten", "compacted"])
def test_a_pinned_snapshot_whose_files_were_cleaned_up_is_answered_with_a_remedy(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    source = make_source(tmp_path)
    source.optimize() if way == "compacted" else source.write((1, "uno"), mode="overwrite")
    clean_up(source)
    with pytest.raises(
        TableUnreadableError,
        match=r"names: files of snapshot 1 were removed by a clean-up; the next attempt must read",
    ):
        open_inputs(spark, pinned_at(source, 1), open_log)


def test_files_that_came_and_went_after_a_pinned_snapshot_are_not_missed(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = make_source(tmp_path)
    source.delete("k = 2")
    clean_up(source)
    (names,) = open_inputs(spark, pinned_at(source, 0), open_log)
    assert [tuple(row) for row in names.end.collect()] == [(1, "one")]
