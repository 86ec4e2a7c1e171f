"""Planned changes and the messages about them: what changes, for whom, through which channel."""

import datetime as dt
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from lakechime_dagster.compat import StrEnum, date_of_iso
from lakechime_dagster.dce.partitions import checked_text, printable, storable
from lakechime_dagster.errors import InvalidValueError, LakeChimeError
from lakechime_dagster.lineage.columns import RECIPIENT_MS, ColumnRef, Consumer, ConsumerKind

MAX_TEXT = 2000  # characters of the description, and of the action
MAX_REFS = 1000
LAST_ZONE = dt.timezone(dt.timedelta(hours=-12))  # where a day ends last


class ChangeKind(StrEnum):
    """The kind of a change; an incident or a backfill may be announced after its day."""

    DEPRECATION = "deprecation"
    RETENTION = "retention"
    SCHEMA_CHANGE = "schema_change"
    INCIDENT = "incident"
    BACKFILL = "backfill"


class ChangeState(StrEnum):
    """DRAFT: nobody has been notified. ANNOUNCED: owners are notified. CLOSED is final."""

    DRAFT = "draft"
    ANNOUNCED = "announced"
    CLOSED = "closed"


@dataclass(frozen=True, kw_only=True)
class Change:
    """What owners are notified of.

    `what` says what happens, `action` what readers are to do, `on` when it happens. `refs` are
    tables, or columns of them. `sender` is the owner in whose name messages are sent: that owner
    gets no message about its own tables.
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
            raise InvalidValueError(
                "refs", (), "is empty; name a table, or a column of one, that changes"
            )
        if len(self.refs) > MAX_REFS:
            raise InvalidValueError(
                "refs",
                len(self.refs),
                f"are too many; name at most {MAX_REFS}, or the table in place of its columns",
            )
        for ref in self.refs:
            checked_text("table", ref.table)
            checked_text(
                "column", "" if ref.column is None else ref.column, empty=ref.column is None
            )
        whole = {ref.table for ref in self.refs if ref.column is None}
        kept = {ref for ref in self.refs if ref.column is None or ref.table not in whole}
        object.__setattr__(
            self, "refs", tuple(sorted(kept, key=lambda ref: (ref.table, ref.column or "")))
        )

    @property
    def title(self) -> str:
        """The change in one line."""
        kind = self.kind.replace("_", " ").capitalize()
        first, more = self.refs[0], len(self.refs) - 1
        return (
            f"{kind}: {first}"
            + (f" and {more} more" if more else "")
            + (f" on {self.on}" if self.on else "")
        )

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
    """The change itself, unless its day is over in every time zone; incidents and backfills may be
    announced afterwards.

    Raises:
        InvalidValueError: naming the day.
    """
    first = now.astimezone(LAST_ZONE).date()
    if (
        change.on is not None
        and change.on < first
        and change.kind not in (ChangeKind.INCIDENT, ChangeKind.BACKFILL)
    ):
        raise InvalidValueError(
            "on",
            change.on.isoformat(),
            f"is over; name a day from {first} on, or use incident or backfill as kind",
        )
    return change


SETTING = "LAKECHIME_NOTIFICATION_URLS"
EXAMPLE = """write such as '{"team:ops": "$OPS_SLACK", "*@*": "$MAIL"}'"""
# owners without channels of their own, and those of them that are addresses of e-mail
OTHERS, ADDRESSES = ("*", "*@*")
OWNER = "{owner}"  # in a URL: the owner's address
_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]{0,126}", re.ASCII)


class NoAddressError(LakeChimeError):
    """A channel leads nowhere, as the environment does not hold its URL, or the URL is none for one
    recipient; it is not shown.
    """


@dataclass(frozen=True)
class Channels:
    """The channels of owners, as the setting names them; none of it is secret, as URLs stand in the
    variables alone.
    """

    by_owner: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    def of(self, owner: str) -> tuple[str, ...]:
        """The owner's own channels, else those of all addresses, else those of all others; empty
        where there is none.
        """
        names = (owner, ADDRESSES, OTHERS) if "@" in owner else (owner, OTHERS)
        return next((self.by_owner[name] for name in names if name in self.by_owner), ())


def channels_of(setting: str) -> Channels:
    """What the setting says: a JSON object of owners, each with a name or a list of names of
    variables.

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
        NoAddressError: the environment does not hold it, or it asks for an address that the owner
            is not.
    """
    url = environment.get(channel[1:], "")
    if not url:
        raise NoAddressError(
            f"{channel} is not in the environment; set it to a URL of apprise for one recipient, as mailto://…"
        )
    if OWNER in url and "@" not in owner:
        raise NoAddressError(
            f"{channel} is for owners that are addresses of e-mail; give {owner} a channel of its "
            f"own in {SETTING}"
        )
    return url.replace(OWNER, quote(owner, safe=""))


def _names(owner: str, given: object) -> tuple[str, ...]:
    names = given.split() if isinstance(given, str) else given
    if not isinstance(names, list) or not names:
        raise InvalidValueError(SETTING, "…", f"has no name of a variable for {owner}; {EXAMPLE}")
    for one in names:
        if not isinstance(one, str) or not _VARIABLE.fullmatch(one):
            raise InvalidValueError(
                SETTING,
                "…",
                f"has for {owner} what is no $NAME of a variable that holds a URL; {EXAMPLE}",
            )
    return tuple(dict.fromkeys(names))


MAX_LINES = 50  # of tables, and of readers
MAX_COLUMNS = 20  # of a table
MAX_TITLE = 200  # characters; more is cut by some services


@dataclass(frozen=True, order=True, kw_only=True)
class AffectedTable:
    """A table that a change affects.

    `layer` counts the edges from the changed table, which is layer 0. `columns` are the affected
    ones; None says that they are unknown, an empty tuple that rows may change and no value.
    `is_sure` is false where lineage on the way is unknown.
    """

    table: str
    layer: int
    columns: tuple[str, ...] | None = None
    owners: tuple[str, ...] = ()
    is_sure: bool = True


@dataclass(frozen=True, order=True, kw_only=True)
class AffectedReader:
    """A dashboard, a person or an external job that reads affected columns, or tables of which it
    is unknown which columns it reads.
    """

    consumer: Consumer
    refs: tuple[ColumnRef, ...]
    last_ms: int
    owners: tuple[str, ...] = ()
    link: str = ""

    @property
    def recipients(self) -> tuple[str, ...]:
        """Its owners; of a person without one the person."""
        return self.owners or (
            (self.consumer.name,) if self.consumer.kind is ConsumerKind.USER else ()
        )


@dataclass(frozen=True, kw_only=True)
class Digest:
    """The content of one owner's message: the owner's tables and readers."""

    owner: str
    tables: tuple[AffectedTable, ...] = ()
    readers: tuple[AffectedReader, ...] = ()

    @property
    def reason(self) -> str:
        """Why this owner gets a message, in a line."""
        owned = [f"owns {_some([one.table for one in self.tables], 3)}"] if self.tables else []
        return "; ".join(
            [
                *owned,
                *(f"has {one.consumer.name}, which reads {_read(one)}" for one in self.readers[:3]),
            ]
        )


def digests_of(
    change: Change, tables: Iterable[AffectedTable], readers: Iterable[AffectedReader], now_ms: int
) -> tuple[tuple[Digest, ...], tuple[str, ...]]:
    """The digest of each owner but the sender, and the tables that nobody owns; readers without a
    recent read are left out.

    No owner's digest names what others own.
    """
    of_tables: dict[str, list[AffectedTable]] = {}
    of_readers: dict[str, list[AffectedReader]] = {}
    for table in sorted(tables, key=lambda one: (one.layer, one.table)):
        for owner in dict.fromkeys(table.owners or ("",)):
            of_tables.setdefault(owner, []).append(replace(table, owners=()))
    for reader in sorted(readers):
        for owner in (
            dict.fromkeys(reader.recipients) if reader.last_ms >= now_ms - RECIPIENT_MS else ()
        ):
            of_readers.setdefault(owner, []).append(replace(reader, owners=()))
    owners = sorted({*of_tables, *of_readers} - {"", change.sender})
    digests = (
        Digest(
            owner=one, tables=tuple(of_tables.get(one, ())), readers=tuple(of_readers.get(one, ()))
        )
        for one in owners
    )
    return tuple(digests), tuple(one.table for one in of_tables.get("", ()))


def title_of(change: Change) -> str:
    """The title of a message: one line, in which characters that hide or turn text are shown by
    their codes.
    """
    title = printable(change.title)
    return title if len(title) <= MAX_TITLE else f"{title[: MAX_TITLE - 1]}…"


def text_of(change: Change, digest: Digest, who: str) -> str:
    """The message to one owner."""
    parts = [change.what]
    parts += [f"What to do: {change.action}"] if change.action else []
    parts += [f"When: {change.on}"] if change.on else []
    parts += [f"What changes: {_some([printable(str(ref)) for ref in change.refs])}"]
    for heading, lines in (
        ("Your affected tables", [_of_table(one) for one in digest.tables]),
        (
            "Dashboards, jobs and people of yours that read affected tables",
            [_of_reader(one) for one in digest.readers],
        ),
    ):
        if lines:
            more = [f"- and {len(lines) - MAX_LINES} more"] if len(lines) > MAX_LINES else []
            parts += ["\n".join([f"{heading}:", *lines[:MAX_LINES], *more])]
    parts += [f"Sent by {change.sender + ', ' if change.sender else ''}{who}."]
    return "\n\n".join("\n".join(storable(line) for line in part.split("\n")) for part in parts)


def _of_table(one: AffectedTable) -> str:
    layer = f"layer {one.layer}" if one.layer else "it changes itself"
    unsure = "" if one.is_sure else "; not certain, as lineage on the way is unknown"
    return f"- {printable(one.table)} ({layer}): {_columns(one)}{unsure}"


def _of_reader(one: AffectedReader) -> str:
    last = dt.datetime.fromtimestamp(one.last_ms / 1000, dt.timezone.utc)
    name = f"{one.consumer.kind} {printable(one.consumer.name)} {printable(one.link)}".rstrip()
    return f"- {name} reads {_read(one)}, last on {last:%Y-%m-%d}"


def _read(one: AffectedReader) -> str:
    return _some([printable(str(ref)) for ref in one.refs], 3)


def _columns(one: AffectedTable) -> str:
    if one.columns is None:
        return "columns unknown" if one.layer else "all of it"
    if not one.columns:
        return "which rows it has"
    return ("column " if len(one.columns) == 1 else "columns ") + _some(
        [printable(column) for column in one.columns]
    )


def _some(names: Sequence[str], most: int = MAX_COLUMNS) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
