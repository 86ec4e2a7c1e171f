"""The single values within a row, by where they are: a column, a field of a struct, an element, a field of a JSON text.

Names within JSON texts and keys of maps may be values themselves, such as addresses: what does not look like the name of a field is
taken as a value of what it is in, and so is what comes after many other names at the same place. None of them is ever a path.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)
MAX_NAMES = 100  # at one place within JSON texts
MAX_DEPTH = 20


@dataclass
class Leaves:
    """Where values are, as rows are looked at one after the other."""

    _names: dict[str, set[str]] = field(default_factory=dict)

    def of(self, row: Mapping[str, object]) -> Iterator[tuple[str, str]]:
        """Each value of a row as text, with its path; nothing of what is null, a time or true or false."""
        for name, value in row.items():
            yield from self._of(name, value, 0)

    def _of(self, path: str, value: object, depth: int) -> Iterator[tuple[str, str]]:
        match value:
            case bytes():
                yield from self._of(path, value.decode("utf-8", "ignore"), depth)
            case str():
                parsed = _parsed(value)
                if parsed is None:
                    yield _shown(path), value
                elif ":$" not in path:
                    yield from self._within(f"{path}:$", parsed, depth)
                else:  # a text within a text, into which no path leads
                    yield from ((_shown(path), text) for _, text in Leaves()._within(":$", parsed, depth + 1))
            case bool():
                return
            case int() | float() | Decimal():
                yield _shown(path), str(value)
            case _ if ":$" in path:
                yield from self._within(path, value, depth)
            case Mapping():
                for name, one in value.items():
                    yield from self._of(f"{path}.{name}", one, depth + 1)
            case list() | tuple():
                yield from self._elements(path, value, depth)

    def _elements(self, path: str, several: Iterable[object], depth: int) -> Iterator[tuple[str, str]]:
        """Of an array, or of a map, whose keys are values too."""
        for one in several:
            for value in one if isinstance(one, tuple) else (one,):
                yield from self._of(path, value, depth + 1)

    def _within(self, path: str, value: object, depth: int) -> Iterator[tuple[str, str]]:
        if depth > MAX_DEPTH:
            return
        if isinstance(value, Mapping):
            for name, one in value.items():
                if self._is_field(path, name):
                    yield from self._of(f"{path}.{name}", one, depth + 1)
                else:
                    yield _shown(path), name
                    yield from self._of(path, one, depth + 1)
        elif isinstance(value, list):
            for one in value:
                yield from self._of(f"{path}[]", one, depth + 1)

    def _is_field(self, path: str, name: str) -> bool:
        names = self._names.setdefault(path, set())
        if name in names:
            return True
        if not NAME.fullmatch(name) or len(names) >= MAX_NAMES:
            return False
        names.add(name)
        return True


def _shown(path: str) -> str:
    return path.removesuffix(":$")


def _parsed(text: str) -> object:
    """The object or array that a text is; None of any other."""
    if text[:1] not in "{[" or not text:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None
