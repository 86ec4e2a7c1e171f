"""An event: one JSON object within bounds, its type, its variation, or the reason for its
refusal.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.silver.json import Fields, Fraction, Integer, has_half, parsed

MAX_DIGITS = 38  # of a whole number: what a decimal of the lake holds
_LONGEST_LONG = 20  # characters of the least one, with its sign


class Kind(StrEnum):
    """A kind of values.

    Attributes:
        LONG: A number without fraction and exponent that has 64 bits.
        BIGINT: One of more, that has at most `MAX_DIGITS` digits.
        FRACTION: A number with a fraction or an exponent, be it whole: `1.0` is one. It stands for
            the nearest double.
        HUGE: A number of more digits, or beyond all doubles: its spelling is all that a column can
            hold.
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


MAX_DEPTH = 512  # objects and arrays within each other, the event itself among them
MAX_NAME = 32 * 1024  # bytes of a field's name, in UTF-8
MAX_NUMBER = 1_000  # characters
# bytes of all its paths together: as names are repeated in each path below them, few can be many
MAX_PATHS = 16 << 20


class Refusal(StrEnum):
    """Why a text is no event.

    Attributes:
        NOT_UTF8: Its bytes are no text.
        NOT_JSON: It is not one value of RFC 8259 and nothing else; a byte order mark, `NaN` and
            single quotes are not of it.
        NOT_OBJECT: It is one of another kind.
        TOO_DEEP: More than `MAX_DEPTH` objects and arrays are within each other.
        NAME_TOO_LONG: The name of a field has more than `MAX_NAME` bytes.
        NUMBER_TOO_LONG: A number has more than `MAX_NUMBER` characters.
        PATHS_TOO_LONG: Its paths, each counted once, have more than `MAX_PATHS` bytes together.
    """

    NOT_UTF8 = "not_utf8"
    NOT_JSON = "not_json"
    NOT_OBJECT = "not_object"
    TOO_DEEP = "too_deep"
    NAME_TOO_LONG = "name_too_long"
    NUMBER_TOO_LONG = "number_too_long"
    PATHS_TOO_LONG = "paths_too_long"


class Flag(StrEnum):
    """What is odd about an event that is taken all the same.

    Attributes:
        DUPLICATE: A field's name is there several times in one object.
        SURROGATE: A text or a name has half of a surrogate pair, which no UTF-8 has.
    """

    DUPLICATE = "duplicate"
    SURROGATE = "surrogate"


@dataclass(frozen=True)
class JsonEvent:
    """An event: its fields as `json_text` gives them, and what is odd about them."""

    fields: Fields
    flags: frozenset[Flag] = frozenset()


def event_of(raw: str | bytes) -> JsonEvent | Refusal:
    """The event that a text is, or why it is none."""
    try:
        fields = parsed(raw if isinstance(raw, str) else raw.decode())
    except UnicodeDecodeError:
        return Refusal.NOT_UTF8
    except ValueError:
        return Refusal.NOT_JSON
    if not isinstance(fields, Fields):
        return Refusal.NOT_OBJECT
    flags, problems, paths = set[Flag](), set[Refusal](), _Paths()
    for value, depth in _all_values(fields, paths):
        if depth > MAX_DEPTH:
            return Refusal.TOO_DEEP
        match value:
            case Integer() | Fraction() if len(value) > MAX_NUMBER:
                problems.add(Refusal.NUMBER_TOO_LONG)
            case str() if has_half(value):
                flags.add(Flag.SURROGATE)
            case Fields():
                names = [name for name, _ in value]
                flags |= {Flag.DUPLICATE} if len({*names}) < len(names) else set()
                flags |= {Flag.SURROGATE} if any(map(has_half, names)) else set()
                problems |= {Refusal.NAME_TOO_LONG} if any(map(_is_long, names)) else set()
            case _:
                pass
    problems |= {Refusal.PATHS_TOO_LONG} if paths.bytes > MAX_PATHS else set()
    return next((one for one in Refusal if one in problems), None) or JsonEvent(
        fields, frozenset(flags)
    )


class _Paths:
    """The paths of an event by numbers, the event's own is 0, and how many bytes all have together:
    a name's own and one, or `[]`.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._numbers: dict[tuple[int, str | None], int] = {}
        self._lengths = [0]

    def below(self, path: int, name: str | None) -> int:
        """The path of a field, or of the elements of an array."""
        number = self._numbers.setdefault((path, name), len(self._lengths))
        if number == len(self._lengths):
            self._lengths.append(
                self._lengths[path]
                + (2 if name is None else 1 + len(name.encode(errors="surrogatepass")))
            )
            self.bytes += self._lengths[number]
        return number


def _all_values(fields: Fields, paths: _Paths) -> Iterator[tuple[Any, int]]:
    """All values of an event, each with how many objects and arrays it is or is within; their paths
    are counted on the way.
    """
    waiting: list[tuple[Any, int, int]] = [(fields, 1, 0)]
    while waiting:
        value, depth, path = waiting.pop()
        yield value, depth
        if isinstance(value, list):
            inner = value if isinstance(value, Fields) else [(None, one) for one in value]
            waiting += [
                (one, depth + isinstance(one, list), paths.below(path, name)) for name, one in inner
            ]


def _is_long(name: str) -> bool:
    return len(name) > MAX_NAME // 4 and len(name.encode(errors="surrogatepass")) > MAX_NAME


ROOT = ""
ELEMENT = "[]"
_BYTES = 16  # of a hash
_ESCAPES = str.maketrans({"~": "~0", "/": "~1", "[": "~2"})


@dataclass(frozen=True)
class Variation:
    """The paths of an event and the kinds of what is there.

    A path is the fields that lead to a value, each after a slash, and `[]` where it is an element
    of an array: `/legs[]/from`.
    """

    kinds: frozenset[tuple[str, Kind]] = frozenset()

    @property
    def typed_hash(self) -> str:
        """Of the paths and their kinds."""
        return _hash(f"{kind}{path}" for path, kind in self.kinds)


def variation_of(event: JsonEvent) -> Variation:
    """What an event is made of."""
    found = set[tuple[str, Kind]]()
    waiting: list[tuple[str, Any]] = [(ROOT, event.fields)]
    while waiting:
        path, value = waiting.pop()
        found.add((path, kind_of(value)))
        if isinstance(value, Fields):
            waiting += [(field_path(path, name), one) for name, one in value]
        elif isinstance(value, list):
            waiting += [(path + ELEMENT, one) for one in value]
    return Variation(frozenset(found))


def within_columns(variation: Variation) -> Variation:
    """A variation without the fields that no column is named after, as their names are no text of
    UTF-8.
    """
    return Variation(
        frozenset((path, kind) for path, kind in variation.kinds if not has_half(path))
    )


def field_path(path: str, name: str) -> str:
    """The path of a field of an object; a name's own `~`, `/` and `[` are written as `~0`, `~1` and
    `~2`.
    """
    return f"{path}/{name.translate(_ESCAPES)}"


def _hash(members: Iterable[str]) -> str:
    """The hash of a set: that of its members' own hashes, in their order.

    A sum of them would need no order, and be easy to meet on purpose: whoever chooses a thousand
    names chooses it too.
    """
    return sha256(b"".join(sorted({*map(_digest, members)}))).hexdigest()[: 2 * _BYTES]


@lru_cache(65_536)
def _digest(member: str) -> bytes:
    return sha256(member.encode(errors="surrogatepass")).digest()[:_BYTES]


MAX_TYPE = 512  # characters of a type's name


class NoType(StrEnum):
    """Why an event has no type by which a table could be chosen.

    Attributes:
        MISSING: The field is not there, or a field on the way to it is no object.
        NOT_TEXT: It is no text, or one with half of a surrogate pair.
        HAS_NUL: It is text with a NUL, which PostgreSQL does not hold.
        EMPTY: It is of no character but white space.
        TOO_LONG: It has more than `MAX_TYPE` characters.
    """

    MISSING = "type_missing"
    NOT_TEXT = "type_not_text"
    HAS_NUL = "type_has_nul"
    EMPTY = "type_empty"
    TOO_LONG = "type_too_long"


@dataclass(frozen=True, kw_only=True)
class Scanned:
    """What a payload is; `reason` is why it waits in quarantine, and then nothing else is known.

    Attributes:
        type: Its name, as it is spelled.
        producer: Who sent it, where the event names it by text.
        flags: What is odd about it, in the order of `Flag`.
    """

    reason: Refusal | NoType | None = None
    type: str | None = None
    producer: str | None = None
    typed_hash: str | None = None
    flags: tuple[Flag, ...] = ()


def scanned(
    payload: bytes, type_field: tuple[str, ...], producer_field: tuple[str, ...] = ()
) -> Scanned:
    """What a payload is, with the fields that lead to its type and to its producer; of several of
    one name the last counts.

    Both back-ends give the same for every payload; this one is the plainer of them.
    """
    event = event_of(payload)
    if isinstance(event, Refusal):
        return Scanned(reason=event)
    name = _named(event, type_field)
    if isinstance(name, NoType):
        return Scanned(reason=name)
    variation = variation_of(event)
    return Scanned(
        type=name,
        producer=_producer(event, producer_field),
        typed_hash=variation.typed_hash,
        flags=tuple(flag for flag in Flag if flag in event.flags),
    )


def _named(event: JsonEvent, field: tuple[str, ...]) -> str | NoType:
    found = _at(event, field)
    if found is _NOTHING:
        return NoType.MISSING
    if not _is_text(found):
        return NoType.HAS_NUL if type(found) is str and not has_half(found) else NoType.NOT_TEXT
    assert isinstance(found, str)
    if not found.strip(" \t\r\n"):
        return NoType.EMPTY
    return NoType.TOO_LONG if len(found) > MAX_TYPE else found


def _producer(event: JsonEvent, field: tuple[str, ...]) -> str | None:
    found = _at(event, field) if field else None
    return found[:MAX_TYPE] if isinstance(found, str) and _is_text(found) else None


_NOTHING = object()


def _at(event: JsonEvent, field: tuple[str, ...]) -> object:
    value: object = event.fields
    for name in field:
        found = [one for other, one in value if other == name] if isinstance(value, Fields) else []
        if not found:
            return _NOTHING
        value = found[-1]
    return value


def _is_text(value: object) -> bool:
    """Whether it is text that a database holds; numbers are none, though they are kept as they are
    spelled.
    """
    return type(value) is str and "\0" not in value and not has_half(value)
