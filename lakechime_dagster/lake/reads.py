"""Reads: how a computed table reads an input — its changes, or the whole of it at a pinned snapshot."""

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.event import TableFormat
from lakechime_dagster.dce.partition import PartitionLevels
from lakechime_dagster.dce.store import NamedTable
from lakechime_dagster.errors import DeclarationError, shown
from lakechime_dagster.lake.names import checked_columns, table_of_lake
from lakechime_dagster.triggers import PartitionCondition
from lakechime_dagster.triggers.conditions import LevelSpec

Passthrough = Mapping[str, Any]  # what `@dg.asset` takes; the foreign edge


class ReadMode(StrEnum):
    """CHANGES: what the execution's range touched; SNAPSHOT: everything at the end of the range."""

    CHANGES = "changes"
    SNAPSHOT = "snapshot"


class OnChange(StrEnum):
    """What a change of an input means that is read whole: IGNORE leaves the rows written before as they are."""

    IGNORE = "ignore"


@dataclass(frozen=True, kw_only=True)
class Read:
    """One input of a computed table.

    A read of changes with `rejoin` adds the rows whose partner in the rejoined table changed, found by the columns
    `on` that both tables have. `on_change` says what a change of a table means that is read as a snapshot.
    """

    table: str
    mode: ReadMode
    rejoin: str | None = None
    on: tuple[str, ...] = ()
    on_change: OnChange | None = None

    @property
    def is_changing(self) -> bool:
        """Whether a change of the table is read as rows."""
        return self.mode is ReadMode.CHANGES

    def pinned(self) -> "Read":
        """The same table, read whole, a change of it meaning nothing by itself."""
        return replace(self, mode=ReadMode.SNAPSHOT, rejoin=None, on=(), on_change=OnChange.IGNORE)


class Readable:
    """What every declared table offers to those that read it or wait for it."""

    name: str
    partitioned_by: Mapping[str, str] | PartitionLevels | None
    owner: str | None
    location: str | None
    format: str | TableFormat
    fresh_within: dt.timedelta | None
    description: str
    group: str | None
    kinds: tuple[str, ...]
    dagster: Passthrough
    public: bool

    @property
    def levels(self) -> PartitionLevels:
        """The typed partition levels, outermost first; none for an unpartitioned table."""
        assert isinstance(self.partitioned_by, PartitionLevels)  # since construction
        return self.partitioned_by

    def changes(self, *, rejoin: NamedTable | str | None = None, on: Iterable[str] = ()) -> Read:
        """The rows that changed, and with `rejoin` those whose partner, by the columns `on`, changed."""
        columns = checked_columns(self.name, "changes(on=)", on)
        other = rejoin if rejoin is None or isinstance(rejoin, str) else table_of_lake(self.name, "changes(rejoin=)", rejoin)
        if (other is None) != (not columns):
            remedy = "needs on=[columns that both tables have]" if other else "joins nothing; give rejoin=table too"
            raise DeclarationError(self.name, "changes(rejoin=, on=)", remedy)
        if other == self.name:
            raise DeclarationError(self.name, "changes(rejoin=)", "is the table itself; rejoin another one")
        return Read(table=self.name, mode=ReadMode.CHANGES, rejoin=other, on=columns)

    def snapshot(self, *, on_change: str | None = None) -> Read:
        """The whole table at a pinned snapshot; `on_change="ignore"` says that its change alone changes nothing."""
        try:
            meaning = None if on_change is None else OnChange(on_change)
        except ValueError:
            raise DeclarationError(
                self.name, "snapshot(on_change=)", f"{shown(on_change)} is not {' or '.join(repr(str(choice)) for choice in OnChange)}"
            ) from None
        return Read(table=self.name, mode=ReadMode.SNAPSHOT, on_change=meaning)

    def partitions(self, **levels: LevelSpec) -> PartitionCondition:
        """The partitions that a partition trigger waits for: per level a literal, a tick, or several (all must be there)."""
        if not self.levels:
            raise DeclarationError(self.name, "partitions", "is not partitioned; declare partitioned_by=, or use a SnapshotTrigger")
        return PartitionCondition.of(self.name, levels, self.levels)
