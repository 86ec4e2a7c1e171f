"""Verdicts need no JVM: the log alone decides."""

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakechime_dagster.dce.events import SnapshotId, TableUid
from lakechime_dagster.dce.snapshots import Verdict, next_generation
from lakechime_dagster.spark.ranges import judge
from tests.support.refreshes import Source
from tests.support.tables import write

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.fixture
def source(tmp_path: Path) -> Source:
    source = Source(tmp_path / "t", SCHEMA)
    for k in range(4):
        source.write((k, "a"))
    return source


def forget(source: Source, *versions: int) -> None:
    for version in versions:
        (source.location / "_delta_log" / f"{version:020d}.json").unlink()


def test_commits_that_all_changed_data_are_contiguous(source: Source) -> None:
    judgement = judge(source.range(0, 2), source.log)
    assert judgement.verdict is Verdict.CONTIGUOUS
    assert [commit.version for commit in judgement.commits] == [1, 2]
    assert [commit.version for commit in judgement.later] == [3]


def test_optimize_between_is_a_filled_gap(source: Source) -> None:
    source.optimize()
    judgement = judge(source.range(2), source.log)
    assert judgement.verdict is Verdict.GAP_FILLED
    assert [commit.version for commit in judgement.data_commits] == [3]


def test_a_restore_is_a_change_like_any_other(source: Source) -> None:
    source.restore(1)
    judgement = judge(source.range(3), source.log)
    assert judgement.verdict is Verdict.CONTIGUOUS
    assert not judgement.data_commits[0].only_appends


def test_a_log_put_back_below_the_start_is_a_rollback(source: Source) -> None:
    range_ = replace(source.range(3), end=SnapshotId("1"))
    assert judge(range_, source.log).verdict is Verdict.ROLLBACK


def test_a_log_put_back_since_the_start_is_a_rollback_and_its_next_range_is_read_like_any_other(
    source: Source,
) -> None:
    put_back = next_generation(source.log.uid)
    range_ = replace(source.range(3), end=SnapshotId("1"), table_uid=put_back)
    judgement = judge(range_, source.log)
    assert (judgement.verdict, judgement.note) == (
        Verdict.ROLLBACK,
        "the log was put back since it was last read",
    )
    assert judge(
        replace(source.range(0, 2), table_uid=put_back, start_uid=put_back), source.log
    ).verdict.is_incremental


def test_an_end_that_the_log_lost_is_a_rollback_to_its_newest(source: Source) -> None:
    range_ = source.range(1)
    forget(source, 3)
    judgement = judge(range_, source.log)
    assert (judgement.verdict, judgement.version) == (Verdict.ROLLBACK, 2)


def test_a_log_cleaned_up_past_the_start_has_expired(source: Source) -> None:
    DeltaTable(str(source.location)).create_checkpoint()
    source.write((9, "a"))
    forget(source, 0, 1)
    judgement = judge(source.range(0), source.log)
    assert judgement.verdict is Verdict.EXPIRED
    assert "commit 1" in judgement.note
    assert judge(source.range(1), source.log).verdict is Verdict.CONTIGUOUS


def test_another_table_at_the_path_is_recreated(source: Source) -> None:
    before = source.range(0)
    shutil.rmtree(source.location)
    source.write((1, "b"))
    claimed_before = judge(before, source.log)
    assert (claimed_before.verdict, claimed_before.version) == (Verdict.RECREATED, 0)
    claimed_after = replace(source.range(0), start_uid=TableUid(str(before.table_uid)))
    assert judge(claimed_after, source.log).verdict is Verdict.RECREATED


def test_a_table_that_was_repartitioned_within_the_range_is_read_whole(source: Source) -> None:
    rows = pa.table({"k": [7], "v": ["b"]}, schema=SCHEMA)
    write(source.location, rows, mode="overwrite", schema_mode="overwrite", partition_by=["v"])
    source.write((8, "b"))
    judgement = judge(source.range(3), source.log)
    assert (judgement.verdict, judgement.note) == (
        Verdict.RECREATED,
        "the partitioning of the table was changed",
    )
    assert judge(source.range(4), source.log).verdict is Verdict.CONTIGUOUS
    assert judge(source.range(0, 3), source.log).verdict is Verdict.CONTIGUOUS


def test_a_range_from_nothing_needs_no_log(source: Source) -> None:
    DeltaTable(str(source.location)).create_checkpoint()
    source.write((9, "a"))
    forget(source, 0, 1)
    assert judge(source.range(None), source.log).verdict is Verdict.CONTIGUOUS
