"""Where the types of a group stand in their stream's table: together, but for those that failed, or wait for a table."""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.schema.repository import TypePlace
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.types import schema


@dataclass(frozen=True, kw_only=True)
class TypesAt:
    """So many types at one place, of which one is named; how many commits each has is its own."""

    place: TypePlace
    types: int
    example: str


def places_of(engine: Engine, deployment: str, group: str) -> list[TypesAt]:
    """The places at which types of a group stand, the oldest first."""
    at = (schema.event_type.c.place_uid, schema.event_type.c.place_version)
    counted = sa.select(*at, sa.func.count().label("types"), sa.func.min(schema.event_type.c.type).label("example"))
    of_group = (schema.event_type.c.deployment == deployment, schema.event_type.c.group_name == group)
    with reading(engine) as connection:
        rows = connection.execute(counted.where(*of_group).group_by(*at).order_by(schema.event_type.c.place_version, "example"))
        return [
            TypesAt(place=TypePlace(uid=row.place_uid, version=row.place_version), types=row.types, example=row.example) for row in rows
        ]  # fmt: skip
