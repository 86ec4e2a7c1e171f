"""Marks that commits bear by which a program knows those of its session, and the statement that made it."""

import json
from collections.abc import Sequence
from typing import Any

MARKS, EXECUTION = "lakechime_writes", "execution"


def to_metadata(marks: Sequence[str]) -> str:
    """What a commit says of itself that was made while all of these were there, in whichever threads.

    A session puts in for each commit which statement makes it.
    """
    return json.dumps({MARKS: [*marks], EXECUTION: "${lakechime:execution}"})


def marks_in(metadata: str | None) -> tuple[str, ...]:
    """The marks under which a commit was made; none of one that bears none."""
    marks = _told(metadata).get(MARKS)
    return tuple(map(str, marks)) if isinstance(marks, list) else ()


def executions_in(metadata: str | None) -> list[int]:
    """The ids of the executions in which a commit was made that bears a mark, the inner one first; none where it does not tell."""
    return [int(one) for one in reversed(str(_told(metadata).get(EXECUTION)).split(".")) if one.isdigit()]


def _told(metadata: str | None) -> dict[str, Any]:
    try:
        told = json.loads(metadata or "")
    except json.JSONDecodeError:
        return {}
    return told if isinstance(told, dict) and MARKS in told else {}
