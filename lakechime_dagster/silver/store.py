"""Types of events in the store: schema versions, variations, outcomes, and what people decide of them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from lakechime_dagster.dce.engine import StoreNow, now_ms, reading, writing
from lakechime_dagster.errors import ConsumerConflictError, NotFoundError, shown
from lakechime_dagster.silver import store_schema
from lakechime_dagster.silver.event import Kind, Variation
from lakechime_dagster.silver.results import AT_ONCE, GroupResult, Replay, Replayed, Reprocessed, TypeResult
from lakechime_dagster.silver.schema import Breaking, Broke, KnownType, Learning, Observed, Seen, TypeCheckpoint, TypeSchema
from lakechime_dagster.tables.events import EventGroup, Hint, owner_of
from lakechime_dagster.triggers.interventions import By

REFUSED, SECONDS = "refused", "seconds"  # the counters of a group


def add_to_type(connection: Connection, type_id: int, one: TypeResult, now: int) -> None:
    """Add what a step did for a type to its sums; what it left where it is makes the type late from now on, unless it is already."""
    kind = store_schema.event_type.c
    sums = {
        "written_sum": kind.written_sum + one.written,
        "rescued_sum": kind.rescued_sum + one.rescued,
        "discarded_sum": kind.discarded_sum + one.discarded,
        "columns_added": kind.columns_added + one.columns_added,
        "failed_steps": kind.failed_steps + (1 if one.error else 0),
    }
    is_late = bool(one.failure or one.pending or one.catches_up)
    waiting: dict[str, Any] = {} if one.failure else {"pending": one.pending, "waits": one.waits}
    waiting |= {} if one.behind is None else {"rows_behind": one.behind}
    late = {"behind_ts": sa.func.coalesce(kind.behind_ts, now) if is_late else None}
    connection.execute(sa.update(store_schema.event_type).where(kind.type_id == type_id).values({**sums, **waiting, **late}))
    for reason, values in one.reasons.items():
        _raise(connection, store_schema.type_rescue, {"type_id": type_id, "reason": reason.value}, values)


def add_to_group(connection: Connection, deployment: str, group: str, result: GroupResult) -> None:
    """Add what a step did for no single type: the rows that it refused by reason, the seconds of its phases."""
    _add(connection, deployment, group, REFUSED, result.refused)
    _add(connection, deployment, group, SECONDS, result.seconds)


def _add(connection: Connection, deployment: str, group: str, counter: str, amounts: Mapping[str, float]) -> None:
    for label, amount in amounts.items():
        key = {"deployment": deployment, "group_name": group, "counter": counter, "label": label}
        _raise(connection, store_schema.group_total, key, amount)


def _raise(connection: Connection, table: sa.Table, key: Mapping[str, Any], amount: float) -> None:
    """Raise the `total` of a row; one step of a group completes at a time, so that nobody else makes the same row meanwhile."""
    this = [table.c[name] == value for name, value in key.items()]
    raised = connection.execute(sa.update(table).where(*this).values(total=table.c.total + amount))
    if not raised.rowcount:
        connection.execute(sa.insert(table).values(**key, total=amount))


@dataclass(frozen=True, kw_only=True)
class KeptBreak:
    """A breaking change as people see it; times are milliseconds of the store's clock."""

    type: str
    breaking: Breaking
    schema_version: int
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
            return self._read(connection, group, store_schema.type_break.c.told_ts >= since)

    def of(self, group: str, type_name: str) -> list[KeptBreak]:
        """All of a type, the first one first."""
        with reading(self.engine) as connection:
            return self._read(connection, group, store_schema.event_type.c.type == type_name)

    def _read(self, connection: Connection, group: str, which: sa.ColumnElement[bool]) -> list[KeptBreak]:
        kind = store_schema.event_type.c
        query = sa.select(store_schema.type_break, kind.type).join_from(store_schema.type_break, store_schema.event_type)
        rows = query.where(kind.deployment == self.deployment, kind.group_name == group, which).order_by(store_schema.type_break.c.break_id)
        return [_kept(row) for row in connection.execute(rows)]


def keep_breaks(connection: Connection, type_id: int, schema_version: int, several: Sequence[Breaking], now: int) -> None:
    """Keep what a step found out of a type, in the transaction that keeps its schema."""
    rows = [
        {
            "type_id": type_id,
            "schema_version": schema_version,
            "path": one.path,
            "kind": one.kind,
            "how": one.how.value,
            "producer": one.producer,
            "made_ts": now,
        }
        for one in several
    ]
    if rows:
        connection.execute(sa.insert(store_schema.type_break), rows)


def tell_breaks(connection: Connection, deployment: str, group: str, now: int) -> None:
    """From now on what is kept of a group is told; in the transaction that completes a step, also of attempts that died before."""
    kind = store_schema.event_type.c
    of_group = sa.select(kind.type_id).where(kind.deployment == deployment, kind.group_name == group)
    untold = store_schema.type_break.c.told_ts.is_(None) & store_schema.type_break.c.type_id.in_(of_group)
    connection.execute(sa.update(store_schema.type_break).where(untold).values(told_ts=now))


def _kept(row: Any) -> KeptBreak:
    one = Breaking(path=row.path, kind=row.kind, how=Broke(row.how), producer=row.producer)
    return KeptBreak(type=row.type, breaking=one, schema_version=row.schema_version, made_ts=row.made_ts)


_OPEN = store_schema.type_replay.c.done_ts.is_(None)


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

    def ask(self, group: str, types: Collection[str], by: By, *, is_rebuild: bool = False) -> list[AskedReplay]:
        """Ask for replays of these types, all or none; of one that has an open one already nothing new.

        A step may be at what is open, and closes only that. So a rebuild takes the checkpoint of an open replay, as another request.

        Raises:
            NotFoundError: a type has no table in the group, so that no step could ever do it.
        """
        with writing(self.engine) as connection:
            now = now_ms(connection)
            may_have = store_schema.event_type.c.schema_version > 0  # a table, of which a store that was lost may not know
            has_table = sa.or_(store_schema.event_type.c.commits > 0, may_have) if is_rebuild else store_schema.event_type.c.commits > 0
            written = (store_schema.event_type.c.type.in_(list(types)), has_table)
            of_types = sa.select(store_schema.event_type).where(*self._is(group), *written).with_for_update()
            known = {row.type: row.type_id for row in connection.execute(of_types)}
            if missing := sorted({*types} - {*known}):
                problem = f"{shown(missing[0])} has no table in event group {group}, so that there is nothing to replay into"
                raise NotFoundError(f"{problem}; see `lakechime schema show {group}`")
            opened = {one.replay.type: one.replay for one in self._asked(connection, group, _OPEN)}
            for name in sorted(types):
                is_less = name in opened and is_rebuild and not opened[name].is_rebuild
                if is_less:
                    self._end(connection, opened[name].replay_id, now, f"{by.who} asked for a rebuild: {by.reason}")
                if is_less or name not in opened:
                    values = {"who": by.who, "reason": by.reason, "asked_ts": now, "is_rebuild": is_rebuild}
                    connection.execute(sa.insert(store_schema.type_replay).values(type_id=known[name], **values))
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
        """The replays that wait for a step of the group, by type."""
        with reading(self.engine) as connection:
            return {one.replay.type: one.replay for one in self._asked(connection, group, _OPEN)}

    def of(self, group: str, type_name: str) -> list[AskedReplay]:
        """All replays of a type, the first one first."""
        with reading(self.engine) as connection:
            return list(self._asked(connection, group, store_schema.event_type.c.type == type_name))

    def _end(self, connection: Connection, replay_id: int, now: int, why: str) -> None:
        """End an open one, of which no step tells any more what came of it."""
        this = (store_schema.type_replay.c.replay_id == replay_id, _OPEN)
        values = {"done_ts": now, "reason": store_schema.type_replay.c.reason + f"; {why}"}
        connection.execute(sa.update(store_schema.type_replay).where(*this).values(**values))

    def _is(self, group: str) -> tuple[sa.ColumnElement[bool], ...]:
        return (store_schema.event_type.c.deployment == self.deployment, store_schema.event_type.c.group_name == group)

    def _asked(self, connection: Connection, group: str, which: sa.ColumnElement[bool]) -> Iterable[AskedReplay]:
        query = (
            sa.select(store_schema.type_replay, store_schema.event_type.c.type).join(store_schema.event_type).where(*self._is(group), which)
        )
        for row in connection.execute(query.order_by(store_schema.type_replay.c.replay_id)):
            counts = {"replaced": row.replaced, "added": row.added, "removed": row.removed or 0}
            yield AskedReplay(
                replay=Replay(replay_id=row.replay_id, type=row.type, is_rebuild=row.is_rebuild),
                who=row.who,
                reason=row.reason,
                asked_ts=row.asked_ts,
                done_ts=row.done_ts,
                done=None if row.replaced is None else Replayed(replay_id=row.replay_id, **counts),
            )


def close(connection: Connection, execution_id: str, several: Iterable[Replayed]) -> None:
    """Keep what came of replays, within the completing transaction; of one that is closed nothing."""
    now = now_ms(connection)
    for one in several:
        this = (store_schema.type_replay.c.replay_id == one.replay_id, _OPEN)
        values = {"replaced": one.replaced, "added": one.added, "removed": one.removed, "execution_id": execution_id, "done_ts": now}
        connection.execute(sa.update(store_schema.type_replay).where(*this).values(**values))


MAX_VARIATIONS = 1_000  # kept of a type; above it only those that enlarge what was observed of it
PAUSES_MS = (10_000, 60_000, 300_000, 900_000)  # before a type that failed is tried again
ENGINE = "lakechime"  # the actor of what no person decided


@dataclass(frozen=True, kw_only=True)
class SchemaVersion:
    """A schema of a type, why it was made, by whom and when."""

    version: int
    schema: TypeSchema
    decision: str
    actor: str
    made_ts: int


@dataclass(frozen=True, kw_only=True)
class LeftType:
    """A type of which events were left, as it failed or catches up.

    Attributes:
        is_due: It is time to read them, which is so from `due_ts` on (milliseconds).
        error: Why it failed; empty where it did not.
    """

    type: str
    has_failed: bool
    is_due: bool
    due_ts: int
    error: str


@dataclass(frozen=True)
class SqlEventTypes:
    """The types of the groups of one deployment; a `schema.repository.SchemaRepository`.

    `beside` are the groups of one stream: of those no two learn of a type that is new, whatever each takes its own to be.
    """

    engine: Engine
    deployment: str
    beside: frozenset[str] = frozenset()

    def types(self, group: str) -> dict[str, KnownType]:
        """What is known of a group's types, by name."""
        with reading(self.engine) as connection:
            rows = list(connection.execute(self._of(group)))
            schemas = {row.type_id: row.columns for row in connection.execute(_newest_schemas().where(*self._is(group)))}
        return {row.type: _known(row, schemas.get(row.type_id, [])) for row in rows}

    def known_names(self) -> set[str]:
        """The types that any group of the stream knows."""
        with reading(self.engine) as connection:
            return self._known_names(connection)

    def register(self, types: Mapping[str, Sequence[KnownType]]) -> None:
        """Keep new types of these groups with their checkpoints, but for those that are known by now; the groups are run for them."""
        with writing(self.engine) as connection:
            self._lock_stream(connection)
            there, now = self._known_names(connection), now_ms(connection)
            rows = [
                self._new_row(group, one, now) | {"due_ts": AT_ONCE}
                for group, several in types.items()
                for one in several
                if one.type not in there
            ]
            if rows:
                connection.execute(sa.insert(store_schema.event_type), rows)

    def variations(self, group: str, types: Collection[str]) -> dict[str, dict[str, Variation]]:
        """The variations of these types that are kept, by hash."""
        found: dict[str, dict[str, Variation]] = {name: {} for name in types}
        kept = sa.select(store_schema.event_type.c.type, store_schema.variation.c.typed_hash, store_schema.variation.c.kinds).join_from(
            store_schema.variation, store_schema.event_type
        )
        with reading(self.engine) as connection:
            for row in connection.execute(kept.where(*self._is(group), store_schema.event_type.c.type.in_(list(types)))):
                found[row.type][row.typed_hash] = _variation(row.kinds)
        return found

    def learn(self, group: str, several: Sequence[Learning]) -> dict[str, int]:
        """Keep what was found out, all or nothing; the number of each type's schema.

        Raises:
            ConsumerConflictError: a type's schema is another one than what was found out was added to.
        """
        versions: dict[str, int] = {}
        with writing(self.engine) as connection:
            now = now_ms(connection)
            for one in several:
                type_id = self._type_id(connection, group, one, now)
                versions[one.type] = _next_schema(connection, type_id, one, now)
                keep_breaks(connection, type_id, versions[one.type], one.breaking, now)
                _keep_variations(connection, type_id, one, now)
        return versions

    def complete(
        self, connection: Connection, group: str, execution_id: str, results: Sequence[TypeResult], uid: str, told: Collection[str] = ()
    ) -> None:
        """Move the checkpoints of the types to where the step brought them, keep its counts and what came of replays; within the completing
        transaction.

        Of the types in `told` people are told now.
        """
        now = now_ms(connection)
        ids = {row.type: row.type_id for row in connection.execute(self._of(group))}
        tell_breaks(connection, self.deployment, group, now)
        several = [ids[name] for name in told if name in ids]
        connection.execute(sa.update(store_schema.event_type).where(_among(store_schema.event_type, several)).values(told_ts=now))
        for one in results:
            type_id = ids.get(one.type)
            if type_id is None:
                continue  # nothing was read of it yet: it waits for a table
            self._move(connection, type_id, one, uid, now)
            close(connection, execution_id, one.replayed)
            add_to_type(connection, type_id, one, now)

    def move(self, groups: Collection[EventGroup], uid: str | None) -> list[str]:
        """Let each type of a stream be of the group that has it by the declaration, with its checkpoint, schemas, replays and sums.

        Done before a step reads what it knows of its types, all in one transaction; again it changes nothing. A table stays where it
        lies. A step of the former group that is under way finds the type gone when it completes, and what it wrote is found in the table.

        Args:
            groups: All of the stream.
            uid: Of the stream's table, by which types of groups that are declared no more are known.

        Returns:
            The types that moved.
        """
        kind, names = store_schema.event_type.c, {group.name for group in groups}
        query = sa.select(kind.type_id, kind.type, kind.group_name, kind.checkpoint_uid, kind.schema_version).order_by(kind.type_id)
        with reading(self.engine) as connection:
            rows = connection.execute(query.where(kind.deployment == self.deployment)).all()
        there = {(row.group_name, row.type) for row in rows}
        of_stream = [row for row in rows if row.group_name in names or (uid is not None and row.checkpoint_uid == uid)]
        moves = [(row, owner_of(groups, row.type).name) for row in of_stream]
        moves = [(row, owner) for row, owner in moves if owner != row.group_name and (owner, row.type) not in there]
        if not moves:
            return []
        with writing(self.engine) as connection:
            return [row.type for row, owner in moves if self._is_moved(connection, row, owner)]

    def _is_moved(self, connection: Connection, row: Any, owner: str) -> bool:
        """Move one type, unless another was first; people are told of it by its new group."""
        kind, hint = store_schema.event_type.c, store_schema.type_hint.c
        same = (kind.type_id == row.type_id, kind.group_name == row.group_name, kind.schema_version == row.schema_version)
        values = {"group_name": owner, "told_ts": 0, "due_ts": AT_ONCE} | ({} if row.schema_version else {"home": owner})
        if not connection.execute(sa.update(store_schema.event_type).where(*same).values(**values)).rowcount:
            return False
        said = (hint.deployment == self.deployment, hint.type == row.type, hint.group_name == row.group_name)
        connection.execute(sa.update(store_schema.type_hint).where(*said).values(group_name=owner))
        return True

    def history(self, group: str, type_name: str) -> list[SchemaVersion]:
        """The schemas of a type, the first one first."""
        query = (
            sa.select(store_schema.schema_version)
            .join(store_schema.event_type)
            .where(*self._is(group), store_schema.event_type.c.type == type_name)
        )
        with reading(self.engine) as connection:
            rows = connection.execute(query.order_by(store_schema.schema_version.c.version))
            return [
                SchemaVersion(
                    version=row.version,
                    schema=TypeSchema.from_json(row.columns),
                    decision=row.decision,
                    actor=row.actor,
                    made_ts=row.made_ts,
                )
                for row in rows
            ]

    def shapes(self, group: str, type_name: str) -> list[dict[str, Any]]:
        """The variations of a type that are kept, the first one first: their hashes, shapes, and where the first event of each is."""
        query = (
            sa.select(store_schema.variation)
            .join(store_schema.event_type)
            .where(*self._is(group), store_schema.event_type.c.type == type_name)
        )
        with reading(self.engine) as connection:
            ordered = query.order_by(store_schema.variation.c.first_ts, store_schema.variation.c.typed_hash)
            return [dict(row._mapping) for row in connection.execute(ordered)]

    def left(self, group: str) -> list[LeftType]:
        """The types of which a step left events that are to be read again though nothing comes, by name."""
        kind = store_schema.event_type.c
        is_due = (kind.due_ts <= StoreNow()).label("is_due")
        query = (
            sa.select(kind.type, kind.failures, kind.due_ts, kind.error, is_due)
            .where(*self._is(group), kind.due_ts > 0)
            .order_by(kind.type)
        )
        with reading(self.engine) as connection:
            return [
                LeftType(type=row.type, has_failed=row.failures > 0, is_due=bool(row.is_due), due_ts=row.due_ts, error=row.error)
                for row in connection.execute(query)
            ]

    def retry(self, group: str, types: Collection[str]) -> list[str]:
        """Let the next execution try these of a group's types that failed, and launch it at once; their names."""
        kind = store_schema.event_type.c
        failed = (*self._is(group), kind.failures > 0, kind.type.in_(list(types)))
        with writing(self.engine) as connection:
            made_due = sa.update(store_schema.event_type).where(*failed).values(due_ts=AT_ONCE).returning(kind.type)
            return sorted(connection.execute(made_due).scalars())

    def _of(self, group: str) -> sa.Select[Any]:
        return sa.select(store_schema.event_type).where(*self._is(group)).order_by(store_schema.event_type.c.type)

    def _is(self, group: str) -> tuple[sa.ColumnElement[bool], ...]:
        return (store_schema.event_type.c.deployment == self.deployment, store_schema.event_type.c.group_name == group)

    def _type_id(self, connection: Connection, group: str, one: Learning, now: int) -> int:
        """The row of a type, held until the transaction ends; made where it is new."""
        home = (store_schema.event_type.c.home == (one.home or group), store_schema.event_type.c.type == one.type)
        this = sa.select(store_schema.event_type).where(store_schema.event_type.c.deployment == self.deployment, *home).with_for_update()
        row = connection.execute(this).one_or_none()
        if row is not None and row.group_name != group:
            raise ConsumerConflictError(f"{group}: {one.type} is a type of {row.group_name} by now; the next attempt leaves it to that")
        if row is not None and row.schema_version != one.before:
            now_is = f"is number {row.schema_version} by now, and was read as {one.before}"
            raise ConsumerConflictError(f"{group}: the schema of {one.type} {now_is}; the next attempt reads it")
        if row is not None:
            return int(row.type_id)
        self._check_new(connection, group, one.type)
        made = connection.execute(
            sa.insert(store_schema.event_type).values(**self._new_row(group, one, now)).returning(store_schema.event_type.c.type_id)
        )
        return int(made.scalar_one())

    def _new_row(self, group: str, one: KnownType | Learning, now: int) -> dict[str, Any]:
        return {
            "deployment": self.deployment,
            "group_name": group,
            "type": one.type,
            "table_name": one.table,
            "observed": {},
            "home": one.home or group,
            "checkpoint_uid": one.checkpoint.uid,
            "checkpoint_version": one.checkpoint.version,
            "first_ts": now,
        }

    def _of_stream(self) -> sa.ColumnElement[bool]:
        kind = store_schema.event_type.c
        return sa.and_(kind.deployment == self.deployment, kind.group_name.in_(sorted(self.beside)))

    def _known_names(self, connection: Connection) -> set[str]:
        return set(connection.execute(sa.select(store_schema.event_type.c.type).where(self._of_stream())).scalars())

    def _lock_stream(self, connection: Connection) -> None:
        """Until the transaction ends no other group of the stream learns of a type that is new."""
        kind = store_schema.event_type.c
        first = sa.select(kind.type_id).where(self._of_stream()).order_by(kind.type_id).limit(1)
        connection.execute(first.with_for_update()).all()

    def _check_new(self, connection: Connection, group: str, type_name: str) -> None:
        """That no other group of the stream knows the type by now; until the transaction ends none learns of it."""
        self._lock_stream(connection)
        theirs = sa.and_(store_schema.event_type.c.type == type_name, store_schema.event_type.c.group_name != group)
        other = connection.scalar(sa.select(store_schema.event_type.c.group_name).where(self._of_stream(), theirs).limit(1))
        if other is not None:
            raise ConsumerConflictError(f"{group}: {type_name} has become a type of {other} meanwhile; the next attempt leaves it to that")

    def _move(self, connection: Connection, type_id: int, one: TypeResult, uid: str, now: int) -> None:
        if one.put_off:
            return
        this = sa.update(store_schema.event_type).where(store_schema.event_type.c.type_id == type_id)
        if one.error:
            failures = connection.execute(
                sa.select(store_schema.event_type.c.failures).where(store_schema.event_type.c.type_id == type_id)
            ).scalar_one()
            pause = PAUSES_MS[min(failures, len(PAUSES_MS) - 1)]
            connection.execute(this.values(failures=failures + 1, due_ts=now + pause, error=one.error[:2000]))
        if one.committed is not None:
            held = store_schema.event_type.c.commits < one.committed.commit_metadata.step
            values = {"commits": one.committed.commit_metadata.step, "commit_ts": now}
            connection.execute(this.where(held).values(checkpoint_uid=uid, checkpoint_version=one.end, **values))
        elif not one.error and not one.pending:
            further = sa.or_(
                store_schema.event_type.c.checkpoint_version < one.end, store_schema.event_type.c.checkpoint_uid.is_distinct_from(uid)
            )
            connection.execute(this.where(further).values(checkpoint_uid=uid, checkpoint_version=one.end))
        if not one.error:
            connection.execute(this.values(failures=0, due_ts=one.due_ts, error=""))


def _next_schema(connection: Connection, type_id: int, one: Learning, now: int) -> int:
    version = _newest(connection, type_id) + 1 if one.is_new_schema else one.before
    this = sa.update(store_schema.event_type).where(store_schema.event_type.c.type_id == type_id)
    observed = _joined(connection, type_id, one.observed)
    connection.execute(this.values(observed=observed, schema_version=version, conflicts=one.schema.variants))
    if one.is_new_schema:
        values = {"columns": one.schema.to_json(), "decision": one.decision, "actor": ENGINE, "made_ts": now}
        connection.execute(sa.insert(store_schema.schema_version).values(type_id=type_id, version=version, **values))
    return version


def _joined(connection: Connection, type_id: int, observed: Observed) -> dict[str, Any]:
    """What was observed with what is kept by now: another attempt may have seen more, of which no schema tells."""
    kept = connection.execute(
        sa.select(store_schema.event_type.c.observed).where(store_schema.event_type.c.type_id == type_id)
    ).scalar_one()
    return _wire(_observed(kept).joined(observed))


def _newest(connection: Connection, type_id: int) -> int:
    """The number of the newest schema, be it one that was proposed and never held."""
    query = sa.select(sa.func.coalesce(sa.func.max(store_schema.schema_version.c.version), 0)).where(
        store_schema.schema_version.c.type_id == type_id
    )
    return int(connection.execute(query).scalar_one())


def _keep_variations(connection: Connection, type_id: int, one: Learning, now: int) -> None:
    """Keep the variations that are not there yet: those that enlarged what was observed, others so far as there is room."""
    of_type = store_schema.variation.c.type_id == type_id
    there = {row.typed_hash for row in connection.execute(sa.select(store_schema.variation.c.typed_hash).where(of_type))}
    new = [shape for shape in one.prototypes if shape.typed_hash not in there]
    kept = new[: max(one.enlarging, MAX_VARIATIONS - len(there))]
    rows = [
        {
            "type_id": type_id,
            "typed_hash": shape.typed_hash,
            "names_hash": shape.names_hash,
            "kinds": sorted(shape.variation.kinds),
            "shape": shape.shape,
            "source": shape.source,
            "position": shape.position,
            "first_ts": now,
        }
        for shape in kept
    ]
    if rows:
        connection.execute(sa.insert(store_schema.variation), rows)
        more = {"variations": store_schema.event_type.c.variations + len(rows)}
        connection.execute(sa.update(store_schema.event_type).where(store_schema.event_type.c.type_id == type_id).values(more))


def _newest_schemas() -> sa.Select[Any]:
    joined = store_schema.schema_version.join(
        store_schema.event_type, store_schema.event_type.c.type_id == store_schema.schema_version.c.type_id
    )
    newest = store_schema.schema_version.c.version == store_schema.event_type.c.schema_version
    return sa.select(store_schema.schema_version.c.type_id, store_schema.schema_version.c.columns).select_from(joined).where(newest)


def _among(table: sa.Table, ids: Sequence[int]) -> sa.ColumnElement[bool]:
    return table.c.type_id.in_(ids)


def _known(row: Any, columns: list[dict[str, Any]]) -> KnownType:
    return KnownType(
        type=row.type,
        table=row.table_name,
        home=row.home,
        checkpoint=TypeCheckpoint(uid=row.checkpoint_uid, version=row.checkpoint_version, commits=row.commits),
        schema=TypeSchema.from_json(columns),
        schema_version=row.schema_version,
        observed=_observed(row.observed),
        failures=row.failures,
        due_ts=row.due_ts,
        error=row.error,
        told_ts=row.told_ts,
        pending=row.pending,
        waits=row.waits,
        written=row.written_sum,
        rescued=row.rescued_sum,
        discarded=row.discarded_sum,
    )


def _wire(observed: Observed) -> dict[str, Any]:
    return {path: [sorted(seen.kinds), seen.first, seen.last] for path, seen in observed.paths.items()}


def _observed(wire: dict[str, Any]) -> Observed:
    return Observed({path: Seen(frozenset(map(Kind, kinds)), first, last) for path, (kinds, first, last) in wire.items()})


def _variation(kinds: list[list[str]]) -> Variation:
    return Variation(frozenset((path, Kind(kind)) for path, kind in kinds))


@dataclass(frozen=True, kw_only=True)
class TypesAt:
    """So many types at one checkpoint, of which one is named; how many commits each has is its own."""

    checkpoint: TypeCheckpoint
    types: int
    example: str


def checkpoints_of(engine: Engine, deployment: str, group: str) -> list[TypesAt]:
    """The checkpoints at which types of a group stand, the oldest first."""
    at = (store_schema.event_type.c.checkpoint_uid, store_schema.event_type.c.checkpoint_version)
    counted = sa.select(*at, sa.func.count().label("types"), sa.func.min(store_schema.event_type.c.type).label("example"))
    of_group = (store_schema.event_type.c.deployment == deployment, store_schema.event_type.c.group_name == group)
    with reading(engine) as connection:
        rows = connection.execute(counted.where(*of_group).group_by(*at).order_by(store_schema.event_type.c.checkpoint_version, "example"))
        return [
            TypesAt(checkpoint=TypeCheckpoint(uid=row.checkpoint_uid, version=row.checkpoint_version), types=row.types, example=row.example)
            for row in rows
        ]


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
            connection.execute(sa.update(store_schema.type_hint).where(*self._same(group, hint.type, hint.of)).values(ended_ts=now))
            values = {"type": hint.type, "of": hint.of, "says": hint.says, "who": by.who, "reason": by.reason, "made_ts": now}
            connection.execute(sa.insert(store_schema.type_hint).values(deployment=self.deployment, group_name=group, **values))

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
                connection.execute(sa.update(store_schema.type_hint).where(*same).values(ended_ts=now_ms(connection)))

    def holding(self, group: str) -> list[Hint]:
        """What holds by now."""
        return [one.hint for one in self.said(group) if one.ended_ts is None]

    def said(self, group: str, type_name: str | None = None) -> list[SaidHint]:
        """All that was said of a group's types, or of one of them, the first one first."""
        of_group: list[sa.ColumnElement[bool]] = [
            store_schema.type_hint.c.deployment == self.deployment,
            store_schema.type_hint.c.group_name == group,
        ]
        of_type = [] if type_name is None else [store_schema.type_hint.c.type == type_name]
        query = sa.select(store_schema.type_hint).where(*of_group, *of_type).order_by(store_schema.type_hint.c.hint_id)
        with reading(self.engine) as connection:
            return [_said(row) for row in connection.execute(query)]

    def _same(self, group: str, type_name: str, of: str) -> tuple[sa.ColumnElement[bool], ...]:
        hint = store_schema.type_hint.c
        return (
            hint.deployment == self.deployment,
            hint.group_name == group,
            hint.type == type_name,
            hint.of == of,
            hint.ended_ts.is_(None),
        )


def _said(row: Any) -> SaidHint:
    hint = Hint(type=row.type, of=row.of, says=row.says)
    return SaidHint(hint=hint, who=row.who, reason=row.reason, made_ts=row.made_ts, ended_ts=row.ended_ts)


_DECISIONS_OPEN = store_schema.stream_reprocess.c.done_ts.is_(None)


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
            connection.execute(sa.insert(store_schema.stream_reprocess).values(**named, **values))
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
                raise NotFoundError(f"no request to reprocess {table} is open; see `lakechime schema show --quarantine`")
            if not dry_run:
                this = (store_schema.stream_reprocess.c.reprocess_id == opened.reprocess_id, _DECISIONS_OPEN)
                reason = store_schema.stream_reprocess.c.reason + f"; cancelled by {by.who}: {by.reason}"
                connection.execute(sa.update(store_schema.stream_reprocess).where(*this).values(done_ts=now_ms(connection), reason=reason))
            return opened.reprocess_id

    def close(self, execution_id: str, done: Reprocessed) -> None:
        """Record what an execution did for a request; nothing where that is closed already."""
        this = (store_schema.stream_reprocess.c.reprocess_id == done.reprocess_id, _DECISIONS_OPEN)
        with writing(self.engine) as connection:
            values = {"rows": done.rows, "execution_id": execution_id, "done_ts": now_ms(connection)}
            connection.execute(sa.update(store_schema.stream_reprocess).where(*this).values(**values))

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
        return next(iter(self._asked(connection, table, _DECISIONS_OPEN)), None)

    def _asked(self, connection: Connection, table: str, *which: sa.ColumnElement[bool]) -> list[AskedReprocess]:
        reprocess = store_schema.stream_reprocess
        of_stream = (reprocess.c.deployment == self.deployment, reprocess.c.table_name == table)
        query = sa.select(reprocess).where(*of_stream, *which).order_by(reprocess.c.reprocess_id)
        return [
            AskedReprocess(
                reprocess_id=row.reprocess_id, who=row.who, reason=row.reason, asked_ts=row.asked_ts, done_ts=row.done_ts, rows=row.rows
            )
            for row in connection.execute(query)
        ]
