"""What retention kept of folded events: per partition and table uid, how far and with which tags it was complete."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select

from lakechime_dagster.dce.event import TableUid
from lakechime_dagster.dce.partition import PartitionLevels, recanonical
from lakechime_dagster.dce.position import Position
from lakechime_dagster.dce.store import Availability
from lakechime_dagster.store.schema import dce_availability
from lakechime_dagster.store.slices import slices
from lakechime_dagster.store.tables import TableRow

CHUNK = 500
PartitionUid = tuple[str, str]  # canonical partition and table uid, "" for an unknown one


def kept_availability(connection: Connection, table: TableRow, canonicals: Iterable[str] | None = None) -> list[Availability]:
    """What was folded of a table, of some partitions or of all, by partition and uid."""
    query = select(dce_availability).where(dce_availability.c.table_id == table.table_id)
    query = query.order_by(dce_availability.c.partition_key, dce_availability.c.table_uid)
    if canonicals is None:
        return [_availability(row, table) for row in connection.execute(query)]
    wanted = sorted(set(canonicals))
    found: list[Availability] = []
    for some in slices(wanted, CHUNK):
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
