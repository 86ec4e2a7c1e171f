"""A consumer that was put back reads rows again that its target holds: none of them is there twice
afterwards.
"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.dce.events import Position
from lakechime_dagster.errors import TableUnreadableError
from tests.support.refreshes import DAYS, Subscription, balanced, flights_source, make_subscription

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


def test_rows_of_single_commits_that_are_read_again_from_the_beginning_replace_the_target(
    spark: SparkSession, tmp_path: Path
) -> None:
    subscription = single_commits(spark, tmp_path, [{3}, {1}])
    subscription.checkpoint, subscription.position, subscription.only = (
        {},
        Position.ORIGIN,
        {"flights": {1, 2, 3}},
    )
    again = balanced(subscription.run())
    assert (again.replaced, again.counts.inserted, again.counts.unchanged) == (True, 1, 2)
    assert sorted(row[1] for row in subscription.rows) == [11, 12, 13]


def test_a_commit_that_matches_late_is_added_though_later_ones_were_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    subscription = single_commits(spark, tmp_path, [{3}, {1}])
    assert sorted(row[1] for row in subscription.rows) == [11, 13]


def test_single_commits_that_are_read_again_from_between_are_refused_with_what_to_do(
    spark: SparkSession, tmp_path: Path
) -> None:
    subscription = single_commits(spark, tmp_path, [{1}, {2}])
    subscription.position, subscription.only = Position(0, 1), {"flights": {2}}
    subscription.sources["flights"].write((DAYS[2], 9, "EWR", 9))
    with pytest.raises(
        TableUnreadableError,
        match=r"is read again, .* would read other commits too; seek the trigger to the beginning",
    ):
        subscription.run()
    assert sorted(row[1] for row in subscription.rows) == [11, 12]


def single_commits(spark: SparkSession, folder: Path, executions: list[set[int]]) -> Subscription:
    """A consumer without keys that has read these commits alone, a set an execution; the commit of
    a version wrote the row 10 + version.
    """
    flights = flights_source(folder)
    for version in (1, 2, 3):
        flights.write((DAYS[2], 10 + version, "EWR", 9))
    subscription = make_subscription(spark, folder, {"flights": flights}, lambda flights: flights)
    for versions in executions:
        subscription.only = {"flights": versions}
        subscription.run()
        flights.write((DAYS[0], 99, "SFO", 1))  # matches nothing
    return subscription
