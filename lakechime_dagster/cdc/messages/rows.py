"""The rows of messages that bring no schema, as changes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from lakechime_dagster.cdc.change import Change, Key, Operation
from lakechime_dagster.cdc.messages.reading import as_object, key_change, key_of
from lakechime_dagster.lake.envelopes import Absent


@dataclass(frozen=True)
class Part:
    """A row, or some columns of one, and the part of the message that it is, which errors name."""

    where: str
    found: Any


class RowColumns(Protocol):
    """How the values of a row's columns are read, and the types that the lake has for them."""

    @property
    def ddl(self) -> Mapping[str, str]: ...

    def read(self, row: Mapping[str, Any], where: str) -> dict[str, Any]: ...


class Rows:
    """Makes changes of the rows of a table.

    Args:
        keys: The columns of the table's key, in their order.
        columns: How columns are read.
        table: All columns that the table is known to have. An inserted row is whole: one that it lacks is null there.
        absent: What it means where an update lacks one of them.
        doubtful: Of columns that the table may have had, or not, why nobody knows.
    """

    def __init__(
        self,
        keys: Sequence[str],
        columns: RowColumns,
        *,
        table: Iterable[str] = (),
        absent: Absent = Absent.NOTHING,
        doubtful: Mapping[str, str] | None = None,
    ) -> None:
        self._keys = tuple(keys)
        self._columns = columns
        self.ddl = columns.ddl
        self._table = dict.fromkeys(table)
        self._absent = absent
        self._doubtful = doubtful or {}

    def changes(self, told: Change, row: Part, old: Part) -> tuple[Change, ...]:
        """The changes of one row: one, or two where its key changed.

        Args:
            told: The change, without its key and columns.
            row: What the row is after the change; of a deletion what it was, of which the key alone is read.
            old: What columns were before an update, of those that it changed or of more; None where nothing is known.

        Raises:
            ValueError: A column of the key has no value, no type is known for a column, a value is not of its type, or it is in doubt
                what a column is that the row lacks.
        """
        found = as_object(row.where, row.found)
        if told.operation is Operation.DELETE:
            return (replace(told, key=key_of(self._key_columns(found, row.where), self._keys, row.where)),)
        for name, reason in self._doubtful.items():
            if name not in found:
                raise ValueError(f"{row.where}.{name}: {reason}")
        is_whole = told.operation is not Operation.UPDATE or self._absent is Absent.NULL
        columns = self._columns.read({**self._table, **found} if is_whole else found, row.where)
        is_partial = not is_whole and self._absent is Absent.UNCHANGED
        omitted = tuple(name for name in self._table if name not in found) if is_partial else ()
        upsert = replace(told, key=key_of(columns, self._keys, row.where), columns=columns, omitted=omitted)
        before = self._old_key(upsert, old)
        return (upsert,) if before is None else key_change(upsert, before)

    def _old_key(self, upsert: Change, old: Part) -> Key | None:
        """The key that this row had before, if it was another one."""
        if upsert.operation is not Operation.UPDATE or old.found is None:
            return None
        before = {**upsert.columns, **self._key_columns(as_object(old.where, old.found), old.where)}
        key = tuple(before[name] for name in self._keys)
        return key if None not in key and key != upsert.key else None

    def _key_columns(self, row: Mapping[str, Any], where: str) -> dict[str, Any]:
        return self._columns.read({name: row[name] for name in self._keys if name in row}, where)
