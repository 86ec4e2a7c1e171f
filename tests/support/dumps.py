"""Dumps of plans as tests look into them."""

from collections.abc import Iterator
from typing import Any


def nested(dump: dict[str, Any]) -> dict[str, Any]:
    """The same with its nodes in each other."""

    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [filled(one) for one in value]
        return nodes[value["#"]] if isinstance(value, dict) and "#" in value else value

    nodes: list[Any] = []
    for one in dump.get("nodes", ()):
        nodes.append({**one, "f": {name: filled(value) for name, value in one["f"].items()}})
    return {**dump, "plan": filled(dump["plan"])}


def nodes_of(value: Any) -> Iterator[dict[str, Any]]:
    """All nodes of a dump, whichever part of another they are."""
    if isinstance(value, dict):
        if "n" in value:
            yield value
        for one in value.values():
            yield from nodes_of(one)
    elif isinstance(value, list):
        for one in value:
            yield from nodes_of(one)
