"""Rows in quarantine say what they held, to the microsecond."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.dce.events import Position
from lakechime_dagster.spark.commit import Target
from lakechime_dagster.spark.refresh import quarantine
from lakechime_dagster.spark.rows import REASON
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, ConsumerId
from tests.support.refreshes import open_log, read_rows

pytestmark = pytest.mark.spark


@pytest.mark.tier1
def test_rows_that_differ_by_a_microsecond_are_both_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    location = str(tmp_path / "bad")
    target = Target(name="bad", location=location, log=open_log(location, "bad"))
    for attempt in (1, 2, 3):
        values = (
            f"timestamp_micros({min(attempt, 2)}) AS at, timestamp_ntz'1500-01-01 00:00:00.000001' "
            f"AS `local`, 'late' AS {REASON}"
        )
        commit_metadata = CommitMetadata(
            consumer=ConsumerId("test", "subscription"),
            number=1,
            attempt=attempt,
            end=Checkpoint(position=Position(0, 1)),
        )
        assert quarantine(spark, target, commit_metadata, spark.sql(f"SELECT {values}")) == (
            1 if attempt < 3 else 0
        )
    assert [json.loads(row[4]) for row in read_rows(location)] == [
        {"at": f"1970-01-01T00:00:00.00000{micros}Z", "local": "1500-01-01T00:00:00.000001"}
        for micros in (1, 2)
    ]
