"""What is left of folded events: identities, snapshots and tags, so that repeats are known and readers may start after them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, bindparam, case, delete, insert, or_, select, update

from lakechime_dagster.dce.event import RegisteredEvent, TableUid, snapshot_identity
from lakechime_dagster.dce.partition import PartitionLevels, recanonical
from lakechime_dagster.dce.position import Position
from lakechime_dagster.dce.tags import Tags
from lakechime_dagster.store.dialect import among, insert_if_absent
from lakechime_dagster.store.evidence import CHUNK
from lakechime_dagster.store.queries import in_order, is_after, select_events
from lakechime_dagster.store.rows import event_of
from lakechime_dagster.store.schema import dce_event, dce_folded, dce_folded_version
from lakechime_dagster.store.slices import slices
from lakechime_dagster.store.tables import TableRow

PAGE = 5_000


def remember(connection: Connection, conditions: list[ColumnElement[bool]]) -> None:
    """Keep of the first events that can be repeated what they are known by, their snapshots, and the tags of all their versions."""
    event = dce_event.c
    can_repeat = and_(event.amends_seq.is_(None), or_(event.snapshot_id.is_not(None), event.producer_key.is_not(None)))
    kept: dict[str, ColumnElement[Any]] = {column.name: event[column.name] for column in dce_folded.columns}
    kept["partition_key"] = case((event.producer_key.is_(None), event.partition_key))
    folding = select(*kept.values()).where(*conditions, can_repeat)
    connection.execute(insert_if_absent(connection, dce_folded).from_select(list(kept), folding))
    amendments: dict[int, list[Tags]] = {}
    for amendment in pages(connection, [*conditions, event.amends_seq.is_not(None)]):
        if amendment.amends:
            amendments.setdefault(amendment.amends.seq, []).append(amendment.event.tags)
    for firsts in slices(list(amendments), CHUNK):
        _renew_tags(connection, {first: amendments[first] for first in firsts})


def rekey_folded(connection: Connection, table: TableRow, levels: PartitionLevels, adopt: TableUid | None) -> dict[bytes, Position]:
    """Know the folded events of a table by other levels, and by the uid that became known; their identities and positions.

    Of two that get one identity the first stays.
    """
    c = dce_folded.c
    query = select(c.event_key, c.tx_id, c.seq, c.table_uid, c.partition_key, c.snapshot_id).where(c.table_id == table.table_id)
    firsts: dict[bytes, Position] = {}
    gone: list[dict[str, Any]] = []
    changes: list[dict[str, Any]] = []
    for row in connection.execute(query.where(c.partition_key.is_not(None)).order_by(c.tx_id, c.seq)).all():
        uid, canonical = row.table_uid or adopt, recanonical(row.partition_key, levels)
        identity = snapshot_identity(table.cluster, table.name, uid, canonical, row.snapshot_id)
        if identity in firsts:
            gone.append({"old": row.event_key})
        elif (row.table_uid, row.partition_key) != (uid, canonical):
            changes.append({"old": row.event_key, "new": identity, "uid": uid, "canonical": canonical})
        firsts.setdefault(identity, Position(row.tx_id, row.seq))
    if gone:
        connection.execute(delete(dce_folded).where(c.event_key == bindparam("old")), gone)
    if changes:
        values = {"event_key": bindparam("new"), "table_uid": bindparam("uid"), "partition_key": bindparam("canonical")}
        connection.execute(update(dce_folded).where(c.event_key == bindparam("old")).values(values), changes)
    return firsts


def _renew_tags(connection: Connection, amendments: Mapping[int, Sequence[Tags]]) -> None:
    """The newest tags of folded events, and which others they had before."""
    query = select(dce_folded.c.seq, dce_folded.c.tags).where(among(connection, dce_folded.c.seq, list(amendments)))
    before = {row.seq: [Tags(row.tags)] for row in connection.execute(query) if row.tags is not None}
    gone = [
        {"seq": first, "tags": dict(tags)}
        for first, versions in amendments.items()
        for tags in [*before.get(first, ()), *versions[:-1]]
        if not versions[-1].carries(tags)
    ]
    if gone:
        connection.execute(insert(dce_folded_version), gone)
    renewing = update(dce_folded).where(dce_folded.c.seq == bindparam("first")).values(tags=bindparam("newest"))
    connection.execute(renewing, [{"first": first, "newest": dict(versions[-1])} for first, versions in amendments.items()])


def pages(connection: Connection, conditions: list[ColumnElement[bool]]) -> Iterator[RegisteredEvent]:
    """The events that meet all conditions, in commit order, some at a time."""
    after = Position(-1, 0)
    while True:
        rows = connection.execute(in_order(select_events().where(*conditions, is_after(after))).limit(PAGE)).all()
        for row in rows:
            yield event_of(row)
        if len(rows) < PAGE:
            return
        after = Position(rows[-1].tx_id, rows[-1].seq)
