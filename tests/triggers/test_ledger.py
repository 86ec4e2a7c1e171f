"""The ledger on both databases: who may claim, begin, complete, and what happens when a run is lost
(laws 5 to 8, 20).
"""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakechime_dagster.dce.events import Position, SnapshotId
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.errors import ConsumerConflictError
from lakechime_dagster.triggers.consumers import (
    Checkpoint,
    CommitMetadata,
    Committed,
    ConsumerId,
    ConsumerState,
    Execution,
    FileOffsets,
    KafkaOffsets,
    SourceOffsets,
    TopicOffsets,
    spans_between,
)
from lakechime_dagster.triggers.ledger import BACKOFF_MS, MAX_ATTEMPTS, Claim
from lakechime_dagster.triggers.progress import ConsumerAt, consumers_at
from lakechime_dagster.triggers.registry import By
from tests.support.world import World, a_subscription, checkpoint, committed, consumer_id, elsewhere


def test_a_claim_of_a_consumer_that_a_person_put_elsewhere_meanwhile_is_refused(
    world: World,
) -> None:
    row = world.ledger.ensure_subscription(a_subscription())
    consumer = world.ledger.ensure_consumer(row, "")
    world.people.seek(
        row, None, By(who="me", reason="replay"), lambda connection, consumer: checkpoint(5)
    )
    with pytest.raises(ConsumerConflictError, match="moved on"):
        world.ledger.claim(row, consumer, Claim(end=checkpoint(3)))


@pytest.mark.dialect
@pytest.mark.several_connections
def test_of_many_daemons_that_claim_at_once_one_gets_the_execution(world: World) -> None:
    row = world.ledger.ensure_subscription(a_subscription())
    consumer = world.ledger.ensure_consumer(row, "")
    start = threading.Barrier(6)

    def race(number: int) -> Execution | None:
        start.wait(10)
        try:
            return world.ledger.claim(row, consumer, Claim(end=checkpoint(number + 1)))
        except ConsumerConflictError:
            return None

    with ThreadPoolExecutor(6) as pool:
        claimed = [execution for execution in pool.map(race, range(6)) if execution]
    assert len(claimed) == 1
    assert world.ledger.open_executions(row) == claimed


@pytest.mark.dialect
@pytest.mark.several_connections
def test_of_many_runs_that_begin_at_once_one_is_at_it(world: World) -> None:
    execution = world.claim(world.ledger.ensure_subscription(a_subscription()))
    start = threading.Barrier(6)

    def race(number: int) -> bool:
        start.wait(10)
        try:
            world.ledger.begin(execution.execution_id, f"run-{number}")
        except ConsumerConflictError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(race, range(6))) == 1


@pytest.mark.dialect
@pytest.mark.several_connections
def test_of_many_that_make_a_subscription_and_its_consumer_at_once_all_get_the_same(
    world: World,
) -> None:
    start = threading.Barrier(6)

    def race(number: int) -> tuple[int, int]:
        start.wait(10)
        row = world.ledger.ensure_subscription(a_subscription())
        return row.subscription_id, world.ledger.ensure_consumer(row, "k").consumer_id

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(race, range(6)))) == 1


# Attempts


def test_the_pause_before_the_next_attempt_grows(world: World) -> None:
    execution: Execution | None = world.claim(world.ledger.ensure_subscription(a_subscription()))
    pauses = []
    while execution is not None and execution.attempt < MAX_ATTEMPTS:
        now = world.store.now()
        execution = world.ledger.lose(execution, "it died")
        assert execution is not None
        pauses.append((execution.next_attempt_ts or 0) - now)
    assert all(
        0 <= pause - planned < 5_000 for pause, planned in zip(pauses, BACKOFF_MS[1:], strict=True)
    )


def test_after_the_fifth_lost_attempt_the_consumer_is_blocked_with_the_reason(world: World) -> None:
    row = world.ledger.ensure_subscription(a_subscription())
    execution: Execution | None = world.claim(row)
    newest = execution
    for _ in range(MAX_ATTEMPTS):
        assert execution is not None
        newest = execution
        execution = world.ledger.lose(execution, "disk full")
    assert execution is None
    consumer = world.ledger.consumers(row)[""]
    assert consumer.state is ConsumerState.BLOCKED
    assert "disk full" in consumer.state_reason
    assert newest is not None
    with pytest.raises(
        ConsumerConflictError, match=r"BLOCKED.*disk full.*lakechime execution retry"
    ):
        world.ledger.begin(newest.execution_id, "run-9")


def test_an_error_that_no_store_can_hold_is_kept_as_far_as_it_can_be(world: World) -> None:
    row = world.ledger.ensure_subscription(a_subscription())
    execution = world.claim(row)
    world.ledger.note_error(execution, "cannot read \udcff.csv\x00")
    following: Execution | None = world.ledger.lose(execution, "run failed", immediately=True)
    while following is not None:
        following = world.ledger.lose(following, "run \udcff failed", immediately=True)
    errors = [attempt.error for attempt in world.ledger.attempts(execution.execution_id)]
    assert errors == ["cannot read \ufffd.csv\ufffd", *["run \ufffd failed"] * (MAX_ATTEMPTS - 1)]
    assert world.ledger.consumers(row)[""].state_reason.endswith("failed: run \ufffd failed")


def test_a_blocked_consumer_goes_on_when_a_commit_of_its_execution_is_found(world: World) -> None:
    row = world.ledger.ensure_subscription(a_subscription())
    execution: Execution | None = world.claim(row)
    newest = execution
    while execution is not None:
        newest, execution = execution, world.ledger.lose(execution, "disk full")
    assert newest is not None
    assert world.ledger.complete(newest, committed(newest))
    assert world.ledger.consumers(row)[""].state is ConsumerState.ACTIVE


# Settling


def test_a_consumer_has_committed_once_an_execution_of_it_was_completed_by_a_commit(
    world: World,
) -> None:
    row = world.ledger.ensure_subscription(a_subscription(target="silver.orders"))
    world.ledger.complete(world.claim(row, 1), None)
    second = world.claim(row, 2)
    assert not world.ledger.has_committed(second)
    world.ledger.complete(second, committed(second))
    assert not world.ledger.has_committed(second)
    assert world.ledger.has_committed(world.claim(row, 3))
    assert not world.ledger.has_committed(world.claim(row, 3, "2013-01-01"))


def test_a_later_attempt_of_a_subscription_without_a_target_completes_by_its_success(
    world: World,
) -> None:
    row = world.ledger.ensure_subscription(a_subscription())
    second = world.ledger.lose(world.claim(row, 3), "it died")
    assert second is not None
    assert world.ledger.complete(second, None)


def test_a_commit_whose_commit_metadata_is_lost_completes_by_the_ledgers_own_end_if_there_was_one_attempt(
    world: World,
) -> None:
    row = world.ledger.ensure_subscription(a_subscription(target="silver.orders"))
    execution = world.claim(row, 3)
    found = committed(execution, end=checkpoint(0))
    lost = type(found)(
        version=found.version, commit_metadata=found.commit_metadata, is_commit_metadata_lost=True
    )
    assert world.ledger.complete(execution, lost)
    assert world.ledger.consumers(row)[""].checkpoint == checkpoint(3)


def test_a_commit_whose_commit_metadata_is_lost_needs_a_person_if_there_were_several_attempts(
    world: World,
) -> None:
    row = world.ledger.ensure_subscription(a_subscription(target="silver.orders"))
    second = world.ledger.lose(world.claim(row, 3), "it died", end=checkpoint(9))
    assert second is not None
    found = committed(second)
    remedy = (
        rf"lakechime execution skip {second.execution_id}`, then `lakechime trigger seek silver "
        rf"--to"
    )
    for _ in range(2):
        with pytest.raises(ConsumerConflictError, match=remedy):
            world.ledger.complete(
                second,
                type(found)(
                    version=found.version,
                    commit_metadata=found.commit_metadata,
                    is_commit_metadata_lost=True,
                ),
            )
    consumer = world.ledger.consumers(row)[""]
    assert (consumer.state, "no longer says up to where" in consumer.state_reason) == (
        ConsumerState.BLOCKED,
        True,
    )
    by = By(who="me", reason="the log was cleaned up")
    world.people.skip(second, by)
    assert [
        moved
        for _, moved in world.people.seek(row, "", by, lambda connection, consumer: checkpoint(3))
    ] == [checkpoint(3)]


@pytest.mark.dialect
@pytest.mark.several_connections
def test_completing_races_with_losing_and_one_of_them_wins(world: World) -> None:
    row = world.ledger.ensure_subscription(a_subscription(target="silver.orders"))
    execution = world.claim(row, 3)
    start = threading.Barrier(2)

    def complete() -> bool:
        start.wait(10)
        return world.ledger.complete(execution, committed(execution))

    def lose() -> bool:
        start.wait(10)
        try:
            return world.ledger.lose(execution, "its lease was over") is not None
        except ConsumerConflictError:
            return False

    with ThreadPoolExecutor(2) as pool:
        completed, _ = pool.submit(complete), pool.submit(lose)
        assert completed.result()
    assert world.ledger.open_executions(row) == []
    assert world.ledger.consumers(row)[""].completed == 1


# Subscriptions and deployments
def test_a_subscription_is_activated_once_and_keeps_its_start(world: World) -> None:
    first = world.ledger.ensure_subscription(a_subscription(), lambda connection: checkpoint(5))
    again = world.ledger.ensure_subscription(
        a_subscription("silver", "bronze.other"), lambda connection: checkpoint(9)
    )
    assert (again.subscription_id, again.activated_ts, again.start) == (
        first.subscription_id,
        first.activated_ts,
        checkpoint(5),
    )
    assert again.tables == ("bronze.other",)


def test_a_consumer_of_which_the_target_no_longer_says_where_it_stands_waits_for_a_person(
    world: World,
) -> None:
    world.change(version=0)
    subscription = a_subscription(target="silver.orders")
    row = world.evaluator.activate(subscription)
    commit_metadata = CommitMetadata(
        consumer=consumer_id("silver"), number=7, attempt=0, end=checkpoint(0)
    )
    lost = Committed(
        version=SnapshotId("9"), commit_metadata=commit_metadata, is_commit_metadata_lost=True
    )
    assert (
        world.evaluator.fire(subscription, row, world.decide(subscription), lambda consumer: lost)
        == []
    )
    consumer = world.ledger.consumers(row)[""]
    assert (consumer.completed, consumer.state) == (7, ConsumerState.BLOCKED)
    assert world.decide(subscription).reasons[0] == (
        "silver is BLOCKED: its target holds execution 7, but its log no longer says up to where; "
        "`lakechime execution retry` or `skip` goes on, where no execution is open `lakechime "
        "trigger seek silver`"
    )
    world.people.seek(
        row, None, By(who="me", reason="looked it up"), lambda connection, consumer: checkpoint(0)
    )
    assert world.fire(subscription)[0].number == 8


ORDERS = "bronze.orders"


def at(world: World, table: str = ORDERS, cluster: str = "") -> dict[str, ConsumerAt]:
    return {
        f"{found.consumer.deployment}/{found.consumer.subscription}{found.consumer.key}": found
        for found in consumers_at(world.engine, table, cluster)
    }


def version(found: SnapshotCheckpoint | None) -> str | None:
    return found.snapshot_id if found else None


def test_a_consumer_needs_what_came_after_its_checkpoint_and_one_of_another_deployment_too(
    world: World,
) -> None:
    world.change(ORDERS, 1)
    world.tick_of_the_sensor(a_subscription())
    world.change(ORDERS, 2)
    elsewhere(world, "production").evaluator.activate(a_subscription("slow"))
    found = at(world)
    assert {
        name: (version(consumer.read), consumer.writes, consumer.open_since)
        for name, consumer in found.items()
    } == {"test/silver": ("1", False, None), "production/slow": (None, False, None)}


def test_those_who_write_the_table_are_at_it_and_one_that_is_blocked_says_why(world: World) -> None:
    subscription = world.evaluator.activate(a_subscription(target="silver.orders"))
    consumer = world.ledger.ensure_consumer(subscription, "")
    assert world.ledger.block(subscription, consumer, "a column changed")
    (found,) = consumers_at(world.engine, "silver.orders")
    assert (found.writes, found.state, found.state_reason, found.read) == (
        True,
        ConsumerState.BLOCKED,
        "a column changed",
        None,
    )


FILES = FileOffsets({"b.jsonl": 20, "a.jsonl": 10})
TOPICS = KafkaOffsets({"k1Ab": TopicOffsets("shop.orders", {1: 7, 0: 40})})


@pytest.mark.parametrize("has_more", [False, True])
@pytest.mark.parametrize("offsets", [None, FILES, TOPICS])
def test_a_checkpoint_survives_its_json(offsets: SourceOffsets | None, has_more: bool) -> None:
    checkpoint = Checkpoint(position=Position(0, 3), offsets=offsets, has_more=has_more)
    assert Checkpoint.from_json(json.loads(json.dumps(checkpoint.to_json()))) == checkpoint


def test_a_commit_records_up_to_where_its_source_was_read() -> None:
    commit_metadata = CommitMetadata(
        consumer=ConsumerId("test", "shop.orders__changes"),
        number=2,
        attempt=1,
        end=Checkpoint(offsets=TOPICS),
    )
    assert CommitMetadata.from_text(commit_metadata.to_text()) == commit_metadata
    assert (
        '"offsets":{"topics":{"k1Ab":["shop.orders",{"0":40,"1":7}]}}' in commit_metadata.to_text()
    )


def test_between_two_checkpoints_lie_the_bytes_of_files_that_grew_or_came() -> None:
    checkpoint = FileOffsets({"a.jsonl": 10, "gone.jsonl": 5, "still.jsonl": 7})
    end = FileOffsets({"still.jsonl": 7, "b.jsonl": 20, "a.jsonl": 12})
    assert list(end.spans_after(checkpoint).items()) == [
        ("a.jsonl", (10, 12)),
        ("b.jsonl", (0, 20)),
    ]


def test_between_two_checkpoints_lie_the_offsets_of_partitions_also_of_a_topic_that_was_recreated() -> (
    None
):
    end = KafkaOffsets(
        {
            "k1Ab": TopicOffsets("shop.orders", {0: 40, 1: 9}),
            "k2": TopicOffsets("shop.orders", {0: 3}),
        }
    )
    assert spans_between(TOPICS, end) == [("shop.orders[1]", (7, 9)), ("shop.orders[0]", (0, 3))]
    assert spans_between(None, FILES) == [("a.jsonl", (0, 10)), ("b.jsonl", (0, 20))]
