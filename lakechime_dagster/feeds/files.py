"""Files of JSON lines in a folder: which grew, up to which whole line, and which are not what they were."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lakechime_dagster.errors import FeedUnreadableError
from lakechime_dagster.feeds.look import Look
from lakechime_dagster.triggers.feeds import FeedPlace, FilesPlace

BLOCK = 1 << 16  # bytes read at once, backwards, to find the end of the last whole line
CHOICES = (
    "put it back as it was, or give what is there now another name, under which it is read from its beginning, and what was read "
    "of it before is there twice"
)


@dataclass(frozen=True)
class FilesFeed:
    """The files below a folder whose names match a pattern.

    A file is read up to its last whole line, and may grow. One that was written anew is noticed by its size, or because no
    line ends any more where it was read up to. One that is gone was read: it drops out of the place, and a file that comes
    under its name later is a new one.
    """

    folder: Path
    pattern: str

    def look(self, place: FeedPlace | None) -> Look:
        """What the files hold after a place.

        Raises:
            FeedUnreadableError: the folder, or a file in it, cannot be read.
        """
        read = place.files if isinstance(place, FilesPlace) else {}
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
        except OSError as error:
            raise FeedUnreadableError(f"{error.filename or self.folder} cannot be read: {error.strerror or error}") from error
        end = FilesPlace({name: end for name, end in ends.items() if end})
        return Look(end=end, came=self._came(end, FilesPlace(read)), rest=self._rest(rest), problems=tuple(problems))

    def _files(self) -> Iterator[tuple[str, Path, int]]:
        if not self.folder.is_dir():
            raise FeedUnreadableError(f"{self.folder} is no folder, or not yet; its files {self.pattern} are to be read")
        for path in self.folder.glob(self.pattern):
            name = path.relative_to(self.folder).as_posix()
            if not _is_text(name):
                raise FeedUnreadableError(f"{name!a} in {self.folder} is not UTF-8; rename the file")
            try:
                if path.is_file():
                    yield name, path, path.stat().st_size
            except FileNotFoundError:  # between listing and looking
                continue

    def _came(self, end: FilesPlace, place: FilesPlace) -> str:
        spans = end.spans_after(place)
        if not spans:
            return ""
        size = sum(stop - start for start, stop in spans.values())
        where = next(iter(spans)) if len(spans) == 1 else f"{len(spans)} files"
        return f"{size:,} bytes came in {where} of {self.folder}"

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


def _problem(path: Path, start: int, size: int) -> str:
    """Why what was read of a file cannot be what is there now; empty if it can."""
    if size < start:
        return f"{path} holds {size:,} bytes, and {start:,} of it were read: it is not what it was; {CHOICES}"
    if start and size > start:
        with path.open("rb") as file:
            file.seek(start - 1)
            if file.read(1) != b"\n":
                what = f"{path} grew to {size:,} bytes, but at byte {start:,}, up to which it was read, no line ends any more"
                return f"{what}: it was written anew; {CHOICES}"
    return ""


def _is_text(name: str) -> bool:
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False
