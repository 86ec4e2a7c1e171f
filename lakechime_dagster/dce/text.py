"""Rules for text that enters from outside: names, ids and tags that every store can hold and show."""

import re

from lakechime_dagster.errors import InvalidValueError

MAX_NAME = 512  # characters; the widest key that every supported database can index
UNSTORABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")  # control characters, and halves of surrogate pairs


def checked_text(field: str, value: object, *, limit: int = MAX_NAME, empty: bool = False) -> str:
    """The value itself, if it is text that any store can hold.

    At most `limit` characters, no control characters, no lone surrogates, no surrounding white space.

    Raises:
        InvalidValueError: naming field, value and remedy.
    """
    if not isinstance(value, str):
        raise InvalidValueError(field, value, f"is a {type(value).__name__}; give text")
    if not value and not empty:
        raise InvalidValueError(field, value, "is empty; give at least one character")
    if len(value) > limit:
        raise InvalidValueError(field, value, f"has {len(value)} characters; give at most {limit}")
    if found := UNSTORABLE.search(value):
        is_control = ord(found.group()) < 128
        raise InvalidValueError(
            field, value, "holds a control character; remove it" if is_control else "holds half of a surrogate pair; encode it as UTF-8"
        )
    if value != value.strip():
        raise InvalidValueError(field, value, "begins or ends with white space; strip it")
    return value


def storable(text: str) -> str:
    """The text with a replacement character for each one that not every store can hold: of messages that others wrote."""
    return UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def printable(text: str) -> str:
    """The text for a person: what would move a cursor, turn the order of reading or hide is told by its code after a backslash."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def shortened(text: str, limit: int) -> str:
    """The text as `checked_text` takes it: storable, without white space around it, and ending in `…` where more than `limit` was cut."""
    kept = storable(text.strip()).strip()
    return kept if len(kept) <= limit else f"{kept[: limit - 1].rstrip()}…"


def checked_milliseconds(field: str, value: object) -> int:
    """The value itself, if it is a time in milliseconds since the epoch between 1970 and 9999."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValueError(field, value, "is not a whole number; give milliseconds since the epoch")
    if not 0 <= value < 253_402_300_800_000:
        raise InvalidValueError(field, value, "is not a time between 1970 and 9999; give milliseconds since the epoch")
    return value
