"""The messages of a source in their table: each once, whatever they hold and however often an
execution is tried.
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakechime_dagster.cdc import spark_bronze
from lakechime_dagster.cdc.job import BronzeJob, MessageFormat
from lakechime_dagster.cdc.record import TableFilter
from lakechime_dagster.cdc.spark_bronze import ingest
from lakechime_dagster.sources.files import FileSource
from lakechime_dagster.spark.job import Outcome, TableResult
from lakechime_dagster.tables.databases import Maxwell
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.triggers.consumers import (
    Checkpoint,
    CommitMetadata,
    ConsumerId,
    SourceOffsets,
)
from tests.support.refreshes import open_log
from tests.support.replica import read

pytestmark = pytest.mark.spark


@dataclass
class Fed:
    """A folder and the table of its messages, whose consumer each `run` moves on by one execution
    over all that is new.
    """

    spark: SparkSession
    job: BronzeJob
    number: int = 0
    checkpoint: SourceOffsets | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def drop(self, name: str, *content: bytes) -> None:
        with (Path(self.job.folder) / name).open("ab") as file:
            file.writelines(line + b"\n" for line in content)

    def run(self) -> TableResult:
        """The next execution."""
        self.number += 1
        end = FileSource(Path(self.job.folder), "*.jsonl").poll(self.checkpoint).end
        result = self.attempt(self.number, 1, end)
        self.checkpoint = end
        return result

    def attempt(self, number: int, attempt: int, end: SourceOffsets | None) -> TableResult:
        commit_metadata = CommitMetadata(
            consumer=ConsumerId("test", self.job.name),
            number=number,
            attempt=attempt,
            execution_id=f"e{number}",
            end=Checkpoint(offsets=end),
        )
        job = replace(
            self.job,
            start=Checkpoint(offsets=self.checkpoint),
            may_complete_empty=attempt == 1,
            **self.options,
        )
        return ingest(self.spark, job, commit_metadata, open_log)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return sorted(read(self.job.location), key=lambda row: (row["topic"], row["offset"]))


@pytest.fixture
def fed(spark: SparkSession, tmp_path: Path) -> Fed:
    (tmp_path / "in").mkdir()
    job = BronzeJob(
        name="shop.orders__changes",
        location=str(tmp_path / "orders__changes"),
        source=JsonLines("in"),
        folder=str(tmp_path / "in"),
        format=MessageFormat(
            envelope=Maxwell(),
            keys=("id",),
            types={"id": "bigint", "name": "string"},
            only=TableFilter(table="orders"),
        ),
    )
    return Fed(spark, job)


def reported(identity: int, **fields: Any) -> bytes:
    """A message of Maxwell."""
    data = {"id": identity, "name": "x"}
    return json.dumps(
        {"database": "shop", "table": "orders", "type": "insert", "ts": 1, "data": data, **fields}
    ).encode()


@pytest.mark.tier1
def test_each_message_is_there_once_with_what_was_read_of_it(
    fed: Fed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakechime_dagster.sources.spark.SLICE", 250)
    damaged = [b"{", b"\xff\xfe", b"[]", reported(4)[:-1]]
    fed.drop("a.jsonl", reported(1), *damaged, reported(2))
    fed.drop("b.jsonl", reported(3), b"", b'{"heartbeat')
    first = fed.run()
    assert (
        first.outcome,
        first.counts.inserted,
        first.counts.rows_in,
        first.counts.is_balanced,
    ) == (Outcome.COMMITTED, 8, 8, True)
    assert first.events == {"change": 3, "unreadable": 5}
    assert [(row["topic"], row["row_key"], row["kind"]) for row in fed.rows] == [
        ("a.jsonl", "[1]", "change"),
        *[("a.jsonl", None, "unreadable")] * 4,
        ("a.jsonl", "[2]", "change"),
        ("b.jsonl", "[3]", "change"),
        ("b.jsonl", None, "unreadable"),
    ]
    assert [row["value"] or row["value_bytes"] for row in fed.rows][1:5] == [
        "{",
        b"\xff\xfe",
        "[]",
        reported(4)[:-1].decode(),
    ]
    assert [row["offset"] for row in fed.rows][:3] == [
        0,
        len(reported(1)) + 1,
        len(reported(1)) + 3,
    ]
    assert all(row["problem"] for row in fed.rows if row["kind"] == "unreadable")
    assert (
        DeltaTable(fed.job.location).metadata().configuration
        == {"delta.appendOnly": "true"} | spark_bronze.STATISTICS
    )

    fed.drop("a.jsonl", reported(5, type="delete"))
    fed.drop("c.jsonl", reported(6), reported(6, table="people"))
    assert fed.run().events == {"change": 2, "other table": 1}
    assert [row["source"] for row in fed.rows if row["kind"] == "other table"] == ["shop.people"]
    assert [row["op"] for row in fed.rows if row["row_key"] in ("[5]", "[6]")] == ["d", "c"]
    assert len(fed.rows) == 11


def test_without_a_message_there_is_no_commit_but_the_fence_of_a_later_attempt(fed: Fed) -> None:
    fed.drop("a.jsonl", b"", b"")
    end = FileSource(Path(fed.job.folder), "*.jsonl").poll(None).end
    assert fed.attempt(1, 1, end).outcome is Outcome.NOTHING
    assert not Path(fed.job.location).exists()
    fence = fed.attempt(1, 2, end)
    assert (fence.outcome, fence.counts.inserted, fed.rows) == (Outcome.FENCED, 0, [])


def test_lines_may_be_records_of_kafka(fed: Fed) -> None:
    fed.options = {"source": JsonLines("in", records=True)}
    parts = {
        "topic": "shop.orders",
        "topic_id": "k1",
        "partition": 2,
        "key": "k",
        "timestamp_ms": 1_700_000_000_000,
    }
    fed.drop(
        "a.jsonl",
        json.dumps(
            {**parts, "offset": 40, "value": reported(1).decode(), "headers": [["h", "v"]]}
        ).encode(),
        b'{"topic":1}',
    )
    assert fed.run().events == {"change": 1, "unreadable": 1}
    unread, row = fed.rows
    assert (row["topic_id"], row["partition"], row["offset"], row["key"], row["row_key"]) == (
        "k1",
        2,
        40,
        "k",
        "[1]",
    )
    assert (row["timestamp"].isoformat(), row["headers"]) == (
        "2023-11-14T22:13:20+00:00",
        [{"key": "h", "value": b"v"}],
    )
    assert (unread["value"], unread["problem"]) == (
        '{"topic":1}',
        "record: a line is an object of topic, partition, offset, key and value, not {'topic': 1}",
    )
