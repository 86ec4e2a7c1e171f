"""What rows have in columns that were added with a default: adding one gives it to all that are there, and writes no message of them.

A column is added, as far as messages tell, at the order of the first change whose schema has it, and a row that was last told
of before got the default that this schema names. What is computed for each row, such as an identifier, no schema names.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import orjson

from lakechime_dagster.cdc.meaning.fold import AFTER_ALL
from lakechime_dagster.cdc.meaning.wire import order_of, order_text, row_of, row_text
from lakechime_dagster.cdc.order import Order
from lakechime_dagster.cdc.remembering.state import Role, StateRow


@dataclass(frozen=True)
class Schema:
    """The columns that changes are told with: the type of each, and the default of those that have a constant one."""

    types: Mapping[str, str]
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def types_text(self) -> str:
        """In the order of the columns."""
        return orjson.dumps(dict(self.types)).decode()

    @cached_property
    def defaults_text(self) -> str | None:
        return row_text(self.defaults) if self.defaults else None

    @cached_property
    def name(self) -> str:
        """A short one, which no other schema has."""
        return hashlib.blake2b(f"{self.types_text}{self.defaults_text or ''}".encode(), digest_size=8).hexdigest()

    @classmethod
    def of_texts(cls, types: str, defaults: str | None) -> "Schema":
        return cls(orjson.loads(types), {} if defaults is None else row_of(defaults))

    def spelled(self, names: Mapping[str, str]) -> "Schema":
        """The same with other names for some of its columns."""
        types, defaults = ({names.get(name, name): value for name, value in one.items()} for one in (self.types, self.defaults))
        return Schema(types, defaults)

    def row(self, source: str, since: Order) -> StateRow:
        """What is remembered of it: since when a source has it."""
        columns = orjson.dumps(sorted(self.types)).decode()
        return StateRow(Role.COLUMNS.value, None, source, order_text(since), op=self.name, columns=self.defaults_text, omitted=columns)


@dataclass(frozen=True)
class Added:
    """Since when a source has a column, and what rows got by it; they got null where it `has_default` not."""

    since: Order
    has_default: bool
    value: Any = None


@dataclass(frozen=True)
class Defaults:
    """By source and column when columns were added."""

    columns: Mapping[str, Mapping[str, Added]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[StateRow]) -> "Defaults":
        """By the rows of `Role.COLUMNS`, in any order."""
        columns: dict[str, dict[str, Added]] = {}
        for row in rows:
            since, of_source = order_of(row.order), columns.setdefault(row.source, {})
            defaults = {} if row.columns is None else row_of(row.columns)
            for name in orjson.loads(row.omitted or "[]"):
                if name not in of_source or since < of_source[name].since:
                    of_source[name] = Added(since, name in defaults, defaults.get(name))
        return cls(columns)

    def given(self, source: str, since: Order, until: Order = AFTER_ALL) -> dict[str, Any]:
        """What a row got that was told of at an order, and was there up to another."""
        added = self.columns.get(source, {}).items()
        return {name: one.value for name, one in added if one.has_default and since < one.since <= until}

    def concern_others(self, before: "Defaults") -> bool:
        """Whether rows may be there that got a default of which nothing was known before."""
        return any(
            one.has_default and name not in before.columns[source]
            for source in self.columns.keys() & before.columns.keys()
            for name, one in self.columns[source].items()
        )
