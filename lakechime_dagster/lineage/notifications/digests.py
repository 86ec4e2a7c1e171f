"""Who gets which message about a change: one digest an owner, about nothing but the owner's own affected tables and readers."""

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.dce.text import printable, storable
from lakechime_dagster.lineage.notifications.changes import Change

DASHBOARD_DAYS = 90  # dashboards and jobs that were not used for longer are left out
PERSON_DAYS = 35  # people who have not read for longer are left out; so a monthly look still counts
MAX_LINES = 50  # of tables, and of readers
MAX_COLUMNS = 20  # of a table
MAX_TITLE = 200  # characters; more is cut by some services
DAY_MS = 86_400_000


class Occasion(StrEnum):
    """Why a message is sent."""

    ANNOUNCED = "announced"
    WITHDRAWN = "withdrawn"


class ReaderKind(StrEnum):
    """What reads a table without writing another one."""

    DASHBOARD = "dashboard"
    JOB = "job"
    PERSON = "person"


@dataclass(frozen=True, order=True, kw_only=True)
class Reader:
    """A dashboard, an external job or a person that reads a table.

    `read_ms` is the last read, in milliseconds since the epoch, None where unknown. `owner` gets the message: who made the dashboard,
    or the person; empty where unknown.
    """

    name: str
    kind: ReaderKind = ReaderKind.DASHBOARD
    owner: str = ""
    link: str = ""
    read_ms: int | None = None

    def is_recent(self, now_ms: int) -> bool:
        """Whether it counts; a reader without a known last read does."""
        days = PERSON_DAYS if self.kind is ReaderKind.PERSON else DASHBOARD_DAYS
        return self.read_ms is None or self.read_ms >= now_ms - days * DAY_MS


@dataclass(frozen=True, order=True, kw_only=True)
class AffectedTable:
    """A table that a change affects.

    `layer` counts the steps from the changed table, which is layer 0. `columns` are the affected ones; None says that they are
    unknown, an empty tuple that rows may change and no value. `is_sure` is false where lineage on the way is unknown. `readers` read
    these columns, or the table where columns are unknown.
    """

    table: str
    layer: int
    columns: tuple[str, ...] | None = None
    owners: tuple[str, ...] = ()
    readers: tuple[Reader, ...] = ()
    is_sure: bool = True


@dataclass(frozen=True, kw_only=True)
class Digest:
    """The content of one owner's message: the owner's tables, without readers, and the owner's readers, each with the table it reads.

    Where it `is_unowned`, it goes to the sender, as nobody owns these tables.
    """

    owner: str
    tables: tuple[AffectedTable, ...] = ()
    readers: tuple[tuple[Reader, AffectedTable], ...] = ()
    is_unowned: bool = False

    @property
    def reason(self) -> str:
        """Why this owner gets a message, in a line."""
        owns = "sends the change, and nobody owns" if self.is_unowned else "owns"
        owned = [f"{owns} {_first([one.table for one in self.tables])}"] if self.tables else []
        by_kind: dict[str, list[str]] = {}
        for reader, read in self.readers:
            does = "reads" if reader.kind is ReaderKind.PERSON else f"has {reader.name}, which reads"
            by_kind.setdefault(does, []).append(read.table)
        return "; ".join([*owned, *(f"{does} {_first(tables)}" for does, tables in by_kind.items())])


@dataclass(frozen=True, kw_only=True)
class Digests:
    """All digests of a change, by owner in order; `unowned` is for the sender, `own` are the sender's own tables."""

    digests: tuple[Digest, ...]
    unowned: Digest
    own: Digest


def digests_of(change: Change, affected: Iterable[AffectedTable], now_ms: int) -> Digests:
    """The digest of each owner. No owner's digest names what others own; readers without a recent read are left out."""
    tables: dict[str, list[AffectedTable]] = {}
    readers: dict[str, list[tuple[Reader, AffectedTable]]] = {}
    for one in sorted(affected, key=lambda one: (one.layer, one.table)):
        bare = replace(one, readers=(), owners=())
        for owner in dict.fromkeys(one.owners or ("",)):
            tables.setdefault(owner, []).append(bare)
        for reader in sorted(set(one.readers), key=lambda one: (one.name, one.kind, one.owner, one.link, one.read_ms or 0)):
            if reader.is_recent(now_ms):
                readers.setdefault(reader.owner, []).append((reader, bare))
    found = {
        owner: Digest(owner=owner, tables=tuple(tables.get(owner, ())), readers=tuple(readers.get(owner, ())))
        for owner in sorted({*tables, *readers})
    }  # fmt: skip
    empty = Digest(owner=change.sender)
    own = found.pop(change.sender, empty) if change.sender else empty
    unowned = replace(found.pop("", empty), owner=change.sender, is_unowned=True)
    return Digests(digests=tuple(found.values()), unowned=unowned, own=own)


def title_of(change: Change, occasion: Occasion) -> str:
    """The title of a message: one line, in which characters that hide or turn text are shown by their codes."""
    title = printable(("Withdrawn: " if occasion is Occasion.WITHDRAWN else "") + change.title)
    return title if len(title) <= MAX_TITLE else f"{title[: MAX_TITLE - 1]}…"


def withdrawal_text(change: Change, who: str) -> str:
    """The message to everybody who got the announcement of a change that is withdrawn."""
    return _text(["This change is withdrawn; no action is needed.", change.what, _changed(change), _signature(change, who)])


def text_of(change: Change, digest: Digest, who: str) -> str:
    """The message to one owner."""
    parts = [change.what]
    parts += [f"What to do: {change.action}"] if change.action else []
    parts += [f"When: {change.on}"] if change.on else []
    parts += [_changed(change)]
    if digest.tables:
        whose = "Affected tables without an owner" if digest.is_unowned else "Your affected tables"
        parts += [f"{whose}:\n" + _lines([_of_table(one) for one in digest.tables])]
    for kind, heading in (
        (ReaderKind.DASHBOARD, "Your dashboards that read affected tables"),
        (ReaderKind.JOB, "Your jobs that read affected tables"),
        (ReaderKind.PERSON, "Affected tables that you have read"),
    ):
        if several := [pair for pair in digest.readers if pair[0].kind is kind]:
            parts += [f"{heading}:\n" + _lines([_of_reader(*pair) for pair in several])]
    return _text([*parts, _signature(change, who)])


def _text(parts: Iterable[str]) -> str:
    return "\n\n".join("\n".join(storable(line) for line in part.split("\n")) for part in parts)


def _changed(change: Change) -> str:
    return f"What changes: {_some([printable(str(ref)) for ref in change.refs])}"


def _signature(change: Change, who: str) -> str:
    return f"Sent by {change.sender + ', ' if change.sender else ''}{who}."


def _of_table(one: AffectedTable) -> str:
    unsure = "" if one.is_sure else "; not certain, as lineage on the way is unknown"
    return f"- {_named(one)}{unsure}"


def _of_reader(reader: Reader, read: AffectedTable) -> str:
    last = "" if reader.read_ms is None else f", last read on {dt.datetime.fromtimestamp(reader.read_ms / 1000, dt.timezone.utc):%Y-%m-%d}"
    name = f"{printable(reader.name)} {printable(reader.link)}".strip() if reader.kind is not ReaderKind.PERSON else ""
    return f"- {name}{' reads ' if name else ''}{_named(read)}{last}"


def _named(one: AffectedTable) -> str:
    layer = f"layer {one.layer}" if one.layer else "it changes itself"
    return f"{printable(one.table)} ({layer}): {_columns(one)}"


def _columns(one: AffectedTable) -> str:
    if one.columns is None:
        return "columns unknown" if one.layer else "all of it"
    if not one.columns:
        return "which rows it has"
    return ("column " if len(one.columns) == 1 else "columns ") + _some([printable(column) for column in one.columns])


def _lines(lines: Sequence[str]) -> str:
    more = [f"- and {len(lines) - MAX_LINES} more"] if len(lines) > MAX_LINES else []
    return "\n".join([*lines[:MAX_LINES], *more])


def _some(names: Sequence[str], most: int = MAX_COLUMNS) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _first(names: Iterable[str]) -> str:
    return _some(list(dict.fromkeys(names)), 3)
