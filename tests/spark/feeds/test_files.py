"""Lines of files in slices of any size, without Spark."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.errors import MessagesUnreadableError
from lakechime_dagster.sources.spark import Slice, check_there, has_message, lines, tasks

LINE = st.binary(max_size=6).map(lambda raw: raw.replace(b"\n", b"").replace(b"\r", b""))


@given(st.lists(LINE, min_size=1), st.integers(1, 9))
def test_slices_of_any_size_give_each_line_once_and_at_its_byte(
    content: list[bytes], size: int
) -> None:
    with TemporaryDirectory() as folder:
        whole = b"".join(line + b"\n" for line in content)
        (Path(folder) / "a").write_bytes(whole + b"not whole")
        found = [
            one
            for task in tasks({"a": (0, len(whole))}, size)
            for part in task
            for one in lines(Path(folder), part)
        ]
    assert [line for _, line in found] == [line for line in content if line]
    assert all(whole[at:].startswith(line + b"\n") for at, line in found)


def test_a_large_file_is_several_tasks_and_small_ones_are_one() -> None:
    spans = {"a": (5, 30), "b": (0, 3), "c": (0, 4)}
    assert tasks(spans, 10) == [
        [Slice("a", 5, 15)],
        [Slice("a", 15, 25)],
        [Slice("a", 25, 30), Slice("b", 0, 3), Slice("c", 0, 2)],
        [Slice("c", 2, 4)],
    ]


def test_a_line_may_end_as_on_windows(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\r\n\r\n2\r\n")
    assert list(lines(tmp_path, Slice("a", 0, 8))) == [(0, b"1"), (5, b"2")]


def test_empty_lines_are_no_messages(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\n\r\n\n")
    assert not has_message(tmp_path, {"a": (0, 4)})
    (tmp_path / "b").write_bytes(b"\n1\n")
    assert has_message(tmp_path, {"a": (0, 4), "b": (0, 3)})


def test_a_file_that_does_not_hold_what_was_claimed_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n")
    with pytest.raises(
        MessagesUnreadableError,
        match="/a holds 2 bytes, and 9 of it are to be read; put it back as it was",
    ):
        check_there(tmp_path, {"a": (0, 9)})
    with pytest.raises(
        MessagesUnreadableError,
        match="/b, of which 9 bytes are to be read, is not there: No such file",
    ):
        check_there(tmp_path, {"b": (0, 9)})
    with pytest.raises(
        MessagesUnreadableError, match="/a ends at byte 2, and is to be read up to 9"
    ):
        list(lines(tmp_path, Slice("a", 0, 9)))
