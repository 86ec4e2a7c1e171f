"""What people decide of types and streams, in the store: hints beside what is declared, and reprocessing of what was refused."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.errors import NotFoundError, shown
from lakechime_dagster.lake.contracts import Hint
from lakechime_dagster.schema.steps import Reprocessed
from lakechime_dagster.store.dialect import now_ms
from lakechime_dagster.store.engine import reading, writing
from lakechime_dagster.store.interventions import By
from lakechime_dagster.store.types import schema


@dataclass(frozen=True, kw_only=True)
class SaidHint:
    """A hint as people see it; `ended_ts` is None while it holds."""

    hint: Hint
    who: str
    reason: str
    made_ts: int
    ended_ts: int | None = None


@dataclass(frozen=True)
class Hints:
    """The hints to the types of the groups of one deployment; of a type and what it is of the newest holds."""

    engine: Engine
    deployment: str

    def say(self, group: str, hint: Hint, by: By) -> None:
        """From now on this holds, in place of what was said of the same before."""
        with writing(self.engine) as connection:
            now = now_ms(connection)
            connection.execute(sa.update(schema.type_hint).where(*self._same(group, hint.type, hint.of)).values(ended_ts=now))
            values = {"type": hint.type, "of": hint.of, "says": hint.says, "who": by.who, "reason": by.reason, "made_ts": now}
            connection.execute(sa.insert(schema.type_hint).values(deployment=self.deployment, group_name=group, **values))

    def end(self, group: str, type_name: str, of: str, *, dry_run: bool = False) -> None:
        """From now on what is declared holds again; a dry run looks only whether it would.

        Raises:
            NotFoundError: nothing is said of it.
        """
        same = self._same(group, type_name, of)
        if not any(one.type == type_name and one.of == of for one in self.holding(group)):
            what = f"{shown(of)} of {shown(type_name)}"
            raise NotFoundError(f"nothing is said of {what} beside what is declared; see `lakechime schema show`")
        if not dry_run:
            with writing(self.engine) as connection:
                connection.execute(sa.update(schema.type_hint).where(*same).values(ended_ts=now_ms(connection)))

    def holding(self, group: str) -> list[Hint]:
        """What holds by now."""
        return [one.hint for one in self.said(group) if one.ended_ts is None]

    def said(self, group: str, type_name: str | None = None) -> list[SaidHint]:
        """All that was said of a group's types, or of one of them, the first one first."""
        of_group: list[sa.ColumnElement[bool]] = [schema.type_hint.c.deployment == self.deployment, schema.type_hint.c.group_name == group]
        of_type = [] if type_name is None else [schema.type_hint.c.type == type_name]
        query = sa.select(schema.type_hint).where(*of_group, *of_type).order_by(schema.type_hint.c.hint_id)
        with reading(self.engine) as connection:
            return [_said(row) for row in connection.execute(query)]

    def _same(self, group: str, type_name: str, of: str) -> tuple[sa.ColumnElement[bool], ...]:
        hint = schema.type_hint.c
        return (
            hint.deployment == self.deployment, hint.group_name == group, hint.type == type_name, hint.of == of, hint.ended_ts.is_(None),
        )  # fmt: skip


def _said(row: Any) -> SaidHint:
    hint = Hint(type=row.type, of=row.of, says=row.says)
    return SaidHint(hint=hint, who=row.who, reason=row.reason, made_ts=row.made_ts, ended_ts=row.ended_ts)


_OPEN = schema.stream_reprocess.c.done_ts.is_(None)


@dataclass(frozen=True, kw_only=True)
class AskedReprocess:
    """A request to reprocess as people see it; `done_ts` is None while it is open, `rows` also where it was cancelled."""

    reprocess_id: int
    who: str
    reason: str
    asked_ts: int
    done_ts: int | None = None
    rows: int | None = None


@dataclass(frozen=True)
class Reprocesses:
    """The requests to reprocess of the streams of one deployment, each named by its table."""

    engine: Engine
    deployment: str

    def ask(self, table: str, by: By) -> AskedReprocess:
        """Ask for one; where one is open already, nothing new."""
        with writing(self.engine) as connection:
            if (opened := self._opened(connection, table)) is not None:
                return opened
            values = {"who": by.who, "reason": by.reason, "asked_ts": now_ms(connection)}
            named = {"deployment": self.deployment, "table_name": table}
            connection.execute(sa.insert(schema.stream_reprocess).values(**named, **values))
            asked = self._opened(connection, table)
        assert asked is not None
        return asked

    def cancel(self, table: str, by: By, *, dry_run: bool = False) -> int:
        """End an open request without doing it, and tell its number; a step that is at it already may still do it.

        Raises:
            NotFoundError: none is open.
        """
        with writing(self.engine) as connection:
            opened = self._opened(connection, table)
            if opened is None:
                raise NotFoundError(f"no request to reprocess {table} is open; see `lakechime schema quarantine`")
            if not dry_run:
                this = (schema.stream_reprocess.c.reprocess_id == opened.reprocess_id, _OPEN)
                reason = schema.stream_reprocess.c.reason + f"; cancelled by {by.who}: {by.reason}"
                connection.execute(sa.update(schema.stream_reprocess).where(*this).values(done_ts=now_ms(connection), reason=reason))
            return opened.reprocess_id

    def open(self, table: str) -> int | None:
        """The number of the request that waits for a step of the stream; None where none does."""
        with reading(self.engine) as connection:
            opened = self._opened(connection, table)
        return None if opened is None else opened.reprocess_id

    def of(self, table: str) -> list[AskedReprocess]:
        """All requests of a stream, the first one first."""
        with reading(self.engine) as connection:
            return self._asked(connection, table)

    def _opened(self, connection: Connection, table: str) -> AskedReprocess | None:
        return next(iter(self._asked(connection, table, _OPEN)), None)

    def _asked(self, connection: Connection, table: str, *which: sa.ColumnElement[bool]) -> list[AskedReprocess]:
        reprocess = schema.stream_reprocess
        of_stream = (reprocess.c.deployment == self.deployment, reprocess.c.table_name == table)
        query = sa.select(reprocess).where(*of_stream, *which).order_by(reprocess.c.reprocess_id)
        return [
            AskedReprocess(
                reprocess_id=row.reprocess_id, who=row.who, reason=row.reason, asked_ts=row.asked_ts, done_ts=row.done_ts, rows=row.rows
            )
            for row in connection.execute(query)
        ]  # fmt: skip


def close_reprocess(connection: Connection, execution_id: str, done: Reprocessed) -> None:
    """Keep what came of a request to reprocess, within the settling transaction; of one that is closed nothing."""
    this = (schema.stream_reprocess.c.reprocess_id == done.reprocess_id, _OPEN)
    values = {"rows": done.rows, "execution_id": execution_id, "done_ts": now_ms(connection)}
    connection.execute(sa.update(schema.stream_reprocess).where(*this).values(**values))
