"""Marks that commits bear by which a program knows its own: one in another's body names that one too."""

import json
from collections.abc import Sequence

MARK, WITHIN = "lakechime_writes", "within"


def to_metadata(mark: str, within: Sequence[str] = ()) -> str:
    """What a commit says of itself that was made under a mark, within the bodies of others, innermost first."""
    return json.dumps({MARK: mark} | ({WITHIN: [*within]} if within else {}))


def marks_in(metadata: str | None) -> tuple[str, ...]:
    """The marks under which a commit was made, its own first; none of one that bears none."""
    try:
        told = json.loads(metadata or "")
    except json.JSONDecodeError:
        return ()
    if not isinstance(told, dict) or MARK not in told:
        return ()
    return (str(told[MARK]), *map(str, told.get(WITHIN, ())))
