"""Reconciling a table with its log: nothing twice, levels known, and a dry run that reports what
would be done.
"""

import datetime as dt
import shutil
from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pytest

from lakechime_dagster.dce.events import DataChangeEvent, Seen, SnapshotId
from lakechime_dagster.dce.partitions import PartitionLevels
from lakechime_dagster.formats.changes import Captured
from lakechime_dagster.formats.delta import DeltaLog
from lakechime_dagster.runtime.platform import Platform, open_platform
from lakechime_dagster.runtime.reconcile import Reconciled, reconcile, reconcile_table
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.tables import SourceTable
from tests.support.tables import write

DAYS = PartitionLevels.of({"day": "date"})


@pytest.fixture
def platform(home: Path) -> Platform:
    return open_platform()


@pytest.fixture
def log(platform: Platform) -> DeltaLog:
    """The log of a table of three commits, a day each."""
    log = platform.log("bronze.orders")
    for day in (1, 2, 3):
        write(
            Path(log.location),
            pa.table({"day": [dt.date(2024, 5, day)], "id": [day]}),
            partition_by=["day"],
        )
    return log


def reported(done: Reconciled) -> tuple[list[object], list[object], str]:
    """Snapshots and partitions of what is new, snapshots of duplicates, and up to where the log is
    captured.
    """
    registered: list[object] = [
        (one.event.snapshot_id, one.event.partition) for one in done.registration.registered
    ]
    return (
        registered,
        [one.event.snapshot_id for one in done.registration.duplicates],
        done.seen.snapshot_id,
    )


def test_a_dry_run_reports_what_a_run_does_and_changes_nothing(
    platform: Platform, log: DeltaLog
) -> None:
    pushed = DataChangeEvent(
        table="bronze.orders", partition=("2024-05-02",), snapshot_id=SnapshotId("1")
    )
    platform.store.register([pushed])
    before = platform.store.table("bronze.orders")
    would = reported(reconcile_table(platform, log, DAYS, dry_run=True))
    assert would == ([("0", ("2024-05-01",)), ("2", ("2024-05-03",))], ["1"], "2")
    assert platform.store.table("bronze.orders") == before
    assert reported(reconcile_table(platform, log, DAYS)) == would
    assert reported(reconcile_table(platform, log, DAYS)) == ([], [], "2")


def test_a_look_that_another_has_overtaken_looks_again(platform: Platform, log: DeltaLog) -> None:
    reconcile_table(platform, log, DAYS)
    before = log.uid

    class SlowLog(DeltaLog):
        """A log that takes so long to read that the table is created again and captured
        meanwhile.
        """

        def changes_after(self, seen: Seen | None, pushed: Collection[SnapshotId] = ()) -> Captured:
            captured = super().changes_after(seen, pushed)
            if self.uid == before:
                shutil.rmtree(self.location)
                write(
                    self.location,
                    pa.table({"day": [dt.date(2024, 6, 1)], "id": [1]}),
                    partition_by=["day"],
                )
                reconcile_table(platform, log, DAYS)
            return captured

    write(
        Path(log.location),
        pa.table({"day": [dt.date(2024, 5, 4)], "id": [4]}),
        partition_by=["day"],
    )
    assert reported(reconcile_table(platform, SlowLog(log.location, log.table), DAYS)) == (
        [],
        [],
        "0",
    )
    record = platform.store.table("bronze.orders")
    assert record is not None
    assert (record.table_uid, record.seen) == (log.uid, "0")


@pytest.mark.parametrize("version", [0, 2])
def test_a_commit_that_is_half_written_is_a_problem_of_its_table_until_it_is_whole(
    platform: Platform, log: DeltaLog, version: int
) -> None:
    orders, other = SourceTable("bronze.orders"), SourceTable("bronze.other")
    write(platform.location(other.name), pa.table({"id": [1]}))
    file = Path(log.location, "_delta_log", f"{version:020}.json")
    whole = file.read_bytes()
    if version:  # what was captured before stays
        file.rename(file.with_suffix(".later"))
        assert len(reconcile(platform, [orders])[0]) == 2
    file.write_bytes(whole[: len(whole) // 2])
    new, (problem,) = reconcile(platform, [orders, other])
    assert [one.event.table for one in new] == ["bronze.other"]
    assert problem.startswith("bronze.orders: ")
    assert ("commit 2 at " in problem) == bool(version)
    assert "\n" not in problem
    file.write_bytes(whole)
    new, problems = reconcile(platform, [orders, other])
    assert (len(new), problems) == (1 if version else 3, [])


def test_a_table_out_of_reach_is_a_problem_and_one_that_is_not_there_yet_is_none(
    platform: Platform, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    far = SourceTable(
        "bronze.far",
        storage=Storage(location=str(tmp_path / "file"), partitioned_by={"day": "date"}),
    )
    new = SourceTable("bronze.new", storage=Storage(partitioned_by={"day": "date"}))
    bare = SourceTable("bronze.bare")
    of_others = SourceTable(
        "bronze.hive",
        storage=Storage(
            format="hive", location=str(tmp_path / "file"), partitioned_by={"day": "date"}
        ),
    )
    found, (problem,) = reconcile(platform, [far, new, bare, of_others])
    assert (found, problem.partition(" cannot be read")[0]) == (
        [],
        f"bronze.far: the Delta table at {tmp_path / 'file'}",
    )
    assert {one.name: one.levels for one in platform.store.tables()} == dict.fromkeys(
        ("bronze.far", "bronze.new", "bronze.hive"), DAYS
    )
