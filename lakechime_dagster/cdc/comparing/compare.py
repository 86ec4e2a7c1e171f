"""Comparing two tables by the checksums of ranges of keys, down to the rows that differ."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.errors import InvalidValueError

Key = tuple[str, ...]
Row = tuple[Key, int]  # its key and its hash
Range = tuple[Key | None, Key | None]


@dataclass(frozen=True)
class Summary:
    """The checksum of a range of keys."""

    count: int
    distinct: int
    sum: int


class HasRows(Protocol):
    """One of the two tables as far as its rows are read by their keys."""

    def at(self, keys: Sequence[Key]) -> Sequence[Row]:
        """All rows of these keys."""
        ...


class Side(HasRows, Protocol):
    """One of the two tables. A range is from a key, exclusive, to another, inclusive; None is an open end.

    Keys are equal on both sides exactly where their rows are to be, and both sides order them alike.
    """

    def summary(self, low: Key | None, high: Key | None) -> Summary: ...

    def rows(self, low: Key | None, high: Key | None) -> Sequence[Row]:
        """All rows of a range."""
        ...

    def middle(self, low: Key | None, high: Key | None, offset: int) -> Key | None:
        """The key of the row before which so many rows of the range come."""
        ...


def chunks(side: Side, size: int) -> Iterator[Range]:
    """All keys in ranges of so many rows of one side, one after the other: none takes the database long, given an index of the key.

    Raises:
        InvalidValueError: `size` is below 1.
    """
    if size < 1:
        raise InvalidValueError("size", size, "is how many rows a range has; give 1 or more")
    low: Key | None = None
    while (high := side.middle(low, None, size - 1)) is not None:
        yield low, high
        low = high
    yield low, None


class Fault(StrEnum):
    """How the rows of a key differ."""

    MISSING = "missing"  # the source has it, the lake has not
    EXTRA = "extra"  # the lake has it, the source has not
    DIFFERENT = "different"
    DUPLICATE = "duplicate"  # one side has it more often


@dataclass(frozen=True)
class Differences:
    """What a comparison found.

    Attributes:
        faults: Of each key whose rows differ, how.
        unresolved: Ranges of which it is not known, because the queries were used up.
        queries: How many were asked, of both sides together.
        source_rows: The rows of the source in the ranges of which it is known.
        lake_rows: Those of the lake.
    """

    faults: Mapping[Key, Fault]
    unresolved: tuple[Range, ...]
    queries: int
    source_rows: int = field(default=0, compare=False)
    lake_rows: int = field(default=0, compare=False)

    @property
    def is_equal(self) -> bool:
        return not self.faults and not self.unresolved


def compare(
    source: Side, lake: Side, *, ranges: Sequence[Range] = ((None, None),), leaf: int = 1_000, max_queries: int = 1_000
) -> Differences:
    """The rows in which two tables differ.

    A range whose summaries differ is halved until it has at most `leaf` rows on either side; those are read. The first rows
    come first, so that a comparison that its `max_queries` end has rows to show.

    Raises:
        InvalidValueError: `leaf` is below 1.
    """
    if leaf < 1:
        raise InvalidValueError("leaf", leaf, "is how many rows are read at once; give 1 or more")
    faults, queries, rows = dict[Key, Fault](), 0, Counter[str]()
    ahead = list(reversed(ranges))
    while ahead and queries + _OF_A_STEP <= max_queries:
        low, high = ahead.pop()
        ours, theirs = source.summary(low, high), lake.summary(low, high)
        queries += 2
        if ours == theirs:
            rows.update(source=ours.count, lake=theirs.count)
            continue
        middle = None
        if max(ours.count, theirs.count) > leaf:
            larger, count = (source, ours.count) if ours.count >= theirs.count else (lake, theirs.count)
            middle = larger.middle(low, high, count // 2 - 1)
            queries += 1
        if middle is None or middle == high:
            faults |= _faults(source.rows(low, high), lake.rows(low, high))
            rows.update(source=ours.count, lake=theirs.count)
            queries += 2
        else:
            ahead += [(middle, high), (low, middle)]
    return Differences(faults, tuple(reversed(ahead)), queries, source_rows=rows["source"], lake_rows=rows["lake"])


_OF_A_STEP = 5  # two summaries, a middle, the rows of both sides


def confirmed(found: Differences, source: HasRows, lake: HasRows, *, at_once: int = 500) -> Differences:
    """The differences that are there still when the rows of their keys are read again.

    Where the two sides are not read at one cut, a row may be on its way: read again later, it has arrived.
    """
    suspects = list(found.faults)
    faults, queries = dict[Key, Fault](), found.queries
    for start in range(0, len(suspects), at_once):
        keys = suspects[start : start + at_once]
        faults |= _faults(source.at(keys), lake.at(keys))
        queries += 2
    return replace(found, faults=faults, queries=queries)


def _faults(source: Iterable[Row], lake: Iterable[Row]) -> dict[Key, Fault]:
    ours, theirs = _by_key(source), _by_key(lake)
    return {key: _fault(ours.get(key), theirs.get(key)) for key in ours | theirs if ours.get(key) != theirs.get(key)}


def _by_key(rows: Iterable[Row]) -> dict[Key, Counter[int]]:
    found: dict[Key, Counter[int]] = {}
    for key, value in rows:
        found.setdefault(key, Counter())[value] += 1
    return found


def _fault(ours: Counter[int] | None, theirs: Counter[int] | None) -> Fault:
    if theirs is None:
        return Fault.MISSING
    if ours is None:
        return Fault.EXTRA
    return Fault.DIFFERENT if ours.total() == theirs.total() else Fault.DUPLICATE
