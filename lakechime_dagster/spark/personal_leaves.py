"""The values in rows that are JSON texts, texts within texts too, at places that patterns tell: a plain function over Arrow's batches."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from lakechime_dagster.lake.names import folded
from lakechime_dagster.lake.type_patterns import is_matched
from lakechime_dagster.schema.event import ELEMENT, ROOT, field_path
from lakechime_dagster.spark.batches import CHUNK, Batches, record_batches

UNREADABLE = -1  # as the place of a row with a text that cannot be read
LEAVES = pa.schema([("id", pa.int64()), ("at", pa.int32()), ("value", pa.string()), ("row", pa.string())])
LEAVES_DDL = "id bigint, at int, value string, row string"
OPENING = frozenset('{[" \t\n\r')  # with what a text begins that is JSON itself; numbers are told as they are
MAX_DEPTH = 64  # of values in values; what is deeper is not looked into


@dataclass(frozen=True)
class Leaves:
    """Of each row what stands where a pattern matches: the pattern's place among them, the value as text, and the row.

    A pattern matches a value at its path, as `schema.variation` writes it, and all values within. A row of which one of these
    columns holds a text that is no JSON, or bytes that are no text in `<column>_bytes`, has a leaf `UNREADABLE` too, without the row.
    Nothing here raises: an error would tell of a row.
    """

    patterns: tuple[str, ...]
    texts: tuple[str, ...] = ()

    def __call__(self, batches: Batches) -> Batches:
        """Leaves of batches of the rows' ids and texts."""
        found: list[tuple[Any, ...]] = []
        for batch in batches:
            for number, text in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                found += self._of_row(number, text)
                if len(found) >= CHUNK:
                    yield from record_batches(found, LEAVES)
                    found = []
        yield from record_batches(found, LEAVES)

    def _of_row(self, number: int, text: str) -> list[tuple[Any, ...]]:
        row = _read(text)
        if not isinstance(row, dict):
            return [(number, UNREADABLE, "", None)]
        seen = {(at, value) for path, value in leaves(row) for at in _matching(self.patterns, path)}
        told = [(number, at, value, text) for at, value in sorted(seen)]
        return told + ([(number, UNREADABLE, "", None)] if any(_is_unreadable(row, name) for name in self.texts) else [])


def leaves(value: Any) -> Iterator[tuple[str, str]]:
    """The single values in one, but nulls: the path of each, which goes on into texts that are JSON, and the value as text.

    Names of fields are among them, at the path of their object, as some are values: of objects by address, say.
    """
    waiting: list[tuple[str, Any, int]] = [(ROOT, value, 0)]
    while waiting:
        path, one, depth = waiting.pop()
        if isinstance(one, dict) and depth < MAX_DEPTH:
            for name, inner in one.items():
                yield path, _whole(name)
                waiting.append((field_path(path, name), inner, depth + 1))
        elif isinstance(one, list) and depth < MAX_DEPTH:
            waiting += [(path + ELEMENT, inner, depth + 1) for inner in one]
        elif isinstance(one, str):
            yield path, _whole(one)
            if one[:1] in OPENING and isinstance(inner := _read(one), dict | list | str) and depth < MAX_DEPTH:
                waiting.append((path, inner, depth + 1))
        elif one is not None and not isinstance(one, dict | list):
            yield path, str(one).lower() if isinstance(one, bool) else str(one)


def _whole(text: str) -> str:
    """A text without half characters, which Arrow does not take."""
    return text if text.isascii() else text.encode(errors="replace").decode()


@lru_cache(maxsize=100_000)
def _matching(patterns: Sequence[str], path: str) -> tuple[int, ...]:
    """Which patterns match a path, or one that leads to it."""
    ends = [at for at in range(1, len(path)) if path[at] == "/" or path.startswith(ELEMENT, at)]
    above = [*(path[:at] for at in ends), path]
    return tuple(at for at, pattern in enumerate(patterns) if any(is_matched(pattern, one) for one in above))


def _is_unreadable(row: dict[str, Any], name: str) -> bool:
    text = next((value for column, value in row.items() if folded(column) == folded(name)), None)
    if text is None:
        return row.get(f"{name}_bytes") is not None
    return isinstance(text, str) and _read(text) is None and text.strip() != "null"


def _read(text: str) -> Any:
    """The value of a JSON text, with numbers as they are spelled; None of what is none."""
    try:
        return json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None
