"""Kafka Connect's schemas, as its JsonConverter writes them beside a value: what says how a field is to be read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ConnectSchema:
    """A schema of Kafka Connect.

    `type` is one of Connect's own (int8 to int64, float, double, boolean, string, bytes, array, map, struct); `name` says
    what such a value means, such as `io.debezium.time.Date`, and stands with its `parameters`.
    """

    type: str
    name: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    is_optional: bool = True
    fields: tuple[tuple[str, "ConnectSchema"], ...] = ()  # of a struct, in their order
    items: "ConnectSchema | None" = None  # of an array, or the values of a map

    def field(self, name: str) -> "ConnectSchema | None":
        """The schema of a struct's field; None if it has no such field."""
        return dict(self.fields).get(name)


def connect_schema(found: Mapping[str, Any]) -> ConnectSchema:
    """The schema that a JSON object describes.

    Raises:
        ValueError: It is none.
    """
    kind = found.get("type")
    if not isinstance(kind, str):
        raise ValueError(f"a schema of Kafka Connect has a 'type', not {sorted(found)}")
    items = found.get("items") or found.get("values")
    return ConnectSchema(
        type=kind,
        name=found.get("name"),
        parameters=dict(found.get("parameters") or {}),
        is_optional=bool(found.get("optional", True)),
        fields=tuple((one["field"], connect_schema(one)) for one in found.get("fields") or ()),
        items=connect_schema(items) if isinstance(items, Mapping) else None,
    )
