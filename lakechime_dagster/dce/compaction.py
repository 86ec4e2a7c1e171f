"""What is kept of compacted events: availability by partition, identities, snapshots and tags."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, bindparam, case, delete, insert, or_, select, update

from lakechime_dagster.dce.contract import Availability
from lakechime_dagster.dce.engine import PARAMETERS, among, insert_if_absent, slices
from lakechime_dagster.dce.events import Position, RegisteredEvent, TableUid, Tags, snapshot_identity
from lakechime_dagster.dce.partitions import PartitionLevels, recanonical
from lakechime_dagster.dce.queries import TableRow, event_of, in_order, is_after, select_events
from lakechime_dagster.dce.schema import dce_availability, dce_event, dce_folded, dce_folded_version

PARTITIONS = 500
PartitionUid = tuple[str, str]  # canonical partition and table uid, "" for an unknown one


def kept_availability(connection: Connection, table: TableRow, canonicals: Iterable[str] | None = None) -> list[Availability]:
    """What was folded of a table, of some partitions or of all, by partition and uid."""
    query = select(dce_availability).where(dce_availability.c.table_id == table.table_id)
    query = query.order_by(dce_availability.c.partition_key, dce_availability.c.table_uid)
    if canonicals is None:
        return [_availability(row, table) for row in connection.execute(query)]
    wanted = sorted(set(canonicals))
    found: list[Availability] = []
    for some in slices(wanted, PARTITIONS):
        chosen = query.where(dce_availability.c.partition_key.in_(some))
        found.extend(_availability(row, table) for row in connection.execute(chosen))
    return found


def keep_availability(connection: Connection, table: TableRow, folded: Iterable[Availability], dropped: Collection[str]) -> None:
    """Add what was folded just now to what was folded before; the table is locked whole.

    What was kept of the `dropped` partitions before is forgotten.
    """
    fresh = _by_key(folded)
    before = _by_key(kept_availability(connection, table, {canonical for canonical, _ in fresh} | set(dropped)))
    for canonical, uid in before:
        if canonical in dropped:
            _forget(connection, table, canonical, uid)
    before = {key: one for key, one in before.items() if key[0] not in dropped}
    _replace(connection, table, {key: merged(before[key], one) if key in before else one for key, one in fresh.items()})


def merged(one: Availability, other: Availability) -> Availability:
    """Both together, whichever came first."""
    tags = dict(one.tag_positions)
    for tag, position in other.tag_positions.items():
        tags[tag] = max(position, tags.get(tag, position))
    data = [position for position in (one.newest_data, other.newest_data) if position is not None]
    return replace(
        one,
        newest=max(one.newest, other.newest),
        newest_data=max(data, default=None),
        tag_positions=tags,
        first_ts=min(one.first_ts, other.first_ts),
        last_ts=max(one.last_ts, other.last_ts),
        events=one.events + other.events,
    )


def rekey_availability(connection: Connection, table: TableRow, levels: PartitionLevels, adopt: TableUid | None = None) -> None:
    """Compare what was folded by other levels, and give it the uid that became known."""
    before = kept_availability(connection, table)
    after = [replace(one, canonical=recanonical(one.canonical, levels), table_uid=one.table_uid or adopt) for one in before]
    if after != before:
        connection.execute(delete(dce_availability).where(dce_availability.c.table_id == table.table_id))
        _replace(connection, table, _by_key(after))


def _by_key(many: Iterable[Availability]) -> dict[PartitionUid, Availability]:
    found: dict[PartitionUid, Availability] = {}
    for one in many:
        key = (one.canonical, one.table_uid or "")
        found[key] = merged(found[key], one) if key in found else one
    return found


def _replace(connection: Connection, table: TableRow, rows: dict[PartitionUid, Availability]) -> None:
    for canonical, uid in rows:
        _forget(connection, table, canonical, uid)
    if rows:
        connection.execute(insert(dce_availability), [_row(table.table_id, key, one) for key, one in rows.items()])


def _forget(connection: Connection, table: TableRow, canonical: str, uid: str) -> None:
    columns = dce_availability.c
    this = (columns.table_id == table.table_id, columns.partition_key == canonical, columns.table_uid == uid)
    connection.execute(delete(dce_availability).where(*this))


def _row(table_id: int, key: PartitionUid, one: Availability) -> dict[str, Any]:
    canonical, uid = key
    return {
        "table_id": table_id,
        "partition_key": canonical,
        "table_uid": uid,
        "newest_tx": one.newest.tx_id,
        "newest_seq": one.newest.seq,
        "data_tx": one.newest_data.tx_id if one.newest_data else None,
        "data_seq": one.newest_data.seq if one.newest_data else None,
        "tag_positions": [[dict(tags), str(position)] for tags, position in sorted(one.tag_positions.items())],
        "first_ts": one.first_ts,
        "last_ts": one.last_ts,
        "events": one.events,
    }


def _availability(row: Row[Any], table: TableRow) -> Availability:
    return Availability(
        table=table.name,
        cluster=table.cluster,
        canonical=row.partition_key,
        table_uid=TableUid(row.table_uid) if row.table_uid else None,
        newest=Position(row.newest_tx, row.newest_seq),
        newest_data=None if row.data_seq is None else Position(row.data_tx, row.data_seq),
        tag_positions={tuple(sorted(tags.items())): Position.parse(position) for tags, position in row.tag_positions},
        first_ts=row.first_ts,
        last_ts=row.last_ts,
        events=row.events,
    )


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
    for firsts in slices(list(amendments), PARAMETERS):
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
