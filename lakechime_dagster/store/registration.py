"""Registering several events at once, with amendments, new tables and the marks of capture, in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, select

from lakechime_dagster.dce.event import DataChangeEvent, RegisteredEvent, TableUid
from lakechime_dagster.dce.partition import canonical_partition
from lakechime_dagster.dce.position import Position
from lakechime_dagster.dce.snapshots import meant_uid
from lakechime_dagster.dce.store import Registration, Seen
from lakechime_dagster.store.appending import ConflictError, appended, fresh_key, reserved
from lakechime_dagster.store.dialect import StoreNow, TransactionId
from lakechime_dagster.store.rekey import rekey
from lakechime_dagster.store.rows import row_of
from lakechime_dagster.store.tables import TableKey, TableRow, captured, changed_table, locked_tables, locked_whole
from lakechime_dagster.store.versions import Version, amendment_key, versions_of


@dataclass(frozen=True)
class _Incoming:
    """An event on its way in: resolved, with its canonical partition and the key by which a repeat is known."""

    event: DataChangeEvent
    canonical: str
    identity: bytes | None
    table_id: int


@dataclass
class _Plan:
    """What a batch comes to: rows to append, and what to answer."""

    rows: list[dict[str, Any]]
    registered: list[RegisteredEvent]
    duplicates: list[RegisteredEvent]


def register_batch(
    connection: Connection, events: Sequence[DataChangeEvent], seen: Sequence[Seen] = ()
) -> tuple[Registration, dict[TableKey, TableRow]]:
    """Register within a transaction of `writing`; also what is known of the tables, good once that is committed."""
    tables = locked_tables(connection, [(event.cluster, event.table) for event in events] + [(mark.cluster, mark.table) for mark in seen])
    for mark in seen:
        mark.check_current(tables[mark.cluster, mark.table].table_uid, tables[mark.cluster, mark.table].seen)
    _raise_uids(connection, tables, events, seen)
    incoming = [_resolved(event, tables[event.cluster, event.table]) for event in events]
    if not incoming:
        return Registration(), tables
    tx_id, now = connection.execute(select(TransactionId(), StoreNow())).one()
    numbers = reserved(connection, len(incoming))
    while True:
        known = versions_of(connection, [item.identity for item in incoming if item.identity])
        plan = _plan(incoming, known, [Position(tx_id, number) for number in numbers], now)
        try:
            appended(connection, plan.rows)
        except ConflictError:
            continue  # somebody else committed one of these events meanwhile: now it is a repeat
        return Registration(registered=tuple(plan.registered), duplicates=tuple(plan.duplicates)), tables


def _raise_uids(connection: Connection, tables: dict[TableKey, TableRow], events: Sequence[DataChangeEvent], seen: Sequence[Seen]) -> None:
    """Move the tables to the uids that capture saw; a table without one takes the first that is named."""
    first: dict[TableKey, TableUid] = {}
    for mark in seen:
        first.setdefault((mark.cluster, mark.table), mark.table_uid)
    for event in events:
        if event.table_uid is not None:
            first.setdefault((event.cluster, event.table), event.table_uid)
    current = {key: uid for key, uid in first.items() if tables[key].table_uid is None}
    newest = {(mark.cluster, mark.table): mark.table_uid for mark in seen}
    moving = [key for key in {**current, **newest} if tables[key].table_uid != newest.get(key, current.get(key))]
    locked_whole(connection, [tables[key].table_id for key in moving])
    for key in moving:
        if key in current:
            rekey(connection, tables[key], tables[key].levels, adopt=current[key])
        tables[key] = changed_table(connection, tables[key].table_id, table_uid=newest.get(key, current.get(key)))
    for key, mark in {(mark.cluster, mark.table): mark for mark in seen}.items():
        captured(connection, tables[key].table_id, mark.snapshot_id)


def _resolved(event: DataChangeEvent, table: TableRow) -> _Incoming:
    resolved = event.at_table(meant_uid(event.table_uid, table.table_uid))
    canonical = canonical_partition(event.partition, table.levels)
    return _Incoming(resolved, canonical, resolved.identity_at(canonical), table.table_id)


def _plan(incoming: Sequence[_Incoming], known: dict[bytes, Version], positions: Sequence[Position], now: int) -> _Plan:
    """Sort events into new ones, amendments and duplicates, in their order; repeats within the batch too."""
    plan = _Plan([], [], [])
    for item, position in zip(incoming, positions, strict=True):
        version = known.get(item.identity) if item.identity else None
        if version is None:
            stored = RegisteredEvent(event=item.event, event_ts=now, position=position, canonical=item.canonical)
            key = item.identity or fresh_key()
            if item.identity:
                known[item.identity] = Version(first=position, newest=stored)
        else:
            before = version.newest or _folded(item, version)
            if before.event.tags.carries(item.event.tags):
                plan.duplicates.append(before)
                continue
            amended = before.event.tagged(before.event.tags.merged(item.event.tags))
            stored = replace(before, event=amended, event_ts=now, position=position, amends=version.first)
            key = amendment_key(item.identity, position) if item.identity else fresh_key()
            version.newest = stored
        plan.rows.append(row_of(stored, item.table_id, key))
        plan.registered.append(stored)
    return plan


def _folded(item: _Incoming, version: Version) -> RegisteredEvent:
    """A folded event as its repeat tells it, with the tags that were kept; where none were kept, those of the repeat."""
    event = item.event if version.folded_tags is None else item.event.tagged(version.folded_tags)
    return RegisteredEvent(event=event, event_ts=version.event_ts, position=version.first, canonical=item.canonical)
