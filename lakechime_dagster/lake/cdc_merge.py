"""How the changes of a followed table are merged, as it declares it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from lakechime_dagster.errors import DeclarationError, shown
from lakechime_dagster.lake.names import checked_columns, folded


@dataclass(frozen=True, kw_only=True)
class CDCMerge:
    """How changes are merged, by the arguments of Spark's AUTO CDC.

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
    """

    keys: tuple[str, ...]
    stored_as_scd_type: int = 1
    apply_as_truncates: bool = True
    ignore_null_updates: bool = False
    column_list: tuple[str, ...] | None = None
    except_column_list: tuple[str, ...] = ()
    track_history_column_list: tuple[str, ...] | None = None
    track_history_except_column_list: tuple[str, ...] = ()

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

    def _check_lists(self, listed: str, excepted: str) -> None:
        """Check two lists of columns, of which one at most is given."""
        if getattr(self, listed) is not None:
            object.__setattr__(self, listed, checked_columns("CDCMerge", listed, getattr(self, listed)))
            if getattr(self, excepted):
                raise DeclarationError("CDCMerge", excepted, f"goes without {listed}; give one of them")
        object.__setattr__(self, excepted, checked_columns("CDCMerge", excepted, getattr(self, excepted)))

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
