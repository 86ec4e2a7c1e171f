"""A planned change: what, when, what readers are to do, and which tables and columns it is about."""

import datetime as dt
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lakechime_dagster.compat import StrEnum, date_of_iso
from lakechime_dagster.dce.text import MAX_NAME, checked_text, shortened, storable
from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.lineage.columns import ColumnRef

MAX_TEXT = 2000  # characters of the description, and of the action
MAX_REFS = 1000
LAST_ZONE = dt.timezone(dt.timedelta(hours=-12))  # where a day ends last


class ChangeKind(StrEnum):
    """The kind of a change; an incident or a backfill may be announced after its day."""

    DEPRECATION = "deprecation"
    RETENTION = "retention"
    SCHEMA_CHANGE = "schema change"
    INCIDENT = "incident"
    BACKFILL = "backfill"


class ChangeState(StrEnum):
    """DRAFT: nobody has been notified. ANNOUNCED: owners are notified. DONE and WITHDRAWN are final."""

    DRAFT = "draft"
    ANNOUNCED = "announced"
    DONE = "done"
    WITHDRAWN = "withdrawn"

    @property
    def is_open(self) -> bool:
        return self in (ChangeState.DRAFT, ChangeState.ANNOUNCED)


@dataclass(frozen=True, kw_only=True)
class Change:
    """What owners are notified of.

    `what` says what happens, `action` what readers are to do, `on` when it happens. `refs` are tables, or columns of them. `sender`
    is the owner in whose name messages are sent: that owner gets no message about its own tables.
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
        whole = {ref.table for ref in self.refs if ref.column is None}
        kept = {ref for ref in self.refs if ref.column is None or ref.table not in whole}
        object.__setattr__(self, "refs", tuple(sorted(kept, key=lambda ref: (ref.table, ref.column or ""))))

    @property
    def title(self) -> str:
        """The change in one line."""
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
        on = None if document["on"] is None else date_of_iso(document["on"])
        refs = tuple(ColumnRef(table, column) for table, column in document["refs"])
        return cls(**{**document, "kind": ChangeKind(document["kind"]), "on": on, "refs": refs})


def checked_day(change: Change, now: dt.datetime) -> Change:
    """The change itself, unless its day is over in every time zone; incidents and backfills may be announced afterwards.

    Raises:
        InvalidValueError: naming the day.
    """
    first = now.astimezone(LAST_ZONE).date()
    if change.on is not None and change.on < first and change.kind not in (ChangeKind.INCIDENT, ChangeKind.BACKFILL):
        raise InvalidValueError("on", change.on.isoformat(), f"is over; name a day from {first} on, or use incident or backfill as kind")
    return change


def automatic_change(kind: ChangeKind, what: str, refs: Iterable[ColumnRef], action: str = "") -> Change:
    """A change that no person writes: its texts are cut to what can be stored; a column whose name cannot be stored counts as its table."""
    several = {ref if ref.column is None or _is_storable(ref.column) else ColumnRef(ref.table) for ref in refs}
    if len(several) > MAX_REFS:
        several = {ColumnRef(table) for table in sorted({ref.table for ref in several})[:MAX_REFS]}
    return Change(kind=kind, what=shortened(what, MAX_TEXT), refs=tuple(several), action=action)


def source_key(source: str) -> str:
    """The source of an automatic draft as the store keeps it; a long or odd one gets a digest, so that each has its own."""
    shown = storable(source)
    if shown == source and len(shown) <= MAX_NAME:
        return shown
    digest = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{shown[:400]}… {digest}"


def _is_storable(column: str) -> bool:
    return bool(column) and shortened(column, MAX_NAME) == column
