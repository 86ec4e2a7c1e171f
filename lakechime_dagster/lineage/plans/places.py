"""What a plan tells of a table, and the name that it has in the lake or outside."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lakechime_dagster.lineage.names import Names, external, outside
from lakechime_dagster.lineage.plans.databases import data_set_of
from lakechime_dagster.lineage.plans.dump import Field

SESSION = "spark_catalog"
CATALOG = "catalog"
"""The namespace of tables that only a catalog of Spark's tells, without saying where they are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a table is, as far as a plan tells it: its path, what the statement called it, or of a database's its namespace and name.

    `roots` are the folders and files that are read as one, or, if `is_grouped`, folders in which more of them are than are told;
    `base` is the folder that a program said they are partitions of.
    """

    path: str | None = None
    identifier: str | None = None
    data_set: tuple[str, str] | None = None
    roots: tuple[str, ...] = ()
    base: str | None = None
    is_grouped: bool = False

    def named(self, names: Names) -> tuple[str, bool] | None:
        """The name of the table and whether it is one of the lake; None if the place does not tell any."""
        found = (names.at(self.path) if self.path else None) or (names.of(self.identifier) if self.identifier else None)
        if found is None and self.data_set:
            found = names.of(external(*self.data_set))  # a table of the lake that happens to have its name is another one
        if found is not None:
            return found, True
        if self.data_set:
            return external(*self.data_set), False
        if self.path:
            return outside(self.path), False
        return (external(CATALOG, self.identifier), False) if self.identifier else None


def place_of(fields: Mapping[str, Field]) -> Place:
    """The place that a leaf, or the target of a command, tells: itself, or by what it was made with."""
    parts = [fields, *(part for key in _PARTS if isinstance(part := fields.get(key), Mapping))]
    identifier = next((_within(fields, text) for part in parts if (text := _text(part.get("identifier")))), None)
    read = next((part for part in parts if isinstance(part.get("roots"), tuple)), {})
    by_path = _BY_PATH.fullmatch(identifier or "")
    return Place(
        path=next((text for part in parts if (text := _text(part.get("path")))), by_path and by_path[1]),
        identifier=None if by_path else identifier,
        data_set=next((found for part in parts if (found := _data_set(part))), None),
        roots=_texts(read.get("roots")),
        base=_text(read.get("base")),
        is_grouped=read.get("grouped") is True,
    )


_BY_PATH = re.compile(rf"(?:{SESSION}\.)?\w+\.((?:[A-Za-z][\w+-]*:)?/.*)")
"""A format and a path in a table's place, as in `delta.`/lake/orders``, of a table that is made just now."""

_PARTS = ("target", "relation", "table", "catalogTable", "tableMeta")


def _within(fields: Mapping[str, Field], identifier: str) -> str:
    """A table's name within its catalog, where that is not the session's own: a table of another one is another table."""
    catalog = fields.get("catalog")
    name = catalog.get("catalog") if isinstance(catalog, Mapping) else None
    if not isinstance(name, str) or name == SESSION:
        return identifier if "/" in identifier else identifier.lower()  # as it knows them, however they are written
    return identifier if identifier.startswith(f"{name}.") else f"{name}.{identifier}"


def _data_set(part: Mapping[str, Field]) -> tuple[str, str] | None:
    database, table = part.get("database"), part.get("table")
    return data_set_of(database, table) if isinstance(database, str) and isinstance(table, str) else None


def _texts(value: Field) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, tuple) else ()


def _text(value: Field) -> str | None:
    if isinstance(value, tuple) and value:
        return ("/" if "/" in str(value[0]) else ".").join(str(one) for one in value)  # of a path, the folders are the namespace
    return value.replace("`", "") if isinstance(value, str) and value else None
