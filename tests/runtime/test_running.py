"""What a run is handed: the events of its execution, and of which commits it reads the rows."""

import json

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.dce.contract import Seen
from lakechime_dagster.dce.engine import writing
from lakechime_dagster.dce.events import SnapshotId, TableUid
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.runtime.execution import RunningExecution, kept
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.triggers.conditions import PartitionCondition
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import PartitionTrigger, SnapshotTrigger
from tests.support.world import World, a_subscription

WEB = {"by": "web"}
ALONE = Subscription(
    name="web", trigger=SnapshotTrigger(["bronze.orders"], tags=WEB, only_matching=True)
)


@pytest.fixture
def world(sqlite_engine: Engine) -> World:
    return World(sqlite_engine)


def read_next(world: World, platform: Platform) -> tuple[str | None, str, set[str]] | None:
    """The range of the next execution, which is completed: start, end and the single commits."""
    (execution,) = world.fire(ALONE)
    range_ = RunningExecution(platform, ALONE, execution).ranges.get("bronze.orders")
    world.ledger.complete(execution, None)
    return None if range_ is None else (range_.start, range_.end, set(range_.only or ()))


def test_only_the_matching_commits_are_read_alone(world: World, platform: Platform) -> None:
    for version, tags in enumerate([WEB, {}, WEB, {}]):
        world.change(version=version, tags=tags)
    assert read_next(world, platform) == (None, "2", {"0", "2"})
    world.change(version=4, tags=WEB)
    assert read_next(world, platform) == ("3", "4", {"4"})


def test_a_matching_commit_whose_event_comes_after_that_of_a_later_one_is_read_too(
    world: World, platform: Platform
) -> None:
    world.change(version=2, tags=WEB)
    assert read_next(world, platform) == ("1", "2", {"2"})
    world.change(version=1, tags=WEB)
    assert read_next(world, platform) == ("0", "2", {"1"})


def test_a_mark_vouches_for_no_commit_that_does_not_match_itself(
    world: World, platform: Platform
) -> None:
    world.change(version=0, tags=WEB)
    assert read_next(world, platform) == (None, "0", {"0"})
    world.change(version=1)
    world.change(tags=WEB, event_key="mark")
    assert read_next(world, platform) is None
    world.change(version=1, tags=WEB)
    assert read_next(world, platform) == ("0", "1", {"1"})


def test_a_commit_two_of_whose_partitions_get_the_tag_at_different_times_is_read_once(
    world: World, platform: Platform
) -> None:
    for day in ("1", "2"):
        world.change(version=0, partition=(day,))
    world.change(version=0, partition=("1",), tags=WEB)
    assert read_next(world, platform) == (None, "0", {"0"})
    world.change(version=0, partition=("2",), tags=WEB)
    assert read_next(world, platform) is None
    world.change(version=1, partition=("1",), tags=WEB)
    world.change(version=0, partition=("3",), tags=WEB)
    assert read_next(world, platform) == ("0", "1", {"1"})


def test_a_commit_of_a_new_table_is_not_taken_for_the_one_of_its_predecessor(
    world: World, platform: Platform
) -> None:
    world.change(version=1, tags=WEB, table_uid="A")
    assert read_next(world, platform) == ("0", "1", {"1"})
    world.store.register([], seen=[Seen("bronze.orders", TableUid("B"), SnapshotId("0"))])
    world.change(version=1, tags=WEB, table_uid="B")
    assert read_next(world, platform) == ("0", "1", {"1"})


def test_the_runs_of_two_days_are_handed_the_events_of_their_own_day(
    world: World, platform: Platform
) -> None:
    condition = PartitionCondition.of(
        "bronze.orders", {"day": tick("-1d")}, PartitionLevels.of({"day": "date"})
    )
    subscription = Subscription(
        name="daily",
        trigger=PartitionTrigger(condition, every(days=1, start="2013-01-02", until="2013-01-03")),
    )
    arrived = [
        world.change(version=version, partition=[day])
        for version, day in enumerate(("2013-01-01", "2013-01-02"))
    ]
    first, second = (
        RunningExecution(platform, subscription, execution)
        for execution in world.fire(subscription)
    )
    assert (first.events, second.events) == ([arrived[0]], [arrived[1]])
    assert json.loads(first.env()["LAKECHIME_DCES"])[0]["partition"] == ["2013-01-01"]


def test_the_error_of_a_run_is_not_hidden_by_one_of_the_store_that_should_keep_it(
    world: World, platform: Platform
) -> None:
    world.change(version=0)
    (claimed,) = world.fire(a_subscription())
    running = RunningExecution(
        platform, a_subscription(), world.ledger.begin(claimed.execution_id, "run-1")
    )
    said: list[str] = []
    with writing(world.engine) as connection:
        connection.execute(sa.text("DROP TABLE lc_attempt"))
    with pytest.raises(RuntimeError, match="the disk is full"), kept(running, None, said.append):
        raise RuntimeError("the disk is full")
    assert ["the error of attempt 1 could not be kept" in sentence for sentence in said] == [True]
