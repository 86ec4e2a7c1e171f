"""Types that change their group in the store: the row moves with its place, layouts, variations, replays and sums."""

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy import Connection

from lakechime_dagster.lake.events import EventGroup
from lakechime_dagster.schema.moves import HeldType, Move, moves_of
from lakechime_dagster.store.engine import reading, writing
from lakechime_dagster.store.types import schema
from lakechime_dagster.store.types.repository import SqlEventTypes


def move_types(types: SqlEventTypes, groups: Collection[EventGroup], uid: str | None) -> list[Move]:
    """Let each type of a stream be of the group that has it by the declaration, all in one transaction; those that moved.

    A type that somebody else moved meanwhile is left as it is. A step of the former group that is under way finds it gone when it
    settles, and what it wrote is found in the type's table.
    """
    with reading(types.engine) as connection:
        if not moves_of(groups, _held(connection, types.deployment), uid):
            return []
    with writing(types.engine) as connection:
        several = moves_of(groups, _held(connection, types.deployment), uid)
        return [one for one in several if _is_moved(connection, types, one)]


def _held(connection: Connection, deployment: str) -> list[HeldType]:
    kind = schema.event_type.c
    columns = (kind.type, kind.group_name, kind.home, kind.place_uid, kind.layout_version)
    query = sa.select(*columns).where(kind.deployment == deployment).order_by(kind.type_id)
    return [
        HeldType(type=row.type, group=row.group_name, home=row.home, uid=row.place_uid, has_table=row.layout_version > 0)
        for row in connection.execute(query)
    ]


def _is_moved(connection: Connection, types: SqlEventTypes, move: Move) -> bool:
    """Move one type, unless another was first; people are told of it by its new group."""
    kind, hint, held = schema.event_type.c, schema.type_hint.c, move.held
    same = (kind.deployment == types.deployment, kind.type == held.type, kind.group_name == held.group, kind.home == held.home)
    unmade = () if held.has_table else (kind.layout_version == 0,)
    values = {"group_name": move.group, "home": move.home, "told_ts": 0}
    if not connection.execute(sa.update(schema.event_type).where(*same, *unmade).values(**values)).rowcount:
        return False
    said = (hint.deployment == types.deployment, hint.type == held.type, hint.group_name == held.group)
    connection.execute(sa.update(schema.type_hint).where(*said).values(group_name=move.group))
    return True
