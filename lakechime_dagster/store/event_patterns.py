"""By which patterns the groups of a stream share its types, and from where types are looked for that nobody had by other ones.

A group reads the types that it has by the patterns of its time. Once these change it may get types that no group has met yet, in
versions of the stream's table that it has read already, as another group was still to read them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.snapshots import SnapshotPlace
from lakechime_dagster.schema.repository import TypePlace
from lakechime_dagster.store import event_schema as schema
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.lanes_at import lanes_at

_ROW = schema.group_patterns.c


@dataclass(frozen=True)
class Patterns:
    """The patterns of the groups of one deployment; `table` is that of their stream."""

    engine: Engine
    deployment: str
    table: str

    def unread_since(self, group: str, patterns: Mapping[str, str], cluster: str = "") -> TypePlace | None:
        """From where a group looks for types that nobody knows, where its last settled step had other patterns; else None.

        It is the oldest place of the groups that there were, as a type that no store knows was read by none: the stream's beginning
        where one of them has read nothing.
        """
        with reading(self.engine) as connection:
            kept = {row.group_name: row.patterns for row in connection.execute(self._kept())}
        if kept.get(group) == dict(patterns):
            return None
        lanes = [one for one in lanes_at(self.engine, self.table, cluster) if one.lane.deployment == self.deployment and not one.writes]
        places = {one.lane.flow: _type_place(one.read) for one in lanes}
        before = {*kept, *(name for several in kept.values() for name in several), *(() if group in kept else patterns)}
        return min((places.get(name, TypePlace()) for name in before), key=lambda place: place.version, default=TypePlace())

    def keep(self, connection: Connection, group: str, patterns: Mapping[str, str]) -> None:
        """Keep by which patterns a group has read; within the settling transaction."""
        this = (_ROW.deployment == self.deployment, _ROW.group_name == group)
        values = {"table_name": self.table, "patterns": dict(patterns)}
        if not connection.execute(sa.update(schema.group_patterns).where(*this).values(**values)).rowcount:
            connection.execute(sa.insert(schema.group_patterns).values(deployment=self.deployment, group_name=group, **values))

    def _kept(self) -> sa.Select[tuple[str, dict[str, str]]]:
        return sa.select(_ROW.group_name, _ROW.patterns).where(_ROW.deployment == self.deployment, _ROW.table_name == self.table)


def _type_place(place: SnapshotPlace | None) -> TypePlace:
    return TypePlace() if place is None or place.snapshot_id is None else TypePlace(uid=place.table_uid, version=int(place.snapshot_id))
