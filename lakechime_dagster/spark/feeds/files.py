"""Files of lines, read slice by slice by plain Python, also in the processes that work for Spark."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lakechime_dagster.errors import FeedUnreadableError
from lakechime_dagster.triggers.feeds import Span

SLICE = 32 << 20  # bytes that one task reads
ROWS, BYTES = 10_000, 8 << 20  # of a batch that is handed over


@dataclass(frozen=True)
class Slice:
    """Some bytes of a file: the lines that begin in them, the last of which may end behind them."""

    name: str
    start: int
    stop: int


def tasks(spans: Mapping[str, Span], size: int) -> list[list[Slice]]:
    """The spans of files as tasks of about one size: a large file in several, many small ones in one."""
    found: list[list[Slice]] = []
    room = 0
    for name, (start, stop) in spans.items():
        while start < stop:
            if room <= 0:
                found.append([])
                room = size
            end = min(stop, start + room)
            found[-1].append(Slice(name, start, end))
            room -= end - start
            start = end
    return found


def check_there(folder: Path, spans: Mapping[str, Span]) -> None:
    """Refuse to read files that do not hold any more what was claimed of them.

    Raises:
        FeedUnreadableError: naming the file and both sizes.
    """
    for name, (_, stop) in spans.items():
        path = folder / name
        try:
            size = path.stat().st_size
        except OSError as error:
            raise FeedUnreadableError(
                f"{path}, of which {stop:,} bytes are to be read, is not there: {error.strerror}; put it back"
            ) from error
        if size < stop:
            raise FeedUnreadableError(f"{path} holds {size:,} bytes, and {stop:,} of it are to be read; put it back as it was")


def has_message(folder: Path, spans: Mapping[str, Span]) -> bool:
    """Whether any line between these bytes is not empty."""
    return any(True for name, (start, stop) in spans.items() for _ in lines(folder, Slice(name, start, stop)))


def lines(folder: Path, part: Slice) -> Iterator[tuple[int, bytes]]:
    """The lines that begin in a slice, without their ends, each with the byte at which it begins; empty ones are left out.

    Raises:
        FeedUnreadableError: the file ends before.
    """
    with (folder / part.name).open("rb") as file:
        at = part.start
        if at:  # a line that begins before is another slice's
            file.seek(at - 1)
            at += len(file.readline()) - 1
        while at < part.stop:
            line = file.readline()
            if not line.endswith(b"\n"):
                raise FeedUnreadableError(f"{folder / part.name} ends at byte {at + len(line):,}, and is to be read up to {part.stop:,}")
            if content := line.rstrip(b"\r\n"):
                yield at, content
            at += len(line)


class Line(NamedTuple):
    """A line of a file: the byte at which it begins, and when the file was written last, in nanoseconds."""

    name: str
    at: int
    content: bytes
    written_ns: int


def batches(folder: Path, parts: Iterable[Slice]) -> Iterator[list[Line]]:
    """The lines of slices in lists of at most `ROWS`, and of about `BYTES`.

    Raises:
        FeedUnreadableError: a file ends before its slice does.
    """
    found: list[Line] = []
    size = 0
    for part in parts:
        written_ns = (folder / part.name).stat().st_mtime_ns
        for at, content in lines(folder, part):
            found.append(Line(part.name, at, content, written_ns))
            size += len(content)
            if len(found) >= ROWS or size >= BYTES:
                yield found
                found, size = [], 0
    if found:
        yield found
