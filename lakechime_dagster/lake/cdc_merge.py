"""How the changes of a CDC table are merged, as it declares it."""

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, replace

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.errors import DeclarationError, shown
from lakechime_dagster.lake.names import checked_columns, folded
from lakechime_dagster.lake.snapshots import Snapshot


class Deletes(StrEnum):
    """What happens to a row of a CDC table when the database deletes it.

    It leaves the table (`hard`), or stays with its last values and the time of its deletion (`soft`).
    """

    HARD = "hard"
    SOFT = "soft"


@dataclass(frozen=True, kw_only=True)
class CDCMerge:
    """How changes are merged, with the arguments of Spark's AUTO CDC and more. All columns are named as the table names them.

    Attributes:
        keys: The columns that name a row.
        stored_as_scd_type: 1 holds the rows as they are; 2 their histories too, a row for each time that a tracked column
            changed, from `__START_AT` up to `__END_AT` (the database's times) by the orders `__START_SEQ` and `__END_SEQ`.
        apply_as_truncates: A truncation of the database's table takes the rows; otherwise they stay.
        ignore_null_updates: An update leaves a column as it is where it brings null.
        column_list: The columns that the table has, the key's among them; None is all.
        except_column_list: All but these.
        track_history_column_list: The columns whose changes begin another row of a history; None is all.
        track_history_except_column_list: All but these.
        deletes: With `soft` a row that the database deleted stays with its last values, and `__DELETED_AT` is the time of its
            deletion, null in other rows.
        max_delete_ratio: A snapshot that would delete a larger part of the rows, from 0 to 1, blocks the table.
        allowed_lateness: A change that arrives later, by the database's times, may be refused, as what its merge needs is forgotten.
        max_transaction: The longest that a transaction of the database lasts. With it, tables may wait for complete hours
            (`table.hours`).
        max_continuous_empty_commits: An execution that changes no row leaves no commit. For readers that take the watermark from the
            table's log, at most so many in a row do; then one commits it with no row. 0 commits each; None is any number.
        history: A dump of the database's table, whose rows `lakechime cdc load` merges.
    """

    keys: tuple[str, ...]
    stored_as_scd_type: int = 1
    apply_as_truncates: bool = True
    ignore_null_updates: bool = False
    column_list: tuple[str, ...] | None = None
    except_column_list: tuple[str, ...] = ()
    track_history_column_list: tuple[str, ...] | None = None
    track_history_except_column_list: tuple[str, ...] = ()
    deletes: str | Deletes = Deletes.HARD
    max_delete_ratio: float = 0.1
    allowed_lateness: dt.timedelta = dt.timedelta(days=1)
    max_transaction: dt.timedelta | None = None
    max_continuous_empty_commits: int | None = None
    history: Snapshot | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", checked_columns("CDCMerge", "keys", self.keys))
        if not self.keys:
            raise DeclarationError("CDCMerge", "keys", "is empty; name the columns of the table's key")
        if self.stored_as_scd_type not in (1, 2):
            raise DeclarationError("CDCMerge", "stored_as_scd_type", f"{shown(self.stored_as_scd_type)} is neither 1 nor 2")
        self._check_lists("column_list", "except_column_list")
        self._check_lists("track_history_column_list", "track_history_except_column_list")
        left_out = [key for key in self.keys if not self.takes(key)]
        if left_out:
            raise DeclarationError("CDCMerge", "column_list", f"leaves out {left_out[0]!r}, a column of the key; take it")
        tracked = self.track_history_column_list is not None or self.track_history_except_column_list
        if self.stored_as_scd_type == 1 and tracked:
            raise DeclarationError("CDCMerge", "track_history_column_list", "is for stored_as_scd_type=2, which keeps histories")
        object.__setattr__(self, "deletes", _deletes(self.deletes))
        if self.keeps_deleted and self.stored_as_scd_type == 2:
            problem = "'soft' goes without stored_as_scd_type=2, whose histories keep deleted rows; leave it out"
            raise DeclarationError("CDCMerge", "deletes", problem)
        self._check_limits()

    def _check_limits(self) -> None:
        ratio, lateness, transaction = self.max_delete_ratio, self.allowed_lateness, self.max_transaction
        if not isinstance(ratio, int | float) or not 0 <= ratio <= 1:
            raise DeclarationError("CDCMerge", "max_delete_ratio", f"{shown(ratio)} is no part of all rows, from 0 to 1")
        if not isinstance(lateness, dt.timedelta) or lateness <= dt.timedelta(0):
            raise DeclarationError("CDCMerge", "allowed_lateness", f"{shown(lateness)} is not a positive timedelta")
        if transaction is not None and (not isinstance(transaction, dt.timedelta) or transaction < dt.timedelta(0)):
            raise DeclarationError("CDCMerge", "max_transaction", f"{shown(transaction)} is no timedelta of 0 or more")
        empty = self.max_continuous_empty_commits
        if empty is not None and (type(empty) is not int or empty < 0):
            problem = f"{shown(empty)} is no number of executions, 0 or more; leave it out to commit only what changes rows"
            raise DeclarationError("CDCMerge", "max_continuous_empty_commits", problem)
        if self.history is not None and not isinstance(self.history, Snapshot):
            raise DeclarationError("CDCMerge", "history", f"{shown(self.history)} is no Snapshot(path, as_of=…)")

    def _check_lists(self, listed: str, excepted: str) -> None:
        """Check two lists of columns, of which one at most is given."""
        if getattr(self, listed) is not None:
            object.__setattr__(self, listed, checked_columns("CDCMerge", listed, getattr(self, listed)))
            if getattr(self, excepted):
                raise DeclarationError("CDCMerge", excepted, f"goes without {listed}; give one of them")
        object.__setattr__(self, excepted, checked_columns("CDCMerge", excepted, getattr(self, excepted)))

    @property
    def keeps_deleted(self) -> bool:
        """Whether a row that the database deleted stays."""
        return self.deletes == Deletes.SOFT

    @property
    def named(self) -> tuple[str, ...]:
        """All columns that it names."""
        listed = (self.column_list, self.except_column_list, self.track_history_column_list, self.track_history_except_column_list)
        return (*self.keys, *(name for several in listed if several is not None for name in several))

    def spelled_as(self, columns: Iterable[str]) -> "CDCMerge":
        """The same with the names of a table's columns, of those that Spark takes for one."""
        own = {folded(column): column for column in columns}

        def spelled(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(own.get(folded(name), name) for name in names)

        listed, tracked = self.column_list, self.track_history_column_list
        return replace(
            self,
            keys=spelled(self.keys),
            column_list=None if listed is None else spelled(listed),
            except_column_list=spelled(self.except_column_list),
            track_history_column_list=None if tracked is None else spelled(tracked),
            track_history_except_column_list=spelled(self.track_history_except_column_list),
        )

    def takes(self, column: str) -> bool:
        """Whether the table has a column of its database's table."""
        listed = self.except_column_list if self.column_list is None else self.column_list
        return (folded(column) in map(folded, listed)) is (self.column_list is not None)


def _deletes(value: object) -> Deletes:
    try:
        return Deletes(str(value))
    except ValueError:
        raise DeclarationError("CDCMerge", "deletes", f"{shown(value)} is neither {' nor '.join(Deletes)}") from None
