"""One tick of a subscription: what it launches, completes, retries and says. Store, ledger and
Delta tables are real, the runs are reported.
"""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from dagster import DagsterRunStatus
from sqlalchemy import Engine

from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.sensors.tick import UNBEGUN_MS, RunFact
from lakechime_dagster.triggers.consumers import CommitMetadata, Execution
from lakechime_dagster.triggers.registry import By
from lakechime_dagster.triggers.schedule import every, tick
from lakechime_dagster.triggers.subscription import Subscription
from lakechime_dagster.triggers.triggers import (
    PartitionCondition,
    PartitionTrigger,
    SnapshotTrigger,
)
from tests.support.tables import rows, write
from tests.support.world import World, a_subscription, ticked

TARGET = "silver.orders"
DAYS = every(days=1, start="2013-01-02", until="2013-01-10")


@dataclass
class ReportedRuns:
    """The runs of attempts, as a test reports them; by execution and attempt."""

    facts: dict[tuple[str, int], RunFact] = field(default_factory=dict)
    lost: list[tuple[str, str]] = field(default_factory=list)

    def of_attempt(self, execution: Execution) -> RunFact | None:
        return self.facts.get((execution.execution_id, execution.attempt))

    def report_lost(self, run_id: str, reason: str) -> None:
        self.lost.append((run_id, reason))

    def report(
        self,
        execution: Execution,
        status: DagsterRunStatus,
        run_id: str = "run-1",
        started_ts: int | None = None,
    ) -> None:
        self.facts[execution.execution_id, execution.attempt] = RunFact(run_id, status, started_ts)


@pytest.fixture
def world(sqlite_engine: Engine) -> World:
    return World(sqlite_engine)


@pytest.fixture
def runs() -> ReportedRuns:
    return ReportedRuns()


def commit(platform: Platform, execution: Execution) -> None:
    """What the run of an attempt commits to the target."""
    commit_metadata = CommitMetadata(
        consumer=execution.consumer,
        number=execution.number,
        attempt=execution.attempt,
        end=execution.end,
    )
    location = platform.location(TARGET)
    Path(location).mkdir(parents=True, exist_ok=True)
    write(
        location,
        rows((None, None, 1, "a")),
        transaction=(commit_metadata.txn_app_id, commit_metadata.number),
        user_metadata=commit_metadata.to_text(),
    )


def one(executions: tuple[Execution, ...]) -> Execution:
    (execution,) = executions
    return execution


def test_a_retry_reads_all_that_came_unless_its_subscription_takes_so_many_commits_at_most(
    world: World, platform: Platform, runs: ReportedRuns
) -> None:
    subscriptions = [
        a_subscription(f"taking {most}", trigger=SnapshotTrigger("bronze.orders", max_commits=most))
        for most in (None, 1)
    ]
    world.change(version=0)
    for execution in [
        one(ticked(platform, subscription, runs).launches) for subscription in subscriptions
    ]:
        runs.report(execution, DagsterRunStatus.FAILURE)
    world.change(version=1)
    for subscription in subscriptions:
        ticked(platform, subscription, runs)
    retries = [
        one(tuple(world.ledger.open_executions(world.evaluator.activate(subscription))))
        for subscription in subscriptions
    ]
    assert [(again.attempt, again.ranges()["bronze.orders"].end) for again in retries] == [
        (2, "1"),
        (2, "0"),
    ]


def test_a_paused_trigger_launches_no_run_and_no_later_attempt_until_it_is_resumed(
    world: World, platform: Platform, runs: ReportedRuns
) -> None:
    by = By(who="ann", reason="upstream is broken")
    levels = PartitionLevels.of({"day": "date"})
    subscription = Subscription(
        name="daily",
        trigger=PartitionTrigger(
            PartitionCondition.of("bronze.orders", {"day": tick("-1d")}, levels), DAYS
        ),
    )
    for version, day in enumerate(("2013-01-01", "2013-01-02")):
        world.change(version=version, partition=[day])
    failed, lost = ticked(platform, subscription, runs).launches
    world.people.pause(world.evaluator.activate(subscription), by)
    runs.report(failed, DagsterRunStatus.FAILURE)
    ticked(platform, subscription, runs)
    world.let_pass(60_000)
    paused = ticked(platform, subscription, runs)
    assert paused.launches == ()
    assert (
        "execution 1 of day=2013-01-01: attempt 2 is launched when daily is resumed"
        in paused.sentences
    )
    assert (
        "execution 1 of day=2013-01-02: attempt 1 is launched when daily is resumed"
        in paused.sentences
    )
    world.people.resume(world.evaluator.activate(subscription), by)
    again = ticked(platform, subscription, runs).launches
    assert {(one.execution_id, one.attempt) for one in again} == {
        (failed.execution_id, 2),
        (lost.execution_id, 1),
    }


def test_the_success_of_a_run_completes_a_subscription_without_a_target(
    world: World, platform: Platform, runs: ReportedRuns
) -> None:
    world.change(version=0)
    execution = one(ticked(platform, a_subscription(), runs).launches)
    runs.report(execution, DagsterRunStatus.SUCCESS)
    assert (
        "execution 1 of silver is completed by the success of run run-1"
        in ticked(platform, a_subscription(), runs).sentences
    )
    assert world.ledger.open_executions(world.evaluator.activate(a_subscription())) == []


def test_a_success_without_a_commit_is_no_success_where_a_target_decides(
    world: World, platform: Platform, runs: ReportedRuns
) -> None:
    subscription = a_subscription(target=TARGET)
    world.change(version=0)
    execution = one(ticked(platform, subscription, runs).launches)
    runs.report(execution, DagsterRunStatus.SUCCESS)
    assert (
        "execution 1 of silver is tried again as attempt 2: run run-1 succeeded without a commit"
        in ticked(platform, subscription, runs).sentences
    )


def test_a_run_that_died_after_its_commit_is_completed_by_it_and_its_event_is_there_first(
    world: World, platform: Platform, runs: ReportedRuns
) -> None:
    subscription = a_subscription(target=TARGET)
    world.change(version=0)
    execution = one(ticked(platform, subscription, runs).launches)
    commit(platform, world.ledger.begin(execution.execution_id, "run-1"))
    runs.report(execution, DagsterRunStatus.FAILURE)
    found = ticked(platform, subscription, runs)
    assert (found.launches, found.sentences[0]) == (
        (),
        "execution 1 of silver is completed by its commit",
    )
    downstream = a_subscription("gold", TARGET)
    assert one(ticked(platform, downstream, runs).launches).ranges()[TARGET].end == "0"


def test_a_run_whose_lease_is_over_is_reported_lost_and_superseded(
    world: World, platform: Platform, runs: ReportedRuns
) -> None:
    world.change(version=0)
    execution = one(ticked(platform, a_subscription(), runs).launches)
    world.ledger.begin(execution.execution_id, "run-1")
    runs.report(execution, DagsterRunStatus.STARTED)
    world.end_leases()
    ticked(platform, a_subscription(), runs)
    assert runs.lost == [
        (
            "run-1",
            "LakeChime: run run-1 gave no sign of life for a minute; attempt 1 is called lost",
        )
    ]
    assert world.ledger.open_executions(world.evaluator.activate(a_subscription()))[0].attempt == 2


def test_a_run_that_started_but_never_began_is_not_waited_for_for_ever(
    world: World, platform: Platform, runs: ReportedRuns
) -> None:
    world.change(version=0)
    execution = one(ticked(platform, a_subscription(), runs).launches)
    now = world.store.now()
    runs.report(execution, DagsterRunStatus.STARTED, started_ts=now)
    ticked(platform, a_subscription(), runs)
    assert runs.lost == []
    runs.report(execution, DagsterRunStatus.STARTED, started_ts=now - UNBEGUN_MS - 1)
    ticked(platform, a_subscription(), runs)
    assert [run for run, _ in runs.lost] == ["run-1"]


def test_a_partition_that_dagster_does_not_know_is_refused_before_the_claim(
    world: World, platform: Platform, runs: ReportedRuns
) -> None:
    levels = PartitionLevels.of({"day": "date"})
    condition = PartitionCondition.of("bronze.orders", {"day": tick("-1d")}, levels)
    trigger = PartitionTrigger(condition, every(days=1, start="2013-01-02", until="2013-01-03"))
    subscription = Subscription(name="daily", trigger=trigger, target_levels=levels)
    for version, day in enumerate(("2013-01-01", "2013-01-02")):
        world.change(version=version, partition=[day])
    found = ticked(platform, subscription, runs, accepts=lambda key: key != "2013-01-01")
    assert [execution.partition_key for execution in found.launches] == ["2013-01-02"]
    assert found.sentences[0] == (
        "1 keys are no partitions of the asset in Dagster, such as 2013-01-01; widen its partitions"
    )
    assert set(world.ledger.consumers(world.evaluator.activate(subscription))) == {"day=2013-01-02"}
