"""Reads: how a computed table reads an input — its changes, or the whole of it at a pinned snapshot."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lakechime_dagster.compat import StrEnum

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
