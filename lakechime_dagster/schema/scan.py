"""What is known of a payload before any table is chosen: whether it is an event, of which type and producer, and its hashes."""

from dataclasses import dataclass

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.schema.event import Flag, JsonEvent, Refusal, event_of
from lakechime_dagster.schema.json_text import Fields, has_half
from lakechime_dagster.schema.variation import variation_of

MAX_TYPE = 512  # characters of a type's name


class NoType(StrEnum):
    """Why an event has no type by which a table could be chosen.

    Attributes:
        MISSING: The field is not there, or a field on the way to it is no object.
        NOT_TEXT: It is no text, or one with half of a surrogate pair.
        HAS_NUL: It is text with a NUL, which PostgreSQL does not hold.
        EMPTY: It is of no character but white space.
        TOO_LONG: It has more than `MAX_TYPE` characters.
    """

    MISSING = "type_missing"
    NOT_TEXT = "type_not_text"
    HAS_NUL = "type_has_nul"
    EMPTY = "type_empty"
    TOO_LONG = "type_too_long"


@dataclass(frozen=True, kw_only=True)
class Scanned:
    """What a payload is; `reason` is why it waits in quarantine, and then nothing else is told.

    Attributes:
        type: Its name, as it is spelled.
        producer: Who sent it, where the event tells so by text.
        flags: What is odd about it, in the order of `Flag`.
    """

    reason: Refusal | NoType | None = None
    type: str | None = None
    producer: str | None = None
    typed_hash: str | None = None
    names_hash: str | None = None
    flags: tuple[Flag, ...] = ()


def scanned(payload: bytes, type_field: tuple[str, ...], producer_field: tuple[str, ...] = ()) -> Scanned:
    """What a payload is, with the fields that lead to its type and to its producer; of several of one name the last counts.

    Both back-ends tell the same of every payload; this one is the plainer of them.
    """
    event = event_of(payload)
    if isinstance(event, Refusal):
        return Scanned(reason=event)
    name = _named(event, type_field)
    if isinstance(name, NoType):
        return Scanned(reason=name)
    variation = variation_of(event)
    return Scanned(
        type=name, producer=_producer(event, producer_field), typed_hash=variation.typed_hash, names_hash=variation.names_hash,
        flags=tuple(flag for flag in Flag if flag in event.flags),
    )  # fmt: skip


def _named(event: JsonEvent, field: tuple[str, ...]) -> str | NoType:
    found = _at(event, field)
    if found is _NOTHING:
        return NoType.MISSING
    if not _is_text(found):
        return NoType.HAS_NUL if type(found) is str and not has_half(found) else NoType.NOT_TEXT
    assert isinstance(found, str)
    if not found.strip(" \t\r\n"):
        return NoType.EMPTY
    return NoType.TOO_LONG if len(found) > MAX_TYPE else found


def _producer(event: JsonEvent, field: tuple[str, ...]) -> str | None:
    found = _at(event, field) if field else None
    return found[:MAX_TYPE] if isinstance(found, str) and _is_text(found) else None


_NOTHING = object()


def _at(event: JsonEvent, field: tuple[str, ...]) -> object:
    value: object = event.fields
    for name in field:
        found = [one for other, one in value if other == name] if isinstance(value, Fields) else []
        if not found:
            return _NOTHING
        value = found[-1]
    return value


def _is_text(value: object) -> bool:
    """Whether it is text that a database holds; numbers are none, though they are told as they are spelled."""
    return type(value) is str and "\0" not in value and not has_half(value)
