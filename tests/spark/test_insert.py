"""Rows of new keys alone are added without a look for each key, and are still each there once,
whoever else writes meanwhile.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakechime_dagster.spark import commit as insert
from lakechime_dagster.spark.commit import Target, commit
from lakechime_dagster.spark.job import Outcome
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, ConsumerId
from tests.support.refreshes import Source, Subscription, balanced, make_subscription, open_log

pytestmark = pytest.mark.spark
ROWS = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path / "source", ROWS)


@pytest.fixture
def subscription(spark: SparkSession, tmp_path: Path, source: Source) -> Subscription:
    return make_subscription(
        spark, tmp_path, {"source": source}, lambda source: source, keys=("k",)
    )


@pytest.fixture
def begun(subscription: Subscription, source: Source) -> Subscription:
    """The subscription after its first execution."""
    source.write((1, "a"))
    subscription.run()
    return subscription


def operations(subscription: Subscription) -> list[str]:
    return [one["operation"] for one in reversed(DeltaTable(subscription.job.location).history())]


def overwrite(subscription: Subscription) -> None:
    """As another engine does it, which replaces what is there."""
    Source(Path(subscription.job.location), ROWS).write((1, "a"), (2, "theirs"), mode="overwrite")


def append(subscription: Subscription) -> None:
    """As a session of Spark's does it, which reads nothing of the table."""
    theirs = subscription.spark.newSession().createDataFrame([(2, "theirs")], "k BIGINT, v STRING")
    theirs.write.format("delta").mode("append").save(subscription.job.location)


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let this happen once, when the rows are compared and about to be written."""
    waiting, snapshot_at = [happens], insert.snapshot_at

    def opened(*arguments: Any) -> Any:
        if waiting:
            waiting.pop()()
        return snapshot_at(*arguments)

    monkeypatch.setattr(insert, "snapshot_at", opened)


@pytest.mark.tier1
def test_rows_of_new_keys_are_added_and_others_merged(
    subscription: Subscription, source: Source
) -> None:
    source.write((1, "a"), (2, "b"))
    assert balanced(subscription.run()).counts.inserted == 2
    source.write((3, "c"))
    assert balanced(subscription.run()).counts.inserted == 1
    source.update({"v": "'d'"}, "k = 3")
    source.write((4, "e"))
    counts = balanced(subscription.run()).counts
    assert (counts.inserted, counts.updated, operations(subscription)[1:]) == (
        1,
        1,
        ["WRITE", "WRITE", "MERGE"],
    )
    assert subscription.rows == [(1, "a"), (2, "b"), (3, "d"), (4, "e")]
    changes = pa.table(
        DeltaTable(subscription.job.location).load_cdf(starting_version=1)
    ).to_pylist()
    assert sorted(
        (one["k"], one["_change_type"], one["_commit_version"])
        for one in changes
        if one["_commit_version"] < 3
    ) == [(1, "insert", 1), (2, "insert", 1), (3, "insert", 2)]


def test_added_rows_of_a_partition_are_one_file(
    spark: SparkSession, tmp_path: Path, source: Source
) -> None:
    subscription = make_subscription(
        spark,
        tmp_path,
        {"source": source},
        lambda source: source,
        keys=("k",),
        partitioned_by=("v",),
    )
    source.write((99, "a"))
    subscription.run()
    source.write(*[(number, "ab"[number % 2]) for number in range(40)])
    result = subscription.run()
    assert (result.counts.inserted, result.files, result.partitions) == (40, 2, (("a",), ("b",)))


@pytest.mark.parametrize("write", [append, overwrite])
def test_a_key_that_another_writer_brings_after_the_comparison_is_there_once(
    begun: Subscription,
    source: Source,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Subscription], None],
) -> None:
    source.write((2, "ours"))
    meanwhile(monkeypatch, lambda: write(begun))
    result = balanced(begun.run())
    assert (result.counts.inserted, result.counts.updated) == (0, 1)
    assert begun.rows == [(1, "a"), (2, "ours")]


def test_an_attempt_that_another_one_overtakes_adds_nothing(
    spark: SparkSession, begun: Subscription, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one's commit is empty, so that it is its transaction alone that reports of it."""
    source.write((2, "b"))
    target = Target(
        name="target",
        location=begun.job.location,
        log=open_log(begun.job.location, "target"),
        keys=("k",),
    )
    other = CommitMetadata(
        consumer=begun.consumer, number=2, attempt=2, execution_id="e2", end=Checkpoint()
    )
    meanwhile(
        monkeypatch,
        lambda: commit(spark, target, other, lambda: lambda: target.append_nothing(spark)),
    )
    result, _ = begun.attempt(2, 1)
    assert result.outcome is Outcome.SKIPPED
    assert begun.rows == [(1, "a")]


def test_consumers_of_keys_merge(subscription: Subscription, source: Source) -> None:
    source.write((1, "a"))
    replace(subscription, consumer=ConsumerId("test", "subscription", "one")).run()
    assert operations(subscription)[-1] == "MERGE"


def test_rows_with_a_new_column_are_merged(begun: Subscription, source: Source) -> None:
    source.write((2, "b"))
    begun.run(compute=lambda source: source.withColumn("w", source.v))
    assert operations(begun)[-1] == "MERGE"
