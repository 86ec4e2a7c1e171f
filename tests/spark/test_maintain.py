"""Maintenance on a real table: as planned, seen by nobody downstream, and never in the way of those
who write.
"""

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from delta.exceptions import ConcurrentDeleteReadException
from delta.tables import DeltaTable as SparkTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakechime_dagster.formats.delta import table_files
from lakechime_dagster.spark.commit import Target, commit, create_if_missing
from lakechime_dagster.spark.maintain import GAVE_WAY, MAX_FILE, maintain
from lakechime_dagster.spark.ranges import ReadMethod
from lakechime_dagster.spark.rows import OPERATION
from lakechime_dagster.tables.maintenance import (
    BEFORE,
    FILES,
    Action,
    Kind,
    Maintenance,
    Plan,
    TableFiles,
    opened,
    plan,
)
from tests.spark.test_commit import make_commit_metadata
from tests.support.older import make_older
from tests.support.refreshes import (
    DAYS,
    Source,
    flights_source,
    make_subscription,
    open_log,
    read_rows,
)

pytestmark = pytest.mark.spark

POLICY = Maintenance(min_files=2)


def milliseconds(path: Path) -> int:
    return path.stat().st_mtime_ns // 1_000_000


def now_of(source: Source) -> int:
    """The time of the newest commit, and a little later."""
    return max(milliseconds(path) for path in (source.location / "_delta_log").iterdir()) + 60_000


def planned(source: Source, policy: Maintenance = POLICY) -> Plan:
    return plan(table_files(source.log), [], policy, now_of(source))


def delete_by_vectors(spark: SparkSession, source: Source, condition: str) -> None:
    spark.sql(
        f"ALTER TABLE delta.`{source.location}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = "
        f"'true')"
    )
    SparkTable.forPath(spark, str(source.location)).delete(condition)


def test_a_table_is_kept_as_planned_and_nobody_downstream_reads_anything_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    flights = flights_source(tmp_path, *((DAYS[0], k, "JFK", k) for k in range(20)))
    for k in range(20, 23):
        flights.write((DAYS[1], k, "it's", k))
    flights.optimize()
    make_older(flights.location, days=9)
    for k in (30, 31):
        flights.write((DAYS[1], k, "LGA", k))
    delete_by_vectors(spark, flights, "k IN (3, 4)")
    subscription = make_subscription(spark, tmp_path, {"flights": flights}, lambda flights: flights)
    subscription.run()
    rows, seen = read_rows(flights.location), flights.log.seen(flights.log.version)

    made = planned(flights)
    assert [(action.kind, action.partition, action.files) for action in made.actions] == [
        (Kind.COMPACT, ("2013-01-02",), 3),
        (Kind.PURGE, ("2013-01-01",), 1),
        (Kind.VACUUM, None, 3),
    ]
    kept = maintain(spark, flights.log, made, POLICY, lambda: now_of(flights))

    assert [(one.kind, one.files_removed, one.files_added) for one in kept.done] == [
        (Kind.COMPACT, 3, 1),
        (Kind.PURGE, 1, 1),
        (Kind.VACUUM, 3, 0),
    ]
    assert (kept.total("rewritten"), kept.total("freed")) == (made.rewrites, made.actions[2].bytes)
    assert (kept.refused, planned(flights).actions, spark.conf.get(MAX_FILE, None)) == (
        (),
        (),
        None,
    )
    assert read_rows(flights.location) == rows
    operations = [
        commit.operation
        for commit in flights.log.commits(int(seen.snapshot_id), flights.log.version)
    ]
    assert operations == ["OPTIMIZE", "REORG", "VACUUM START", "VACUUM END"]
    assert flights.log.changes_after(seen).events == ()
    again = subscription.run()
    assert ([source.method for source in again.sources], again.version) == (
        [ReadMethod.NOTHING],
        None,
    )


def test_a_merge_that_meets_maintenance_half_way_is_tried_again_and_done(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The rows of the merge come when the files that it has looked at are gone: a pipe lets them
    wait for that.
    """
    flights = flights_source(tmp_path, *((DAYS[0], k, "JFK", k) for k in range(3)))
    flights.write((DAYS[0], 5, "LGA", 5))
    target = Target(
        name="flights",
        location=str(flights.location),
        log=flights.log,
        keys=("k",),
        partitioned_by=("day",),
    )
    pipe, tries, failures = tmp_path / "pipe", [], []
    os.mkfifo(pipe)
    session = spark.newSession()

    def first_rows_wait(batches: Any) -> Any:
        pipe.read_text()
        yield from batches

    def prepare() -> Any:
        rows = session.createDataFrame(
            [(DAYS[0], 5, "LGA", 50, "U")],
            f"day DATE, k BIGINT, origin STRING, delay BIGINT, {OPERATION} STRING",
        )
        rows = rows.coalesce(1)
        tries.append(rows)
        waiting = rows.mapInArrow(first_rows_wait, rows.schema) if len(tries) == 1 else rows
        return lambda: target.merge(waiting)

    def write() -> None:
        try:
            assert commit(session, target, make_commit_metadata(1), prepare)
        except BaseException as failure:  # noqa: BLE001 - it is the test's
            failures.append(failure)

    writer = threading.Thread(target=write)
    writer.start()
    with pipe.open("w"):  # opens when the merge reads its rows, and ends them when it is closed
        kept = maintain(spark, flights.log, planned(flights), POLICY, lambda: now_of(flights))
        (compacted,) = kept.done
    writer.join()
    assert (failures, compacted.files_removed, len(tries)) == ([], 2, 2)
    assert [row[1:] for row in read_rows(flights.location)][-1] == (5, "LGA", 50)


def test_maintenance_that_meets_a_writer_gives_way(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flights = flights_source(tmp_path)
    flights.write((DAYS[0], 5, "LGA", 5))
    made = planned(flights)

    def lost(*_: Any) -> Any:
        raise ConcurrentDeleteReadException("another writer was first")

    monkeypatch.setattr(SparkTable, "forPath", lost)
    kept = maintain(spark, flights.log, made, POLICY, lambda: now_of(flights))
    assert (kept.done, [refused.why for refused in kept.refused]) == ((), [GAVE_WAY])


def test_what_was_raised_is_lowered_to_what_it_was(spark: SparkSession, tmp_path: Path) -> None:
    flights = flights_source(tmp_path)
    before = dict(flights.log.properties())
    for kind, properties in (
        (Kind.RAISE, {FILES: "interval 20 days", BEFORE + FILES: "it's"}),
        (Kind.LOWER, {FILES: None, BEFORE + FILES: None}),
        (Kind.PROPERTIES, {"shop.cost center": "it's 7"}),
    ):
        action = Action(kind=kind, properties=properties, reason="")
        maintain(
            spark, flights.log, Plan(table="t", actions=(action,)), POLICY, lambda: now_of(flights)
        )
        wanted = {
            name: value for name, value in {**before, **properties}.items() if value is not None
        }
        assert dict(flights.log.properties()) == wanted


def test_orphans_go_where_that_is_declared(spark: SparkSession, tmp_path: Path) -> None:
    flights = flights_source(tmp_path)
    orphan = flights.location / "day=2013-01-01" / "left.parquet"
    orphan.write_text("rows")
    make_older(flights.location, days=9)
    flights.write((DAYS[2], 5, "LGA", 5))
    (refused,) = planned(flights).refused
    assert (refused.action.kind, refused.action.bytes) == (Kind.ORPHANS, 4)
    policy = replace(POLICY, remove_orphans=True)
    (done,) = maintain(
        spark, flights.log, planned(flights, policy), policy, lambda: now_of(flights)
    ).done
    assert (done.kind, done.files_removed, done.freed, orphan.exists()) == (
        Kind.ORPHANS,
        1,
        4,
        False,
    )
    assert table_files(flights.log).orphans == ()


def laid_out(spark: SparkSession, folder: Path) -> Target:
    """A table of eight files, each with the next two hundred keys, of rows that do not compress."""
    location = str(folder / "laid_out")
    target = Target(
        name="laid_out",
        location=location,
        log=open_log(location, "laid_out"),
        keys=("id",),
        cluster_by=("id",),
    )
    rows = spark.range(8 * 200).withColumn("text", F.expr("sha2(string(id), 512)"))
    create_if_missing(spark, target, rows.schema, {"delta.enableDeletionVectors": "false"})
    for start in range(0, 8 * 200, 200):
        target.append(rows.where(F.col("id").between(start, start + 199)).coalesce(1))
    return target


def merge_here_and_there(spark: SparkSession, target: Target) -> None:
    """What an execution does that changes a row of each file."""
    changes = spark.createDataFrame(
        [(n * 200 + 7, "new", "U") for n in range(8)], f"id BIGINT, text STRING, {OPERATION} STRING"
    )
    target.merge(changes, is_bounded=True)


def files_of(target: Target) -> TableFiles:
    return table_files(open_log(target.location, target.name), target.cluster_by)


def looked_for_in(target: Target) -> tuple[int, float]:
    """The number of files, and the part of all bytes in which a key is looked for."""
    live = files_of(target).live
    return len(live), opened((file.span, file.size) for file in live) / sum(
        file.size for file in live
    )


def test_a_table_that_merges_collapsed_is_laid_out_by_its_keys_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Without vectors a MERGE writes the files that it touches again, into as many as it has
    tasks.
    """
    target = laid_out(spark, tmp_path)
    merge_here_and_there(spark, target)
    assert looked_for_in(target) <= (2, 1.0)
    rows = read_rows(target.location)
    policy = Maintenance(small_file=1, target_file=20_000)
    files = files_of(target)
    made = plan(files, [], policy, 0)
    assert [(action.kind, action.files) for action in made.actions] == [
        (Kind.COMPACT, len(files.live))
    ]
    maintain(spark, open_log(target.location, target.name), made, policy, lambda: 0)
    number, part = looked_for_in(target)
    assert number >= 6
    assert part < 0.3
    assert read_rows(target.location) == rows
    assert plan(files_of(target), [], policy, 0).actions == ()
