"""By which patterns the groups of a stream share its types, as each group's last settled step had them.

Once they change a group may get types that nobody has read yet, in versions of the stream's table that it has read already.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.store.engine import reading
from lakechime_dagster.store.types import schema

_ROW = schema.group_patterns.c


@dataclass(frozen=True)
class Patterns:
    """By which patterns the groups of one deployment have read: each by those of all groups of its stream, with their names."""

    engine: Engine
    deployment: str

    def are_other(self, group: str, patterns: Iterable[tuple[str, str]]) -> bool:
        """Whether a group's last settled step had other ones than these, or none is known of."""
        with reading(self.engine) as connection:
            return connection.scalar(sa.select(_ROW.patterns).where(*self._is(group))) != dict(patterns)

    def keep(self, connection: Connection, group: str, patterns: Iterable[tuple[str, str]]) -> None:
        """Keep by which patterns a group has read; within the settling transaction."""
        values = {"patterns": dict(patterns)}
        if not connection.execute(sa.update(schema.group_patterns).where(*self._is(group)).values(**values)).rowcount:
            connection.execute(sa.insert(schema.group_patterns).values(deployment=self.deployment, group_name=group, **values))

    def _is(self, group: str) -> tuple[sa.ColumnElement[bool], ...]:
        return (_ROW.deployment == self.deployment, _ROW.group_name == group)
