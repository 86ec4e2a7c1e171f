"""Rows of single files are read in the session that asks for them, whatever session the JVM was
in.
"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.spark.driver import activate
from tests.support.refreshes import DAYS, balanced, flights_source, make_subscription

pytestmark = pytest.mark.spark


def test_appended_rows_are_committed_under_the_commit_metadata_of_their_own_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What a write is to say of itself is set in the session of the run."""
    flights = flights_source(tmp_path)
    subscription = make_subscription(spark, tmp_path, {"flights": flights}, lambda flights: flights)
    subscription.run()
    flights.write((DAYS[2], 3, "EWR", 9))
    activate(spark.newSession())
    assert balanced(subscription.run()).counts.inserted == 1
    assert sorted(row[1] for row in subscription.rows) == [1, 2, 3]
