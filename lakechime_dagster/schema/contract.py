"""What a group lets its events change, and what people say of single paths."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Mode(StrEnum):
    """What becomes of something new.

    Attributes:
        EVOLVE: It gets a table, a column, or a sibling of one.
        FREEZE: It gets none; its values are kept in `_rescued`, as frozen, and events of a new type wait in bronze.
        RESCUE: The same, as of an unknown path, without a word to anybody.
        DISCARD_VALUE: Its values are left out, and counted.
        DISCARD_ROW: Events with it are left out, and counted.
    """

    EVOLVE = "evolve"
    FREEZE = "freeze"
    RESCUE = "rescue"
    DISCARD_VALUE = "discard_value"
    DISCARD_ROW = "discard_row"


class Pin(StrEnum):
    """The type that a column has from its birth.

    Attributes:
        DOUBLE: Whole numbers are held too, where a double is exactly that number.
        JSON: The text of whatever is there; how objects whose fields are ids are kept.
        IGNORE: No column; its values are left out.
    """

    BOOL = "bool"
    LONG = "long"
    BIGINT = "bigint"
    DOUBLE = "double"
    STRING = "string"
    JSON = "json"
    IGNORE = "ignore"


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What may change: tables of new types, columns of new paths, siblings for new kinds of values.

    Attributes:
        is_double_first: A number's column is a double from its birth, unless it is pinned.
        pins: By path, such as `/items[]/price`.
    """

    tables: Mode = Mode.EVOLVE
    columns: Mode = Mode.EVOLVE
    kinds: Mode = Mode.EVOLVE
    is_double_first: bool = False
    pins: Mapping[str, Pin] = field(default_factory=dict, hash=False)
