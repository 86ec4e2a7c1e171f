"""Patterns of the names of types, in which `*` stands for any text: what they match, and which of two says more."""

import re
from functools import cache

ANY = "*"


def is_matched(match: str, type_name: str) -> bool:
    """Whether a pattern matches the name of a type; letters of another case are others."""
    return re.fullmatch(".*".join(map(re.escape, match.split("*"))), type_name, re.DOTALL) is not None


def specificity(match: str) -> int:
    """How many characters of a name a pattern says; the whole name is more than any part of it."""
    return len(match.replace("*", "")) * 2 + ("*" not in match)


@cache
def overlap(one: str, other: str) -> bool:
    """Whether some name is matched by both patterns."""
    if not one or not other:
        return not (one + other).replace("*", "")
    if one[0] == "*" or other[0] == "*":
        star, rest = (one, other) if one[0] == "*" else (other, one)
        return overlap(star[1:], rest) or overlap(star, rest[1:])
    return one[0] == other[0] and overlap(one[1:], other[1:])
