"""Replays in the store: who asked for one, which are open, and what came of each."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.errors import NotFoundError, shown
from lakechime_dagster.schema.replay import Replay, Replayed
from lakechime_dagster.store import event_schema as schema
from lakechime_dagster.store.dialect import now_ms
from lakechime_dagster.store.engine import reading, writing
from lakechime_dagster.store.interventions import By


@dataclass(frozen=True, kw_only=True)
class AskedReplay:
    """A replay as people see it; `done` is None while it is open."""

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

    def ask(self, group: str, types: Collection[str], by: By, *, is_whole: bool = False) -> list[AskedReplay]:
        """Ask for replays of these types, all or none; of one that has an open one already nothing new, but it becomes whole if asked to.

        Raises:
            NotFoundError: no event of a type has come to the group.
        """
        with writing(self.engine) as connection:
            now = now_ms(connection)
            known = {row.type: row.type_id for row in connection.execute(self._types(group, types).with_for_update())}
            for name in sorted(types):
                if name not in known:
                    remedy = f"see `lakechime schema list {group}`"
                    raise NotFoundError(f"no event of type {shown(name)} has come to event group {group}; {remedy}")
                this = (schema.type_replay.c.type_id == known[name], schema.type_replay.c.done_ts.is_(None))
                row = connection.execute(sa.select(schema.type_replay).where(*this)).one_or_none()
                if row is None:
                    values = {"who": by.who, "reason": by.reason, "asked_ts": now, "is_whole": is_whole}
                    connection.execute(sa.insert(schema.type_replay).values(type_id=known[name], **values))
                elif is_whole and not row.is_whole:
                    connection.execute(sa.update(schema.type_replay).where(*this).values(is_whole=True))
            return [one for one in self._asked(connection, group) if one.replay.type in types and one.done_ts is None]

    def open(self, group: str) -> dict[str, Replay]:
        """The replays that wait for a step of the group, by type."""
        with reading(self.engine) as connection:
            return {one.replay.type: one.replay for one in self._asked(connection, group) if one.done_ts is None}

    def of(self, group: str) -> list[AskedReplay]:
        """All replays of a group, the first one first."""
        with reading(self.engine) as connection:
            return list(self._asked(connection, group))

    def _types(self, group: str, types: Collection[str]) -> sa.Select[Any]:
        of_group = (schema.event_type.c.deployment == self.deployment, schema.event_type.c.group_name == group)
        return sa.select(schema.event_type).where(*of_group, schema.event_type.c.type.in_(list(types)))

    def _asked(self, connection: Connection, group: str) -> Iterable[AskedReplay]:
        of_group = (schema.event_type.c.deployment == self.deployment, schema.event_type.c.group_name == group)
        query = sa.select(schema.type_replay, schema.event_type.c.type).join(schema.event_type).where(*of_group)
        for row in connection.execute(query.order_by(schema.type_replay.c.replay_id)):
            done = None if row.done_ts is None else Replayed(replay_id=row.replay_id, replaced=row.replaced, added=row.added)
            yield AskedReplay(
                replay=Replay(replay_id=row.replay_id, type=row.type, is_whole=row.is_whole), who=row.who, reason=row.reason,
                asked_ts=row.asked_ts, done_ts=row.done_ts, done=done,
            )  # fmt: skip


def close(connection: Connection, execution_id: str, several: Iterable[Replayed]) -> None:
    """Keep what came of replays, within the settling transaction; of one that is closed nothing."""
    now = now_ms(connection)
    for one in several:
        this = (schema.type_replay.c.replay_id == one.replay_id, schema.type_replay.c.done_ts.is_(None))
        values = {"replaced": one.replaced, "added": one.added, "execution_id": execution_id, "done_ts": now}
        connection.execute(sa.update(schema.type_replay).where(*this).values(**values))
