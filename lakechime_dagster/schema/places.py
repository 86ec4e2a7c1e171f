"""Where values of a path have their place in a layout, and how deep they lie."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from lakechime_dagster.lake.event_names import column_of
from lakechime_dagster.lake.names import folded
from lakechime_dagster.schema.kinds import Kind
from lakechime_dagster.schema.layout import MAX_LEVELS, Column, Holds
from lakechime_dagster.schema.observed import SAYS_NOTHING
from lakechime_dagster.schema.variation import ELEMENT

One = TypeVar("One")


def taking(columns: Sequence[Column], kind: Kind) -> Column | None:
    """The column of a field that takes a kind: the text of whatever is there after the others, but of objects before them.

    A VARIANT comes behind all others as it is, since once it is there no further column of its field is added.
    """
    texts_last = -1 if kind is Kind.OBJECT else 1
    return min((one for one in columns if one.takes(kind)), key=lambda one: texts_last * (one.holds is Holds.JSON), default=None)


def is_name_taken(columns: Sequence[Column], field: str) -> bool:
    """Whether a column has the name, but for the letters' case, that the column of a field would have."""
    name = folded(column_of(field))
    return any(folded(one.name) == name for one in columns)


def is_capped(
    is_full: bool, path: str, value: One, kinds_of: Callable[[One], Iterable[Kind]], below: Callable[[One], Iterable[One]]
) -> bool:
    """Whether a value, or whatever tells of several, has no column at a path as the layout is full, or it lies too deep.

    Not so where nothing within it asks for a column.
    """
    level, several = _level_of(path), [value]
    while several:
        if any(kind not in SAYS_NOTHING and kind not in (Kind.OBJECT, Kind.ARRAY) for one in several for kind in kinds_of(one)):
            return is_full or level > MAX_LEVELS
        several = [inner for one in several for inner in below(one)]
        level += 1
    return False


def _level_of(path: str) -> int:
    """How deep a path lies; a field of the event itself does at 1."""
    return path.count("/") + path.count(ELEMENT)
