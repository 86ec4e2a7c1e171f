"""The kinds of JSON's values, told by how they are spelled: what is of one kind fits one type of the lake."""

import math
from typing import Any

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.schema.json_text import Fields, Fraction, Integer

MAX_DIGITS = 38  # of a whole number: what a decimal of the lake holds
_LONGEST_LONG = 20  # characters of the least one, with its sign


class Kind(StrEnum):
    """A kind of values.

    Attributes:
        LONG: A number without fraction and exponent that has 64 bits.
        BIGINT: One of more, that has at most `MAX_DIGITS` digits.
        FRACTION: A number with a fraction or an exponent, be it whole: `1.0` is one. It stands for the nearest double.
        HUGE: A number of more digits, or beyond all doubles: its spelling is all that a column can hold.
        EMPTY_OBJECT: An object without fields, of which nobody knows what it is made of.
        EMPTY_ARRAY: An array without elements, likewise.
    """

    NULL = "null"
    BOOL = "bool"
    LONG = "long"
    BIGINT = "bigint"
    FRACTION = "fraction"
    HUGE = "huge"
    STRING = "string"
    OBJECT = "object"
    ARRAY = "array"
    EMPTY_OBJECT = "empty object"
    EMPTY_ARRAY = "empty array"


def kind_of(value: Any) -> Kind:
    """The kind of a value as `json_text` gives it."""
    match value:
        case None:
            return Kind.NULL
        case bool():
            return Kind.BOOL
        case Integer():
            return _whole(value)
        case Fraction():
            return Kind.HUGE if math.isinf(float(value)) else Kind.FRACTION
        case str():
            return Kind.STRING
        case Fields():
            return Kind.OBJECT if value else Kind.EMPTY_OBJECT
        case list():
            return Kind.ARRAY if value else Kind.EMPTY_ARRAY
        case _:
            raise TypeError(f"{type(value).__name__} is no value of JSON")


def _whole(spelled: Integer) -> Kind:
    """By its length first: no number of a thousand digits is computed."""
    if len(spelled) <= _LONGEST_LONG and -(2**63) <= int(spelled) < 2**63:
        return Kind.LONG
    return Kind.BIGINT if len(spelled.lstrip("-")) <= MAX_DIGITS else Kind.HUGE
