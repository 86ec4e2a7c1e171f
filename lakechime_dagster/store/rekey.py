"""Comparing the events of a table anew, after its levels were declared or its uid became known."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, and_, bindparam, delete, exists, literal, select, update

from lakechime_dagster.dce.event import RegisteredEvent, TableUid
from lakechime_dagster.dce.partition import PartitionLevels, fitting_canonical, recanonical
from lakechime_dagster.dce.position import Position
from lakechime_dagster.store.compaction import rekey_availability, rekey_folded
from lakechime_dagster.store.dialect import insert_if_absent
from lakechime_dagster.store.ledger_schema import lane_partition
from lakechime_dagster.store.queries import in_order, is_after, select_events
from lakechime_dagster.store.rows import amendment_key, event_of, fresh_key, sent_text
from lakechime_dagster.store.schema import dce_event
from lakechime_dagster.store.tables import TableRow

PAGE = 5_000


def rekey(connection: Connection, table: TableRow, levels: PartitionLevels, adopt: TableUid | None = None) -> int:
    """Compare the events of a table that is locked whole by these levels; how many rows changed.

    `adopt` is given to the events that came without a uid. Positions stay. Of two events that get one identity by
    it, the later becomes an amendment of the first; what amends a folded event goes on doing so. Values
    that do not fit the levels stay as they were sent.
    """
    firsts = rekey_folded(connection, table, levels, adopt)
    folded = _folded_firsts(connection, table)
    changes: list[dict[str, Any]] = []
    for stored, key in _all_events(connection, table):
        event = stored.event.at_table(stored.event.table_uid or adopt)
        canonical = fitting_canonical(event.partition, levels)
        identity = event.identity_at(canonical)
        own = stored.amends if stored.amends is not None and stored.amends.seq in folded else stored.position
        first = firsts.setdefault(identity, own) if identity else own
        amends = first if first != stored.position else None
        new_key = key if identity is None else amendment_key(identity, stored.position) if amends else identity
        if (canonical, event.table_uid, new_key, amends) != (stored.canonical, stored.event.table_uid, key, stored.amends):
            changes.append({
                "at": stored.position.seq,
                "partition_key": canonical,
                "partition_sent": sent_text(event.partition, canonical),
                "table_uid": event.table_uid,
                "event_key": new_key,
                "amends_tx": amends.tx_id if amends else None,
                "amends_seq": amends.seq if amends else None,
            })  # fmt: skip
    _apply(connection, changes)
    rekey_availability(connection, table, levels, adopt)
    _rekey_lanes(connection, table, levels)
    return len(changes)


def _rekey_lanes(connection: Connection, table: TableRow, levels: PartitionLevels) -> None:
    """The partitions that lanes stand for, which late events are compared with."""
    c = lane_partition.c
    mine = and_(c.cluster == table.cluster, c.table_name == table.name)
    for canonical in connection.execute(select(c.partition_key).where(mine).distinct()).scalars().all():
        if (other := recanonical(canonical, levels)) != canonical:
            moving = select(c.lane_id, c.cluster, c.table_name, literal(other)).where(mine, c.partition_key == canonical)
            names = ["lane_id", "cluster", "table_name", "partition_key"]
            connection.execute(insert_if_absent(connection, lane_partition).from_select(names, moving))
            connection.execute(delete(lane_partition).where(mine, c.partition_key == canonical))


def _folded_firsts(connection: Connection, table: TableRow) -> set[int]:
    """The numbers of the first versions that are amended but not there any more."""
    first = dce_event.alias("first")
    is_there = exists(select(1).select_from(first).where(first.c.seq == dce_event.c.amends_seq))
    amended = select(dce_event.c.amends_seq).where(dce_event.c.table_id == table.table_id, dce_event.c.amends_seq.is_not(None), ~is_there)
    return set(connection.execute(amended.distinct()).scalars())


def _all_events(connection: Connection, table: TableRow) -> Iterator[tuple[RegisteredEvent, bytes]]:
    after = Position(-1, 0)
    while True:
        page = in_order(select_events().where(dce_event.c.table_id == table.table_id, is_after(after))).limit(PAGE)
        rows = connection.execute(page).all()
        for row in rows:
            yield event_of(row), row.event_key
        if len(rows) < PAGE:
            return
        after = Position(rows[-1].tx_id, rows[-1].seq)


def _apply(connection: Connection, changes: list[dict[str, Any]]) -> None:
    """Through fresh keys, since one row's new key may still be another's old one."""
    if not changes:
        return
    at_row = update(dce_event).where(dce_event.c.seq == bindparam("at"))
    columns = [name for name in changes[0] if name != "at"]
    connection.execute(at_row.values(event_key=bindparam("key")), [{"at": change["at"], "key": fresh_key()} for change in changes])
    connection.execute(at_row.values({name: bindparam(f"new_{name}") for name in columns}), [
        {"at": change["at"], **{f"new_{name}": change[name] for name in columns}} for change in changes
    ])  # fmt: skip
