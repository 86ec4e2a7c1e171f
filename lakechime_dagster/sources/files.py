"""Files of JSON lines as a message source."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lakechime_dagster.errors import MessagesUnreadableError
from lakechime_dagster.triggers.consumers import FileOffsets, SourceOffsets


@dataclass(frozen=True, kw_only=True)
class Poll:
    """The state of a source now.

    Attributes:
        end: Up to where it can be read; without `problems`, not before the checkpoint from which it
            was polled.
        news: What lies between that checkpoint and the end, in words; empty where nothing does.
        rest: What is beyond the end and cannot be read yet, in words.
        limited_end: Up to where one execution reads, where its limit is before the end.
        left: What an execution leaves to the next ones by its limit, in words; empty where it reads
            all.
        problems: Why it cannot be read on from the checkpoint unless a person decides how, each
            with the choices.
        kept: With problems, from where all that is there and was not read is read on, if what is
            gone is given up; None where it is the same checkpoint.
    """

    end: SourceOffsets
    news: str = ""
    rest: str = ""
    limited_end: SourceOffsets | None = None
    left: str = ""
    problems: tuple[str, ...] = ()
    kept: SourceOffsets | None = None


class OpenSource(Protocol):
    """A source that can be asked."""

    def poll(self, checkpoint: SourceOffsets | None) -> Poll:
        """What it holds after a checkpoint; None is before everything.

        Raises:
            MessagesUnreadableError: it cannot be asked.
        """
        ...


BLOCK = 1 << 16  # bytes read at once, backwards, to find the end of the last whole line
CHOICES = (
    "put it back as it was, or give what is there now another name, under which it is read from "
    "its beginning, and what was read "
    "of it before is there twice"
)


@dataclass(frozen=True)
class FileSource:
    """The files below a folder whose names match a pattern; an execution reads at most so many
    bytes of them, None is all.

    A file is read up to its last whole line, and may grow. One that was rewritten is noticed by its
    size, or because no line ends any more where it was read up to. One that is gone was read: it
    drops out of the checkpoint, and a later file of its name is a new one.

    An execution that cannot read all takes the files in the order of their names, the last one up
    to a whole line; a line that is longer than the limit is taken alone.
    """

    folder: Path
    pattern: str
    max_bytes: int | None = None

    def poll(self, checkpoint: SourceOffsets | None) -> Poll:
        """What the files hold after a checkpoint.

        Raises:
            MessagesUnreadableError: the folder, or a file in it, cannot be read.
        """
        read = checkpoint.files if isinstance(checkpoint, FileOffsets) else {}
        ends: dict[str, int] = {}
        rest: dict[str, int] = {}
        problems: list[str] = []
        try:
            for name, path, size in sorted(self._files()):
                start = read.get(name, 0)
                problem = _problem(path, start, size)
                problems += [problem] if problem else []
                ends[name] = start if problem else end_of_lines(path, start, size)
                rest |= {name: size - ends[name]} if size > ends[name] and not problem else {}
            end = FileOffsets({name: end for name, end in ends.items() if end})
            short = None if problems else self._step_end(end, FileOffsets(read))
        except OSError as error:
            raise MessagesUnreadableError(
                f"{error.filename or self.folder} cannot be read: {error.strerror or error}"
            ) from error
        news, left = (
            self._news(end, FileOffsets(read)),
            "" if short is None else self._left(end, short),
        )
        return Poll(
            end=end,
            news=news,
            rest=self._rest(rest),
            problems=tuple(problems),
            limited_end=short,
            left=left,
        )

    def _files(self) -> Iterator[tuple[str, Path, int]]:
        if not self.folder.is_dir():
            raise MessagesUnreadableError(
                f"{self.folder} is no folder, or not yet; its files {self.pattern} are to be read"
            )
        for path in self.folder.glob(self.pattern):
            name = path.relative_to(self.folder).as_posix()
            if not _is_text(name):
                raise MessagesUnreadableError(
                    f"{name!a} in {self.folder} is not UTF-8; rename the file"
                )
            try:
                if path.is_file():
                    yield name, path, path.stat().st_size
            except FileNotFoundError:  # between listing and looking
                continue

    def _step_end(self, end: FileOffsets, checkpoint: FileOffsets) -> FileOffsets | None:
        """Up to where one execution reads; None where that is the end."""
        if self.max_bytes is None:
            return None
        room, stops = (
            self.max_bytes,
            {name: checkpoint.files[name] for name in end.files.keys() & checkpoint.files.keys()},
        )
        for name, (start, stop) in end.spans_after(checkpoint).items():
            path, limit = self.folder / name, min(stop, start + room)
            found = end_of_lines(path, start, limit)
            if found == start and room == self.max_bytes:
                found = end_of_line(path, limit)
            stops |= {name: found} if found > start else {}
            if found < stop:
                return FileOffsets(stops)
            room = max(0, room - (found - start))
        return None

    def _left(self, end: FileOffsets, short: FileOffsets) -> str:
        left = sum(stop - start for start, stop in end.spans_after(short).values())
        return (
            f"an execution reads at most {self.max_bytes:,} bytes, so that {left:,} are left to "
            f"the next ones"
        )

    def _news(self, end: FileOffsets, checkpoint: FileOffsets) -> str:
        spans = end.spans_after(checkpoint)
        if not spans:
            return ""
        size = sum(stop - start for start, stop in spans.values())
        where = next(iter(spans)) if len(spans) == 1 else f"{len(spans)} files"
        return f"{size:,} new bytes in {where} of {self.folder}"

    def _rest(self, rest: Mapping[str, int]) -> str:
        if not rest:
            return ""
        where = next(iter(rest)) if len(rest) == 1 else f"{len(rest)} files"
        return f"{sum(rest.values()):,} bytes at the end of {where} wait for the end of their line"


def end_of_lines(path: Path, start: int, size: int) -> int:
    """Where the last whole line between two bytes of a file ends; `start` where there is none."""
    if start >= size:
        return start
    with path.open("rb") as file:
        for stop in range(size, start, -BLOCK):
            begin = max(start, stop - BLOCK)
            file.seek(begin)
            found = file.read(stop - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
    return start


def end_of_line(path: Path, at: int) -> int:
    """Where the line ends in which a byte of a file stands."""
    with path.open("rb") as file:
        file.seek(at)
        file.readline()
        return file.tell()


def _problem(path: Path, start: int, size: int) -> str:
    """Why what was read of a file cannot be what is there now; empty if it can."""
    if size < start:
        return (
            f"{path} holds {size:,} bytes, and {start:,} of it were read: it is not what it was; "
            f"{CHOICES}"
        )
    if start and size > start:
        with path.open("rb") as file:
            file.seek(start - 1)
            if file.read(1) != b"\n":
                what = (
                    f"{path} grew to {size:,} bytes, but at byte {start:,}, up to which it was "
                    f"read, no line ends any more"
                )
                return f"{what}: it was rewritten; {CHOICES}"
    return ""


def _is_text(name: str) -> bool:
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False
