"""Ticks of a subscription that reads files of a folder: what it claims, how it is held, and how it
goes on. Store and files are real.
"""

from pathlib import Path

import pytest
from dagster import DagsterRunStatus
from sqlalchemy import Engine

from lakechime_dagster.errors import ConsumerConflictError, LakeChimeError, MessagesUnreadableError
from lakechime_dagster.runtime.execution import adopted
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.runtime.resource import NothingNewError
from lakechime_dagster.runtime.sources import checkpoint_at
from lakechime_dagster.sensors.tick import PolledAt, Tick, run_tick
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.triggers.consumers import (
    ConsumerState,
    Execution,
    FileOffsets,
    SourceOffsets,
)
from lakechime_dagster.triggers.evaluation import Sweep
from lakechime_dagster.triggers.registry import By
from lakechime_dagster.triggers.schedule import every
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import SnapshotTrigger, StartFrom
from tests.sensors.test_tick import ReportedRuns, one
from tests.support.world import World, ticked

NAME = "shop.orders__changes"
BY = By(who="ann", reason="looked into it")
MINUTE = 60_000


@pytest.fixture
def world(sqlite_engine: Engine) -> World:
    return World(sqlite_engine)


@pytest.fixture
def runs() -> ReportedRuns:
    return ReportedRuns()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def a_source(
    folder: Path, minutes: int | None = None, max_bytes: int | None = None
) -> Subscription:
    pace = None if minutes is None else every(minutes=minutes)
    return Subscription(
        name=NAME,
        trigger=SnapshotTrigger((), pace),
        source=JsonLines(str(folder), max_bytes=max_bytes),
    )


def drop(folder: Path, name: str, *lines: str) -> None:
    with (folder / name).open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def completed(world: World, tick: Tick) -> Execution:
    execution = one(tick.launches)
    assert world.ledger.complete(execution, None)
    return execution


def read_to(world: World) -> SourceOffsets | None:
    subscription = world.ledger.subscription(NAME)
    assert subscription is not None
    return world.ledger.consumers(subscription)[""].checkpoint.offsets


def test_what_a_source_holds_is_claimed_and_frozen(
    world: World, platform: Platform, runs: ReportedRuns, folder: Path
) -> None:
    subscription = a_source(folder)
    drop(folder, "a.jsonl", "1", "2")
    execution = one(ticked(platform, subscription, runs).launches)
    assert (execution.start.offsets, execution.end.offsets) == (None, FileOffsets({"a.jsonl": 4}))
    assert execution.reason == f"4 new bytes in a.jsonl of {folder}"
    drop(folder, "a.jsonl", "3")
    again = ticked(platform, subscription, runs)
    assert one(again.launches).end == execution.end
    assert again.sentences == ("execution 1 waits for its run to start (attempt 1)",)


def test_a_retry_reads_just_what_was_claimed(
    world: World, platform: Platform, runs: ReportedRuns, folder: Path
) -> None:
    subscription = a_source(folder)
    drop(folder, "a.jsonl", "1")
    execution = one(ticked(platform, subscription, runs).launches)
    runs.report(execution, DagsterRunStatus.FAILURE)
    drop(folder, "a.jsonl", "2")
    ticked(platform, subscription, runs)
    (waiting,) = world.ledger.open_executions(world.evaluator.activate(subscription))
    assert (waiting.attempt, waiting.end.offsets) == (2, FileOffsets({"a.jsonl": 2}))


def test_a_source_is_asked_at_the_points_of_its_schedule(
    world: World, platform: Platform, runs: ReportedRuns, folder: Path
) -> None:
    subscription = a_source(folder, minutes=24 * 60)
    polled: PolledAt = {}
    assert ticked(platform, subscription, runs, polled=polled).sentences == (
        f"nothing new in {folder}/*.jsonl",
    )
    drop(folder, "a.jsonl", "1")
    resting = ticked(platform, subscription, runs, polled=polled)
    assert resting.launches == ()
    assert resting.sentences[0].startswith("its source is polled next at ")
    polled[NAME] -= 24 * 60 * MINUTE
    assert one(
        ticked(platform, subscription, runs, polled=polled).launches
    ).end.offsets == FileOffsets({"a.jsonl": 2})


def test_a_claim_that_its_limit_cut_is_followed_at_once_whatever_the_pace(
    world: World, platform: Platform, runs: ReportedRuns, folder: Path
) -> None:
    subscription = a_source(folder, minutes=24 * 60, max_bytes=4)
    polled: PolledAt = {}
    drop(folder, "a.jsonl", "1", "2", "3")
    first = completed(world, ticked(platform, subscription, runs, polled=polled))
    assert (first.end.offsets, first.end.has_more) == (FileOffsets({"a.jsonl": 4}), True)
    left = "an execution reads at most 4 bytes, so that 2 are left to the next ones"
    assert first.reason == f"6 new bytes in a.jsonl of {folder}; {left}"
    second = completed(world, ticked(platform, subscription, runs, polled=polled))
    assert (second.end.offsets, second.end.has_more) == (FileOffsets({"a.jsonl": 6}), False)
    drop(folder, "a.jsonl", "4")
    assert (
        ticked(platform, subscription, runs, polled=polled)
        .sentences[0]
        .startswith("its source is polled next at ")
    )


def test_a_file_that_shrank_blocks_the_consumer_until_a_person_resumes(
    world: World, platform: Platform, runs: ReportedRuns, folder: Path
) -> None:
    subscription = a_source(folder)
    drop(folder, "a.jsonl", "1", "2")
    completed(world, ticked(platform, subscription, runs))
    (folder / "a.jsonl").write_text("3\n")
    assert (
        "a.jsonl holds 2 bytes, and 4 of it were read"
        in ticked(platform, subscription, runs).sentences[0]
    )
    row = world.evaluator.activate(subscription)
    assert world.ledger.consumers(row)[""].state is ConsumerState.BLOCKED
    (folder / "a.jsonl").rename(folder / "a-2.jsonl")
    (held,) = ticked(platform, subscription, runs).sentences
    assert held.startswith(f"{NAME} is BLOCKED: {folder}/a.jsonl holds 2 bytes")
    assert held.endswith(f"where no execution is open `lakechime trigger resume {NAME}`")
    world.people.resume(row, BY)
    (done,) = world.people.history(row)
    assert done.before["blocked"][0][1].startswith(f"{folder}/a.jsonl holds 2 bytes")
    execution = one(ticked(platform, subscription, runs).launches)
    assert execution.end.offsets == FileOffsets({"a-2.jsonl": 2})


def test_a_person_gets_what_the_source_holds_whatever_its_pace(
    world: World, platform: Platform, folder: Path
) -> None:
    subscription = a_source(folder, minutes=24 * 60)
    with pytest.raises(NothingNewError, match=f"{NAME}: nothing new in"):
        adopted(platform, subscription, "run-1", None)
    drop(folder, "a.jsonl", "1")
    execution = adopted(platform, subscription, "run-1", None)
    assert (execution.end.offsets, execution.run_id) == (FileOffsets({"a.jsonl": 2}), "run-1")
    assert execution.reason == f"a person asked for it; 2 new bytes in a.jsonl of {folder}"
    world.ledger.complete(execution, None)
    (folder / "a.jsonl").write_text("")
    with pytest.raises(
        ConsumerConflictError, match=f"{NAME} is BLOCKED: .* holds 0 bytes, and 2 of it were read"
    ):
        adopted(platform, subscription, "run-2", None)


def test_a_source_is_put_to_now_and_never_back(
    world: World, platform: Platform, runs: ReportedRuns, folder: Path
) -> None:
    subscription = a_source(folder)
    drop(folder, "a.jsonl", "1", "2")
    completed(world, ticked(platform, subscription, runs))
    row = world.evaluator.activate(subscription)
    with pytest.raises(
        LakeChimeError,
        match=(
            r"its rows would be there twice .* from beginning; put the trigger of the table that "
            r"reads"
        ),
    ):
        checkpoint_at(platform, subscription, StartFrom("beginning"))
    (folder / "a.jsonl").write_text("3\n")
    ticked(platform, subscription, runs)
    world.people.seek(row, None, BY, checkpoint_at(platform, subscription, StartFrom("now")))
    assert read_to(world) == FileOffsets({"a.jsonl": 2})
    assert ticked(platform, subscription, runs).sentences == (f"nothing new in {folder}/*.jsonl",)
    with pytest.raises(MessagesUnreadableError, match="is no folder"):
        checkpoint_at(platform, a_source(folder / "none"), StartFrom("now"))


def test_one_sensor_for_many_subscriptions_asks_each_feed(
    world: World, platform: Platform, runs: ReportedRuns, folder: Path
) -> None:
    fed, woken = (
        a_source(folder),
        Subscription(name="gold", trigger=SnapshotTrigger("silver.orders")),
    )
    lost = Subscription(
        name="lost", trigger=SnapshotTrigger(), source=JsonLines(str(folder / "none"))
    )
    subscriptions = {subscription.name: subscription for subscription in (fed, woken, lost)}
    sweep = Sweep(platform.evaluator, list(subscriptions.values()))
    drop(folder, "a.jsonl", "1")
    world.change("silver.orders", 1)
    tick = run_tick(platform, sweep, subscriptions, runs)
    assert {one.consumer.subscription: one.end.offsets for one in tick.launches} == {
        NAME: FileOffsets({"a.jsonl": 2}),
        "gold": None,
    }
    assert any(
        sentence.startswith(f"lost: {folder}/none is no folder") for sentence in tick.sentences
    )
