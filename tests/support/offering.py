"""A writer that offers the lines of a drift, a file each second, which it has prepared: to offer
them costs next to nothing.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from typing_extensions import Self

from tests.support.background import Background
from tests.support.drift import Drift


@dataclass(frozen=True)
class Prepared:
    """The files of a drift beside the folder into which they go, and how many lines each has."""

    drift: Drift
    staging: Path
    folder: Path
    # of the lines of each file, in their order
    types: dict[str, list[str | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, drift: Drift, home: Path) -> "Prepared":
        """Files below a home, rewritten."""
        prepared = cls(drift, home / "staging", home / "in")
        prepared.staging.mkdir()
        prepared.folder.mkdir()
        for second in range(drift.seconds):
            lines = [*drift.lines(second)]
            name = f"{second:05}.jsonl"
            (prepared.staging / name).write_bytes(b"".join(line + b"\n" for _, line in lines))
            prepared.types[name] = [kind for kind, _ in lines]
        return prepared

    def lines(self) -> Iterator[tuple[str, str | None, bytes]]:
        """All that was offered: the name of each line's row, its type, and what it says."""
        for name, kinds in self.types.items():
            at = 0
            lines = (self.folder / name).read_bytes().split(b"\n")
            for kind, line in zip(kinds, lines, strict=False):
                yield f"{name}@{at}", kind, line
                at += len(line) + 1


class Writer(Background):
    """Offers each prepared file in the folder, whole, one a second from when it is entered."""

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(pause=0.01)
        self._prepared = prepared
        self._names = list(prepared.types)
        self._begun = 0.0
        self.moments: dict[str, float] = {}  # at which each file came, in seconds since the epoch
        self.files = 0
        self.lines = 0
        self.events = 0  # of these lines, without those that are none

    def __enter__(self) -> Self:
        self._begun = time.monotonic() - self.files
        return super().__enter__()

    @property
    def is_through(self) -> bool:
        return self.files == len(self._names)

    def turn(self) -> None:
        """One that is late is followed by the next one at once: what is offered in all time is as
        many a second.
        """
        if self.is_through or time.monotonic() < self._begun + self.files:
            return
        name = self._names[self.files]
        (self._prepared.staging / name).rename(self._prepared.folder / name)
        self.moments[name] = time.time()
        self.files += 1
        kinds = self._prepared.types[name]
        self.lines += len(kinds)
        self.events += sum(1 for kind in kinds if kind is not None)

    def close(self) -> None:
        pass
