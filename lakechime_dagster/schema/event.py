"""An event as the lake takes it: one JSON object within bounds, or the reason why it is none.

The reasons are looked for in their order, each in the whole text: whoever reads it in another way finds the same one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.schema.json_text import Fields, Fraction, Integer, has_half, parsed

MAX_DEPTH = 512  # objects and arrays within each other, the event itself among them
MAX_NAME = 32 * 1024  # bytes of a field's name, in UTF-8
MAX_NUMBER = 1_000  # characters
MAX_PATHS = 16 << 20  # bytes of all its paths together: as names are told again with each path below them, few can be many


class Refusal(StrEnum):
    """Why a text is no event.

    Attributes:
        NOT_UTF8: Its bytes are no text.
        NOT_JSON: It is not one value of RFC 8259 and nothing else; a byte order mark, `NaN` and single quotes are not of it.
        NOT_OBJECT: It is one of another kind.
        TOO_DEEP: More than `MAX_DEPTH` objects and arrays are within each other.
        NAME_TOO_LONG: The name of a field has more than `MAX_NAME` bytes.
        NUMBER_TOO_LONG: A number has more than `MAX_NUMBER` characters.
        PATHS_TOO_LONG: Its paths, each told once, have more than `MAX_PATHS` bytes together.
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
    return next((one for one in Refusal if one in problems), None) or JsonEvent(fields, frozenset(flags))


class _Paths:
    """The paths of an event by numbers, the event's own is 0, and how many bytes all have together: a name's own and one, or `[]`."""

    def __init__(self) -> None:
        self.bytes = 0
        self._numbers: dict[tuple[int, str | None], int] = {}
        self._lengths = [0]

    def below(self, path: int, name: str | None) -> int:
        """The path of a field, or of the elements of an array."""
        number = self._numbers.setdefault((path, name), len(self._lengths))
        if number == len(self._lengths):
            self._lengths.append(self._lengths[path] + (2 if name is None else 1 + len(name.encode(errors="surrogatepass"))))
            self.bytes += self._lengths[number]
        return number


def _all_values(fields: Fields, paths: _Paths) -> Iterator[tuple[Any, int]]:
    """All values of an event, each with how many objects and arrays it is or is within; their paths are told on the way."""
    waiting: list[tuple[Any, int, int]] = [(fields, 1, 0)]
    while waiting:
        value, depth, path = waiting.pop()
        yield value, depth
        if isinstance(value, list):
            inner = value if isinstance(value, Fields) else [(None, one) for one in value]
            waiting += [(one, depth + isinstance(one, list), paths.below(path, name)) for name, one in inner]


def _is_long(name: str) -> bool:
    return len(name) > MAX_NAME // 4 and len(name.encode(errors="surrogatepass")) > MAX_NAME
