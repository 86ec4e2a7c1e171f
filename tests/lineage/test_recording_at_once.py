"""Two that write at once in one session, in a thread each or within each other: each reports its
own.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.lineage.columns import Kind, Names
from lakechime_dagster.lineage.runs import recording
from lakechime_dagster.lineage.store import LineageStandings
from lakechime_dagster.runtime.platform import Platform, open_platform

pytestmark = pytest.mark.spark

SOURCE, TARGET = "bronze.orders", "silver.orders"
AMOUNTS = {"first": "amount", "second": "amount + 1"}
KINDS = {"first": {Kind.IDENTITY}, "second": {Kind.TRANSFORMATION}}  # by which each is known
PATIENCE = 60  # seconds, after which a thread takes the other one for failed

Write = Callable[[Platform, SparkSession, str], DataFrame]
# by the name of a thread, around what it does
Watch = Callable[[str, Callable[[], DataFrame]], None]


@pytest.fixture
def platform(home: Path, spark: SparkSession) -> Platform:
    platform = open_platform()
    for name in (SOURCE, TARGET):
        spark.range(3).withColumn("amount", F.col("id") * 10).write.format("delta").save(
            platform.location(name)
        )
    return platform


def names(platform: Platform) -> Names:
    locations = {name: platform.location(name) for name in (SOURCE, TARGET)}
    return Names(tuple(locations), locations)


def append(platform: Platform, spark: SparkSession, name: str) -> DataFrame:
    rows = (
        spark.read.format("delta")
        .load(platform.location(SOURCE))
        .selectExpr("id", f"{AMOUNTS[name]} as amount")
    )
    rows.write.format("delta").mode("append").save(platform.location(TARGET))
    return rows


def stream(platform: Platform, spark: SparkSession, name: str) -> DataFrame:
    rows = (
        spark.readStream.format("delta")
        .load(platform.location(SOURCE))
        .selectExpr("id", f"{AMOUNTS[name]} as amount")
    )
    writer = rows.writeStream.format("delta").option(
        "checkpointLocation", platform.location(f"checkpoints.{name}")
    )
    writer.trigger(availableNow=True).start(platform.location(TARGET)).awaitTermination()
    return rows


def at_once(write: Callable[[str], DataFrame], watch: Watch, last: str) -> None:
    """Both write while both are watched; the second begins while the first is there, and one of
    them ends last.
    """
    first_is_in, other_is_gone, both = Event(), Event(), Barrier(2)

    def body(name: str) -> DataFrame:
        first_is_in.set()
        both.wait(PATIENCE)
        rows = write(name)
        both.wait(PATIENCE)
        if name == last:
            other_is_gone.wait(PATIENCE)
        return rows

    def work(name: str) -> None:
        if name == "second":
            first_is_in.wait(PATIENCE)
        watch(name, lambda: body(name))
        if name != last:
            other_is_gone.set()

    with ThreadPoolExecutor() as threads:
        list(threads.map(work, AMOUNTS))


def reported(platform: Platform) -> dict[str, set[Kind]]:
    """By producer how the amounts come into the target."""
    return {
        one.producer.job: {
            source.kind
            for column in one.statement.columns
            if column.column == "amount"
            for source in column.sources
        }
        for one in LineageStandings(platform.store.engine).all()
        if one.statement.target == TARGET
    }


@pytest.mark.parametrize("last", AMOUNTS)
@pytest.mark.parametrize("write", [append, stream])
def test_of_two_programs_each_reports_its_own_writes(
    platform: Platform, spark: SparkSession, write: Write, last: str
) -> None:
    lines: list[str] = []

    def watch(name: str, body: Callable[[], DataFrame]) -> None:
        with recording(
            platform, spark, job=name, run_id=name, names=names(platform), log=lines.append
        ):
            body()

    at_once(lambda name: write(platform, spark, name), watch, last)
    assert (reported(platform), lines) == (KINDS, [])
