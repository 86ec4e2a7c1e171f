"""Which snapshots of a table events named: the newest up to a position, and those that events with some tags named before."""

import itertools
from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.event import SnapshotId, TableFormat, TableUid
from lakechime_dagster.dce.position import Position
from lakechime_dagster.dce.snapshots import SnapshotPlace
from lakechime_dagster.store.dialect import among
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.queries import carries, delta_version, is_after, is_data, is_new, is_through
from lakechime_dagster.store.rows import FORMATS
from lakechime_dagster.store.schema import HISTORY, dce_availability, dce_event, dce_folded, dce_folded_version
from lakechime_dagster.store.slices import PARAMETERS, slices
from lakechime_dagster.store.tables import TableKey, table_ids


def newest_snapshot(
    connection: Connection, table: TableKey, tags: Mapping[str, str], place: Position, through: Position
) -> tuple[SnapshotPlace, TableFormat] | None:
    """The newest snapshot of a table in (place, through] that the tags vouch for, with its format, or None.

    An event with the tags vouches for its own snapshot; a mark or amendment that brings them for all that was registered
    before it, also before the place: what nobody vouched for was not read then. Delta versions are compared as
    numbers, since registration may come in any order.
    """
    found = table_ids(connection, [table])
    if table not in found:
        return None
    table_id, uid = found[table]
    mark = _newest_mark(connection, table_id, tags, place, through) if tags else None

    def is_vouched(event: sa.FromClause) -> sa.ColumnElement[bool]:
        if not tags:
            return is_after(place, event)
        brings = is_new(connection.dialect.name, dict(tags), event)
        return sa.or_(sa.and_(is_after(place, event), brings), sa.false() if mark is None else is_through(mark, event))

    known = sa.union_all(*(
        sa.select(event.c.snapshot_id, event.c.snapshot_ts, event.c.table_format, event.c.tx_id, event.c.seq)
        .add_columns(delta_version(event).label("version"))
        .where(*_of_table(event, table_id, uid, through), is_vouched(event))
        for event in HISTORY
    )).subquery()  # fmt: skip
    newest_first = [known.c.version.desc().nulls_last(), known.c.snapshot_ts.desc().nulls_last(), known.c.tx_id.desc(), known.c.seq.desc()]
    row = connection.execute(sa.select(known).order_by(*newest_first).limit(1)).one_or_none()
    return None if row is None else (SnapshotPlace(table_uid=uid, snapshot_id=SnapshotId(row.snapshot_id)), FORMATS[row.table_format])


def without_snapshot(connection: Connection, tables: Sequence[TableKey], through: Position) -> list[str]:
    """The tables of which no snapshot is known yet, so that nothing can read them."""
    ids = table_ids(connection, tables)
    return [table[1] for table in tables if table not in ids or not _has_snapshot(connection, *ids[table], through)]


def _has_snapshot(connection: Connection, table_id: int, uid: TableUid | None, through: Position) -> bool:
    there = [sa.exists(sa.select(1).where(*_of_table(event, table_id, uid, through))) for event in HISTORY]
    return bool(connection.execute(sa.select(sa.or_(*there))).scalar())


def _of_table(event: sa.FromClause, table_id: int, uid: TableUid | None, through: Position) -> list[sa.ColumnElement[bool]]:
    """That an event names a snapshot of the table as it is now, not of one that had its name before."""
    same_table = event.c.table_uid == uid if uid else event.c.table_uid.is_(None)
    return [event.c.table_id == table_id, is_through(through, event), event.c.snapshot_id.is_not(None), same_table]


def _newest_mark(connection: Connection, table_id: int, tags: Mapping[str, str], place: Position, through: Position) -> Position | None:
    """The newest mark or amendment in (place, through] that brings the tags."""
    brings = sa.and_(is_after(place), is_new(connection.dialect.name, dict(tags)), sa.not_(is_data))
    live = sa.select(dce_event.c.tx_id, dce_event.c.seq).where(dce_event.c.table_id == table_id, is_through(through), brings)
    row = connection.execute(live.order_by(dce_event.c.tx_id.desc(), dce_event.c.seq.desc()).limit(1)).one_or_none()
    return Position(row.tx_id, row.seq) if row else _newest_folded_mark(connection, table_id, tags, place, through)


def _newest_folded_mark(
    connection: Connection, table_id: int, tags: Mapping[str, str], place: Position, through: Position
) -> Position | None:
    """The same of what was folded, by the newest positions of tags, which are of marks where they are not of data."""
    c = dce_availability.c
    after = sa.tuple_(sa.literal(place.tx_id, c.newest_tx.type), sa.literal(place.seq, c.newest_seq.type))
    is_later = sa.tuple_(c.newest_tx, c.newest_seq) > after
    kept = connection.execute(sa.select(c.tag_positions).where(c.table_id == table_id, is_later)).scalars()
    tagged = {Position.parse(position) for positions in kept for together, position in positions if tags.items() <= together.items()}
    candidates = sorted(position for position in tagged if place < position <= through)
    while candidates:
        position = candidates.pop()
        is_snapshot = sa.select(1).where(dce_folded.c.seq == position.seq, dce_folded.c.snapshot_id.is_not(None))
        if connection.execute(is_snapshot).scalar() is None:
            return position
    return None


def matched_before(
    engine: Engine, table: TableKey, uid: TableUid | None, tags: Mapping[str, str], snapshots: Sequence[SnapshotId], through: Position
) -> set[SnapshotId]:
    """Those of the snapshots that an event at or before a position names, one of this table uid or of none, with all the tags."""
    if not snapshots:
        return set()
    found: set[SnapshotId] = set()
    with reading(engine) as connection:
        table_id, _ = table_ids(connection, [table])[table]
        for event, chunk in itertools.product(HISTORY, slices(snapshots, PARAMETERS)):
            named = sa.select(event.c.snapshot_id).where(
                event.c.table_id == table_id, is_through(through, event), among(connection, event.c.snapshot_id, chunk),
                _carried(connection.dialect.name, dict(tags), event), sa.or_(event.c.table_uid.is_(None), event.c.table_uid == uid),
            )  # fmt: skip
            found.update(map(SnapshotId, connection.execute(named.distinct()).scalars()))
    return found


def _carried(dialect: str, tags: dict[str, str], event: sa.FromClause) -> sa.ColumnElement[bool]:
    """Whether the event has the tags, or a version of it had them that was folded."""
    if event is dce_event:
        return carries(dialect, tags, event)
    version = dce_folded_version
    before = sa.exists(sa.select(1).select_from(version).where(version.c.seq == event.c.seq, carries(dialect, tags, version)))
    return sa.or_(carries(dialect, tags, event), before)
