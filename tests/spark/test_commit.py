"""Law 13: an execution of a consumer commits at most once, and the log says afterwards whose commit
it is; also where several create the target, settings are changed or the disk is full.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from delta.exceptions import ConcurrentAppendException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from lakechime_dagster.dce.events import Position
from lakechime_dagster.errors import ConsumerConflictError
from lakechime_dagster.spark.commit import (
    TXN_APP_ID,
    TXN_VERSION,
    USER_METADATA,
    Target,
    as_commit_of,
    commit,
    create_if_missing,
    is_own,
)
from lakechime_dagster.spark.driver import SparkFailedError, activate, described
from lakechime_dagster.spark.rows import OPERATION
from lakechime_dagster.spark.session import in_threads
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, ConsumerId
from tests.support.refreshes import (
    DAYS,
    balanced,
    flights_source,
    make_subscription,
    open_log,
    read_rows,
)

pytestmark = pytest.mark.spark
CONSUMER = ConsumerId("test", "silver.t", 'it\'s "quoted"')


def make_commit_metadata(number: int, attempt: int = 1, **fields: Any) -> CommitMetadata:
    values = {
        "end": Checkpoint(position=Position(0, 10 * number + attempt)),
        "execution_id": f"e{number}",
    } | fields
    return CommitMetadata(consumer=CONSUMER, number=number, attempt=attempt, **values)


@pytest.fixture
def target(spark: SparkSession, tmp_path: Path) -> Target:
    location = str(tmp_path / "target")
    target = Target(
        name="silver.t",
        location=location,
        log=open_log(location, "silver.t"),
        keys=("k",),
        partitioned_by=("p",),
    )
    create_if_missing(spark, target, frame(spark).schema)
    return target


def frame(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), "k BIGINT, p STRING, v STRING")


@pytest.mark.tier1
def test_every_kind_of_write_carries_the_commit_metadata_and_leaves_no_conf_behind(
    spark: SparkSession, target: Target
) -> None:
    changes = spark.createDataFrame(
        [(1, "a", "u", "U"), (2, "b", "-", "D"), (4, "b", "n", "I")],
        f"k BIGINT, p STRING, v STRING, {OPERATION} STRING",
    )
    rows = frame(spark, (1, "a", "x"), (2, "b", "x"), (3, "it's", "x"))
    writes = [
        lambda: target.append(rows),
        lambda: target.merge(changes),
        lambda: target.replace_partitions(
            frame(spark, (9, "it's", "r")), [("it's",), ("c",), (None,)]
        ),
        lambda: target.append_nothing(spark),
        lambda: target.replace_all(frame(spark, (5, "a", "all"))),
    ]
    seen = []
    for number, write in enumerate(writes, start=1):
        found = commit(spark, target, make_commit_metadata(number), lambda write=write: write)
        assert found is not None
        assert (found.commit_metadata, found.version) == (make_commit_metadata(number), str(number))
        seen.append(read_rows(target.location))
    assert seen == [
        [(1, "a", "x"), (2, "b", "x"), (3, "it's", "x")],
        [(1, "a", "u"), (3, "it's", "x"), (4, "b", "n")],
        [(1, "a", "u"), (4, "b", "n"), (9, "it's", "r")],
        [(1, "a", "u"), (4, "b", "n"), (9, "it's", "r")],
        [(5, "a", "all")],
    ]
    assert [spark.conf.get(name, None) for name in (TXN_APP_ID, TXN_VERSION, USER_METADATA)] == [
        None
    ] * 3
    assert target.log.properties()["delta.enableChangeDataFeed"] == "true"


@pytest.mark.tier1
def test_a_zombie_that_writes_after_its_successor_is_skipped_and_reported_so(
    spark: SparkSession, target: Target
) -> None:
    zombie, successor = make_commit_metadata(1, attempt=1), make_commit_metadata(1, attempt=2)

    def overtaken() -> Any:
        assert commit(
            spark,
            target,
            successor,
            lambda: lambda: target.append(frame(spark, (1, "a", "second"))),
        )
        return lambda: target.append(frame(spark, (1, "a", "first")))

    found = commit(spark, target, zombie, overtaken)
    assert found
    assert (is_own(found, zombie), is_own(found, successor)) == (False, True)
    assert found.commit_metadata.end == successor.end
    assert read_rows(target.location) == [(1, "a", "second")]
    assert (
        commit(
            spark,
            target,
            zombie,
            lambda: pytest.fail("an execution that has committed is not prepared again"),
        )
        == found
    )


@pytest.mark.tier1
def test_an_attempt_whose_consumer_has_moved_on_is_refused(
    spark: SparkSession, target: Target
) -> None:
    commit(
        spark,
        target,
        make_commit_metadata(2),
        lambda: lambda: target.append(frame(spark, (1, "a", "x"))),
    )
    with pytest.raises(ConsumerConflictError, match="its consumer has committed execution 2"):
        commit(
            spark,
            target,
            make_commit_metadata(1),
            lambda: lambda: target.append(frame(spark, (2, "a", "late"))),
        )
    assert read_rows(target.location) == [(1, "a", "x")]


def test_with_a_transaction_per_attempt_the_zombie_would_double_the_rows(
    spark: SparkSession, target: Target
) -> None:
    """The broken twin of law 13: what the check above would see if the transaction's version were
    not the execution.
    """
    for attempt in (1, 2):
        twin = replace(make_commit_metadata(1), number=10 + attempt)
        with as_commit_of(spark, twin):
            target.append(frame(spark, (1, "a", "x")))
    assert read_rows(target.location) == [(1, "a", "x"), (1, "a", "x")]


@pytest.mark.tier1
def test_nothing_to_do_leaves_no_commit(spark: SparkSession, target: Target) -> None:
    before = target.log.version
    assert commit(spark, target, make_commit_metadata(1), lambda: None) is None
    assert target.log.version == before


@pytest.mark.tier1
def test_a_writer_that_loses_a_conflict_reads_and_writes_again(
    spark: SparkSession, target: Target
) -> None:
    commit(
        spark,
        target,
        make_commit_metadata(1),
        lambda: lambda: target.append(frame(spark, (1, "a", "x"), (2, "a", "x"))),
    )
    tries = []

    def prepare() -> Any:
        stale = spark.createDataFrame(
            [(1, "a", "mine", "U")], f"k BIGINT, p STRING, v STRING, {OPERATION} STRING"
        )
        tries.append(1)

        def conflicting() -> None:
            if len(tries) == 1:
                raise ConcurrentAppendException("another writer was first")
            target.merge(stale)

        return conflicting

    assert commit(spark, target, make_commit_metadata(2), prepare)
    assert len(tries) == 2
    assert read_rows(target.location) == [(1, "a", "mine"), (2, "a", "x")]


RUNS = 4
SCHEMA = StructType([StructField("id", LongType())])


def test_runs_that_create_a_target_at_the_same_time_all_go_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    location = str(tmp_path / "target")
    together = Barrier(RUNS)

    def create(_: int) -> None:
        target = Target(
            name="silver.orders", location=location, log=open_log(location, "silver.orders")
        )
        together.wait(60)
        create_if_missing(spark.newSession(), target, SCHEMA)

    with ThreadPoolExecutor(RUNS) as pool:
        list(pool.map(create, range(RUNS)))
    assert open_log(location, "silver.orders").version == 0


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


REPORTED = (
    "no space is left on a disk that Spark writes to; free some, and the next attempt goes on"
)


def test_a_full_disk_below_other_failures_is_reported_too(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    full = jvm.java.io.IOException("No space left on device")
    task = jvm.java.lang.RuntimeException(
        "[TASK_WRITE_FAILED] Task failed while writing rows", full
    )
    with pytest.raises(SparkFailedError) as reported, described():
        jvm.java.util.concurrent.CompletableFuture.failedFuture(task).get()
    assert str(reported.value) == REPORTED


def test_each_call_has_spark_properties_of_its_own(spark: SparkSession) -> None:
    all_have_set, context, key = (
        threading.Barrier(2, timeout=60),
        spark.sparkContext,
        "spark.job.description",
    )
    context.setLocalProperty(key, "inherited")

    def call(name: str) -> tuple[str | None, str | None]:
        inherited = context.getLocalProperty(key)
        context.setLocalProperty(key, name)
        all_have_set.wait()
        return inherited, context.getLocalProperty(key)

    try:
        assert in_threads(spark, 2, call, ["a", "b"]) == [("inherited", "a"), ("inherited", "b")]
        assert context.getLocalProperty(key) == "inherited"
    finally:
        context.setLocalProperty(key, None)  # type: ignore[arg-type]


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
