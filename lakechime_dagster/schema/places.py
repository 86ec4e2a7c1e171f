"""Where values of a path have their place in a layout, and how deep they lie."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from lakechime_dagster.schema.kinds import Kind
from lakechime_dagster.schema.layout import MAX_LEVELS, TELLS_NOTHING, Column, Holds, Layout
from lakechime_dagster.schema.variation import ELEMENT

One = TypeVar("One")
_LAST = {Holds.VARIANT: 1, Holds.JSON: 2}  # of the columns of a field those that take any kind come after the others


def taking(columns: Sequence[Column], kind: Kind) -> Column | None:
    """The column of a field that takes a kind: those of any kind after the others, but the text of objects before them."""
    found = [column for column in columns if column.takes(kind)]
    is_object = kind is Kind.OBJECT
    return min(found, key=lambda one: -1 if is_object and one.holds is Holds.JSON else _LAST.get(one.holds, 0), default=None)


def is_capped(
    layout: Layout, path: str, value: One, kinds_of: Callable[[One], Iterable[Kind]], below: Callable[[One], Iterable[One]]
) -> bool:
    """Whether a value, or whatever tells of several, has no column at a path as there are too many, or it lies too deep.

    Not so where nothing within it asks for a column.
    """
    level, several = _level_of(path), [value]
    while several:
        if any(kind not in TELLS_NOTHING and kind not in (Kind.OBJECT, Kind.ARRAY) for one in several for kind in kinds_of(one)):
            return layout.is_full or level > MAX_LEVELS
        several = [inner for one in several for inner in below(one)]
        level += 1
    return False


def _level_of(path: str) -> int:
    """How deep a path lies; a field of the event itself does at 1."""
    return path.count("/") + path.count(ELEMENT)
