"""Which commits of a table events with given tags had named before: `only_matching` reads each of them once."""

import itertools
from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.dce.event import SnapshotId, TableUid
from lakechime_dagster.dce.position import Position
from lakechime_dagster.store.dialect import among
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.evidence import TableKey, chunks, table_ids
from lakechime_dagster.store.queries import carries, is_through
from lakechime_dagster.store.snapshots import HISTORY


def matched_before(
    engine: Engine, table: TableKey, uid: TableUid | None, tags: Mapping[str, str], snapshots: Sequence[SnapshotId], through: Position
) -> set[SnapshotId]:
    """Those of the snapshots that an event at or before a position names, one of this table uid or of none, with all the tags.

    Of folded events the tags of their newest version count.
    """
    if not snapshots:
        return set()
    found: set[SnapshotId] = set()
    with reading(engine) as connection:
        table_id, _ = table_ids(connection, [table])[table]
        for event, chunk in itertools.product(HISTORY, chunks(snapshots)):
            named = sa.select(event.c.snapshot_id).where(
                event.c.table_id == table_id, is_through(through, event), among(connection, event.c.snapshot_id, chunk),
                carries(connection.dialect.name, dict(tags), event), sa.or_(event.c.table_uid.is_(None), event.c.table_uid == uid),
            )  # fmt: skip
            found.update(map(SnapshotId, connection.execute(named.distinct()).scalars()))
    return found
