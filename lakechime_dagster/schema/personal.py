"""Which columns of a type's table hold what is personal in its events, by patterns of their paths."""

from collections.abc import Iterable, Iterator

from lakechime_dagster.lake.type_patterns import is_matched, overlap
from lakechime_dagster.schema.event import ELEMENT, ROOT, field_path
from lakechime_dagster.schema.layout import Column, Holds, Layout

_WHOLE = (Holds.JSON, Holds.VARIANT, Holds.ARRAY, Holds.OBJECT)


def personal_columns(layout: Layout, patterns: Iterable[str]) -> tuple[str, ...]:
    """The columns, or fields of structs by dotted names, at a path that a pattern matches, and all within one; siblings too.

    A column that holds a value whole, as text or as an array, is personal where a pattern leads into it.
    """
    return tuple(name for name, _ in personal_leaves(layout, patterns))


def personal_leaves(layout: Layout, patterns: Iterable[str]) -> list[tuple[str, str]]:
    """The same, each with the pattern that says so, the first one."""
    several = tuple(patterns)
    return [
        (name, found)
        for name, path, is_whole in _columns(layout.columns, ROOT, ())
        if (found := next((one for one in several if _says(one, path, is_whole)), None)) is not None
    ]


def _says(pattern: str, path: str, is_whole: bool) -> bool:
    parts = path.split("/")
    above = ["/".join(parts[:length]) for length in range(2, len(parts) + 1)]
    within = is_whole and (overlap(pattern, f"{path}/*") or overlap(pattern, f"{path}{ELEMENT}*"))
    return within or any(is_matched(pattern, one) for one in above)


def _columns(columns: Iterable[Column], path: str, names: tuple[str, ...]) -> Iterator[tuple[str, str, bool]]:
    """Each leaf: its name, its path, and whether it holds a value of which parts may be personal."""
    for one in columns:
        here, named = field_path(path, one.field), (*names, one.name)
        if one.fields:
            yield from _columns(one.fields, here, named)
        else:
            yield ".".join(named), here, one.holds in _WHOLE
