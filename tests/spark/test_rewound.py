"""A consumer that was put back reads rows again that its target holds: none of them is there twice
afterwards.
"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.refreshes import DAYS, balanced, flights_source, make_subscription

pytestmark = pytest.mark.spark


def test_a_target_without_keys_is_replaced_when_its_consumer_was_put_back_by_some_commits(
    spark: SparkSession, tmp_path: Path
) -> None:
    flights = flights_source(tmp_path)
    subscription = make_subscription(spark, tmp_path, {"flights": flights}, lambda flights: flights)
    subscription.run()
    checkpoint, position = subscription.checkpoint, subscription.position
    flights.write((DAYS[2], 3, "EWR", 9))
    subscription.run()
    subscription.checkpoint, subscription.position = checkpoint, position
    flights.write((DAYS[2], 4, "EWR", 9))
    again = balanced(subscription.run())
    assert (again.replaced, again.counts.inserted) == (True, 1)
    assert again.notes == ("flights is read again, and the target has no keys: it is replaced",)
    assert sorted(row[1] for row in subscription.rows) == [1, 2, 3, 4]
