"""Marks that commits bear by which a program knows its own, and the statement that made it: one in another's body names that one too."""

import json
from collections.abc import Sequence
from typing import Any

MARK, WITHIN, EXECUTION = "lakechime_writes", "within", "execution"


def to_metadata(mark: str, within: Sequence[str] = ()) -> str:
    """What a commit says of itself that was made under a mark, within the bodies of others, innermost first.

    A session puts in for each commit which statement makes it.
    """
    return json.dumps({MARK: mark, EXECUTION: "${lakechime:execution}"} | ({WITHIN: [*within]} if within else {}))


def marks_in(metadata: str | None) -> tuple[str, ...]:
    """The marks under which a commit was made, its own first; none of one that bears none."""
    told = _told(metadata)
    return (str(told[MARK]), *map(str, told.get(WITHIN, ()))) if told else ()


def executions_in(metadata: str | None) -> list[int]:
    """The ids of the executions in which a commit was made that bears a mark, the inner one first; none where it does not tell."""
    return [int(one) for one in reversed(str(_told(metadata).get(EXECUTION)).split(".")) if one.isdigit()]


def _told(metadata: str | None) -> dict[str, Any]:
    try:
        told = json.loads(metadata or "")
    except json.JSONDecodeError:
        return {}
    return told if isinstance(told, dict) and MARK in told else {}
