"""Which columns a database's table had at which place of its log, for messages that do not say it themselves.

A connector's topic of schema changes tells it for each place. A reading of the database tells it for one moment: between two that
agree it was so all the time, between two that do not nobody can say of a column that differs what it was.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from lakechime_dagster.cdc.canonical import Dialect
from lakechime_dagster.cdc.order import Position
from lakechime_dagster.cdc.position import position_of, table_of
from lakechime_dagster.cdc.remembering.table_schema import TableSchema
from lakechime_dagster.cdc.schemas.columns import Columns
from lakechime_dagster.cdc.schemas.connect import ConnectSchema
from lakechime_dagster.cdc.schemas.connect_types import DECIMAL, PRECISION, connect_type
from lakechime_dagster.cdc.schemas.values import SOURCE_TYPE
from lakechime_dagster.lake.envelopes import Debezium

_NOT_KNOWN = ConnectSchema("not known")
_INTEGERS = ("int16", "int32", "int64")  # which are all written as numbers


class ReadColumns(Protocol):
    """How the values of a row's columns are read, and what the lake makes of their types."""

    @property
    def ddl(self) -> Mapping[str, str]: ...

    @property
    def defaults(self) -> Mapping[str, Any]: ...

    def read(self, row: Mapping[str, Any]) -> dict[str, Any]: ...


class Schemas(Protocol):
    """What tells the columns of rows whose messages do not."""

    def columns(self, source: Mapping[str, Any], row: Mapping[str, Any], topic: str) -> ReadColumns:
        """The columns that a row of a topic has, at the place of its `source` block.

        Raises:
            ValueError: Nobody knows; the message names the column, or the table.
        """
        ...


@dataclass(frozen=True)
class AsWritten:
    """Values as they stand in a message: enough to keep it, with its key and its place, until their types are known."""

    ddl: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def read(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return dict(row)

    def columns(self, source: Mapping[str, Any], row: Mapping[str, Any], topic: str) -> ReadColumns:
        return self


@dataclass(frozen=True)
class Doubt:
    """Why it is not known what a column was."""

    reason: str


class History:
    """The columns of tables at each place of a log, from all that was told and read of them.

    Args:
        schemas: In any order.
        envelope: How the connector writes values.
    """

    def __init__(self, schemas: Iterable[TableSchema], envelope: Debezium) -> None:
        self._envelope = envelope
        self._tables: dict[str, list[TableSchema]] = {}
        for one in sorted(schemas, key=lambda schema: schema.order):
            self._tables.setdefault(one.table, []).append(one)
        self._known: dict[tuple[str, int, tuple[str, ...]], Columns] = {}

    def columns(self, source: Mapping[str, Any], row: Mapping[str, Any], topic: str) -> Columns:
        table = self._table(source, topic)
        position = position_of(source) if source.get("connector") else ()
        index = self._index(table, position)
        key = table, index, tuple(row)
        if key not in self._known:
            self._known[key] = self._columns(table, index, key[2])
        return self._known[key]

    def _table(self, source: Mapping[str, Any], topic: str) -> str:
        """The table of a row; of a flattened one that need not name it the only one that it can be."""
        name = ".".join(table_of(source, topic))
        told = source.get("table")
        if name in self._tables or (told and (source.get("schema") or source.get("db"))):
            return name
        fitting = [one for one in self._tables if not told or one.rpartition(".")[2] == told]
        return fitting[0] if len(fitting) == 1 else name

    def _index(self, table: str, position: Position) -> int:
        """How many of what is known of a table stands at or below a place; without a place all.

        In PostgreSQL that is the place of the change itself: until its transaction ends nobody else can alter the table.
        """
        known = self._tables.get(table, [])
        if not position or not known:
            return len(known)
        place = position[-1:] if known[0].dialect is Dialect.POSTGRES else position
        return bisect_right(known, place, key=lambda one: one.order.position)

    def _words(self, table: str, index: int) -> Mapping[str, str | Doubt]:
        known = self._tables.get(table)
        if not known:
            raise ValueError(f"schema: the message brings none, and nothing else told the columns of {table}")
        before, after = known[index - 1] if index else None, known[index] if index < len(known) else None
        if before is None:
            if after is None or after.is_told:
                raise ValueError(f"schema: the first that is known of {table} is of a later place of the log, {known[0].order.position}")
            return after.columns
        if after is None or after.is_told:
            return before.columns
        return {**after.columns, **before.columns, **dict(self._between(before, after))}

    def _between(self, before: TableSchema, after: TableSchema) -> Iterator[tuple[str, str | Doubt]]:
        """The columns that two readings tell differently; what is written alike by both is no doubt."""
        for name, kind in before.columns.items():
            later = after.columns.get(name, kind)
            if later == kind:
                continue
            types = [self._schema(before.dialect, one) for one in (kind, later)]
            gains_or_loses_sign = ("unsigned" in kind) != ("unsigned" in later)
            is_ambiguous = gains_or_loses_sign and any(SOURCE_TYPE in one.parameters for one in types)
            wider = None if is_ambiguous else _wider(*types)
            if wider is not None:
                yield name, later if wider is types[1] else kind
            else:
                places = f"{before.table} was read at {before.order.position}, and {later} at {after.order.position}"
                yield name, Doubt(f"it was {kind} when {places}")

    def _columns(self, table: str, index: int, names: tuple[str, ...]) -> Columns:
        words, dialect = self._words(table, index), self._tables[table][0].dialect
        found: list[tuple[str, ConnectSchema]] = []
        for name in names or words:
            kind = words.get(name)
            if kind is None:
                raise ValueError(f"{name}: no such column of {table} is known at this place of the log")
            if isinstance(kind, Doubt):
                raise ValueError(f"{name}: {kind.reason}")
            found.append((name, self._schema(dialect, kind)))
        return Columns(ConnectSchema("struct", fields=tuple(found)), self._envelope.unavailable)

    def _schema(self, dialect: Dialect, kind: str) -> ConnectSchema:
        """The schema of a column's values; of a type of which it is not known how it is written none that `Columns` knows."""
        try:
            return connect_type(dialect, kind, self._envelope)
        except ValueError:
            return _NOT_KNOWN


def _wider(one: ConnectSchema, other: ConnectSchema) -> ConnectSchema | None:
    """Of two types whose values are written alike the one that holds those of both; None where they are not."""
    if one.type in _INTEGERS and other.type in _INTEGERS and one.name == other.name:
        return max(one, other, key=lambda each: (_INTEGERS.index(each.type), SOURCE_TYPE in each.parameters))
    if one.name == other.name == DECIMAL:
        is_same = one.parameters["scale"] == other.parameters["scale"]
        return max(one, other, key=lambda each: int(each.parameters[PRECISION])) if is_same else None
    return other if one == other else None
