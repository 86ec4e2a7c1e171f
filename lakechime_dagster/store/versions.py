"""Which events are there already: per identity its first position and its newest version."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Connection, select

from lakechime_dagster.dce.event import RegisteredEvent, digest
from lakechime_dagster.dce.position import Position
from lakechime_dagster.dce.tags import Tags
from lakechime_dagster.store.dialect import among
from lakechime_dagster.store.queries import select_events
from lakechime_dagster.store.rows import event_of
from lakechime_dagster.store.schema import dce_event, dce_folded
from lakechime_dagster.store.slices import slices

CHUNK = 10_000  # keys per statement; SQLite binds at most 32,766 values
Key = TypeVar("Key", bytes, int)


@dataclass
class Version:
    """An identity that is there: where it came first, and its newest version; None once it is folded.

    `folded_tags` are those of a folded event; None where they were not kept.
    """

    first: Position
    newest: RegisteredEvent | None
    event_ts: int = 0
    folded_tags: Tags | None = None


def versions_of(connection: Connection, identities: Sequence[bytes]) -> dict[bytes, Version]:
    """Those of the identities that the store knows, folded ones included."""
    known: dict[bytes, Version] = {}
    for keys in slices(sorted(set(identities)), CHUNK):
        for row in connection.execute(select(dce_folded).where(among(connection, dce_folded.c.event_key, keys))):
            tags = None if row.tags is None else Tags(row.tags)
            known[row.event_key] = Version(Position(row.tx_id, row.seq), None, row.event_ts, tags)
        _add_live(connection, known, keys)
    return known


def amendment_key(identity: bytes, position: Position) -> bytes:
    """The key of an amendment: unique, since no two rows share a position."""
    return digest(["amends", identity.hex(), position.seq])


def _add_live(connection: Connection, known: dict[bytes, Version], keys: Sequence[bytes]) -> None:
    firsts = {known[key].first.seq: key for key in keys if key in known}  # a folded event may be amended
    for row in connection.execute(select_events().where(among(connection, dce_event.c.event_key, keys))):
        known[row.event_key] = Version(Position(row.tx_id, row.seq), event_of(row), row.event_ts)
        firsts[row.seq] = row.event_key
    for numbers in slices(sorted(firsts), CHUNK):
        amendments = select_events().where(among(connection, dce_event.c.amends_seq, numbers)).order_by(dce_event.c.tx_id, dce_event.c.seq)
        for row in connection.execute(amendments):
            known[firsts[row.amends_seq]].newest = event_of(row)
