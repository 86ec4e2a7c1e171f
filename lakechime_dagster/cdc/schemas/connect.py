"""Kafka Connect's schemas, as its JsonConverter writes them beside a value: what says how a field is to be read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any


@dataclass(frozen=True)
class ConnectSchema:
    """A schema of Kafka Connect.

    `type` is one of Connect's own (int8 to int64, float, double, boolean, string, bytes, array, map, struct); `name` says
    what such a value means, such as `io.debezium.time.Date`, and stands with its `parameters`. `default` is written as values are.
    """

    type: str
    name: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    is_optional: bool = True
    default: Any = None
    fields: tuple[tuple[str, "ConnectSchema"], ...] = ()  # of a struct, in their order
    items: "ConnectSchema | None" = None  # of an array, or the values of a map

    def field(self, name: str) -> "ConnectSchema | None":
        """The schema of a struct's field; None if it has no such field."""
        return dict(self.fields).get(name)


def connect_schema(found: Any) -> ConnectSchema:
    """The schema that a JSON value describes.

    Raises:
        ValueError: It is none.
    """
    kind, name, parameters, fields = (_part(found, part) for part in ("type", "name", "parameters", "fields"))
    items = found.get("items", found.get("values"))
    return ConnectSchema(
        type=kind,
        name=name,
        parameters={key: str(value) for key, value in (parameters or {}).items()},
        is_optional=bool(found.get("optional", True)),
        default=found.get("default"),
        fields=tuple((_part(one, "field"), connect_schema(one)) for one in fields or ()),
        items=None if items is None else connect_schema(items),
    )


_PARTS: Mapping[str, tuple[type, ...]] = {
    "type": (str,), "field": (str,), "name": (str, NoneType), "parameters": (dict, NoneType), "fields": (list, NoneType)
}  # fmt: skip


def _part(found: Any, part: str) -> Any:
    if not isinstance(found, Mapping):
        raise ValueError(f"schema: a schema of Kafka Connect is an object, not {repr(found)[:80]}")
    if not isinstance(found.get(part), _PARTS[part]):
        raise ValueError(f"schema: {part!r} of a schema of Kafka Connect is {_PARTS[part][0].__name__}, not {repr(found.get(part))[:80]}")
    return found.get(part)
