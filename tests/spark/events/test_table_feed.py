"""A table as the source of a stream: each row that others append to it is an event once, under a
name that it keeps.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakechime_dagster.dce.events import Position, SnapshotId
from lakechime_dagster.dce.snapshots import SnapshotCheckpoint
from lakechime_dagster.errors import ConsumerBlockedError, DeclarationError, TableUnreadableError
from lakechime_dagster.silver.bronze import RECREATED, TRACKED, ingest_events
from lakechime_dagster.silver.results import EventJob
from lakechime_dagster.spark.job import Outcome, TableResult
from lakechime_dagster.tables.sources import TableRows
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, ConsumerId
from tests.support.refreshes import Source, open_log
from tests.support.replica import read
from tests.support.streams import event

pytestmark = pytest.mark.spark

RAW = pa.schema([("day", pa.string()), ("value", pa.string())])


@dataclass
class Fed:
    """A table of raw events and the stream's table, whose consumer each `run` moves on by one
    execution over all that is new.
    """

    spark: SparkSession
    raw: Source
    job: EventJob
    number: int = 0
    checkpoint: Checkpoint = field(default_factory=Checkpoint)

    def append(self, *payloads: bytes | None) -> None:
        self.raw.write(*(("a [b]", None if one is None else one.decode()) for one in payloads))

    def end(self) -> Checkpoint:
        uid, version = self.raw.log.uid, SnapshotId(str(self.raw.log.version))
        return Checkpoint(
            position=Position(0, self.number),
            sources={"bronze.raw": SnapshotCheckpoint(table_uid=uid, snapshot_id=version)},
        )

    def run(self) -> TableResult:
        """The next execution."""
        self.number += 1
        end = self.end()
        result = self.attempt(self.number, 1, end)
        self.checkpoint = end
        return result

    def attempt(self, number: int, attempt: int, end: Checkpoint) -> TableResult:
        commit_metadata = CommitMetadata(
            consumer=ConsumerId("test", self.job.name),
            number=number,
            attempt=attempt,
            execution_id=f"e{number}",
            end=end,
        )
        return ingest_events(
            self.spark,
            replace(self.job, start=self.checkpoint, may_complete_empty=attempt == 1),
            commit_metadata,
            open_log,
        )

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows in the order of their types, each by a name of its own."""
        found = sorted(read(self.job.location), key=lambda row: row["type"] or "")
        assert len({row["_src"] for row in found}) == len(found)
        return found

    @property
    def types(self) -> list[str]:
        return [row["type"] for row in self.rows]


@pytest.fixture
def fed(spark: SparkSession, tmp_path: Path) -> Fed:
    raw = Source(tmp_path / "raw", RAW, ("day",), change_feed=False)
    job = EventJob(
        name="game.events",
        location=str(tmp_path / "events"),
        source=TableRows("bronze.raw", payload="VALUE"),
        folder=str(raw.location),
        type_field=("type",),
    )
    return Fed(spark, raw, job)


def test_rows_of_several_commits_are_events_once_by_the_file_and_number_of_their_append(
    fed: Fed,
) -> None:
    fed.append(event("a"), event("b"))
    fed.append(event("c"))
    first = fed.run()
    assert (first.outcome, first.events, first.sources[0].method) == (
        Outcome.COMMITTED,
        {"event": 3},
        "whole",
    )
    appended = {
        file.path: commit.version for commit in fed.raw.log.commits(-1, 1) for file in commit.added
    }
    named = [row["_src"].removeprefix(f"{fed.raw.log.uid}/").rpartition("@") for row in fed.rows]
    assert [(appended[path], number) for path, _, number in named] == [(0, "0"), (0, "1"), (1, "0")]
    assert [row["payload"].encode() for row in fed.rows] == [event("a"), event("b"), event("c")]
    assert all(row["sent_at"] <= row["_ingested_at"] for row in fed.rows)

    fed.append(event("d"))
    fed.raw.optimize()
    fed.append(event("e"))
    second = fed.run()
    assert (second.events, second.sources[0].method, fed.types) == (
        {"event": 2},
        "log_files",
        ["a", "b", "c", "d", "e"],
    )

    fed.raw.optimize()
    idle = fed.run()
    assert (idle.outcome, idle.sources[0].method, fed.types) == (
        Outcome.NOTHING,
        "nothing",
        ["a", "b", "c", "d", "e"],
    )
    assert fed.run().sources == ()


def test_attempts_give_the_same_rows_and_one_that_lives_on_adds_none(
    fed: Fed, tmp_path: Path
) -> None:
    fed.append(event("a"))
    fed.run()
    fed.append(event("b"), event("b"))
    end = fed.end()
    assert fed.attempt(2, 2, end).events == {"event": 2}
    kept = fed.rows
    assert fed.attempt(2, 1, end).outcome is Outcome.SKIPPED
    again = replace(fed, job=replace(fed.job, location=str(tmp_path / "again")))
    fed.raw.optimize()
    again.attempt(2, 1, end)
    assert [row["_src"] for row in again.rows] == [
        row["_src"] for row in kept if row["type"] == "b"
    ]
    fed.checkpoint, fed.number = end, 2
    fed.append(event("c"))
    fed.run()
    assert fed.attempt(2, 1, end).outcome is Outcome.SKIPPED
    assert fed.types == ["a", "b", "b", "c"]


def test_a_table_that_tracks_rows_names_them_by_their_ids_the_others_by_their_files(
    fed: Fed,
) -> None:
    fed.append(event("a"))
    fed.run()
    fed.append(event("b"))
    fed.spark.sql(
        f"ALTER TABLE delta.`{fed.raw.location}` SET TBLPROPERTIES ('{TRACKED}' = 'true')"
    )
    fed.spark.sql(
        f"""INSERT INTO delta.`{fed.raw.location}` VALUES ('x', '{event("c").decode()}')"""
    )
    end = fed.end()
    fed.spark.sql(f"OPTIMIZE delta.`{fed.raw.location}`")
    fed.attempt(2, 1, end)
    names = [row["_src"].removeprefix(f"{fed.raw.log.uid}/") for row in fed.rows]
    assert (fed.types, [name.isdigit() for name in names]) == (
        ["a", "b", "c"],
        [False, False, True],
    )

    whole = replace(
        fed,
        checkpoint=Checkpoint(),
        number=0,
        job=replace(fed.job, location=f"{fed.job.location}2"),
    )
    whole.run()
    ids = [row["_src"].removeprefix(f"{fed.raw.log.uid}/") for row in whole.rows]
    assert (whole.types, sorted(ids), ids[2]) == (["a", "b", "c"], ["0", "1", "2"], names[2])


def test_a_row_without_a_payload_is_kept_as_what_is_no_event(fed: Fed) -> None:
    fed.append(event("a"), None)
    fed.run()
    assert [(row["reason"], row["payload"]) for row in fed.rows] == [
        ("not_json", ""),
        (None, event("a").decode()),
    ]


@pytest.mark.parametrize("change", ["update", "overwrite"])
def test_more_than_appends_is_refused_and_nothing_of_it_is_taken(fed: Fed, change: str) -> None:
    fed.append(event("a"), event("b"))
    fed.run()
    fed.append(event("c"))
    if change == "update":
        fed.raw.update({"value": "'x'"}, "value like '%a%'")
    else:
        fed.raw.write(("x", event("d").decode()), mode="overwrite")
    with pytest.raises(ConsumerBlockedError) as held:
        fed.run()
    assert str(held.value).startswith(
        "bronze.raw after version 0 up to 2: commits of it do more than append"
    )
    assert "`lakechime execution skip e2 --reason …`" in str(held.value)
    assert fed.types == ["a", "b"]


def test_a_table_that_was_recreated_is_read_from_its_beginning(fed: Fed) -> None:
    fed.append(event("a"))
    fed.run()
    fed.raw = replace(fed.raw, location=fed.raw.location.with_name("again"))
    fed.job = replace(fed.job, folder=str(fed.raw.location))
    fed.append(event("b"))
    result = fed.run()
    assert (result.sources[0].verdict.value, result.sources[0].note, fed.types) == (
        "RECREATED",
        RECREATED,
        ["a", "b"],
    )
    assert fed.rows[1]["_src"].startswith(fed.raw.log.uid)


def test_a_snapshot_with_deleted_rows_in_its_files_is_read_where_rows_are_tracked(fed: Fed) -> None:
    fed.append(*map(event, "abcdef"))
    source = f"delta.`{fed.raw.location}`"
    fed.spark.sql(
        f"ALTER TABLE {source} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    fed.spark.sql(f"DELETE FROM {source} WHERE value LIKE '%b%'")
    with pytest.raises(
        TableUnreadableError, match="has files with deleted rows and does not track rows"
    ):
        fed.run()
    fed.spark.sql(f"ALTER TABLE {source} SET TBLPROPERTIES ('{TRACKED}' = 'true')")
    fed.attempt(1, 1, fed.end())
    assert fed.types == ["a", "c", "d", "e", "f"]


def test_a_column_that_holds_no_payloads_is_reported(fed: Fed) -> None:
    raw = replace(
        fed.raw, schema=pa.schema([("n", pa.int64()), ("value", pa.string()), ("day", pa.string())])
    )
    raw.write((1, "{}", "x"))
    problems = {
        "text": "bronze.raw has no column 'text'; it has n, value, day",
        "n": "n of bronze.raw is bigint",
        "day": "day is a partition",
    }
    for payload, problem in problems.items():
        fed.job = replace(fed.job, source=TableRows("bronze.raw", payload=payload))
        with pytest.raises(DeclarationError, match=problem):
            fed.run()


def test_columns_that_are_called_otherwise_in_files_are_read(fed: Fed) -> None:
    fed.append(event("a"))
    source = f"delta.`{fed.raw.location}`"
    fed.spark.sql(f"ALTER TABLE {source} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    fed.spark.sql(f"ALTER TABLE {source} RENAME COLUMN value TO text")
    fed.job = replace(fed.job, source=TableRows("bronze.raw", payload="text"))
    assert DeltaTable(str(fed.raw.location)).version() == 2
    fed.run()
    assert fed.types == ["a"]
