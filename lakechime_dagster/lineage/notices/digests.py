"""Who is told what of a change: one digest an owner, of nothing but what is theirs and hit."""

import datetime as dt
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from lakechime_dagster.compat import StrEnum
from lakechime_dagster.lineage.notices.changes import Change

DASHBOARD_DAYS = 90  # a dashboard that nobody has looked at for longer is told to nobody
PERSON_DAYS = 35  # a person who has not read for longer is told nothing; so a monthly look still counts


class ReaderKind(StrEnum):
    """What reads a table without writing another one."""

    DASHBOARD = "dashboard"
    JOB = "job"
    PERSON = "person"


@dataclass(frozen=True, order=True, kw_only=True)
class Reader:
    """A dashboard, a job elsewhere or a person that reads a table.

    `read_ms` is when last, in milliseconds since the epoch, None if that is not known. `owner` is told of it: who made the
    dashboard, or the person; empty where nobody is known.
    """

    name: str
    kind: ReaderKind = ReaderKind.DASHBOARD
    owner: str = ""
    link: str = ""
    read_ms: int | None = None

    def is_recent(self, now_ms: int) -> bool:
        """Whether it counts; one of which it is not known when it read does."""
        days = PERSON_DAYS if self.kind is ReaderKind.PERSON else DASHBOARD_DAYS
        return self.read_ms is None or self.read_ms >= now_ms - dt.timedelta(days=days) // dt.timedelta(milliseconds=1)


@dataclass(frozen=True, order=True, kw_only=True)
class Hit:
    """A table that a change reaches.

    `layer` counts the steps from what changes, which is layer 0. `columns` are those that it reaches; None says that columns
    are not known, and an empty tuple that rows may change and no value. `is_sure` is false where something on the way could
    not be told. `readers` read these columns, or the table where columns are not known.
    """

    table: str
    layer: int
    columns: tuple[str, ...] | None = None
    owners: tuple[str, ...] = ()
    readers: tuple[Reader, ...] = ()
    is_sure: bool = True


@dataclass(frozen=True, kw_only=True)
class Digest:
    """What one owner is told: hits are the owner's tables, with no readers; readers are the owner's, each with the table it reads.

    Where it `is_unowned`, it is told to the sender, as nobody owns what it is of.
    """

    owner: str
    hits: tuple[Hit, ...] = ()
    readers: tuple[tuple[Reader, Hit], ...] = ()
    is_unowned: bool = False

    @property
    def is_empty(self) -> bool:
        return not self.hits and not self.readers

    @property
    def reason(self) -> str:
        """Why this owner is told, in a line."""
        owns = "sends the change, and nobody owns" if self.is_unowned else "owns"
        owned = [f"{owns} {_several([hit.table for hit in self.hits])}"] if self.hits else []
        by_kind: dict[str, list[str]] = {}
        for reader, hit in self.readers:
            does = "reads" if reader.kind is ReaderKind.PERSON else f"has {reader.name}, which reads"
            by_kind.setdefault(does, []).append(hit.table)
        return "; ".join([*owned, *(f"{does} {_several(tables)}" for does, tables in by_kind.items())])


@dataclass(frozen=True, kw_only=True)
class Digests:
    """All that a change leads to: digests by owner, in order; `unowned` is for the sender, `own` are the sender's own tables."""

    digests: tuple[Digest, ...]
    unowned: Digest
    own: Digest


def digests_of(change: Change, hits: Iterable[Hit], now_ms: int) -> Digests:
    """Who is told what. Nobody is told of what others own; readers that have not read for long are left out."""
    hits_of: dict[str, list[Hit]] = {}
    readers_of: dict[str, list[tuple[Reader, Hit]]] = {}
    for hit in sorted(hits, key=lambda hit: (hit.layer, hit.table)):
        bare = replace(hit, readers=(), owners=())
        for owner in dict.fromkeys(hit.owners or ("",)):
            hits_of.setdefault(owner, []).append(bare)
        for reader in sorted(set(hit.readers), key=lambda one: (one.name, one.kind, one.owner, one.link, one.read_ms or 0)):
            if reader.is_recent(now_ms):
                readers_of.setdefault(reader.owner, []).append((reader, bare))
    found = {owner: _digest(owner, hits_of, readers_of) for owner in sorted({*hits_of, *readers_of})}
    empty = Digest(owner=change.sender)
    own = found.pop(change.sender, empty) if change.sender else empty
    unowned = found.pop("", empty)
    return Digests(digests=tuple(found.values()), unowned=replace(unowned, owner=change.sender, is_unowned=True), own=own)


def still_reading(hits: Collection[Hit], now_ms: int) -> list[str]:
    """Who reads what changes, in words: tables one step away, and readers of the tables themselves that have read lately."""
    found = [f"{hit.table}{_of(hit.owners)}" for hit in sorted(hits, key=lambda hit: hit.table) if hit.layer == 1]
    named = {(reader, hit.table) for hit in hits if hit.layer == 0 for reader in hit.readers if reader.is_recent(now_ms)}
    readers = sorted(named, key=lambda pair: (pair[0].name, pair[1]))
    return [*found, *(f"{reader.kind} {reader.name} on {table}{_of([reader.owner])}" for reader, table in readers)]


def _of(owners: Iterable[str]) -> str:
    named = ", ".join(owner for owner in owners if owner)
    return f" ({named})" if named else ""


def _digest(owner: str, hits_of: Mapping[str, list[Hit]], readers_of: Mapping[str, list[tuple[Reader, Hit]]]) -> Digest:
    return Digest(owner=owner, hits=tuple(hits_of.get(owner, ())), readers=tuple(readers_of.get(owner, ())))


def _several(names: list[str], most: int = 3) -> str:
    shown = list(dict.fromkeys(names))
    return ", ".join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "")
