"""A change that people are told of before it comes: what, when, what they are to do, and which tables and columns it is of."""

import datetime as dt
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lakechime_dagster.dce.text import checked_text
from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.lineage.columns import ColumnRef

MAX_TEXT = 2000  # characters of what it is, and of what to do
MAX_REFS = 1000


class ChangeKind(StrEnum):
    """What sort of change it is."""

    DEPRECATION = "deprecation"
    RETENTION = "retention"
    SCHEMA_CHANGE = "schema change"
    INCIDENT = "incident"
    BACKFILL = "backfill"

    @property
    def ends_reading(self) -> bool:
        """Whether it is done only when nobody reads any more what it is of."""
        return self in (ChangeKind.DEPRECATION, ChangeKind.RETENTION, ChangeKind.SCHEMA_CHANGE)


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
            on=None if document["on"] is None else dt.date.fromisoformat(document["on"]),
            refs=tuple(ColumnRef(table, column) for table, column in document["refs"]),
        )  # fmt: skip


def _without_columns_of_tables(refs: tuple[ColumnRef, ...]) -> tuple[ColumnRef, ...]:
    """Each once, in order; a column of a table that is among them as a whole says nothing more."""
    whole = {ref.table for ref in refs if ref.column is None}
    kept = {ref for ref in refs if ref.column is None or ref.table not in whole}
    return tuple(sorted(kept, key=lambda ref: (ref.table, ref.column or "")))
