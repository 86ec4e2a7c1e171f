"""Which types the columns of rows have that Canal, Maxwell and AWS DMS wrote: as they are declared, or were read in the database.

A reading holds for one place of the log. A message that tells its place is read by the readings around it, one that tells none by
all of them. Such tools write a number digit by digit, so that where a column only grew each is read exactly by what holds all.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from lakechime_dagster.cdc.messages.reading import EnvelopeReader, TableFilter
from lakechime_dagster.cdc.messages.rows import Rows
from lakechime_dagster.cdc.messages.source_types import lake_type
from lakechime_dagster.cdc.order import Position
from lakechime_dagster.cdc.remembering.table_schema import TableSchema
from lakechime_dagster.cdc.schemas.drift import widened
from lakechime_dagster.cdc.schemas.natural import AsTheyStand, NaturalColumns
from lakechime_dagster.lake.envelopes import Absent, BinaryText, Canal, Dms, Maxwell
from lakechime_dagster.lake.names import spelled_as

_EXACT = re.compile(r"(?:tiny|small|big)?int|decimal\(\d+,\d+\)")


class RowSchemas(Protocol):
    """What tells the types of a table's columns."""

    def rows(self, table: str, position: Position, names: Sequence[str]) -> Rows:
        """What makes changes of rows that have these columns, at a place of the log; empty where the message tells none.

        Raises:
            ValueError: Nobody told the columns of the table, or a column of the key has no type.
        """
        ...

    def knows(self, table: str, name: str) -> bool:
        """Whether a table is known to have, or to have had, a column."""
        ...


class Declared:
    """The types that the lake declares, which hold at every place.

    Args:
        keys: The columns of the table's key, in their order.
        types: The type of each column, in Spark's words.
        binary: How bytes are written.
        absent: What it means where an update lacks a column.

    Raises:
        ValueError: A column of the key has no type, or one has a type of which such tools write no values.
    """

    def __init__(self, keys: Sequence[str], types: Mapping[str, str], binary: BinaryText, absent: Absent) -> None:
        for name in keys:
            if name not in types:
                raise ValueError(f"keys: no type is declared for {name}; name it in types=")
        self._types = types
        self._rows = Rows(keys, NaturalColumns(types, binary), table=types, absent=absent)

    def rows(self, table: str, position: Position, names: Sequence[str]) -> Rows:
        return self._rows

    def knows(self, table: str, name: str) -> bool:
        return name in self._types


class Unread:
    """Values as they stand in a message: enough to keep it, with its key and its place, until their types are known."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._rows = Rows(keys, AsTheyStand())

    def rows(self, table: str, position: Position, names: Sequence[str]) -> Rows:
        return self._rows

    def knows(self, table: str, name: str) -> bool:
        return False


class Readings:
    """The types that readings of the database tell.

    Args:
        keys: The columns of the table's key, in their order.
        schemas: The readings, in any order.
        types: Declared for columns of which a reading tells no exact type, or none that holds for all that is there.
        binary: How bytes are written.
        absent: What it means where an update lacks a column that the table had.
    """

    def __init__(
        self,
        keys: Sequence[str],
        schemas: Iterable[TableSchema],
        types: Mapping[str, str],
        binary: BinaryText,
        absent: Absent,
    ) -> None:
        self._keys, self._types, self._binary, self._absent = tuple(keys), types, binary, absent
        self._tables: dict[str, list[TableSchema]] = {}
        for one in sorted(schemas, key=lambda schema: schema.order):
            declared = replace(one, columns=spelled_as((*keys, *types), one.columns))
            self._tables.setdefault(one.table, []).append(declared)
        self._known: dict[tuple[str, int | None, tuple[str, ...]], Rows] = {}

    def rows(self, table: str, position: Position, names: Sequence[str]) -> Rows:
        known = self._tables.get(table)
        if not known:
            raise ValueError(f"types: nothing told the columns of {table}; read_from= read {', '.join(self._tables) or 'nothing'}")
        # A place may be that of the end of a change, so that a reading at the same place may be after it.
        index = bisect_left(known, position[:2], key=lambda one: one.order.position) if position else None
        key = table, index, tuple(names)
        if key not in self._known:
            self._known[key] = self._made(known if index is None else known[max(0, index - 1) : index + 1], key[2])
        return self._known[key]

    def knows(self, table: str, name: str) -> bool:
        return name in self._types or any(name in one.columns for one in self._tables.get(table, ()))

    def _made(self, around: Sequence[TableSchema], names: Sequence[str]) -> Rows:
        every = dict.fromkeys(name for one in around for name in one.columns)
        types, unknown = dict[str, str](), dict[str, str]()
        is_named = self._absent is not Absent.NOTHING  # by what a row lacks, and not by what it has alone
        for name in {**dict.fromkeys(names), **(every if is_named else {})}:
            try:
                types[name] = self._types.get(name) or _type_of(name, around)
            except ValueError as problem:
                unknown[name] = str(problem)
        missing = [name for name in self._keys if name not in types and name not in unknown]
        if missing and names:
            raise ValueError(f"keys: {missing[0]} is no column of the row, or of {around[0].table}")
        columns = NaturalColumns(types, self._binary, unknown)
        if not is_named:
            return Rows(self._keys, columns)
        always = [name for name in every if name in types and all(name in one.columns for one in around)]
        lacking = [name for name in every if name not in always and name not in names]
        doubtful = {name: _not_always(around) for name in lacking if self._absent is Absent.NULL}
        return Rows(self._keys, columns, table=always, absent=self._absent, doubtful=doubtful)


def _type_of(name: str, around: Sequence[TableSchema]) -> str:
    """The type that holds what a column was in readings.

    Raises:
        ValueError: There is none; the message says why.
    """
    told = [(one, one.columns[name]) for one in around if name in one.columns]
    if not told:
        raise ValueError(f"no such column of {around[0].table} is known at this place of the log")
    found: str | None = None
    for one, kind in told:
        ddl = lake_type(one.dialect, kind) or "string"  # as the tool writes it
        common = ddl if found is None else _common(found, ddl)
        if common is None:
            first, word = told[0]
            raise ValueError(f"it was {word} when {first.table} was read at {first.order.position}, and {kind} at {one.order.position}")
        found = common
    assert found is not None
    return found


def _common(one: str, other: str) -> str | None:
    """Of two types whose values are written alike the one that holds those of both."""
    if one == other:
        return one
    both = widened(one, other)
    return both if both is not None and _EXACT.fullmatch(both) else None


def _not_always(around: Sequence[TableSchema]) -> str:
    places = " and ".join(str(one.order.position) for one in (around[0], around[-1]))
    return f"it is null, or was not there, as {around[0].table} had it at one of {places} alone; let the tool write nulls"


class RowReader(EnvelopeReader):
    """Reads the messages of one table's topics that hold rows without their types.

    Args:
        envelope: The declared envelope.
        keys: The columns of the table's key, in their order.
        types: The type that the lake declares for each column of a row.
        schemas: The types of the columns where they are not declared.
        only: The tables whose messages are read.
    """

    def __init__(
        self,
        envelope: Canal | Maxwell | Dms,
        keys: Sequence[str],
        types: Mapping[str, str],
        schemas: RowSchemas | None = None,
        only: TableFilter | None = None,
    ) -> None:
        self._only = only or TableFilter()
        self._schemas = schemas or Declared(keys, types, envelope.binary, envelope.absent)
        self._declared = dict.fromkeys((*keys, *types))

    def _spelled(self, row: Any) -> Any:
        """A row with the names of its columns as the lake declares them; what is no row as it is."""
        return row if not isinstance(row, dict) or row.keys() <= self._declared.keys() else spelled_as(self._declared, row)
