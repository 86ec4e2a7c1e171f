"""Replays in the store: who asked for one, which are open, and what came of each."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.errors import NotFoundError, shown
from lakechime_dagster.schema.replay import Replay, Replayed
from lakechime_dagster.store.dialect import now_ms
from lakechime_dagster.store.engine import reading, writing
from lakechime_dagster.store.interventions import By
from lakechime_dagster.store.types import schema

_OPEN = schema.type_replay.c.done_ts.is_(None)


@dataclass(frozen=True, kw_only=True)
class AskedReplay:
    """A replay as people see it; `done_ts` is None while it is open, `done` also where it was cancelled."""

    replay: Replay
    who: str
    reason: str
    asked_ts: int
    done_ts: int | None = None
    done: Replayed | None = None


@dataclass(frozen=True)
class Replays:
    """The replays of the groups of one deployment."""

    engine: Engine
    deployment: str

    def ask(self, group: str, types: Collection[str], by: By, *, is_whole: bool = False, is_rebuild: bool = False) -> list[AskedReplay]:
        """Ask for replays of these types, all or none; of one that has an open one already nothing new.

        A step may be at what is open, and closes only that. So a whole replay takes the place of an open one that is none, as another
        one; and a rebuild is asked for beside an open replay, and done first.

        Raises:
            NotFoundError: a type has no table in the group, so that no step could ever do it.
        """
        with writing(self.engine) as connection:
            now = now_ms(connection)
            may_have = schema.event_type.c.layout_version > 0  # a table, of which a store that was lost may not know
            has_table = sa.or_(schema.event_type.c.commits > 0, may_have) if is_rebuild else schema.event_type.c.commits > 0
            written = (schema.event_type.c.type.in_(list(types)), has_table)
            of_types = sa.select(schema.event_type).where(*self._is(group), *written).with_for_update()
            known = {row.type: row.type_id for row in connection.execute(of_types)}
            if missing := sorted({*types} - {*known}):
                problem = f"{shown(missing[0])} has no table in event group {group}, so that there is nothing to replay into"
                raise NotFoundError(f"{problem}; see `lakechime schema list {group}`")
            opened = {one.replay.type: one.replay for one in self._asked(connection, group, _OPEN)}
            for name in sorted(types):
                is_less = name in opened and is_whole and not (opened[name].is_whole or opened[name].is_rebuild)
                if is_less:
                    self._end(connection, opened[name].replay_id, now, f"{by.who} asked for a whole one: {by.reason}")
                if is_less or name not in opened or (is_rebuild and not opened[name].is_rebuild):
                    values = {"who": by.who, "reason": by.reason, "asked_ts": now, "is_whole": is_whole, "is_rebuild": is_rebuild}
                    connection.execute(sa.insert(schema.type_replay).values(type_id=known[name], **values))
            asked = {one.replay.type: one for one in self._asked(connection, group, _OPEN)}
            return [asked[name] for name in sorted(types)]

    def cancel(self, group: str, type_name: str, by: By, *, dry_run: bool = False) -> int:
        """End an open replay without doing it, and tell its number; a step that is at it already may still do it.

        Raises:
            NotFoundError: none is open.
        """
        asked = self.open(group).get(type_name)
        if asked is None:
            raise NotFoundError(f"no replay of {shown(type_name)} is open; see `lakechime schema show`")
        if not dry_run:
            with writing(self.engine) as connection:
                self._end(connection, asked.replay_id, now_ms(connection), f"cancelled by {by.who}: {by.reason}")
        return asked.replay_id

    def open(self, group: str) -> dict[str, Replay]:
        """The replays that wait for a step of the group, by type; of two of a type the newer, which is a rebuild."""
        with reading(self.engine) as connection:
            return {one.replay.type: one.replay for one in self._asked(connection, group, _OPEN)}

    def of(self, group: str, type_name: str) -> list[AskedReplay]:
        """All replays of a type, the first one first."""
        with reading(self.engine) as connection:
            return list(self._asked(connection, group, schema.event_type.c.type == type_name))

    def _end(self, connection: Connection, replay_id: int, now: int, why: str) -> None:
        """End an open one, of which no step tells any more what came of it."""
        this = (schema.type_replay.c.replay_id == replay_id, _OPEN)
        values = {"done_ts": now, "reason": schema.type_replay.c.reason + f"; {why}"}
        connection.execute(sa.update(schema.type_replay).where(*this).values(**values))

    def _is(self, group: str) -> tuple[sa.ColumnElement[bool], ...]:
        return (schema.event_type.c.deployment == self.deployment, schema.event_type.c.group_name == group)

    def _asked(self, connection: Connection, group: str, which: sa.ColumnElement[bool]) -> Iterable[AskedReplay]:
        query = sa.select(schema.type_replay, schema.event_type.c.type).join(schema.event_type).where(*self._is(group), which)
        for row in connection.execute(query.order_by(schema.type_replay.c.replay_id)):
            counts = {"replaced": row.replaced, "added": row.added, "removed": row.removed or 0}
            yield AskedReplay(
                replay=Replay(replay_id=row.replay_id, type=row.type, is_whole=row.is_whole, is_rebuild=row.is_rebuild), who=row.who,
                reason=row.reason, asked_ts=row.asked_ts, done_ts=row.done_ts,
                done=None if row.replaced is None else Replayed(replay_id=row.replay_id, **counts),
            )  # fmt: skip


def close(connection: Connection, execution_id: str, several: Iterable[Replayed]) -> None:
    """Keep what came of replays, within the settling transaction; of one that is closed nothing."""
    now = now_ms(connection)
    for one in several:
        this = (schema.type_replay.c.replay_id == one.replay_id, _OPEN)
        values = {"replaced": one.replaced, "added": one.added, "removed": one.removed, "execution_id": execution_id, "done_ts": now}
        connection.execute(sa.update(schema.type_replay).where(*this).values(**values))
