"""Drains in the store: who wants refused events of a stream to be looked at again, and what came of it."""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.errors import NotFoundError
from lakechime_dagster.schema.replay import Drained
from lakechime_dagster.store.dialect import now_ms
from lakechime_dagster.store.engine import reading, writing
from lakechime_dagster.store.interventions import By
from lakechime_dagster.store.types import schema

_OPEN = schema.stream_drain.c.done_ts.is_(None)


@dataclass(frozen=True, kw_only=True)
class AskedDrain:
    """A drain as people see it; `done_ts` is None while it is open, `rows` also where it was cancelled."""

    drain_id: int
    who: str
    reason: str
    asked_ts: int
    done_ts: int | None = None
    rows: int | None = None


@dataclass(frozen=True)
class Drains:
    """The drains of the streams of one deployment, each named by its table."""

    engine: Engine
    deployment: str

    def ask(self, table: str, by: By) -> AskedDrain:
        """Ask for a drain; where one is open already, nothing new."""
        with writing(self.engine) as connection:
            if (opened := self._opened(connection, table)) is not None:
                return opened
            values = {"who": by.who, "reason": by.reason, "asked_ts": now_ms(connection)}
            named = {"deployment": self.deployment, "table_name": table}
            connection.execute(sa.insert(schema.stream_drain).values(**named, **values))
            asked = self._opened(connection, table)
        assert asked is not None
        return asked

    def cancel(self, table: str, by: By, *, dry_run: bool = False) -> int:
        """End an open drain without doing it, and tell its number; a step that is at it already may still do it.

        Raises:
            NotFoundError: none is open.
        """
        with writing(self.engine) as connection:
            opened = self._opened(connection, table)
            if opened is None:
                raise NotFoundError(f"no drain of {table} is open; see `lakechime schema quarantine`")
            if not dry_run:
                this = (schema.stream_drain.c.drain_id == opened.drain_id, _OPEN)
                reason = schema.stream_drain.c.reason + f"; cancelled by {by.who}: {by.reason}"
                connection.execute(sa.update(schema.stream_drain).where(*this).values(done_ts=now_ms(connection), reason=reason))
            return opened.drain_id

    def open(self, table: str) -> int | None:
        """The number of the drain that waits for a step of the stream; None where none does."""
        with reading(self.engine) as connection:
            opened = self._opened(connection, table)
        return None if opened is None else opened.drain_id

    def of(self, table: str) -> list[AskedDrain]:
        """All drains of a stream, the first one first."""
        with reading(self.engine) as connection:
            return self._asked(connection, table)

    def _opened(self, connection: Connection, table: str) -> AskedDrain | None:
        return next(iter(self._asked(connection, table, _OPEN)), None)

    def _asked(self, connection: Connection, table: str, *which: sa.ColumnElement[bool]) -> list[AskedDrain]:
        drain = schema.stream_drain
        query = (
            sa.select(drain).where(drain.c.deployment == self.deployment, drain.c.table_name == table, *which).order_by(drain.c.drain_id)
        )
        return [
            AskedDrain(
                drain_id=row.drain_id, who=row.who, reason=row.reason, asked_ts=row.asked_ts, done_ts=row.done_ts, rows=row.rows
            )
            for row in connection.execute(query)
        ]  # fmt: skip


def close(connection: Connection, execution_id: str, done: Drained) -> None:
    """Keep what came of a drain, within the settling transaction; of one that is closed nothing."""
    this = (schema.stream_drain.c.drain_id == done.drain_id, _OPEN)
    values = {"rows": done.rows, "execution_id": execution_id, "done_ts": now_ms(connection)}
    connection.execute(sa.update(schema.stream_drain).where(*this).values(**values))
