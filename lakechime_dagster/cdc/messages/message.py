"""The JSON of Kafka messages: a payload alone, or with the schema that Connect's JsonConverter writes before it.

A schema is most of such a message, and the same for thousands: it is parsed once, and only the payloads after that.
"""

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Generic, TypeVar

import orjson

from lakechime_dagster.cdc.schemas.connect import ConnectSchema, connect_schema

T = TypeVar("T")

_PAYLOAD = b'"payload":'
_MAX_KNOWN = 64  # schemas of topics at a time; a schema changes with its table


class MessageReader(Generic[T]):
    """Reads messages, and remembers what was made of the schemas that they began with.

    Args:
        of_schema: What to make of a schema, once.
        part: The part of a message that is read, which errors name.
    """

    def __init__(self, of_schema: Callable[[ConnectSchema], T], part: str = "value") -> None:
        self._of_schema = of_schema
        self._part = part
        self._known: dict[bytes, T] = {}
        self._newest: tuple[bytes, T] | None = None  # the schema of the last message, which is most often that of the next one

    def read(self, raw: bytes, *, is_exact: bool = False) -> tuple[T | None, Any]:
        """What was made of the schema of a message, if it brings one, and its payload.

        Args:
            raw: The message.
            is_exact: Numbers with a fraction are read as decimal ones; otherwise as binary ones, which is much faster.

        Raises:
            ValueError: It is no JSON, or what stands as its schema is none.
        """
        prefix, made = self._newest if self._newest and raw.startswith(self._newest[0]) else self._schema_of(raw)
        if made is not None and raw.endswith(b"}"):
            try:
                return made, _parse(raw[len(prefix) : -1], is_exact)
            except ValueError:
                pass  # more than a payload follows: the whole message says what is wrong with it
        return self._whole(raw, prefix, is_exact)

    def _schema_of(self, raw: bytes) -> tuple[bytes, T | None]:
        """The beginning of a message up to its payload, and what was made of the schema there if it is known."""
        head, middle, _ = raw.partition(_PAYLOAD)
        prefix = head + middle
        made = self._known.get(prefix)
        if made is not None:
            self._newest = prefix, made
        return prefix, made

    def _whole(self, raw: bytes, prefix: bytes, is_exact: bool) -> tuple[T | None, Any]:
        schema, payload = parts_of(parsed(raw, self._part, is_exact=is_exact))
        if schema is None:
            return None, payload
        made = self._of_schema(connect_schema(schema))
        if _is_beginning(prefix, schema):
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[prefix] = made
        return made, payload


def parsed(raw: bytes, part: str, *, is_exact: bool) -> Any:
    """The JSON of a message, or of the part of it that errors name.

    Raises:
        ValueError: It is no JSON.
    """
    try:
        return _parse(raw, is_exact)
    except ValueError as problem:
        raise ValueError(f"{part}: {raw[:60]!r} is no JSON: {problem}") from problem


def payload_of(raw: bytes, part: str, *, is_exact: bool = False) -> Any:
    """The payload of a message whose schema does not matter.

    Raises:
        ValueError: It is no JSON.
    """
    return parts_of(parsed(raw, part, is_exact=is_exact))[1]


def parts_of(message: Any) -> tuple[Mapping[str, Any] | None, Any]:
    """The schema and the payload of a message; one with neither is its own payload, and one may hold a payload alone."""
    if isinstance(message, dict):
        if message.keys() == {"schema", "payload"} and isinstance(message["schema"], dict | None):
            return message["schema"], message["payload"]
        if message.keys() == {"payload"} and isinstance(message["payload"], dict | None):
            return None, message["payload"]
    return None, message


def _is_beginning(prefix: bytes, schema: Any) -> bool:
    """Whether a message's beginning is all of its schema and nothing of its payload: what follows the same one is a payload then."""
    try:
        return orjson.loads(prefix + b"null}") == {"schema": schema, "payload": None}
    except ValueError:
        return False


def _parse(raw: bytes, is_exact: bool) -> Any:
    return json.loads(raw, parse_float=Decimal) if is_exact else orjson.loads(raw)
