"""Changes of types that break something, in the store: kept as a step finds them out, told by the one that is settled next."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.schema.breaking import Breaking, Broke
from lakechime_dagster.store.dialect import now_ms
from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.types import schema


@dataclass(frozen=True, kw_only=True)
class KeptBreak:
    """A breaking change as people see it; times are milliseconds of the store's clock."""

    type: str
    breaking: Breaking
    layout_version: int
    made_ts: int


@dataclass(frozen=True)
class Breaks:
    """The breaking changes of the groups of one deployment."""

    engine: Engine
    deployment: str

    def recent(self, group: str, within_ms: int) -> list[KeptBreak]:
        """Those of a group that were told so long ago at most, the first one first."""
        with reading(self.engine) as connection:
            since = now_ms(connection) - within_ms
            return self._read(connection, group, schema.type_break.c.told_ts >= since)

    def of(self, group: str, type_name: str) -> list[KeptBreak]:
        """All of a type, the first one first."""
        with reading(self.engine) as connection:
            return self._read(connection, group, schema.event_type.c.type == type_name)

    def _read(self, connection: Connection, group: str, which: sa.ColumnElement[bool]) -> list[KeptBreak]:
        kind = schema.event_type.c
        query = sa.select(schema.type_break, kind.type).join_from(schema.type_break, schema.event_type)
        rows = query.where(kind.deployment == self.deployment, kind.group_name == group, which).order_by(schema.type_break.c.break_id)
        return [_kept(row) for row in connection.execute(rows)]


def keep_breaks(connection: Connection, type_id: int, layout_version: int, several: Sequence[Breaking], now: int) -> None:
    """Keep what a step found out of a type, in the transaction that keeps its layout."""
    rows = [
        {
            "type_id": type_id, "layout_version": layout_version, "path": one.path, "kind": one.kind, "how": one.how.value,
            "producer": one.producer, "made_ts": now,
        }
        for one in several
    ]  # fmt: skip
    if rows:
        connection.execute(sa.insert(schema.type_break), rows)


def tell_breaks(connection: Connection, deployment: str, group: str, now: int) -> None:
    """From now on what is kept of a group is told; in the transaction that settles a step, also of attempts that died before."""
    kind = schema.event_type.c
    of_group = sa.select(kind.type_id).where(kind.deployment == deployment, kind.group_name == group)
    untold = schema.type_break.c.told_ts.is_(None) & schema.type_break.c.type_id.in_(of_group)
    connection.execute(sa.update(schema.type_break).where(untold).values(told_ts=now))


def _kept(row: Any) -> KeptBreak:
    one = Breaking(path=row.path, kind=row.kind, how=Broke(row.how), producer=row.producer)
    return KeptBreak(type=row.type, breaking=one, layout_version=row.layout_version, made_ts=row.made_ts)
