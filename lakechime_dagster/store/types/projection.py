"""What the store knows of types, as rows of the tables that show it, numbered so that each is told once.

What was learnt since the last time gets the next number, of layouts and of variations alike; a table knows up to which it holds them.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.schema.layout import Layout
from lakechime_dagster.schema.learning import gained
from lakechime_dagster.store.engine import reading, writing
from lakechime_dagster.store.types import schema

NUMBERED = (schema.layout, schema.variation)


@dataclass(frozen=True)
class EventProjection:
    """What is known of the types of some groups of one deployment, all of one stream."""

    engine: Engine
    deployment: str
    groups: tuple[str, ...]

    def number(self) -> int:
        """Give what was learnt since the next number; the newest one, 0 where nothing was ever learnt."""
        with reading(self.engine) as connection:
            if not self._has_new(connection):
                return self._newest(connection)
        with writing(self.engine) as connection:
            connection.execute(self._types().order_by(schema.event_type.c.type_id).with_for_update()).all()  # one gives numbers at a time
            if not self._has_new(connection):
                return self._newest(connection)
            number = self._newest(connection) + 1
            for table in NUMBERED:
                is_new = sa.and_(table.c.batch.is_(None), table.c.type_id.in_(self._types()))
                connection.execute(sa.update(table).where(is_new).values(batch=number))
            return number

    def layouts(self, after: int = 0) -> list[dict[str, Any]]:
        """The layouts with later numbers: each with what it gained on the one before it."""
        this, before = schema.layout, schema.layout.alias("before")
        is_before = sa.and_(before.c.type_id == this.c.type_id, before.c.version == this.c.version - 1)
        query = (
            sa.select(*_NAMED, this, before.c.columns.label("columns_before"))
            .join(schema.event_type, schema.event_type.c.type_id == this.c.type_id)
            .outerjoin(before, is_before)
            .where(this.c.type_id.in_(self._types()), this.c.batch > after)
            .order_by(schema.event_type.c.group_name, schema.event_type.c.type, this.c.version)
        )
        with reading(self.engine) as connection:
            return [_with_gained(dict(row._mapping)) for row in connection.execute(query)]

    def variations(self, after: int = 0) -> list[dict[str, Any]]:
        """The variations with later numbers, by the event of each that came first."""
        this = schema.variation
        query = (
            sa.select(*_NAMED, this)
            .join(schema.event_type, schema.event_type.c.type_id == this.c.type_id)
            .where(this.c.type_id.in_(self._types()), this.c.batch > after)
            .order_by(schema.event_type.c.group_name, schema.event_type.c.type, this.c.first_ts, this.c.typed_hash)
        )
        with reading(self.engine) as connection:
            return [dict(row._mapping) for row in connection.execute(query)]

    def _types(self) -> sa.Select[Any]:
        of_groups = (schema.event_type.c.deployment == self.deployment, schema.event_type.c.group_name.in_(self.groups))
        return sa.select(schema.event_type.c.type_id).where(*of_groups)

    def _has_new(self, connection: Connection) -> bool:
        return any(
            connection.execute(sa.select(1).where(table.c.batch.is_(None), table.c.type_id.in_(self._types())).limit(1)).first()
            for table in NUMBERED
        )  # fmt: skip

    def _newest(self, connection: Connection) -> int:
        found = [connection.scalar(sa.select(sa.func.max(table.c.batch)).where(table.c.type_id.in_(self._types()))) for table in NUMBERED]
        return max((int(one) for one in found if one is not None), default=0)


_NAMED: Collection[sa.Label[Any] | sa.Column[Any]] = (
    schema.event_type.c.group_name.label("group"), schema.event_type.c.type, schema.event_type.c.table_name, schema.event_type.c.home,
)  # fmt: skip


def _with_gained(row: dict[str, Any]) -> dict[str, Any]:
    before = Layout.from_json(row.pop("columns_before") or [])
    return row | {"gained": [name for name, _ in gained(before, Layout.from_json(row["columns"]))]}
