"""A change that people are told of before it comes: what, when, what they are to do, and which tables and columns it is of."""

import datetime as dt
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from typing_extensions import assert_never

from lakechime_dagster.compat import StrEnum, date_of_iso
from lakechime_dagster.dce.text import checked_text
from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.lineage.columns import ColumnRef

MAX_TEXT = 2000  # characters of what it is, and of what to do
MAX_REFS = 1000
LAST_ZONE = dt.timezone(dt.timedelta(hours=-12))  # where a day ends last


class ChangeKind(StrEnum):
    """What sort of change it is."""

    DEPRECATION = "deprecation"
    RETENTION = "retention"
    SCHEMA_CHANGE = "schema change"
    INCIDENT = "incident"
    BACKFILL = "backfill"

    @property
    def may_have_come(self) -> bool:
        """Whether it may be told of after its day: that values were wrong, or that they are computed again."""
        return self in (ChangeKind.INCIDENT, ChangeKind.BACKFILL)


class ChangeState(StrEnum):
    """PLANNED is a draft that nobody was told of; ANNOUNCED ones are told of; the other two are ends."""

    PLANNED = "planned"
    ANNOUNCED = "announced"
    DONE = "done"
    WITHDRAWN = "withdrawn"

    @property
    def is_open(self) -> bool:
        return self in (ChangeState.PLANNED, ChangeState.ANNOUNCED)


@dataclass(frozen=True, kw_only=True)
class Change:
    """What is to be told.

    `what` says what happens, `action` what readers are to do, `on` when it comes. `refs` are tables, or columns of them.
    `sender` is the owner in whose name it is told: that one is not told of its own tables.
    """

    kind: ChangeKind
    what: str
    refs: tuple[ColumnRef, ...]
    action: str = ""
    on: dt.date | None = None
    sender: str = ""

    def __post_init__(self) -> None:
        checked_text("what", self.what, limit=MAX_TEXT)
        checked_text("action", self.action, limit=MAX_TEXT, empty=True)
        checked_text("sender", self.sender, empty=True)
        if not self.refs:
            raise InvalidValueError("refs", (), "is empty; name a table, or a column of one, that changes")
        if len(self.refs) > MAX_REFS:
            raise InvalidValueError("refs", len(self.refs), f"are too many; name at most {MAX_REFS}, or the table in place of its columns")
        for ref in self.refs:
            checked_text("table", ref.table)
            checked_text("column", "" if ref.column is None else ref.column, empty=ref.column is None)
        object.__setattr__(self, "refs", _without_columns_of_tables(self.refs))

    @property
    def title(self) -> str:
        """One line that says of what it is."""
        kind = self.kind.value.capitalize()
        first, more = self.refs[0], len(self.refs) - 1
        return f"{kind}: {first}" + (f" and {more} more" if more else "") + (f" on {self.on}" if self.on else "")

    def ended(self, columns_of: Callable[[str], Collection[str] | None]) -> tuple[ColumnRef, ...]:
        """What nobody may read any more once it is done: all that is deprecated, and of a schema change what is gone.

        `columns_of` tells the columns that a table has now, none of one that is gone, and None where nobody knows: then all of it counts.
        Whoever reads a column of another type, or a table that keeps less, may go on.
        """
        match self.kind:
            case ChangeKind.DEPRECATION:
                return self.refs
            case ChangeKind.SCHEMA_CHANGE:
                columns = {ref.table: columns_of(ref.table) for ref in self.refs}
                return tuple(ref for ref in self.refs if _is_gone(ref.column, columns[ref.table]))
            case ChangeKind.RETENTION | ChangeKind.INCIDENT | ChangeKind.BACKFILL:
                return ()
            case _:
                assert_never(self.kind)

    def to_json(self) -> dict[str, Any]:
        """As the store keeps it."""
        return {
            "kind": self.kind.value, "what": self.what, "action": self.action, "sender": self.sender,
            "on": None if self.on is None else self.on.isoformat(),
            "refs": [[ref.table, ref.column] for ref in self.refs],
        }  # fmt: skip

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Change":
        """The change that was kept."""
        return cls(
            kind=ChangeKind(document["kind"]), what=document["what"], action=document["action"], sender=document["sender"],
            on=None if document["on"] is None else date_of_iso(document["on"]),
            refs=tuple(ColumnRef(table, column) for table, column in document["refs"]),
        )  # fmt: skip


def checked_day(change: Change, now: dt.datetime) -> Change:
    """The change itself, unless its day is over wherever one is; only of some kinds may it be told of after it has come.

    Raises:
        InvalidValueError: naming the day.
    """
    first = now.astimezone(LAST_ZONE).date()
    if change.on is not None and change.on < first and not change.kind.may_have_come:
        kinds = " and ".join(kind.value for kind in ChangeKind if kind.may_have_come)
        raise InvalidValueError("on", change.on.isoformat(), f"is over; name a day from {first} on: only {kinds} may have come already")
    return change


def _is_gone(column: str | None, columns: Collection[str] | None) -> bool:
    return columns is None or (column not in columns if column is not None else not columns)


def _without_columns_of_tables(refs: tuple[ColumnRef, ...]) -> tuple[ColumnRef, ...]:
    """Each once, in order; a column of a table that is among them as a whole says nothing more."""
    whole = {ref.table for ref in refs if ref.column is None}
    kept = {ref for ref in refs if ref.column is None or ref.table not in whole}
    return tuple(sorted(kept, key=lambda ref: (ref.table, ref.column or "")))
