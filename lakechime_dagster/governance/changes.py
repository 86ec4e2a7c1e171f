"""Planned changes and the messages about them: what changes, for whom, through which channel."""

import datetime as dt
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from lakechime_dagster.compat import StrEnum, date_of_iso
from lakechime_dagster.dce.partitions import MAX_NAME, checked_text, printable, shortened, storable
from lakechime_dagster.errors import InvalidValueError, LakeChimeError
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
            "kind": self.kind.value,
            "what": self.what,
            "action": self.action,
            "sender": self.sender,
            "on": None if self.on is None else self.on.isoformat(),
            "refs": [[ref.table, ref.column] for ref in self.refs],
        }

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


SETTING = "LAKECHIME_NOTIFICATION_URLS"
EXAMPLE = """write such as '{"team:ops": "$OPS_SLACK", "*@*": "$MAIL"}'"""
OTHERS, ADDRESSES = "*", "*@*"  # owners without channels of their own, and those of them that are addresses of e-mail
OWNER = "{owner}"  # in a URL: the owner's address
_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]{0,126}", re.ASCII)


class NoAddressError(LakeChimeError):
    """A channel leads nowhere, as the environment does not hold its URL, or the URL is none for one recipient; it is not shown."""


@dataclass(frozen=True)
class Channels:
    """The channels of owners, as the setting names them; none of it is secret, as URLs stand in the variables alone."""

    by_owner: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    def of(self, owner: str) -> tuple[str, ...]:
        """The owner's own channels, else those of all addresses, else those of all others; empty where there is none."""
        names = (owner, ADDRESSES, OTHERS) if "@" in owner else (owner, OTHERS)
        return next((self.by_owner[name] for name in names if name in self.by_owner), ())


def channels_of(setting: str) -> Channels:
    """What the setting says: a JSON object of owners, each with a name or a list of names of variables.

    Raises:
        InvalidValueError: it is something else; what could be a secret is not shown.
    """
    if not setting.strip():
        return Channels()
    try:
        document = json.loads(setting)
    except (ValueError, RecursionError):
        raise InvalidValueError(SETTING, "…", f"is not JSON; {EXAMPLE}") from None
    if not isinstance(document, dict):
        raise InvalidValueError(SETTING, "…", f"is not a JSON object; {EXAMPLE}")
    return Channels({owner: _names(owner, given) for owner, given in document.items()})


def address_of(channel: str, owner: str, environment: Mapping[str, str]) -> str:
    """The URL that a channel stands for.

    Raises:
        NoAddressError: the environment does not hold it, or it asks for an address that the owner is not.
    """
    url = environment.get(channel[1:], "")
    if not url:
        raise NoAddressError(f"{channel} is not in the environment; set it to a URL of apprise for one recipient, as mailto://…")
    if OWNER in url and "@" not in owner:
        raise NoAddressError(f"{channel} is for owners that are addresses of e-mail; give {owner} a channel of its own in {SETTING}")
    return url.replace(OWNER, quote(owner, safe=""))


def _names(owner: str, given: object) -> tuple[str, ...]:
    names = given.split() if isinstance(given, str) else given
    if not isinstance(names, list) or not names:
        raise InvalidValueError(SETTING, "…", f"has no name of a variable for {owner}; {EXAMPLE}")
    for one in names:
        if not isinstance(one, str) or not _VARIABLE.fullmatch(one):
            raise InvalidValueError(SETTING, "…", f"has for {owner} what is no $NAME of a variable that holds a URL; {EXAMPLE}")
    return tuple(dict.fromkeys(names))


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
    }
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
