"""What an event is made of: the set of its paths and kinds, and a hash by which events of the same set are known.

Neither the order of fields nor the number of an array's elements makes a difference. As a kind tells what fits a type, all
values of an event whose hash is known fit the columns that were made for it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any

from lakechime_dagster.schema.event import JsonEvent
from lakechime_dagster.schema.json_text import Fields, has_half
from lakechime_dagster.schema.kinds import Kind, kind_of

ROOT = ""
ELEMENT = "[]"
_BYTES = 16  # of a hash
_ESCAPES = str.maketrans({"~": "~0", "/": "~1", "[": "~2"})


@dataclass(frozen=True)
class Variation:
    """The paths of an event and the kinds of what is there.

    A path is the fields that lead to a value, each after a slash, and `[]` where it is an element of an array: `/legs[]/from`.
    """

    kinds: frozenset[tuple[str, Kind]]

    @property
    def typed_hash(self) -> str:
        """Of the paths and their kinds."""
        return _hash(f"{kind}{path}" for path, kind in self.kinds)

    @property
    def names_hash(self) -> str:
        """Of the paths alone."""
        return _hash(path for path, _ in self.kinds)


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
    """A variation without the fields that no column is named after, as their names are no text of UTF-8."""
    return Variation(frozenset((path, kind) for path, kind in variation.kinds if not has_half(path)))


def field_path(path: str, name: str) -> str:
    """The path of a field of an object; a name's own `~`, `/` and `[` are told as `~0`, `~1` and `~2`."""
    return f"{path}/{name.translate(_ESCAPES)}"


def _hash(members: Iterable[str]) -> str:
    """The hash of a set: that of its members' own hashes, in their order.

    A sum of them would need no order, and be easy to meet on purpose: whoever chooses a thousand names chooses it too.
    """
    return sha256(b"".join(sorted({*map(_digest, members)}))).hexdigest()[: 2 * _BYTES]


@lru_cache(65_536)
def _digest(member: str) -> bytes:
    return sha256(member.encode(errors="surrogatepass")).digest()[:_BYTES]
