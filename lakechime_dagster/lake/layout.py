"""How the rows of a clustered table lie: how many bytes hold a value, and how many would if they lay together."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

Span = tuple[Any, Any]  # the least and the greatest value of a column in a file


def opened(files: Iterable[tuple[Span | None, int]]) -> float:
    """The bytes of the files that may hold a value, by spans and sizes, on average over where spans begin; 0 where one is not known."""
    spans = [(span, size) for span, size in files]
    known = [(span[0], span[1], size) for span, size in spans if span is not None]
    if not known or len(known) < len(spans):
        return 0.0
    starts, begun = _summed((start, size) for start, _, size in known)
    ends, ended = _summed((end, size) for _, end, size in known)
    return sum(begun[bisect_right(starts, value)] - ended[bisect_left(ends, value)] for value in starts) / len(known)


def wanted(size: int, target_file: int, dimensions: int) -> float:
    """The bytes that hold a value of the first of several columns in a table of a size that is laid out by all of them."""
    return target_file * max(1.0, size / target_file) ** (1 - 1 / dimensions)


def _summed(sizes: Iterable[tuple[Any, int]]) -> tuple[list[Any], list[int]]:
    """Values in order, and the sum of the sizes of so many of the first of them."""
    ordered = sorted(sizes)
    return [value for value, _ in ordered], [0, *accumulate(size for _, size in ordered)]
