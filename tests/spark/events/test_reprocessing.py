"""Refused events that are some by now come into their stream's table once, under their own names,
and from there to their types.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakechime_dagster.formats.delta import DeltaLog
from lakechime_dagster.silver.bronze import reprocess_of, reprocessed
from lakechime_dagster.silver.results import RequestDone
from lakechime_dagster.spark.job import Outcome, TableResult
from lakechime_dagster.tables.events import event_group, event_stream
from lakechime_dagster.tables.sources import JsonLines
from tests.support.replica import read
from tests.support.streams import Stream

pytestmark = pytest.mark.spark

BEFORE = event_stream("game", source=JsonLines("in"))
# what the declaration is corrected to
AFTER = event_stream("game", source=JsonLines("in"), type_field="$.kind")


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path, event_group("all", BEFORE), stream=BEFORE)


def corrected(stream: Stream) -> Stream:
    """The stream under a declaration by which more are events."""
    return replace(stream, stream=AFTER, group=event_group("all", AFTER))


def kind(name: str, number: int) -> bytes:
    return json.dumps({"type": "", "kind": name, "n": number}).encode()


def reported(stream: Stream) -> list[tuple[Any, ...]]:
    """The rows of the stream's table by their lines: refused ones first."""
    rows = sorted(
        read(stream.bronze),
        key=lambda row: (int(row["_src"].partition("@")[2]), row["reason"] is None),
    )
    return [(row["reason"], row["type"], row["refused_before"]) for row in rows]


def reprocessed_by(result: TableResult) -> RequestDone | None:
    return (
        RequestDone.of(result.committed.commit_metadata.facts)
        if result.committed is not None
        else None
    )


def versions(stream: Stream) -> int:
    return DeltaLog(stream.bronze, "game.events").version


def test_what_is_an_event_by_todays_declaration_comes_once_beside_what_is_new(
    stream: Stream,
) -> None:
    stream.drop(kind("buy", 1), b"{damaged", b'{"kind": "b\xfcy"}', kind("sell", 2))
    stream.run()
    stream = corrected(stream)
    stream.drop(kind("buy", 3))
    result = stream.ingest(reprocess=7)
    assert (reprocessed_by(result), result.events, versions(stream)) == (
        RequestDone(request_id=7, added=2),
        {"event": 3},
        2,
    )
    assert reported(stream) == [
        ("type_empty", None, None),
        (None, "buy", "type_empty"),
        ("not_json", None, None),
        ("not_utf8", None, None),
        ("type_empty", None, None),
        (None, "sell", "type_empty"),
        (None, "buy", None),
    ]
    done = stream.run()
    assert {name: one.rows for name, one in done.items()} == {"buy": 2, "sell": 1}
    assert [row["n"] for row in stream.rows("buy")] == [1, 3]
    sources = [row["_src"] for name in ("buy", "sell") for row in stream.rows(name)]
    assert len({*sources}) == len(sources) == 3

    again = stream.ingest(reprocess=8)
    assert (again.outcome, reprocessed_by(again), versions(stream)) == (Outcome.NOTHING, None, 2)
    assert {name: one.rows for name, one in stream.run().items()} == {"buy": 0, "sell": 0}


def test_attempts_at_an_execution_reprocess_once_whoever_comes_first(stream: Stream) -> None:
    stream.drop(kind("buy", 1), kind("buy", 2))
    stream.ingest()
    late = replace(stream := corrected(stream))
    second = stream.ingest(reprocess=1, attempt=2)
    assert second.committed is not None
    assert (second.outcome, second.committed.commit_metadata.facts) == (
        Outcome.COMMITTED,
        {"request": 1, "replaced": 0, "added": 2, "removed": 0},
    )
    zombie = late.ingest(reprocess=1, attempt=1)
    assert (zombie.outcome, len(reported(stream))) == (Outcome.SKIPPED, 4)
    fence = stream.ingest(reprocess=1, attempt=2)
    assert fence.committed is not None
    assert (fence.outcome, fence.committed.commit_metadata.facts, len(reported(stream))) == (
        Outcome.FENCED,
        {"request": 1, "replaced": 0, "added": 2, "removed": 0},
        4,
    )


def test_what_a_reprocess_would_bring_is_reported_by_reason_and_type(stream: Stream) -> None:
    stream.drop(kind("buy", 1), kind("sell", 2), kind("buy", 3), b"[]")
    stream.ingest()
    rows = reprocessed(
        stream.spark, corrected(stream).job(), DeltaLog(stream.bronze, "game.events")
    )
    assert rows is not None
    would = reprocess_of(rows)
    assert (would.rows, would.kinds) == (3, (("type_empty", "buy", 2), ("type_empty", "sell", 1)))
