"""Many keys a few at a time, since a statement takes only so many."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")

PARAMETERS = 5_000  # of one statement


def slices(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """The items in their order, so many at a time; the last ones may be fewer."""
    return (items[start : start + size] for start in range(0, len(items), size))
