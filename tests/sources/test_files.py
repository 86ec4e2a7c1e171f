"""Files of a folder as a source: what a look at them finds, whatever happens to them between two
looks.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.errors import MessagesUnreadableError
from lakechime_dagster.sources.files import FileSource
from lakechime_dagster.sources.kafka import KafkaSource
from lakechime_dagster.sources.source import open_source
from lakechime_dagster.tables.sources import JsonLines, KafkaTopic
from lakechime_dagster.triggers.consumers import FileOffsets


@pytest.fixture
def source(tmp_path: Path) -> FileSource:
    return FileSource(tmp_path, "*.jsonl")


def test_a_file_is_read_up_to_its_last_whole_line(source: FileSource) -> None:
    (source.folder / "a.jsonl").write_bytes(b'{"id":1}\n{"id":2}\n{"id"')
    poll = source.poll(None)
    assert poll.end == FileOffsets({"a.jsonl": 18})
    assert poll.news == f"18 new bytes in a.jsonl of {source.folder}"
    assert poll.rest == "5 bytes at the end of a.jsonl wait for the end of their line"
    (source.folder / "a.jsonl").open("ab").write(b":3}\n")
    poll = source.poll(poll.end)
    assert (poll.end, poll.rest) == (FileOffsets({"a.jsonl": 27}), "")


def test_new_files_are_read_from_their_beginning_and_others_are_none_of_it(
    source: FileSource,
) -> None:
    (source.folder / "a.jsonl").write_bytes(b"1\n")
    (source.folder / "a.json").write_bytes(b"1\n")
    checkpoint = source.poll(None).end
    (source.folder / "b.jsonl").write_bytes(b"22\n")
    (source.folder / "c.jsonl").write_bytes(b"333\n")
    poll = source.poll(checkpoint)
    assert poll.end == FileOffsets({"a.jsonl": 2, "b.jsonl": 3, "c.jsonl": 4})
    assert poll.news == f"7 new bytes in 2 files of {source.folder}"


def test_a_pattern_may_go_into_folders(tmp_path: Path) -> None:
    (tmp_path / "2024" / "05").mkdir(parents=True)
    (tmp_path / "2024" / "05" / "a.jsonl").write_bytes(b"1\n")
    assert FileSource(tmp_path, "**/*.jsonl").poll(None).end == FileOffsets({"2024/05/a.jsonl": 2})


def test_a_file_that_shrank_needs_a_person_and_hides_no_other(source: FileSource) -> None:
    (source.folder / "a.jsonl").write_bytes(b"1\n")
    (source.folder / "b.jsonl").write_bytes(b"1\n")
    poll = source.poll(FileOffsets({"a.jsonl": 1_500}))
    assert poll.end == FileOffsets({"a.jsonl": 1_500, "b.jsonl": 2})
    (problem,) = poll.problems
    assert problem.startswith(
        f"{source.folder}/a.jsonl holds 2 bytes, and 1,500 of it were read: it is not what it was; "
        f"put it back"
    )


def test_a_file_that_was_rewritten_and_is_longer_is_found_by_the_end_of_its_line(
    source: FileSource,
) -> None:
    (source.folder / "a.jsonl").write_bytes(b'{"id":1,"name":"x"}\n')
    (problem,) = source.poll(FileOffsets({"a.jsonl": 9})).problems
    assert (
        "grew to 20 bytes, but at byte 9, up to which it was read, no line ends any more: it was "
        "rewritten" in problem
    )


def test_a_name_that_is_no_text_is_reported(source: FileSource) -> None:
    Path(os.fsdecode(bytes(source.folder) + b"/\xff.jsonl")).write_bytes(b"1\n")
    with pytest.raises(
        MessagesUnreadableError, match=r"'\\udcff\.jsonl' in .* is not UTF-8; rename the file"
    ):
        source.poll(None)


def test_a_declared_source_is_opened_where_its_folder_lies(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.log").write_bytes(b"1\n")
    assert open_source(JsonLines("in", pattern="*.log"), tmp_path.joinpath, {}).poll(
        None
    ).end == FileOffsets({"a.log": 2})
    topic = KafkaTopic("orders", bootstrap="broker:9092")
    assert open_source(JsonLines("in", max_bytes=7), tmp_path.joinpath, {}) == FileSource(
        tmp_path / "in", "*.jsonl", 7
    )
    opened = open_source(topic, Path, {"NAME": "value"}, is_ordered_by_position=True)
    assert opened == KafkaSource(topic, {"NAME": "value"}, is_ordered_by_position=True)
    with pytest.raises(MessagesUnreadableError, match="42 is neither"):
        open_source(42, Path, {})


WRITES = st.lists(
    st.tuples(
        st.sampled_from(["a.jsonl", "b.jsonl"]),
        st.binary(max_size=8).map(lambda raw: raw.replace(b"0", b"\n")),
    )
)


@given(WRITES, st.none() | st.integers(1, 9), st.data())
def test_files_that_grow_in_any_executions_of_any_limit_give_each_whole_line_once(
    writes: list[tuple[str, bytes]], limit: int | None, data: st.DataObject
) -> None:
    with TemporaryDirectory() as folder:
        source, checkpoint = FileSource(Path(folder), "*.jsonl", limit), FileOffsets()
        held: dict[str, bytes] = {}
        read: dict[str, bytes] = {}
        for name, raw in [*writes, *[("a.jsonl", b"")] * 90]:
            held[name] = held.get(name, b"") + raw
            (source.folder / name).open("ab").write(raw)
            if (name, raw) == ("a.jsonl", b"") or data.draw(st.booleans()):
                poll = source.poll(checkpoint)
                end = poll.limited_end or poll.end
                assert isinstance(end, FileOffsets)
                for part, (start, stop) in end.spans_after(checkpoint).items():
                    read[part] = (
                        read.get(part, b"") + (source.folder / part).read_bytes()[start:stop]
                    )
                checkpoint = end
        whole = {name: raw[: raw.rfind(b"\n") + 1] for name, raw in held.items()}
        assert read == {name: raw for name, raw in whole.items() if raw}
