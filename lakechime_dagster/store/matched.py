"""Which commits of a table events with given tags had named before: `only_matching` reads each of them once."""

import itertools
from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.dce.event import SnapshotId, TableUid
from lakechime_dagster.dce.position import Position
from lakechime_dagster.store.dialect import among
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.evidence import CHUNK, TableKey, table_ids
from lakechime_dagster.store.queries import carries, is_through
from lakechime_dagster.store.schema import HISTORY, dce_event, dce_folded_version
from lakechime_dagster.store.slices import slices


def matched_before(
    engine: Engine, table: TableKey, uid: TableUid | None, tags: Mapping[str, str], snapshots: Sequence[SnapshotId], through: Position
) -> set[SnapshotId]:
    """Those of the snapshots that an event at or before a position names, one of this table uid or of none, with all the tags."""
    if not snapshots:
        return set()
    found: set[SnapshotId] = set()
    with reading(engine) as connection:
        table_id, _ = table_ids(connection, [table])[table]
        for event, chunk in itertools.product(HISTORY, slices(snapshots, CHUNK)):
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
