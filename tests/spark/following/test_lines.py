"""Lines of files as messages, in slices of any size, without Spark."""

import gzip
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.cdc.messages.record import Record
from lakechime_dagster.errors import FeedUnreadableError
from lakechime_dagster.spark.following.lines import Slice, check_there, has_message, lines, record_of, tasks
from tests.cdc.captures import FOLDER, captures

LINE = st.binary(max_size=6).map(lambda raw: raw.replace(b"\n", b"").replace(b"\r", b""))
PARTS = {"topic": "shop.orders", "partition": 2, "offset": 40, "key": None, "value": "{}"}


@given(st.lists(LINE, min_size=1), st.integers(1, 9))
def test_slices_of_any_size_give_each_line_once_and_at_its_byte(content: list[bytes], size: int) -> None:
    with TemporaryDirectory() as folder:
        whole = b"".join(line + b"\n" for line in content)
        (Path(folder) / "a").write_bytes(whole + b"not whole")
        found = [one for task in tasks({"a": (0, len(whole))}, size) for part in task for one in lines(Path(folder), part)]
    assert [line for _, line in found] == [line for line in content if line]
    assert all(whole[at:].startswith(line + b"\n") for at, line in found)


def test_a_large_file_is_several_tasks_and_small_ones_are_one() -> None:
    spans = {"a": (5, 30), "b": (0, 3), "c": (0, 4)}
    assert tasks(spans, 10) == [
        [Slice("a", 5, 15)], [Slice("a", 15, 25)], [Slice("a", 25, 30), Slice("b", 0, 3), Slice("c", 0, 2)], [Slice("c", 2, 4)],
    ]  # fmt: skip


def test_a_line_may_end_as_on_windows(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\r\n\r\n2\r\n")
    assert list(lines(tmp_path, Slice("a", 0, 8))) == [(0, b"1"), (5, b"2")]


def test_empty_lines_are_no_messages(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\n\r\n\n")
    assert not has_message(tmp_path, {"a": (0, 4)})
    (tmp_path / "b").write_bytes(b"\n1\n")
    assert has_message(tmp_path, {"a": (0, 4), "b": (0, 3)})


def test_a_file_that_does_not_hold_what_was_claimed_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n")
    with pytest.raises(FeedUnreadableError, match="/a holds 2 bytes, and 9 of it are to be read; put it back as it was"):
        check_there(tmp_path, {"a": (0, 9)})
    with pytest.raises(FeedUnreadableError, match="/b, of which 9 bytes are to be read, is not there: No such file"):
        check_there(tmp_path, {"b": (0, 9)})
    with pytest.raises(FeedUnreadableError, match="/a ends at byte 2, and is to be read up to 9"):
        list(lines(tmp_path, Slice("a", 0, 9)))


def line_of(**parts: Any) -> bytes:
    return json.dumps({**PARTS, **parts}).encode()


def test_a_line_may_hold_the_parts_of_a_message() -> None:
    headers = [["trace", "a"], ["trace", "b"], ["none", None]]
    message = record_of("a.jsonl", 3, line_of(topic_id="k1", timestamp_ms=5, key="k", headers=headers), 99)
    assert message.record == Record(
        topic="shop.orders", topic_id="k1", partition=2, offset=40, key=b"k", value=b"{}", headers={"trace": b"b"}
    )
    assert (list(message.headers), message.timestamp_ms) == ([("trace", b"a"), ("trace", b"b"), ("none", None)], 5)


def test_the_lines_of_what_was_recorded_from_kafka_are_its_messages() -> None:
    for capture in captures():
        with gzip.open(FOLDER / f"{capture.name}.jsonl.gz", "rb") as file:
            found = [record_of("a", 0, line, None) for line in file if b'"offset": ' in line]
        assert [message.record for message in found] == list(capture.records)
        assert all(message.timestamp_ms and not message.problem for message in found)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "record: b'{' is no JSON"),
        (b"[]", "record: line: it is an object, not []"),
        (b"{}", "record: topic is not there; a line holds topic, partition, offset, key, value"),
        (line_of(offset=-1), "record: offset: it is a number of at most 63 bits, not -1"),
        (line_of(partition=2**31), "record: partition: it is a number of at most 31 bits, not 2147483648"),
        (line_of(offset="4"), "record: offset: it is a whole number, not '4'"),
        (line_of(offset=True), "record: offset: it is a whole number, not True"),
        (line_of(value={"id": 1}), "record: value: it is text, not {'id': 1}"),
        (line_of(headers={"a": "b"}), "record: headers: they are pairs of a name and a text, not {'a': 'b'}"),
        (line_of(headers=[["a", 1]]), "record: headers: they are pairs"),
        (line_of(timestamp_ms="now"), "record: timestamp_ms: it is a whole number, not 'now'"),
    ],
)
def test_a_line_that_holds_no_message_is_one_that_says_why(line: bytes, problem: str) -> None:
    message = record_of("a.jsonl", 3, line, 99)
    assert message.record == Record(topic="a.jsonl", value=line, offset=3)
    assert message.problem.startswith(problem)
