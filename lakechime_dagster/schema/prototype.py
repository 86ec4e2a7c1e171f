"""An event without what it says: its fields with values that tell nothing but their kind, to be shown to anybody."""

from typing import Any

from lakechime_dagster.schema.event import JsonEvent
from lakechime_dagster.schema.json_text import Fields, Fraction, Integer, text_of
from lakechime_dagster.schema.kinds import Kind, kind_of

HIDDEN = "…"
MAX_ELEMENTS = 3  # of an array
MAX_LEVELS = 64  # what lies deeper is told as text
MAX_LENGTH = 100_000  # characters; a longer one is cut, and no JSON then


def shape_of(event: JsonEvent) -> str:
    """The JSON of an event with its fields kept, and of each value its kind alone."""
    return text_of(_without_values(event.fields))[:MAX_LENGTH]


def _without_values(value: Any, level: int = 1) -> Any:
    match kind_of(value):
        case Kind.OBJECT | Kind.ARRAY if level > MAX_LEVELS:
            return HIDDEN
        case Kind.OBJECT:
            return Fields([(name, _without_values(one, level + 1)) for name, one in value])
        case Kind.ARRAY:
            return [_without_values(one, level + 1) for one in value[:MAX_ELEMENTS]]
        case Kind.STRING:
            return HIDDEN
        case Kind.LONG:
            return Integer("1")
        case Kind.BIGINT | Kind.HUGE:
            return Integer("9" * len(value)) if isinstance(value, Integer) else Fraction("9e999")
        case Kind.FRACTION:
            return Fraction("1.5")
        case Kind.BOOL:
            return True
        case _:
            return value
