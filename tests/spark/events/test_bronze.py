"""The events of a source in their stream's table: each once, with what is known of it, whatever its
bytes are.
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakechime_dagster.errors import MessagesUnreadableError
from lakechime_dagster.silver.bronze import ingest_events
from lakechime_dagster.silver.event import scanned
from lakechime_dagster.silver.results import EventJob
from lakechime_dagster.sources.files import FileSource
from lakechime_dagster.sources.kafka import KafkaSource
from lakechime_dagster.spark.job import Outcome, TableResult
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.triggers.consumers import (
    Checkpoint,
    CommitMetadata,
    ConsumerId,
    KafkaOffsets,
    SourceOffsets,
)
from tests.support.refreshes import open_log
from tests.support.replica import read
from tests.support.streams import event
from tests.support.topics import ENVIRONMENT, Topics

pytestmark = pytest.mark.spark

TYPE, PRODUCER = ("type",), ("title",)


@dataclass
class Fed:
    """A folder and the table of its events, whose consumer each `run` moves on by one execution
    over all that is new.
    """

    spark: SparkSession
    job: EventJob
    number: int = 0
    checkpoint: SourceOffsets | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def drop(self, *payloads: bytes, name: str = "a.jsonl") -> None:
        with (Path(self.job.folder) / name).open("ab") as file:
            file.writelines(line + b"\n" for line in payloads)

    def look(self) -> SourceOffsets:
        return FileSource(Path(self.job.folder), "*.jsonl").poll(self.checkpoint).end

    def run(self) -> TableResult:
        """The next execution."""
        self.number += 1
        end = self.look()
        result = self.attempt(self.number, 1, end)
        self.checkpoint = end
        return result

    def attempt(self, number: int, attempt: int, end: SourceOffsets) -> TableResult:
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
        return ingest_events(self.spark, job, commit_metadata, open_log)

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        """The rows by their `_src`, in its order."""
        found = read(self.job.location)
        rows = sorted(
            found,
            key=lambda row: (row["_src"].partition("@")[0], int(row["_src"].partition("@")[2])),
        )
        assert len({row["_src"] for row in rows}) == len(rows)
        return {row["_src"]: row for row in rows}

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.rows.values()]


@pytest.fixture
def fed(spark: SparkSession, tmp_path: Path) -> Fed:
    (tmp_path / "in").mkdir()
    job = EventJob(
        name="game.events",
        location=str(tmp_path / "events"),
        source=JsonLines("in"),
        folder=str(tmp_path / "in"),
        type_field=TYPE,
        producer_field=PRODUCER,
        classes=str(tmp_path / "classes"),
    )
    return Fed(spark, job)


def test_each_line_is_there_once_with_what_is_known_of_it(
    fed: Fed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakechime_dagster.sources.spark.SLICE", 50)
    lines = [
        event("buy", title="web", n=1),
        event("buy", title="app", n="x"),
        b" " + event("jüngst", height=1.5) + b"\t",
    ]
    fed.drop(*lines, b"", b"\r", event("buy", n=2))
    (Path(fed.job.folder) / "b.jsonl").write_bytes(event("fly") + b'\n{"type": "half')
    result = fed.run()
    assert (result.outcome, result.events, result.counts.inserted) == (
        Outcome.COMMITTED,
        {"event": 5},
        5,
    )
    reported = [*lines, event("buy", n=2), event("fly")]
    at = [0, len(lines[0]) + 1, len(lines[0] + lines[1]) + 2, len(b"".join(lines)) + 3 + 3]
    assert [*fed.rows] == [*(f"a.jsonl@{one}" for one in at), "b.jsonl@0"]
    assert fed.column("payload") == [line.decode() for line in reported]
    assert fed.column("type") == ["buy", "buy", "jüngst", "buy", "fly"]
    assert fed.column("producer") == ["web", "app", None, None, None]
    assert fed.column("hash") == [scanned(line, TYPE).typed_hash for line in reported]
    assert fed.column("reason") == fed.column("flags") == fed.column("payload_bytes") == [None] * 5
    written = [
        (Path(fed.job.folder) / name).stat().st_mtime_ns // 1_000_000
        for name in ["a.jsonl"] * 4 + ["b.jsonl"]
    ]
    assert [int(moment.timestamp() * 1_000) for moment in fed.column("sent_at")] == written
    assert all(
        later >= earlier
        for later, earlier in zip(fed.column("_ingested_at"), fed.column("sent_at"), strict=True)
    )
    assert DeltaTable(fed.job.location).metadata().configuration["delta.appendOnly"] == "true"


def test_lines_that_are_no_events_are_there_with_the_reason(fed: Fed) -> None:
    refused = {
        b'{"type": "buy"': "not_json",
        b"\xef\xbb\xbf{}": "not_json",
        b'{"type": "b\xfcy"}': "not_utf8",
        b"[1]": "not_object",
        b"{}": "type_missing",
        b'{"type": {"a": 1}}': "type_not_text",
        b'{"type": " "}': "type_empty",
        event("x" * 513): "type_too_long",
    }
    fed.drop(*refused, event("buy"))
    result = fed.run()
    assert fed.column("reason") == [*refused.values(), None]
    assert result.events == {"not_json": 2, "event": 1} | {
        reason: 1 for reason in refused.values() if reason != "not_json"
    }
    assert [row["type"] or row["producer"] or row["hash"] for row in fed.rows.values()] == [
        None
    ] * 8 + ["buy"]
    bare = [(row["payload"], row["payload_bytes"]) for row in fed.rows.values()]
    wanted = [
        (None, line) if reason == "not_utf8" else (line.decode(), None)
        for line, reason in refused.items()
    ]
    assert bare == [*wanted, (event("buy").decode(), None)]


def test_an_execution_that_is_tried_twice_commits_once(fed: Fed) -> None:
    fed.drop(event("buy"))
    end = fed.look()
    assert fed.attempt(1, 1, end).outcome is Outcome.COMMITTED
    fed.drop(event("sell"))
    wider = fed.look()
    again = fed.attempt(1, 2, wider)
    assert (
        again.outcome,
        again.committed and again.committed.commit_metadata.end.offsets,
        fed.column("type"),
    ) == (Outcome.SKIPPED, end, ["buy"])
    fed.number, fed.checkpoint = 1, end
    assert fed.run().counts.inserted == 1
    assert (fed.attempt(1, 3, wider).outcome, fed.column("type")) == (
        Outcome.SKIPPED,
        ["buy", "sell"],
    )


def test_a_table_that_was_removed_is_read_from_the_beginning(fed: Fed) -> None:
    fed.drop(event("buy"))
    fed.number, fed.checkpoint, fed.options = 1, fed.look(), {"has_committed": True}
    fed.drop(event("sell"))
    result = fed.run()
    assert (fed.column("type"), len(result.notes)) == (["buy", "sell"], 1)


def test_a_file_that_lost_what_was_claimed_of_it_is_named(fed: Fed) -> None:
    fed.drop(event("buy"))
    end = fed.look()
    (Path(fed.job.folder) / "a.jsonl").write_bytes(b"")
    with pytest.raises(
        MessagesUnreadableError,
        match=r"a\.jsonl holds 0 bytes, and \d+ of it are to be read; put it back as it was",
    ):
        fed.attempt(1, 1, end)


@pytest.mark.services
def test_messages_of_topics_are_events_by_topic_partition_and_offset(
    fed: Fed, topics: Topics
) -> None:
    job = replace(fed.job, source=topics.source(), environment=ENVIRONMENT, folder="")
    topics.create("game", 2)
    topics.send("game", event("buy", title="web", n=1), None, b"\xff\x00", at_ms=1_700_000_000_123)
    topics.send("game", event("sell", n=2), "{", partition=1)

    def attempt(number: int, start: KafkaOffsets, end: KafkaOffsets, nth: int = 1) -> TableResult:
        commit_metadata = CommitMetadata(
            consumer=ConsumerId("test", job.name),
            number=number,
            attempt=nth,
            execution_id=f"e{number}",
            end=Checkpoint(offsets=end),
        )
        return ingest_events(
            fed.spark,
            replace(job, start=Checkpoint(offsets=start), may_complete_empty=nth == 1),
            commit_metadata,
            open_log,
        )

    def look(checkpoint: KafkaOffsets) -> KafkaOffsets:
        end = (
            KafkaSource(topics.source(), ENVIRONMENT, is_ordered_by_position=False)
            .poll(checkpoint)
            .end
        )
        assert isinstance(end, KafkaOffsets)
        return end

    first = look(KafkaOffsets())
    result = attempt(1, KafkaOffsets(), first)
    assert (result.outcome, result.events) == (
        Outcome.COMMITTED,
        {"event": 2, "not_json": 2, "not_utf8": 1},
    )
    topics.send("game", event("jump"))
    second = look(first)
    assert attempt(1, KafkaOffsets(), second, nth=2).outcome is Outcome.SKIPPED
    assert attempt(2, first, second).events == {"event": 1}
    (topic,) = first.topics
    rows = {row["_src"]: row for row in read(job.location)}
    assert {
        source: (row["type"], row["producer"], row["reason"], row["payload"], row["payload_bytes"])
        for source, row in rows.items()
    } == {
        f"{topic}/0/0": ("buy", "web", None, event("buy", title="web", n=1).decode(), None),
        f"{topic}/0/1": (None, None, "not_json", "", None),
        f"{topic}/0/2": (None, None, "not_utf8", None, b"\xff\x00"),
        f"{topic}/0/3": ("jump", None, None, event("jump").decode(), None),
        f"{topic}/1/0": ("sell", None, None, event("sell", n=2).decode(), None),
        f"{topic}/1/1": (None, None, "not_json", "{", None),
    }
    assert (
        rows[f"{topic}/0/0"]["sent_at"].isoformat(timespec="milliseconds")
        == "2023-11-14T22:13:20.123+00:00"
    )
    topics.aborted("game", json.dumps({"type": "no"}))
    third = look(second)
    assert attempt(3, second, third).outcome is Outcome.NOTHING
