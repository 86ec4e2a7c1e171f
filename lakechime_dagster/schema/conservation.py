"""Whether each event of a type is in its table once, with all its values: compared as leaves, of the event and read back from the row.

A leaf is a single value with its JSON pointer. A field that is null, an empty object or an empty array is as one that is not
there; in an array each of these is a value. Whole numbers are equal exactly, fractions as the nearest double, text by its code points.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.lake.contracts import Contract
from lakechime_dagster.schema.event import JsonEvent, event_of
from lakechime_dagster.schema.json_text import Fields, Fraction, Integer, parsed
from lakechime_dagster.schema.layout import Column, Holds, Layout
from lakechime_dagster.schema.shape import shaped

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


class Fault(StrEnum):
    """What is wrong with an event or a row.

    Attributes:
        LOST: The event has no row, and no contract discards it.
        DOUBLED: Several rows have its `_src`.
        FOREIGN: The row is of no event that the stream's table holds.
        OTHER: The row is of an event of another variation, or of another time.
        LACKS: Its row lacks a value of the event, in its columns and in `_rescued`.
        DIFFERS: Its row has a value that the event has not.
    """

    LOST = "lost"
    DOUBLED = "doubled"
    FOREIGN = "foreign"
    OTHER = "other"
    LACKS = "lacks"
    DIFFERS = "differs"


@dataclass(frozen=True, kw_only=True)
class Example:
    """One of what is wrong, by the row's `_src`; of a value by its JSON pointer too.

    Attributes:
        value: Personal data perhaps, so that it is shown only to who asks for it.
    """

    fault: Fault
    source: str
    pointer: str = ""
    value: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class Verified:
    """A type's table beside the events of the stream's table up to the type's place.

    Attributes:
        table: The name of its table, with the group in whose folder that lies.
        version: Of the type's table; `place` that of the stream's table up to which it holds its events.
        events: Of the type, up to there.
        rows: Of its table.
        discarded: Events without a row that a contract discards, or discarded when they came.
        gone: Rows that are older than all that the stream's table still has.
        sampled: Rows of which each value was looked at.
        faults: How many of each, values of sampled rows only.
        examples: Some of each.
        unread: Why nothing of this is known; empty where it is.
    """

    type: str
    table: str
    version: int = -1
    place: int = -1
    events: int = 0
    rows: int = 0
    discarded: int = 0
    gone: int = 0
    sampled: int = 0
    faults: Mapping[Fault, int] = field(default_factory=dict, hash=False)
    examples: tuple[Example, ...] = ()
    unread: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong with it, as far as it is known."""
        return not self.faults


def value_faults(payload: str, row: Mapping[str, Any], source: str, layout: Layout, contract: Contract) -> list[Example]:
    """The values of an event that its row lacks, and those that the row has beside them.

    Values that the contract leaves out are not looked for: of an event that has some, only what the row has beside them is told.
    """
    event = event_of(payload)
    if not isinstance(event, JsonEvent):
        return [Example(fault=Fault.DIFFERS, source=source, value=f"its event is none: {event}")]
    told = leaves_of(event.fields)
    try:
        found = read_back(row, row.get("_rescued"), layout)
    except ValueError as error:
        return [Example(fault=Fault.DIFFERS, source=source, pointer="/_rescued", value=str(error))]
    leaves_out = shaped(event, layout, contract).discarded > 0
    lacking = [] if leaves_out else _examples(Fault.LACKS, source, told - found)
    return lacking + _examples(Fault.DIFFERS, source, found - told)


def _examples(fault: Fault, source: str, leaves: Leaves) -> list[Example]:
    return [Example(fault=fault, source=source, pointer=pointer, value=_shown(value)) for pointer, value in sorted(leaves, key=str)]


def _shown(value: Any) -> str:
    return str(value[1] if isinstance(value, tuple) else value)
