"""Which commits of a table events with given tags had named before: `only_matching` reads each of them once."""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.dce.event import SnapshotId, TableUid
from lakechime_dagster.dce.position import Position
from lakechime_dagster.store.dialect import among
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.evidence import TableKey, chunks, table_ids
from lakechime_dagster.store.queries import carries, is_through
from lakechime_dagster.store.schema import dce_event


def matched_before(
    engine: Engine, table: TableKey, uid: TableUid | None, tags: Mapping[str, str], snapshots: Sequence[SnapshotId], through: Position
) -> set[SnapshotId]:
    """Those of the snapshots that an event at or before a position names, one of this table uid or of none, with all the tags."""
    if not snapshots:
        return set()
    found: set[SnapshotId] = set()
    with reading(engine) as connection:
        ids = table_ids(connection, [table])
        matches = (dce_event.c.table_id == ids[table][0], is_through(through), carries(connection.dialect.name, dict(tags)))
        same_table = sa.or_(dce_event.c.table_uid.is_(None), dce_event.c.table_uid == uid)
        for chunk in chunks(snapshots):
            named = sa.select(dce_event.c.snapshot_id).where(among(connection, dce_event.c.snapshot_id, chunk), *matches, same_table)
            found.update(map(SnapshotId, connection.execute(named.distinct()).scalars()))
    return found
