"""Lines of files as messages, in slices of any size, without Spark."""

import gzip
import json
from typing import Any

import pytest

from lakechime_dagster.cdc.record import Record
from lakechime_dagster.cdc.spark_bronze import record_of
from tests.cdc.captures import FOLDER, captures

PARTS = {"topic": "shop.orders", "partition": 2, "offset": 40, "key": None, "value": "{}"}


def line_of(**parts: Any) -> bytes:
    return json.dumps({**PARTS, **parts}).encode()


def test_a_line_may_hold_the_parts_of_a_message() -> None:
    headers = [["trace", "a"], ["trace", "b"], ["none", None]]
    message = record_of(
        "a.jsonl", 3, line_of(topic_id="k1", timestamp_ms=5, key="k", headers=headers), 99
    )
    assert message.record == Record(
        topic="shop.orders",
        topic_id="k1",
        partition=2,
        offset=40,
        key=b"k",
        value=b"{}",
        headers={"trace": b"b"},
    )
    assert (list(message.headers), message.timestamp_ms) == (
        [("trace", b"a"), ("trace", b"b"), ("none", None)],
        5,
    )


def test_the_lines_of_what_was_recorded_from_kafka_are_its_messages() -> None:
    for capture in captures():
        with gzip.open(FOLDER / f"{capture.name}.jsonl.gz", "rb") as file:
            found = [record_of("a", 0, line, None) for line in file if b'"offset": ' in line]
        assert [message.record for message in found] == list(capture.records)
        assert all(message.timestamp_ms and not message.problem for message in found)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "record: unexpected end of data"),
        (b"[]", "record: a line is an object of topic, partition, offset, key and value, not []"),
        (
            line_of(offset=-1),
            "record: a line is an object of topic, partition, offset, key and value",
        ),
        (
            line_of(headers={"a": "b"}),
            "record: headers are pairs of a name and a text, not {'a': 'b'}",
        ),
        (line_of(timestamp_ms="now"), "record: timestamp_ms is a whole number"),
    ],
)
def test_a_line_that_holds_no_message_is_one_that_says_why(line: bytes, problem: str) -> None:
    message = record_of("a.jsonl", 3, line, 99)
    assert message.record == Record(topic="a.jsonl", value=line, offset=3)
    assert message.problem.startswith(problem)
