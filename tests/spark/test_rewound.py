"""A lane that was put back reads rows again that its target holds: none of them is there twice afterwards."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.errors import TableUnreadableError
from tests.support.refreshes import DAYS, balanced, flights_source, make_flow

pytestmark = pytest.mark.spark


def test_a_target_without_keys_is_replaced_when_its_lane_was_put_back_by_some_commits(spark: SparkSession, tmp_path: Path) -> None:
    flights = flights_source(tmp_path)
    flow = make_flow(spark, tmp_path, {"flights": flights}, lambda flights: flights)
    flow.run()
    before = flow.place
    flights.write((DAYS[2], 3, "EWR", 9))
    flow.run()
    flow.place = before
    flights.write((DAYS[2], 4, "EWR", 9))
    again = balanced(flow.run())
    assert (again.replaced, again.counts.inserted) == (True, 1)
    assert again.notes == ("flights is read again from snapshot 0, and its target has no keys: the target is replaced",)
    assert sorted(row[1] for row in flow.rows) == [1, 2, 3, 4]


def test_rows_of_single_commits_that_are_read_again_from_the_beginning_replace_the_target(spark: SparkSession, tmp_path: Path) -> None:
    flights = flights_source(tmp_path)
    flow = make_flow(spark, tmp_path, {"flights": flights}, lambda flights: flights)
    flights.write((DAYS[2], 3, "EWR", 9))
    flow.only = {"flights": {1}}
    flow.run()
    flights.write((DAYS[2], 4, "EWR", 9))
    flow.place, flow.only = {}, {"flights": {1, 2}}
    again = balanced(flow.run())
    assert (again.replaced, again.counts.inserted, again.counts.unchanged) == (True, 1, 1)
    assert sorted(row[1] for row in flow.rows) == [3, 4]


def test_single_commits_that_are_read_again_from_between_are_refused_with_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    flights = flights_source(tmp_path)
    flow = make_flow(spark, tmp_path, {"flights": flights}, lambda flights: flights)
    before = {}
    for number in (1, 2):
        flights.write((DAYS[2], 2 + number, "EWR", 9))
        flow.only = {"flights": {number}}
        flow.run()
        before = before or flow.place
    flow.place, flow.only = before, {"flights": {2}}
    with pytest.raises(
        TableUnreadableError, match=r"from snapshot 1.*would read other commits too; seek the trigger to the beginning"
    ):
        flow.run()
    assert sorted(row[1] for row in flow.rows) == [3, 4]
