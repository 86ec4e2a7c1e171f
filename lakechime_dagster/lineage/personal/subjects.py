"""Subjects of personal data, as people give them: a line of JSON each, with values by category. No message shows what a line holds."""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from lakechime_dagster.errors import LakeChimeError

MAX_SUBJECTS = 100_000
MAX_LINE = 65_536  # bytes
MAX_TOLD = 10  # lines in a message


class SubjectsRefusedError(LakeChimeError):
    """Lines are no subjects; they are named by their numbers, as what they hold is personal."""


@dataclass(frozen=True)
class Subject:
    """One subject: the number of its line, from 1 on, and its values by category, in the order of these."""

    line: int
    values: tuple[tuple[str, str], ...] = field(repr=False)

    @property
    def categories(self) -> frozenset[str]:
        return frozenset(category for category, _ in self.values)


def read_subjects(lines: Iterable[bytes], categories: Collection[str]) -> tuple[Subject, ...]:
    """The subjects of all lines but empty ones, or none at all.

    Raises:
        SubjectsRefusedError: naming the lines that are none, and why.
    """
    found, wrong = list[Subject](), dict[int, str]()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(Subject(number, _values(line, categories)))
        except _LineError as problem:
            wrong[number] = str(problem)
    if wrong:
        told = "; ".join(f"line {number} {why}" for number, why in list(wrong.items())[:MAX_TOLD])
        more = f"; and {len(wrong) - MAX_TOLD:,} lines more" if len(wrong) > MAX_TOLD else ""
        raise SubjectsRefusedError(f"nobody was looked for: {told}{more}")
    if not found:
        example = '{"email": …}'
        raise SubjectsRefusedError(f"no subject came by standard input: write a line of JSON for each, such as {example}")
    if len(found) > MAX_SUBJECTS:
        raise SubjectsRefusedError(f"{len(found):,} subjects are more than {MAX_SUBJECTS:,}: ask for them by parts")
    return tuple(found)


class _LineError(Exception):
    """Why a line is no subject."""


def _values(line: bytes, categories: Collection[str]) -> tuple[tuple[str, str], ...]:
    known = f"the lake has {', '.join(sorted(categories)) or 'none'}"
    if len(line) > MAX_LINE:
        raise _LineError(f"has more than {MAX_LINE:,} bytes")
    try:
        value = json.loads(line.decode(), object_pairs_hook=_Pairs)
    except UnicodeDecodeError:
        raise _LineError("is no UTF-8") from None
    except (ValueError, RecursionError):
        raise _LineError("is no JSON") from None
    if not isinstance(value, _Pairs) or not value:
        raise _LineError('is no JSON object of values by category, such as {"email": …}')
    if len({name for name, _ in value}) < len(value):
        raise _LineError("has a category twice: write a line for each value")
    if any(name not in categories for name, _ in value):
        raise _LineError(f"has a category of which no column is declared or decided to be; {known}")
    return tuple(sorted((name, _text(one)) for name, one in value))


class _Pairs(list[tuple[str, Any]]):
    """The fields of an object, those of one name too."""


def _text(value: Any) -> str:
    """A value as columns of text have it."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _LineError("has a value that is neither a text nor a whole number")
    text = str(value)
    if not text.strip():
        raise _LineError("has an empty value")
    if "\0" in text or any("\ud800" <= one <= "\udfff" for one in text):
        raise _LineError("has a value with a character that no table holds")
    return text
