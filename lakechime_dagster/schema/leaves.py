"""What an event says, as a set of leaves: its own, and those that are read back from a row of its table.

A leaf is a single value with its JSON pointer. A field that is null, an empty object or an empty array is as one that is not
there; in an array each of these is a value. Whole numbers are equal exactly, fractions as the nearest double, text by its code points.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from lakechime_dagster.schema.json_text import Fields, Fraction, Integer, parsed
from lakechime_dagster.schema.layout import Column, Holds, Layout

Leaves = Counter[tuple[str, Any]]


def leaves_of(value: Any, pointer: str = "") -> Leaves:
    """The leaves of a value as `json_text` gives it, or as Spark does by the types of columns."""
    found: Leaves = Counter()
    match value:
        case Fields():
            for name, one in value:
                here = f"{pointer}/{_escaped(name)}"
                inner = leaves_of(one, here)
                found += inner if not _is_nothing(inner, here) else Counter()
            return found or Counter([(pointer, "{}")])
        case list():
            for at, one in enumerate(value):
                found += leaves_of(one, f"{pointer}/{at}")
            return found or Counter([(pointer, "[]")])
        case bool() | None:
            return Counter([(pointer, repr(value))])
        case Fraction():
            return Counter([(pointer, ("number", float(value) if abs(float(value)) != float("inf") else str(value)))])
        case Integer() | int() | float():
            return Counter([(pointer, ("number", int(value) if not isinstance(value, float) else value))])
        case _:
            return Counter([(pointer, ("text", str(value)))])


def read_back(row: Mapping[str, Any], rescued: str | None, layout: Layout) -> Leaves:
    """The leaves of a row (its values as Python has them, structs as maps) and of its `_rescued`.

    Raises:
        ValueError: `_rescued`, or a column that keeps text of JSON, is none.
    """
    found = leaves_of(_fields(row, layout.columns))
    told: Leaves = Counter()
    pointers: list[str] = []
    for one in parsed(rescued or "[]"):
        entry = dict(one)
        if [*entry] != ["p", "v", "r"]:
            raise ValueError(f"_rescued has an entry with {[*entry]}, not p, v and r")
        pointer, inner = entry["p"], leaves_of(entry["v"], entry["p"])
        if _is_nothing(inner, pointer) and (pointer, "None") not in found:
            continue  # of a field, not of an array's element
        told += inner
        pointers.append(pointer)
    for pointer, value in [*found]:
        is_place = value == "None" and pointer in pointers  # in an array, of what is told
        if is_place or (value == "{}" and any(one.startswith(pointer + "/") for one in pointers)):
            del found[pointer, value]
    return found + told


def _fields(row: Mapping[str, Any], columns: Sequence[Column]) -> Fields:
    pairs = [(column, row.get(column.name)) for column in columns]
    return Fields([(column.field, _value(value, column)) for column, value in pairs if value is not None])


def _value(value: Any, column: Column) -> Any:
    if value is None:
        return None
    match column.holds:
        case Holds.OBJECT:
            return _fields(value, column.fields)
        case Holds.ARRAY:
            assert column.element is not None
            return [_value(one, column.element) for one in value]
        case Holds.JSON | Holds.HUGE:
            return parsed(value)
        case Holds.VARIANT:
            return _plain(value)
        case Holds.BIGINT:
            return int(value)
        case _:
            return value


def _plain(value: Any) -> Any:
    """What a VARIANT holds, as Python's reader gives its JSON."""
    if isinstance(value, dict):
        return Fields([(name, _plain(one)) for name, one in value.items()])
    return [*map(_plain, value)] if isinstance(value, list) else value


def _is_nothing(leaves: Leaves, pointer: str) -> bool:
    """Whether a field with these leaves is as one that is not there."""
    return [*leaves] in ([(pointer, "None")], [(pointer, "{}")], [(pointer, "[]")])


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
